//! The real broker with a real cage: commands, terminals, viewers, ends.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of frame")]

#[path = "rig/broker.rs"]
mod rig;

use cage::launch::Clocks;
use rig::{Client, Plan, Rig, on_terminal, shell};
use std::os::fd::AsFd;
use wire::broker::{BrokerExec, BrokerNotice, BrokerRequest};
use wire::frame::{Close, CloseReason, Frame, Mode, STDIN_WINDOW};
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

#[test]
fn a_terminal_echoes_is_left_and_found_again_as_it_was() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &on_terminal("for i in $(seq 100); do echo line-$i; done; exec cat"));
    let mut first = rig.attach(pty, named("first"));
    first.until_text("line-100");
    first.keys("hello\r");
    first.until_text("hello\r\nhello");
    first.send(&Frame::Close(Close { reason: CloseReason::Detached, exit: None }));
    assert_eq!(first.until(close_of).reason, CloseReason::Detached);
    assert_eq!(first.next(), None);
    rig.event(|body| matches!(body, EventBody::PtyDetached { reason, .. } if reason == "detached"));

    let options = AttachOptions { history: History::All, ..named("second") };
    let mut second = rig.attach(pty, options);
    let Some(Frame::Hello(hello)) = second.next() else { panic!("no hello") };
    assert_eq!((hello.role, hello.others.len()), (Role::Writer, 0));
    let (mut history, mut screen) = (String::new(), String::new());
    while !screen.contains("hello") {
        match second.next().unwrap() {
            Frame::History(bytes) => history.push_str(&String::from_utf8_lossy(&bytes)),
            Frame::Snapshot { seq, bytes, .. } => {
                assert_eq!(seq, hello.seq);
                screen.push_str(&String::from_utf8_lossy(&bytes));
            }
            other => panic!("{other:?}"),
        }
    }
    let all = format!("{history}{screen}");
    for line in 1..=100 {
        assert!(all.contains(&format!("line-{line}")), "line-{line} of {all:?}");
    }
    assert!(history.starts_with("line-1\r\nline-2\r\n"), "{history:?}");
    second.keys("\x04");
    assert_eq!(second.until(close_of).exit.unwrap().code, Some(0));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn of_two_viewers_one_writes_and_take_turns_that_round() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &on_terminal("echo ready; exec cat"));
    let mut first = rig.attach(pty, named("first"));
    first.until_text("ready");
    let mut second = rig.attach(pty, named("second"));
    let role = second.until(|frame| match frame {
        Frame::Hello(hello) => Some((hello.role, hello.others.clone())),
        _ => None,
    });
    assert_eq!(role, (Role::Observer, vec!["first".to_owned()]));
    second.keys("nobody hears this\r");
    first.keys("one\r");
    let seen = second.until_text("one\r\none\r\n");
    assert!(!seen.contains("nobody"));

    let take = AttachOptions { join: Join::Take, ..named("third") };
    let mut third = rig.attach(pty, take);
    let told = first.until(|frame| match frame {
        Frame::Role(change) => Some(change.clone()),
        Frame::Close(_) => panic!("a take-over is no close"),
        _ => None,
    });
    assert_eq!((told.role, told.by.as_deref()), (Role::Observer, Some("third")));
    let state = rig.state();
    assert_eq!((state.ptys[0].viewers, state.ptys[0].has_writer), (3, true));
    first.keys("nor this\r");
    third.send(&Frame::Resize(Size { cols: 100, rows: 40 }));
    let size = first.until(|frame| match frame {
        Frame::Resize(size) => Some(*size),
        _ => None,
    });
    assert_eq!(size, Size { cols: 100, rows: 40 });
    third.keys("two\r\x04");
    let seen = second.until_text("two\r\ntwo\r\n");
    assert!(!seen.contains("nor this"));
    for viewer in [&mut first, &mut second, &mut third] {
        assert_eq!(viewer.until(close_of).reason, CloseReason::Exited);
    }
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_viewer_that_stops_reading_hinders_nobody_and_sees_the_right_screen_afterwards() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &on_terminal("read go; seq 1 300000; echo the-end; read more"));
    let mut slow = rig.attach(pty, AttachOptions { join: Join::Observe, ..named("slow") });
    let mut fast = rig.attach(pty, named("fast"));
    fast.keys("\r");
    let mut bytes = Vec::new();
    let mut next_seq = None;
    let mut tail = String::new();
    while !tail.contains("the-end") {
        match fast.next().unwrap() {
            Frame::Output { seq, bytes: piece } => {
                assert_eq!(*next_seq.get_or_insert(seq), seq, "no byte twice, none missing");
                next_seq = Some(seq + piece.len() as u64);
                bytes.extend_from_slice(&piece);
                tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(200)..]).into();
            }
            Frame::Throttled { .. } => panic!("a viewer that reads misses nothing"),
            _ => {}
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    for number in [1, 2, 150_000, 299_999, 300_000] {
        assert!(text.contains(&format!("\n{number}\r\n")), "{number}");
    }
    let dropped = slow.until(|frame| match frame {
        Frame::Throttled { dropped, .. } => Some(*dropped),
        _ => None,
    });
    assert!(dropped > 0);
    let screen = slow.until_text("the-end");
    assert!(screen.contains("300000"));
    fast.keys("\r");
    assert_eq!(slow.until(close_of).reason, CloseReason::Exited);
    assert_eq!(fast.until(close_of).reason, CloseReason::Exited);
    rig.event(|body| matches!(body, EventBody::PtyOutputThrottled { .. }));
    rig.end();
    assert!(rig.gone());
}

