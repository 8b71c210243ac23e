//! The real program on a real PTY or pipe, against a fake sessiond and broker: what the operator's
//! terminal is sent, what the broker is sent, and that the terminal is as it was afterwards.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails says where"
)]

mod fake;
mod operator;

use fake::Fake;
use operator::{Operator, Piped};
use wire::frame::{Close, CloseReason, Frame, Mode};
use wire::{Cause, Exit, Size, Usage};

const SCREEN: &[u8] = b"\x1b[?1049h\x1b[?1006h\x1b[?1002h\x1b[?25l\x1b[2J\x1b[Hpainted";
const UNDONE: &str = "\x1b[?25h\x1b[?1002l\x1b[?1006l\x1b[?1049l\x1b[0m";

fn exit(code: u8) -> Frame {
    let exit = Exit {
        code: Some(code),
        signal: None,
        core: false,
        cause: Cause::Exited,
        message: None,
        usage: Usage::default(),
    };
    Frame::Close(Close { reason: CloseReason::Exited, exit: Some(exit) })
}

fn detached() -> Frame {
    Frame::Close(Close { reason: CloseReason::Detached, exit: None })
}

fn snapshot() -> Frame {
    Frame::Snapshot { seq: 0, size: Size { cols: 80, rows: 24 }, bytes: SCREEN.to_vec() }
}

/// Attached, and the screen is painted.
fn attached() -> (Fake, Operator, fake::Stream) {
    let fake = Fake::new();
    let operator = Operator::types(&fake, &["attach", "pi-1"]);
    let mut broker = fake.viewer();
    broker.hello(Mode::Terminal);
    broker.send(&snapshot());
    operator.sees("painted");
    assert!(!operator.terminal_is_sane(), "raw while attached");
    (fake, operator, broker)
}

#[test]
fn detach_keys_leave_and_undo_what_the_program_switched_on() {
    let (_fake, mut operator, mut broker) = attached();
    operator.keys(b"ls\x1c");
    assert_eq!(broker.next_input(), b"ls");
    operator.keys(b"\x04");
    assert_eq!(broker.next(), Some(detached()));
    broker.send(&detached());
    operator.sees(UNDONE);
    operator.sees("mews attach pi-1");
    assert_eq!(operator.exit_status(), 0);
    assert!(operator.terminal_is_sane());
}

#[test]
fn an_exit_gives_its_status_after_all_output() {
    let (_fake, mut operator, mut broker) = attached();
    broker.send(&Frame::Output { seq: 0, bytes: b"\x1b[?1049lgood bye".to_vec() });
    broker.send(&exit(7));
    operator.sees("good bye");
    assert_eq!(operator.exit_status(), 7);
    assert!(operator.terminal_is_sane());
}

#[test]
fn a_broker_that_dies_gives_the_terminal_back() {
    let (fake, mut operator, broker) = attached();
    drop(broker);
    operator.sees(UNDONE);
    for _again in 1..5 {
        let mut broker = fake.viewer();
        broker.hello(Mode::Terminal);
    }
    operator.sees("connection to the terminal was lost");
    assert_eq!(operator.exit_status(), 125);
    assert!(operator.terminal_is_sane());
}

#[test]
fn a_lost_connection_to_a_program_that_lives_is_made_again() {
    let (fake, mut operator, broker) = attached();
    drop(broker);
    operator.sees("attaching again");
    let mut broker = fake.viewer();
    broker.hello(Mode::Terminal);
    broker.send(&Frame::Output { seq: 0, bytes: b"there again".to_vec() });
    operator.sees("there again");
    operator.keys(b"ls");
    assert_eq!(broker.next_input(), b"ls");
    broker.send(&exit(7));
    assert_eq!(operator.exit_status(), 7);
    assert!(operator.terminal_is_sane());
}

#[test]
fn nonsense_from_the_broker_gives_the_terminal_back() {
    let (_fake, mut operator, mut broker) = attached();
    broker.raw(&[99, 0, 0, 0, 0]);
    operator.sees(UNDONE);
    assert_eq!(operator.exit_status(), 125);
    assert!(operator.terminal_is_sane());
}

#[test]
fn sigterm_and_sighup_give_the_terminal_back() {
    for (signal, status) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let (_fake, mut operator, _broker) = attached();
        operator.signal(signal);
        operator.sees(UNDONE);
        assert_eq!(operator.exit_status(), status);
        assert!(operator.terminal_is_sane());
    }
}

