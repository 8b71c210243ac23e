//! kill -9 of either daemon, at any time, loses nothing.

use super::terminal::broker;
use super::viewers::flood_bytes;
use crate::runner::Test;
use crate::talk::{
    Background, daemon_pids, event_types, events, in_workspace, kill, kill_both, start, text,
    wait_exit,
};
use anyhow::{Context as _, ensure};
use link::PidFd;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Act, Sandbox, Terminal, leftovers, pace, pause};

const LAST: u32 = 2_000_000;

#[derive(Clone, Copy, Debug)]
enum Victim {
    Sessiond,
    Supervisor,
    Both,
}

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("restart.kill_sessiond", |s| round(s, 0, Victim::Sessiond)),
        Test::new("restart.kill_supervisor", |s| round(s, 0, Victim::Supervisor)),
        Test::new("restart.kill_both", |s| round(s, 0, Victim::Both)),
        Test::new("restart.twenty_in_a_row", twenty),
        Test::new("restart.exit_while_both_are_dead", exit_while_dead),
        Test::new("restart.of_the_host", another_boot),
        Test::new("restart.verbs_find_a_supervisor_again", verbs_alone),
        Test::new("restart.supervisor_dies_after_fork", |s| dies_at(s, "spawn.fork_recorded")),
        Test::new("restart.supervisor_dies_before_go", |s| dies_at(s, "spawn.attested")),
        Test::new("restart.twenty_clients_start_one_pair", many_clients),
        Test::new("restart.supervisor_dies_behind_the_fork_of_sessiond", one_sessiond),
        Test::new("restart.a_dying_supervisor_is_waited_for", dying),
    ]
}

fn twenty(sandbox: &Sandbox) -> anyhow::Result<()> {
    let rounds = std::env::var("MEWS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    for number in 1..=rounds {
        let victim = match number % 3 {
            0 => Victim::Both,
            1 => Victim::Sessiond,
            _ => Victim::Supervisor,
        };
        round(sandbox, number, victim)
            .map_err(|error| error.context(format!("round {number}: {victim:?}")))?;
    }
    Ok(())
}

fn strike(sandbox: &Sandbox, victim: Victim) -> anyhow::Result<()> {
    match victim {
        Victim::Sessiond => kill(daemon_pids(sandbox)?.0),
        Victim::Supervisor => kill(daemon_pids(sandbox)?.1),
        Victim::Both => kill_both(sandbox),
    }
}

fn round(sandbox: &Sandbox, number: u32, victim: Victim) -> anyhow::Result<()> {
    let (front, back) = (format!("front-{number}"), format!("back-{number}"));
    let tick = "n=0; while [ ! -e stop ]; do n=$((n+1)); echo tick $n; sleep 0.02; done; exit 9";
    let background = start(sandbox, &["--name", &back], &["bash", "-c", tick])?;
    let last = LAST.to_string();
    let words = ["run", "--name", &front, "--", "seq", "1", &last];
    let mut viewer = Terminal::undrawn(sandbox, &words)?;
    viewer.wait_bytes(1_000_000)?;
    strike(sandbox, victim)?;
    let code = viewer.wait_exit()?;
    let raw = viewer.raw();
    ensure!(code == 0, "the viewer exits {code}: {}", tail(&raw));
    if !holds(&raw, &flood_bytes(LAST, "")) {
        // Only one that was slow, and was told so, misses something; its last screen is right.
        let was_told = event_types(&events(sandbox, &front)?)?
            .iter()
            .any(|kind| kind == "pty.output_throttled");
        let is_right = tail(&raw).contains(&last);
        ensure!(
            pace::is_slow() && was_told && is_right,
            "the viewer missed bytes: {}",
            missed(&raw)
        );
    }
    after(sandbox, &front, &background)?;
    std::fs::remove_file(in_workspace(sandbox, "stop"))?;
    Ok(())
}

fn tail(raw: &[u8]) -> String {
    let from = raw.len().saturating_sub(300);
    String::from_utf8_lossy(raw.get(from..).unwrap_or_default()).into_owned()
}

/// Whether the numbers came as one whole.
fn holds(raw: &[u8], want: &[u8]) -> bool {
    first(raw).and_then(|at| raw.get(at..at + want.len())) == Some(want)
}

/// The banner stands before the numbers.
fn first(raw: &[u8]) -> Option<usize> {
    raw.windows(6).position(|part| part == b"1\r\n2\r\n")
}

fn missed(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw.get(first(raw).unwrap_or(0)..).unwrap_or_default());
    let mut next = 1_u32;
    for line in text.lines() {
        match line.trim_end().parse::<u32>() {
            Ok(number) if number == next => next += 1,
            Ok(number) => return format!("after {} came {number}", next - 1),
            Err(_) if next > 1 => return format!("after {} came {line:?}", next - 1),
            Err(_) => {}
        }
    }
    format!("ends after {}", next - 1)
}