/// A stream of bytes that does not repeat soon.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        u8::try_from(state & 0xff).unwrap_or(0)
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn twenty_megabytes_go_through_pipes_both_ways_unchanged() {
    let mut rig = Rig::ready();
    let exec = BrokerExec { hold: true, stdin: true, ..shell("exec cat") };
    let pty = rig.exec(true, &exec);
    let mut client = rig.attach(pty, runner());
    let data = noise(20 << 20);
    let mut sender = Client::new(client.stream.try_clone().unwrap());
    let (acks, acked) = std::sync::mpsc::channel::<u64>();
    let sent = data.clone();
    let sending = std::thread::spawn(move || {
        let (mut at, mut known) = (0, 0);
        while at < sent.len() {
            while at as u64 >= known + STDIN_WINDOW {
                known = acked.recv().unwrap();
            }
            let room = usize::try_from(known + STDIN_WINDOW).unwrap() - at;
            let piece = &sent[at..sent.len().min(at + room.min(30_000))];
            sender.send(&Frame::Stdin(piece.to_vec()));
            at += piece.len();
        }
        sender.send(&Frame::StdinEof);
    });
    let mut got = Vec::new();
    let close = loop {
        match client.next().unwrap() {
            Frame::Out(bytes) => got.extend(bytes),
            Frame::Ack(count) => drop(acks.send(count)),
            Frame::Close(close) => break close,
            Frame::Gap { from, to } => panic!("lost {from} to {to}"),
            _ => {}
        }
    };
    sending.join().unwrap();
    assert_eq!(close.exit.unwrap().code, Some(0));
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_slow_runner_gets_every_byte_and_the_exit_does_not_wait_for_it() {
    let mut rig = Rig::ready();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo done >&2";
    let exec = BrokerExec { hold: true, ..shell(script) };
    let pty = rig.exec(true, &exec);
    let mut client = rig.attach(pty, runner());
    let mut length = 0;
    // The program waits for us here: it cannot have ended.
    length += client.until(|frame| match frame {
        Frame::Out(bytes) => Some(bytes.len()),
        _ => None,
    });
    assert!(rig.state().exit.is_none());
    let close = loop {
        match client.next().unwrap() {
            Frame::Out(bytes) => length += bytes.len(),
            Frame::Close(close) => break close,
            Frame::Gap { .. } => panic!("a runner misses nothing"),
            _ => {}
        }
    };
    assert_eq!((length, close.exit.unwrap().code), (3_000_000, Some(0)));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn walltime_kills_with_its_cause() {
    let clocks = Clocks { walltime_ms: Some(300), ..Clocks::default() };
    let mut rig = Rig::with(&Plan { clocks, ..Plan::default() });
    let pty = rig.exec(true, &shell("trap '' TERM; echo up; exec sleep 1000"));
    let mut client = rig.attach(pty, runner());
    let exit = client.until(close_of).exit.unwrap();
    assert_eq!((exit.signal, exit.cause, exit.status()), (Some(9), Cause::Walltime, 124));
    assert_eq!(rig.end().cause, Cause::Walltime);
    rig.event(|body| matches!(body, EventBody::CageLimit { limit, .. } if limit == "walltime"));
    assert!(rig.gone());
}

#[test]
fn output_beyond_its_limit_ends_the_cage() {
    for exec in [on_terminal("exec yes"), shell("exec yes")] {
        let clocks = Clocks { output_bytes: Some(100 << 10), ..Clocks::default() };
        let mut rig = Rig::with(&Plan { clocks, ..Plan::default() });
        rig.exec(true, &exec);
        let exit = rig.end();
        assert_eq!((exit.cause, exit.status()), (Cause::Limit, 137));
        let words = "output_bytes: it printed more than 100K";
        assert_eq!(exit.message.as_deref(), Some(words));
        assert!(rig.gone());
    }
}

#[test]
fn a_cage_in_which_nothing_moves_is_ended_and_one_that_talks_is_not() {
    let clocks = Clocks { idle_ms: Some(2500), ..Clocks::default() };
    let talks = "for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $i; done; exit 3";
    for (script, cause, status) in
        [("exec sleep 1000", Cause::Idle, 124), (talks, Cause::Exited, 3)]
    {
        for exec in [on_terminal(script), shell(script)] {
            let mut rig = Rig::with(&Plan { clocks: clocks.clone(), ..Plan::default() });
            rig.exec(true, &exec);
            let exit = rig.end();
            assert_eq!((exit.cause, exit.status()), (cause, status), "{script}");
            let limit = exit.message.is_some_and(|words| words.starts_with("idle: "));
            assert_eq!(limit, cause == Cause::Idle);
            assert!(rig.gone());
        }
    }
}

#[test]
fn what_cannot_be_started_is_127_or_126_with_words() {
    for (script, code, words) in [
        ("nothing-of-this-name", 127, "nothing-of-this-name: command not found"),
        ("/usr/share", 126, "/usr/share: permission denied"),
    ] {
        for tty in [None, Some(Size::DEFAULT)] {
            let mut rig = Rig::ready();
            let exec = BrokerExec { argv: vec![script.into()], tty, hold: true, ..shell("") };
            let pty = rig.exec(true, &exec);
            let mut client = rig.attach(pty, runner());
            let exit = client.until(close_of).exit.unwrap();
            assert_eq!((exit.code, exit.message.as_deref()), (Some(code), Some(words)));
            assert_eq!(rig.end().status(), code);
            assert!(rig.gone());
        }
    }
}

#[test]
fn a_lost_supervisor_loses_nothing_and_events_come_again_until_acknowledged() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &on_terminal("echo one; read x; echo two; exit 3"));
    let mut client = rig.attach(pty, named("viewer"));
    client.until_text("one");
    rig.event(|body| matches!(body, EventBody::PtyAttached { .. }));
    let before = rig.events.clone();
    rig.tether = None;
    rig.disconnect();
    client.keys("\r");
    let close = client.until(close_of);
    assert_eq!(close.exit.unwrap().code, Some(3), "the viewer needs no supervisor");

    rig.events.clear();
    rig.connect();
    assert_eq!(rig.wait_exit().code, Some(3));
    rig.event(|body| matches!(body, EventBody::CageExited { .. }));
    assert_eq!(rig.events[..before.len()], before, "all of them again, in order");
    let seqs: Vec<u64> = rig.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    rig.ask(&BrokerRequest::Ack { seq: 2 }, &[]);

    rig.events.clear();
    rig.connect();
    rig.wait_exit_again();
    assert_eq!(rig.events.first().unwrap().seq, 3, "what was acknowledged does not come again");
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_supervisor_that_dies_before_go_leaves_nothing() {
    let mut rig = Rig::boot(&Plan::default());
    let BrokerNotice::Attested { init_pid, .. } = rig.notice() else { panic!("no attestation") };
    let init = link::PidFd::open(init_pid).unwrap();
    rig.tether = None;
    rig.disconnect();
    rig.child.wait().unwrap();
    assert!(!init.is_alive());
}

#[test]
fn a_cage_that_cannot_be_built_is_told_with_its_wall() {
    let mut plan = Plan::default();
    plan.bwrap.extend(["--ro-bind", "/nothing/of/this/name", "/mnt"]);
    let mut rig = Rig::boot(&plan);
    let BrokerNotice::Failed { wall, message } = rig.notice() else { panic!("it stands") };
    assert_eq!(wall, "bwrap");
    assert!(message.contains("/nothing/of/this/name"), "{message}");
    rig.child.wait().unwrap();
}

#[test]
fn a_kill_that_was_announced_has_its_cause() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &shell("exec sleep 1000"));
    let mut client = rig.attach(pty, runner());
    rig.ask(&BrokerRequest::Ending { cause: Cause::Cancelled }, &[]);
    rig.ask(&BrokerRequest::Kill, &[]);
    let exit = client.until(close_of).exit.unwrap();
    assert_eq!((exit.signal, exit.cause), (Some(9), Cause::Cancelled));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_second_command_has_its_own_end_and_ends_with_the_cage() {
    let mut rig = Rig::ready();
    let main = rig.exec(true, &on_terminal("read x; exit 0"));
    let mut main_viewer = rig.attach(main, named("main"));
    let short = rig.exec(false, &BrokerExec { hold: true, ..shell("echo $$; exit 5") });
    let mut client = rig.attach(short, runner());
    assert_eq!(client.until(close_of).exit.unwrap().code, Some(5));
    let long = rig.exec(false, &on_terminal("echo there; exec sleep 1000"));
    let mut other = rig.attach(long, named("other"));
    other.until_text("there");
    main_viewer.keys("\r");
    assert_eq!(main_viewer.until(close_of).reason, CloseReason::Exited);
    let close = other.until(close_of);
    assert_eq!(close.reason, CloseReason::SessionEnded);
    assert_eq!(rig.end().code, Some(0));
    assert!(rig.gone());
}

