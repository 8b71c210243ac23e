//! Commands in a real cage: starts, ends, failures, and who reports when somebody was killed.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a surprise is a failed test; what a command costs is told with --nocapture"
)]

#[path = "driver/cage.rs"]
mod driver;

use cage::orders::{Forwarder, Report, Target};
use driver::{Cage, ready};
use link::Packets;
use std::os::fd::AsFd;
use std::time::Instant;

#[test]
fn a_command_runs_and_its_exit_is_reported() {
    let mut cage = ready();
    let output = cage.sh("echo out; echo err >&2; exit 7");
    assert_eq!((output.exit.code, output.exit.signal), (Some(7), None));
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn standard_input_reaches_the_command() {
    let mut cage = ready();
    let (mut running, id) = cage.spawn(&["cat"]);
    cage.started(id);
    std::io::Write::write_all(running.stdin.as_mut().unwrap(), b"hello").unwrap();
    assert_eq!(running.read_all().0, "hello");
    assert_eq!(cage.exited(id).code, Some(0));
}

#[test]
fn a_signal_is_reported_with_what_was_used() {
    let mut cage = ready();
    let exit = cage.sh("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; kill -SEGV $$").exit;
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
    assert!(exit.user_us > 0 && exit.max_rss_kib > 0, "{exit:?}");
}

#[test]
fn what_cannot_run_is_told_by_errno() {
    let mut cage = ready();
    cage.sh(
        "echo 'no header' > /tmp/text; chmod 755 /tmp/text; echo x > /tmp/plain; mkdir /tmp/sh",
    );
    for (argv0, errno) in [
        ("no-such-program", libc::ENOENT),
        ("/no/such/file", libc::ENOENT),
        ("/tmp/plain", libc::EACCES),
        // Writable folders of the cage may hold programs, but this is none.
        ("/tmp/text", libc::ENOEXEC),
        ("/tmp", libc::EACCES),
        ("", libc::ENOENT),
    ] {
        let (_pipes, id) = cage.spawn(&[argv0]);
        match cage.report() {
            (Report::ExecFailed { id: other, errno: told, what }, None) => {
                assert_eq!((other, told, what.as_str()), (id, errno, argv0));
            }
            other => panic!("{argv0}: {other:?}"),
        }
    }
    assert_eq!(cage.sh("exit 3").exit.code, Some(3), "the cage goes on");
}

#[test]
fn the_payload_finds_clean_signals_a_session_and_no_descriptors() {
    let mut cage = ready();
    let output = cage.sh("grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd; umask");
    let lines: Vec<&str> = output.stdout.lines().collect();
    let zero = "0000000000000000";
    assert!(lines[0].ends_with(zero) && lines[1].ends_with(zero), "{lines:?}");
    // 3 is the folder that ls reads.
    assert_eq!(lines[3..], ["0", "1", "2", "3", "0022"], "{lines:?}");
}

#[test]
fn arguments_larger_than_a_packet_arrive() {
    let mut cage = ready();
    let long = "x".repeat(120_000);
    let output = cage.run(&["sh", "-c", "echo ${#1}", "sh", &long]);
    assert_eq!(output.stdout, "120000\n");
}

#[test]
fn a_killed_leader_loses_no_exit() {
    let mut cage = ready();
    let (mut running, id) = cage.spawn(&["sh", "-c", "echo $PPID; read line; exit 42"]);
    let started = cage.started(id);
    let leader = running.line();
    assert_ne!(leader, "1", "{}", started.pid);
    assert_eq!(cage.sh(&format!("kill -9 {leader}")).exit.code, Some(0));
    running.stdin = None;
    assert_eq!(cage.exited(id).code, Some(42));
}

#[test]
fn a_killed_zygote_is_replaced() {
    let mut cage = ready();
    let (mut running, id) = cage.spawn(&["sh", "-c", "read line; exit 9"]);
    cage.started(id);
    let word = cage.kill_zygote();
    assert!(word.no_new_privs && word.landlock_full && word.landlock_probed);
    assert!(!word.init_dumpable && !word.zygote_dumpable);
    assert_eq!((word.capabilities, word.seccomp), (0, 2));
    assert_eq!(cage.sh("exit 5").exit.code, Some(5));
    // What ran before still reports, through the leader that the old zygote made.
    running.stdin = None;
    assert_eq!(cage.exited(id).code, Some(9));
}

#[test]
fn a_stopped_zygote_is_continued_by_the_next_order() {
    let mut cage = ready();
    cage.sh("kill -STOP $(ps -o ppid= -p $PPID)");
    assert_eq!(cage.sh("exit 6").exit.code, Some(6));
}

#[test]
fn commands_reach_each_other_but_not_pid_1() {
    let mut cage = ready();
    let (_running, id) = cage.spawn(&["sleep", "1000"]);
    let pid = cage.started(id).pid;
    // It waits for the end of its input, so that its start is reported before what it does.
    let script =
        format!("read line; kill -9 1; echo $?; kill -0 1; echo $?; kill -9 {pid}; echo $?");
    let (mut killer, killer_id) = cage.spawn(&["sh", "-c", &script]);
    cage.started(killer_id);
    assert_eq!(killer.read_all().0, "1\n1\n0\n");
    let mut ends = [cage.report().0, cage.report().0].map(|report| match report {
        Report::Exited(exit) => (exit.id, exit.code, exit.signal),
        other => panic!("{other:?}"),
    });
    ends.sort_unstable();
    assert_eq!(ends, [(id, None, Some(9)), (killer_id, Some(0), None)]);
}

#[test]
fn signals_go_to_one_to_a_group_and_to_everything() {
    let mut cage = ready();
    for (target, deaths) in [
        (Target::Payload as fn(u64) -> Target, 1),
        (Target::Group, 2),
        (|_id| Target::Everything, 3),
    ] {
        // In its group a second process, and a third outside of it; each tells its end.
        let script = "trap '' PIPE; echo ready; setsid sleep 1000 & sleep 1000 & wait";
        let (mut running, id) = cage.spawn(&["sh", "-c", script]);
        cage.started(id);
        assert_eq!(running.line(), "ready");
        while cage.sh("pgrep -cx sleep").stdout.trim() != "2" {}
        cage.signal(target(id), libc::SIGKILL);
        assert_eq!(cage.exited(id).signal, Some(9));
        let left = cage.sh("pgrep -x sleep; pkill -9 -x sleep").stdout;
        assert_eq!(3 - left.lines().count(), deaths, "{left}");
    }
}

#[test]
fn a_thousand_commands_leave_nothing_behind() {
    let mut cage = ready();
    let before = cage.processes().len();
    let start = Instant::now();
    for _each in 0..1000 {
        assert_eq!(cage.run(&["true"]).exit.code, Some(0));
    }
    println!("{:?} per command on pipes, with its end", start.elapsed() / 1000);
    let zombies = cage.sh("ps -e -o stat= | grep -c Z").stdout;
    assert_eq!(zombies, "0\n");
    while cage.processes().len() > before {}
    let open = std::fs::read_dir(format!("/proc/{}/fd", cage.pid)).map_or(0, Iterator::count);
    assert!(open < 16, "pid 1 has {open} descriptors");
}

#[test]
fn commands_at_the_same_time_do_not_mix() {
    let mut cage = ready();
    let mut running = Vec::new();
    for code in 0..50 {
        let script = format!("read line; exit {code}");
        let (pipes, id) = cage.spawn(&["sh", "-c", &script]);
        cage.started(id);
        running.push((pipes, id, code));
    }
    for (mut pipes, id, code) in running {
        drop(pipes.stdin.take());
        assert_eq!(cage.exited(id).code, Some(code));
    }
}

#[test]
fn a_forwarder_listens_before_the_first_command_and_outlives_the_zygote() {
    let mut program = driver::program();
    let listen = ([127, 0, 0, 1], 8399).into();
    program.forwarders = vec![Forwarder { listen, connect: "/tmp/s".to_owned() }];
    let mut cage = driver::ready_with(program);
    // Both ends inside: an echo on the Unix socket, and a client that half-closes.
    let script = "import socket as s, sys\nu=s.socket(s.AF_UNIX); u.bind('/tmp/s'); u.listen()\n\
                  t=s.create_connection(('127.0.0.1', 8399)); c,_=u.accept()\n\
                  t.sendall(b'ping'); t.shutdown(s.SHUT_WR)\nq=b''.join(iter(lambda: c.recv(9), b''))\n\
                  c.sendall(q+b' pong'); c.close()\nprint(b''.join(iter(lambda: t.recv(9), b'')))\n\
                  import os; u.close(); os.unlink('/tmp/s')";
    let talk = |cage: &mut Cage| {
        let output = cage.run(&["python3", "-c", script]);
        assert_eq!(output.stdout, "b'ping pong'\n", "{output:?}");
    };
    talk(&mut cage);
    cage.kill_zygote();
    talk(&mut cage);
    // Everything does not mean the forwarder.
    cage.signal(Target::Everything, libc::SIGKILL);
    talk(&mut cage);
    cage.sh("pkill -9 mews-forward");
    cage.kill_zygote();
    talk(&mut cage);
}

#[test]
fn the_end_of_the_order_socket_ends_the_cage() {
    let mut cage = ready();
    // A session of its own that ignores hangups, and whose output shows whether it lives.
    let (mut running, id) = cage.spawn(&["setsid", "-f", "sh", "-c", "trap '' HUP; sleep 1000"]);
    cage.started(id);
    cage.exited(id);
    cage.orders = None;
    assert_eq!(running.read_all().0, "");
    assert_eq!(cage.wait(), Some(0));
}

#[test]
fn without_go_nothing_runs() {
    for close_after_attestation in [false, true] {
        let mut cage = Cage::start(driver::program(), None);
        if close_after_attestation {
            assert!(matches!(cage.report().0, Report::Attested(_)));
        }
        cage.orders = None;
        assert_eq!(cage.wait(), Some(125));
    }
    let mut cage = Cage::empty();
    cage.orders = None;
    assert_eq!(cage.wait(), Some(125));
}

#[test]
fn an_exec_before_go_ends_the_cage() {
    let mut cage = Cage::start(driver::program(), None);
    assert!(matches!(cage.report().0, Report::Attested(_)));
    let (mut pipes, _id) = cage.spawn(&["echo", "ran"]);
    assert_eq!(pipes.read_all().0, "");
    assert_eq!(cage.wait(), Some(125));
}

#[test]
fn descriptors_that_are_missing_are_a_failure_of_the_command() {
    let mut cage = ready();
    let (end, _other) = Packets::pair().unwrap();
    let id = cage.send_exec(&["true"], &[], None, &[end.as_fd()]);
    match cage.report().0 {
        Report::ExecFailed { id: other, errno, .. } => {
            assert_eq!((other, errno), (id, libc::EBADF))
        }
        other => panic!("{other:?}"),
    }
}