/// Everything is listed as it was: exits, events, recording; the second cage lives on.
fn after(sandbox: &Sandbox, front: &str, background: &Background) -> anyhow::Result<()> {
    wait_exit(sandbox, front)?.expect(0)?;
    let shown = sandbox.json(["inspect", front])?;
    let code = shown.pointer("/runs/0/exit/code").and_then(Value::as_i64);
    ensure!(code == Some(0), "{shown}");
    let raw = sandbox.mews(["logs", "--raw", front])?.expect(0)?.stdout;
    ensure!(raw == flood_bytes(LAST, ""), "the recording has {} bytes", raw.len());
    pause::until("the end of the first cage is told", LIMIT, || {
        let types = event_types(&events(sandbox, front).ok()?).ok()?;
        types.iter().any(|kind| kind == "cage.gone").then_some(())
    })?;
    let types = event_types(&events(sandbox, front)?)?;
    for kind in ["cage.planned", "cage.attested", "cage.started", "cage.exited", "cage.gone"] {
        let count = types.iter().filter(|it| *it == kind).count();
        ensure!(count == 1, "{count} × {kind}: {types:?}");
    }
    let back = sandbox.json(["inspect", &background.session])?;
    ensure!(back.pointer("/cages/0/phase").is_some_and(|it| it == "running"), "{back}");
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(listed.contains(front) && listed.contains("back-"), "{listed}");
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &background.session)?.expect(0)?;
    let shown = sandbox.json(["inspect", &background.session])?;
    let code = shown.pointer("/runs/0/exit/code").and_then(Value::as_i64);
    ensure!(code == Some(9), "{shown}");
    let raw = sandbox.mews(["logs", "--raw", &background.pty])?.expect(0)?.out();
    for (index, line) in raw.lines().enumerate() {
        ensure!(line.trim_end() == format!("tick {}", index + 1), "{index}: {line:?}");
    }
    Ok(())
}

/// A cage that ends when nobody is there to be told.
fn exit_while_dead(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "while [ ! -e stop ]; do sleep 0.02; done; echo last-words; touch ended; exit 11";
    let run = start(sandbox, &[], &["bash", "-c", script])?;
    strike(sandbox, Victim::Both)?;
    sandbox.file("ws/stop", "")?;
    let path = in_workspace(sandbox, "ended");
    pause::until("the program ended", LIMIT, || path.exists().then_some(()))?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let shown = sandbox.json(["inspect", &run.session])?;
    let code = shown.pointer("/runs/0/exit/code").and_then(Value::as_i64);
    ensure!(code == Some(11), "{shown}");
    let logs = sandbox.mews(["logs", &run.session])?.expect(0)?.out();
    ensure!(logs.contains("last-words"), "{logs}");
    Ok(())
}

/// After a boot another process may have the pid and the start time of one before it. It is not ours.
fn another_boot(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "before"], &["sleep", "1000"])?;
    let pid = broker(sandbox)?;
    strike(sandbox, Victim::Both)?;
    let dead = PidFd::open(pid)?;
    dead.signal(libc::SIGKILL)?;
    pause::until("the broker is dead", LIMIT, || (!dead.is_alive()).then_some(()))?;
    let mut stranger = Command::new("sleep").arg("1000").spawn()?;
    let stranger_pid = i32::try_from(stranger.id())?;
    let path = sandbox.root().join(format!("state/sup/{}.json", run.cage));
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    for name in ["broker", "init"] {
        let process = record.get_mut(name).context("a process")?;
        process["pid"] = stranger_pid.into();
        process["start_time"] = link::pidfd::start_time_of(stranger_pid)?.into();
        ensure!(process["boot"].is_u64(), "{process}");
        process["boot"] = 1.into();
    }
    std::fs::write(&path, record.to_string())?;
    wait_exit(sandbox, "before")?;
    let shown = sandbox.json(["inspect", "before"])?;
    let lives = stranger.try_wait()?.is_none();
    stranger.kill()?;
    stranger.wait()?;
    ensure!(lives, "a process that was not ours was killed");
    ensure!(text(&shown, "/runs/0/exit/cause")? == "broker_lost", "{shown}");
    Ok(())
}

