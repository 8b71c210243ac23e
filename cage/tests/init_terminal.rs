//! Terminals in a real cage: names, job control, hangups, sizes, ends.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a surprise is a failed test; what a command costs is told with --nocapture"
)]

#[path = "driver/cage.rs"]
mod driver;

use cage::orders::{Report, Target};
use driver::{Cage, Screen, Started, ready};
use std::time::Instant;
use wire::Size;

/// An interactive bash whose prompt is a known word.
fn bash(cage: &mut Cage) -> (Screen, Started) {
    let (mut screen, started) = cage.terminal(&["bash", "--norc", "--noprofile", "-i"]);
    // Typed in two parts, so that the echo is not what is waited for.
    screen.type_text("PS1='rea''dy> '\r");
    screen.expect("ready> ");
    (screen, started)
}

#[test]
fn the_terminal_has_its_right_name_and_size_inside() {
    let mut cage = ready();
    let (mut screen, started) = cage.terminal(&[
        "sh",
        "-c",
        "tty; ps -o tty= -p $$; stty size; cat /dev/tty & wait; stty -a",
    ]);
    screen.expect("/dev/pts/0\r\n");
    screen.expect("pts/0");
    screen.expect("24 80\r\n");
    screen.type_text("typed\r");
    screen.type_text("\u{4}");
    let rest = screen.rest();
    assert!(rest.contains("iutf8") && !rest.contains("-iutf8"), "{rest}");
    assert_eq!(cage.exited(started.id).code, Some(0));
}

#[test]
fn job_control_works() {
    let mut cage = ready();
    let (mut screen, started) = bash(&mut cage);
    screen.type_text("sleep 1000\r");
    // Until it is in the foreground: then it has the terminal.
    while !cage
        .sh("ps -o stat=,comm= -e")
        .stdout
        .lines()
        .any(|l| l.contains('+') && l.ends_with("sleep"))
    {}
    screen.type_text("\u{1a}");
    screen.expect("Stopped");
    screen.expect("ready> ");
    screen.type_text("jobs; fg\r");
    screen.expect("Stopped");
    screen.expect("sleep 1000\r\n");
    while !cage
        .sh("ps -o stat=,comm= -e")
        .stdout
        .lines()
        .any(|l| l.contains('+') && l.ends_with("sleep"))
    {}
    screen.type_text("\u{3}");
    screen.expect("ready> ");
    screen.type_text("echo status $?\r");
    screen.expect("status 130");
    screen.type_text("exit 4\r");
    screen.rest();
    assert_eq!(cage.exited(started.id).code, Some(4));
}

#[test]
fn a_plain_command_can_be_stopped_and_interrupted() {
    let mut cage = ready();
    let (mut screen, started) = cage.terminal(&["sh", "-c", "echo up; exec sleep 1000"]);
    screen.expect("up");
    let state = |cage: &mut Cage| cage.sh(&format!("ps -o stat= -p {}", started.pid)).stdout;
    screen.type_text("\u{1a}");
    while !state(&mut cage).starts_with('T') {}
    cage.signal(Target::Group(started.id), libc::SIGCONT);
    while !state(&mut cage).starts_with('S') {}
    screen.type_text("\u{3}");
    assert_eq!(cage.exited(started.id).signal, Some(2));
    screen.rest();
}

#[test]
fn the_master_ends_with_the_last_holder() {
    let mut cage = ready();
    // A background process keeps the terminal after the command's end.
    let script = "trap '' HUP; (sleep 1000; echo late) & echo done";
    let (mut screen, started) = cage.terminal(&["bash", "-c", script]);
    screen.expect("done\r\n");
    assert_eq!(cage.exited(started.id).code, Some(0));
    cage.sh("pkill sleep");
    assert!(screen.rest().contains("late"));
}