#[test]
fn a_background_process_that_holds_the_terminal_does_not_hold_the_end() {
    let mut rig = Rig::ready();
    let pty = rig.exec(true, &on_terminal("(trap '' HUP; exec sleep 1000) & echo bye; exit 4"));
    let mut client = rig.attach(pty, named("viewer"));
    client.until_text("bye");
    assert_eq!(client.until(close_of).exit.unwrap().code, Some(4));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn logs_are_followed_as_lines_and_as_bytes_and_kept_after_the_end() {
    let mut rig = Rig::ready();
    let pty = rig.exec(
        true,
        &on_terminal("seq 1 200; echo all-of-them; read x; printf 'last\\n\\033[1mbold'"),
    );
    let lines = AttachOptions { view: View::Lines, history: History::All, ..named("lines") };
    let mut lines = rig.attach(pty, lines);
    let mut bytes = rig.attach(pty, AttachOptions { view: View::Bytes, ..named("bytes") });
    let mut writer = rig.attach(pty, named("writer"));
    writer.until_text("all-of-them");
    writer.keys("\r");
    writer.until(close_of);
    let mut seen = String::new();
    lines.until(|frame| matches!(frame, Frame::Close(_)).then_some(()));
    loop {
        match bytes.next().unwrap() {
            Frame::Output { bytes, .. } => seen.push_str(&String::from_utf8_lossy(&bytes)),
            Frame::Close(_) => break,
            _ => {}
        }
    }
    assert!(seen.starts_with("1\r\n2\r\n") && seen.ends_with("\x1b[1mbold"), "{seen:?}");
    let form = ScrollbackForm::Rendered;
    let text = rig.bytes_of(&BrokerRequest::Scrollback { pty, form });
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("1\n2\n3\n"), "{text:?}");
    assert!(text.contains("last\n"), "{text:?}");
    let file = std::fs::read(rig.temp.path().join(format!("{pty}.scrollback"))).unwrap();
    assert_eq!(String::from_utf8(file).unwrap(), text);
    let form = ScrollbackForm::Raw;
    let raw = rig.bytes_of(&BrokerRequest::Scrollback { pty, form });
    assert_eq!(String::from_utf8(raw).unwrap(), seen);
    let file = std::fs::read(rig.temp.path().join(format!("{pty}.rec"))).unwrap();
    assert_eq!(String::from_utf8(wire::recording::raw(&file)).unwrap(), seen);
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_follower_of_lines_gets_each_when_the_program_goes_on_and_none_twice() {
    let mut rig = Rig::ready();
    let script = "stty -echo; seq 1 30; echo first; read x; echo second; read x; \
                  printf '\\033[?1049h'; seq 1 90; echo hidden; read x; printf '\\033[?1049l'; \
                  seq 31 90; echo third; read x; printf partial";
    let pty = rig.exec(true, &on_terminal(script));
    let mut writer = rig.attach(pty, named("writer"));
    writer.until_text("first");
    let lines = AttachOptions { view: View::Lines, history: History::All, ..named("lines") };
    let mut lines = rig.attach(pty, lines);
    let mut seen = lines.until_line("first\r\n");
    writer.keys("\r");
    seen += &lines.until_line("second\r\n");
    writer.keys("\r");
    writer.until_text("hidden");
    writer.keys("\r");
    seen += &lines.until_line("third\r\n");
    writer.keys("\r");
    seen += &lines.until_line("partial\r\n");
    assert_eq!(lines.until(close_of).reason, CloseReason::Exited);
    let numbers = |range: std::ops::RangeInclusive<u32>| {
        range.map(|number| format!("{number}\r\n")).collect::<String>()
    };
    let (before, after) = (numbers(1..=30), numbers(31..=90));
    assert_eq!(seen, format!("{before}first\r\nsecond\r\n{after}third\r\npartial\r\n"));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_signal_before_the_start_is_kept_for_it() {
    let mut rig = Rig::ready();
    let exec = BrokerExec { hold: true, ..shell("echo it ran; sleep 100") };
    let pty = rig.exec(true, &exec);
    rig.ask(&BrokerRequest::Signal { pty: Some(pty), signal: 15 }, &[]);
    let mut client = rig.attach(pty, runner());
    let exit = client.until(close_of).exit.unwrap();
    assert_eq!((exit.signal, exit.cause), (Some(15), Cause::Signaled));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn signals_reach_the_program() {
    let mut rig = Rig::ready();
    let pty = rig.exec(
        true,
        &shell("trap 'echo caught; exit 9' USR1; echo up; while :; do sleep 0.05; done"),
    );
    let mut client = rig.attach(pty, runner());
    client.until_text("up");
    rig.ask(&BrokerRequest::Signal { pty: Some(pty), signal: 10 }, &[]);
    client.until_text("caught");
    assert_eq!(client.until(close_of).exit.unwrap().code, Some(9));
    rig.end();
    assert!(rig.gone());
}

#[test]
fn raw_output_beyond_the_ring_comes_from_the_recording() {
    for tty in [None, Some(Size::DEFAULT)] {
        let mut plan = Plan::default();
        plan.terminal.ring_bytes = 10_000;
        let mut rig = Rig::with(&plan);
        let exec = BrokerExec { tty, stdin: true, ..shell("seq 1 20000; echo the-end; read x") };
        let pty = rig.exec(true, &exec);
        let mut client = rig.attach(pty, named("viewer"));
        client.until_text("the-end");
        let form = ScrollbackForm::Raw;
        let raw = rig.bytes_of(&BrokerRequest::Scrollback { pty, form });
        let text = String::from_utf8(raw).unwrap().replace("\r\n", "\n");
        let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
        assert!(text == expected + "the-end\n", "{} bytes", text.len());
        rig.ask(&BrokerRequest::Kill, &[]);
        rig.end();
    }
}

#[test]
fn a_program_that_asks_its_terminal_is_answered_without_a_viewer() {
    let mut rig = Rig::ready();
    let script = "stty raw -echo; printf 'abc\\033[6n'; head -c 6 >/tmp/a; stty sane; \
                  test \"$(cat /tmp/a)\" = \"$(printf '\\033[1;4R')\"";
    rig.exec(true, &on_terminal(script));
    assert_eq!(rig.end().code, Some(0));
    assert!(rig.gone());
}

#[test]
fn arguments_larger_than_a_packet_arrive() {
    let mut rig = Rig::ready();
    let mut exec = BrokerExec { hold: true, ..shell("printf %s \"$1\" | wc -c") };
    exec.argv.extend(["sh".into(), wire::Arg(vec![b'x'; 120_000])]);
    let pty = rig.exec(true, &exec);
    let mut client = rig.attach(pty, runner());
    client.until_text("120000\n");
    client.until(close_of);
    rig.end();
    assert!(rig.gone());
}

#[test]
fn a_terminal_too_many_is_refused() {
    let mut rig = Rig::with(&Plan { ptys_max: 1, ..Plan::default() });
    rig.exec(true, &on_terminal("read x"));
    let exec = serde_json::to_vec(&on_terminal("true")).unwrap();
    let memfd = link::memfd::sealed("exec", &exec).unwrap();
    let request = BrokerRequest::Exec { pty: wire::PtyId::new(), main: false };
    let error = rig.try_ask(&request, &[memfd.as_fd()]).unwrap_err();
    assert_eq!(error.code, wire::ErrorCode::LimitReached);
    rig.event(|body| matches!(body, EventBody::CageLimit { limit, .. } if limit == "ptys"));
    rig.ask(&BrokerRequest::Kill, &[]);
    rig.end();
}

#[test]
fn hundreds_of_commands_leave_a_small_broker_and_their_files() {
    let mut rig = Rig::ready();
    rig.exec(true, &on_terminal("read x"));
    let mut first = None;
    for number in 0..200 {
        let pty = rig.exec(false, &shell(&format!("echo number-{number}")));
        first.get_or_insert(pty);
        rig.event(
            |body| matches!(body, EventBody::PtyClosed { pty: closed, .. } if *closed == pty),
        );
    }
    assert!(rig.state().ptys.len() < 40);
    let request = BrokerRequest::Scrollback { pty: first.unwrap(), form: ScrollbackForm::Raw };
    assert_eq!(rig.bytes_of(&request), b"number-0\n");
    rig.ask(&BrokerRequest::Kill, &[]);
    rig.end();
}
