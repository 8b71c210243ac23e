//! The real broker with a real cage: commands, terminals, viewers, ends.

#[path = "rig/broker.rs"]
mod rig;

use cage::launch::Clocks;
use rig::{Plan, Rig, on_terminal, shell};
use wire::broker::{BrokerExec, BrokerNotice, BrokerRequest};
use wire::frame::{Close, CloseReason, Frame, Mode};
use wire::{AttachOptions, Cause, EventBody, History, Join, Role, ScrollbackForm, Size, View};

fn runner() -> AttachOptions {
    AttachOptions { runner: true, viewer: "run".to_owned(), ..AttachOptions::default() }
}

fn named(name: &str) -> AttachOptions {
    AttachOptions { viewer: name.to_owned(), ..AttachOptions::default() }
}

fn close_of(frame: &Frame) -> Option<Close> {
    match frame {
        Frame::Close(close) => Some(close.clone()),
        _ => None,
    }
}

#[test]
fn exit_7_over_pipes_with_an_attached_runner() {
    let mut rig = Rig::ready();
    let exec = BrokerExec { hold: true, ..shell("echo out; echo err >&2; exit 7") };
    let pty = rig.exec(true, &exec);
    let mut client = rig.attach(pty, runner());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let close = loop {
        match client.next().expect("a close before the end") {
            Frame::Hello(hello) => {
                assert_eq!((hello.mode, hello.role), (Mode::Pipes, Role::Writer))
            }
            Frame::Out(bytes) => out.extend(bytes),
            Frame::Err(bytes) => err.extend(bytes),
            Frame::Close(close) => break close,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((out.as_slice(), err.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
    assert_eq!(close.reason, CloseReason::Exited);
    assert_eq!(close.exit.unwrap().status(), 7);
    assert_eq!(client.next(), None);
    let exit = rig.end();
    assert_eq!((exit.code, exit.cause), (Some(7), Cause::Exited));
    assert!(rig.gone());
}

#[test]
fn exit_7_over_a_terminal_with_an_attached_viewer() {
    let mut rig = Rig::ready();
    let exec = BrokerExec { hold: true, ..on_terminal("stty size; tty; exit 7") };
    let pty = rig.exec(true, &exec);
    let options = AttachOptions { size: Some(Size { cols: 91, rows: 31 }), ..runner() };
    let mut client = rig.attach(pty, options);
    let text = client.until_text("/dev/pts/0\r\n");
    assert!(text.contains("31 91\r\n"), "held until its viewer's size was known: {text:?}");
    let close = client.until(close_of);
    assert_eq!((close.reason, close.exit.unwrap().status()), (CloseReason::Exited, 7));
    assert_eq!(rig.end().code, Some(7));
    assert!(rig.gone());
}