#[test]
fn closing_the_master_hangs_up() {
    let mut cage = ready();
    let (screen, started) = cage.terminal(&["sh", "-c", "echo up; sleep 1000"]);
    drop(screen);
    let exit = cage.exited(started.id);
    // A shell that lost its terminal before it wrote ends on the write's error instead.
    assert!(exit.signal == Some(1) || exit.code.is_some(), "{exit:?}");
    let (screen, started) =
        cage.terminal(&["sh", "-c", "trap 'exit 42' HUP; while :; do sleep 0.01; done"]);
    drop(screen);
    let exit = cage.exited(started.id);
    assert!(exit.code == Some(42) || exit.signal == Some(1), "{exit:?}");
}

#[test]
fn a_resize_reaches_the_foreground() {
    let mut cage = ready();
    let script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.01; done";
    let (mut screen, started) = cage.terminal(&["bash", "-c", script]);
    screen.expect("up");
    screen.resize(Size { cols: 101, rows: 33 });
    screen.expect("33 101");
    assert_eq!(cage.exited(started.id).code, Some(0));
}

#[test]
fn terminals_in_terminals_work() {
    let mut cage = ready();
    let (mut screen, started) = cage.terminal(&["script", "-qec", "tty; exit 3", "/dev/null"]);
    screen.expect("/dev/pts/1\r\n");
    screen.rest();
    assert_eq!(cage.exited(started.id).code, Some(3));
    let (mut screen, started) = cage.terminal(&["tmux", "-f", "/dev/null", "new", "tty; read l"]);
    screen.expect("/dev/pts/");
    screen.type_text("\r");
    screen.rest();
    assert_eq!(cage.exited(started.id).code, Some(0));
}

#[test]
fn a_second_command_has_a_terminal_of_its_own() {
    let mut cage = ready();
    let (mut first, one) = bash(&mut cage);
    let (mut second, two) = cage.terminal(&["sh", "-c", "tty; mesg; read l; exit 2"]);
    second.expect("/dev/pts/1");
    first.type_text("tty\r");
    first.expect("/dev/pts/0");
    second.type_text("\r");
    assert_eq!(cage.exited(two.id).code, Some(2));
    first.type_text("exit 1\r");
    assert_eq!(cage.exited(one.id).code, Some(1));
    second.rest();
}

#[test]
fn typing_for_the_operator_is_refused() {
    let mut cage = ready();
    let script = "import fcntl,sys\nfor r in (0x5412, 0x541c, 0x5423, 0x541d, 0x540c):\n try:\n  \
                  fcntl.ioctl(0, r, b'x'*8); print('done')\n except OSError as e: print(e.errno)\n";
    let (mut screen, started) = cage.terminal(&["python3", "-c", script]);
    assert_eq!(screen.rest(), "1\r\n".repeat(5));
    assert_eq!(cage.exited(started.id).code, Some(0));
}

#[test]
fn the_number_of_terminals_is_limited_from_outside() {
    let mut cage = ready();
    assert_eq!(cage::devpts::max_of(cage.pid).unwrap(), None);
    cage::devpts::limit(cage.pid, 2).unwrap();
    assert_eq!(cage::devpts::max_of(cage.pid).unwrap(), Some(2));
    let _first = cage.terminal(&["cat"]);
    let _second = cage.terminal(&["cat"]);
    let third = cage.send_exec(&["true"], &[], Some(Size::DEFAULT), &[]);
    match cage.report() {
        (Report::ExecFailed { id, errno, .. }, None) => {
            assert_eq!((id, errno), (third, libc::ENOSPC));
        }
        other => panic!("{other:?}"),
    }
    let options = cage.sh("grep devpts /proc/self/mountinfo").stdout;
    assert!(options.contains("nosuid") && options.contains("noexec"), "{options}");
}

#[test]
fn a_hundred_terminals_in_turn() {
    let mut cage = ready();
    let start = Instant::now();
    for _each in 0..100 {
        let (mut screen, started) = cage.terminal(&["true"]);
        assert_eq!(cage.exited(started.id).code, Some(0));
        screen.rest();
    }
    println!("{:?} per command at a terminal, with its end", start.elapsed() / 100);
}