/// sessiond lives and its supervisor does not: each verb is right all the same.
fn verbs_alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "echo up; while [ ! -e stop ]; do sleep 0.02; done; echo last-words; exit 11";
    let run = start(sandbox, &["--name", "alone"], &["bash", "-c", script])?;
    let verbs: [&[&str]; 6] = [
        &["ls"],
        &["inspect", "alone"],
        &["logs", "alone"],
        &["events", "alone"],
        &["exec", "--no-tty", "alone", "--", "true"],
        &["kill", "-s", "CONT", "alone"],
    ];
    for verb in verbs {
        strike(sandbox, Victim::Supervisor)?;
        sandbox.mews(verb.iter().copied())?.expect(0)?;
        let ready = sandbox.json(["daemon", "status"])?;
        let there = ready.pointer("/ready/supervisor").and_then(Value::as_bool);
        ensure!(there == Some(true), "after {verb:?}: {ready}");
    }
    strike(sandbox, Victim::Supervisor)?;
    sandbox.file("ws/stop", "")?;
    let waited = wait_exit(sandbox, &run.session)?.expect(0)?.out();
    ensure!(waited.trim() == "11", "{waited}");
    let logs = sandbox.mews(["logs", "alone"])?.expect(0)?.out();
    ensure!(logs.lines().eq(["up", "last-words"]), "{logs}");
    Ok(())
}

/// Nothing ran and nothing is left.
fn dies_at(sandbox: &Sandbox, failpoint: &str) -> anyhow::Result<()> {
    sandbox.arm(failpoint, Act::Kill)?;
    let finished = sandbox.mews(["run", "--no-tty", "--", "touch", "it-ran"])?;
    ensure!(sandbox.has_met(failpoint), "{failpoint} was not reached");
    ensure!(finished.code == 125, "exits {}: {}", finished.code, finished.err());
    pause::until("its broker and bwrap are gone", Duration::from_secs(10), || {
        let left = leftovers::processes(sandbox.root());
        let is_daemon =
            |line: &String| ["mews-sessiond", "mews-supervisor"].iter().any(|it| line.contains(it));
        left.iter().all(is_daemon).then_some(())
    })?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    let listed = sandbox.mews(["--json", "ls", "--all"])?.expect(0)?.json_lines()?;
    for session in listed.iter().filter(|it| it.pointer("/name").is_some_and(|it| it == "touch-1"))
    {
        let state = session.pointer("/runs/0/state");
        ensure!(state.is_some_and(|it| it == "failed"), "{session}");
    }
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    Ok(())
}

fn many_clients(sandbox: &Sandbox) -> anyhow::Result<()> {
    // Where nothing ever ran, nothing is started.
    sandbox.mews(["ls"])?.expect(0)?;
    ensure!(!sandbox.api_socket().exists(), "daemons were started");
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    strike(sandbox, Victim::Both)?;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut command = sandbox.command(["ls"])?;
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        clients.push(command.spawn()?);
    }
    for mut client in clients {
        let status = process::wait(&mut client, LIMIT)?;
        ensure!(status.success(), "a client: {status}");
    }
    for program in ["mews-sessiond", "mews-supervisor"] {
        let count = super::terminal::pids_of(sandbox, program).len();
        ensure!(count == 1, "{count} × {program}");
    }
    Ok(())
}

/// The sessiond that it had started lives on; the next supervisor finds it and starts no second one.
fn one_sessiond(sandbox: &Sandbox) -> anyhow::Result<()> {
    for round in 0..5 {
        sandbox.mews(["daemon", "start"])?.expect(0)?;
        let (sessiond, supervisor) = daemon_pids(sandbox)?;
        let supervisor = PidFd::open(supervisor)?;
        sandbox.arm("sessiond.forked", Act::Kill)?;
        kill(sessiond)?;
        pause::until("it is dead", LIMIT, || (!supervisor.is_alive()).then_some(()))?;
        sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
        // One that lost the race for the lock ends by itself.
        pause::until("there is one sessiond", LIMIT, || {
            let there = super::terminal::pids_of(sandbox, "mews-sessiond");
            (there.len() == 1).then_some(())
        })
        .with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// One that is killed holds its lock longer than its sockets.
fn dying(sandbox: &Sandbox) -> anyhow::Result<()> {
    let held = std::fs::File::create(sandbox.run_dir().join("supervisor.lock"))?;
    let held = nix::fcntl::Flock::lock(held, nix::fcntl::FlockArg::LockExclusive);
    let held = held.map_err(|(_file, errno)| errno)?;
    let mut command = sandbox.command(["run", "--no-tty", "--", "echo", "ran"])?;
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let client = command.stderr(std::process::Stdio::piped()).spawn()?;
    let supervisor = pause::until("a supervisor starts", LIMIT, || {
        super::terminal::pids_of(sandbox, "mews-supervisor").first().copied()
    })?;
    pause::until("it waits for the lock", LIMIT, || {
        let threads = std::fs::read_dir(format!("/proc/{supervisor}/task")).ok()?.count();
        (threads > 1).then_some(())
    })?;
    drop(held);
    let client = crate::talk::finish(client)?.expect(0)?;
    ensure!(client.out() == "ran\n", "{}", client.out());
    Ok(())
}