#[test]
fn a_window_change_is_told_and_observers_tell_nothing() {
    let (_fake, mut operator, mut broker) = attached();
    operator.resize(Size { cols: 100, rows: 30 });
    assert_eq!(broker.next(), Some(Frame::Resize(Size { cols: 100, rows: 30 })));
    let observer = wire::frame::RoleChange { role: wire::Role::Observer, by: Some("bob".into()) };
    broker.send(&Frame::Role(observer));
    operator.sees("bob has taken the keyboard");
    operator.keys(b"x");
    operator.keys(b"\x1c\x04");
    assert_eq!(broker.next(), Some(detached()), "an observer's keys go nowhere");
    broker.send(&detached());
    assert_eq!(operator.exit_status(), 0);
}

#[test]
fn pipes_carry_every_byte_within_the_window() {
    let fake = Fake::new();
    let input: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut piped = Piped::runs(&fake, &["run", "--", "cat"], input.clone());
    piped.reads();
    let mut broker = fake.viewer();
    broker.hello(Mode::Pipes);
    let mut got = Vec::new();
    loop {
        match broker.next() {
            Some(Frame::Stdin(bytes)) => {
                got.extend_from_slice(&bytes);
                broker.send(&Frame::Out(bytes));
                broker.send(&Frame::Ack(got.len() as u64));
            }
            Some(Frame::StdinEof) => break,
            other => panic!("not expected: {other:?}"),
        }
    }
    assert!(got == input, "standard input came whole");
    broker.send(&Frame::Err(b"warned".to_vec()));
    broker.send(&exit(3));
    let output = piped.output();
    assert!(output.stdout == input, "standard output went whole");
    assert_eq!(output.stderr, b"warned");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn standard_input_waits_for_its_acknowledgement() {
    let fake = Fake::new();
    let mut piped = Piped::runs(&fake, &["run", "--", "sleep"], vec![b'x'; 1_000_000]);
    let mut broker = fake.viewer();
    broker.hello(Mode::Pipes);
    let mut sent = 0;
    while sent < wire::frame::STDIN_WINDOW {
        let Some(Frame::Stdin(bytes)) = broker.next() else { panic!("no input") };
        sent += bytes.len() as u64;
    }
    assert_eq!(sent, wire::frame::STDIN_WINDOW);
    broker.send(&Frame::Ping);
    assert_eq!(broker.next(), Some(Frame::Pong), "nothing beyond the window");
    broker.send(&exit(0));
    assert_eq!(piped.output().status.code(), Some(0));
}

#[test]
fn signals_go_to_the_program_and_the_second_kills_it() {
    let fake = Fake::new();
    let mut piped = Piped::runs(&fake, &["run", "--", "sleep", "60"], Vec::new());
    let mut broker = fake.viewer();
    broker.hello(Mode::Pipes);
    assert_eq!(broker.next(), Some(Frame::StdinEof));
    piped.signal(libc::SIGINT);
    assert_eq!(fake.asked(), "signal 2");
    piped.signal(libc::SIGINT);
    assert_eq!(fake.asked(), "kill");
    broker.send(&exit(130));
    assert_eq!(piped.output().status.code(), Some(130));
}

#[test]
fn a_reader_that_goes_away_ends_the_program() {
    let fake = Fake::new();
    let mut piped = Piped::runs(&fake, &["run", "--", "yes"], Vec::new());
    let mut broker = fake.viewer();
    broker.hello(Mode::Pipes);
    piped.close_stdout();
    broker.send(&Frame::Out(b"y\n".to_vec()));
    assert_eq!(fake.asked(), "signal 13");
    broker.send(&exit(141));
    assert_eq!(piped.output().status.code(), Some(141));
}

#[test]
fn the_status_file_says_how_it_ended() {
    let fake = Fake::new();
    let file = fake.path("status.json");
    let arguments = ["run", "--status-file", file.to_str().unwrap(), "--", "false"];
    let mut piped = Piped::runs(&fake, &arguments, Vec::new());
    let mut broker = fake.viewer();
    broker.hello(Mode::Pipes);
    broker.send(&exit(1));
    assert_eq!(piped.output().status.code(), Some(1));
    let status: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(status["exit"]["code"], 1);
    assert_eq!(status["exit"]["cause"], "exited");
    assert_eq!(status["session"], fake.session().to_string());
    assert_eq!(status["enforced"]["walls"][0]["name"], "landlock");
}
