//! Slow and stuck viewers harm nobody but themselves.

use super::terminal::pids_of;
use crate::runner::Test;
use crate::talk::{in_workspace, start, wait_exit};
use anyhow::{Context as _, ensure};
use link::PidFd;
use std::time::{Duration, Instant};
use testkit::{Sandbox, Terminal, pause};

/// The stores of one terminal are 10 MiB at most; the rest is the program itself.
const BROKER_KIB_MAX: u64 = 64 * 1024;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("viewers.a_stuck_one_hinders_nobody", stuck),
        Test::new("viewers.after_lagging_the_screen_is_right", lagging),
        Test::new("viewers.none_at_all", none),
        Test::new("viewers.many_with_one_flood", many),
    ]
}

fn stop(terminal: &Terminal) -> anyhow::Result<PidFd> {
    let pid = i32::try_from(terminal.pid().context("a pid")?)?;
    let handle = PidFd::open(pid)?;
    handle.signal(libc::SIGSTOP)?;
    Ok(handle)
}

fn resident_kib(pid: i32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// Waits for a go, prints a lot, says so in the workspace and on the terminal.
const FLOOD: &str = "while [ ! -e go ]; do sleep 0.02; done; seq 1 1000000; touch flooded; \
                     echo the-end; while [ ! -e stop ]; do sleep 0.02; done";

fn flooded(sandbox: &Sandbox) -> anyhow::Result<Duration> {
    let started = Instant::now();
    sandbox.file("ws/go", "")?;
    let path = in_workspace(sandbox, "flooded");
    pause::until("the flood is over", Duration::from_secs(30), || path.exists().then_some(()))?;
    Ok(started.elapsed())
}

fn stuck(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "flood"], &["bash", "-c", FLOOD])?;
    let stuck = Terminal::mews(sandbox, &["attach", "flood"])?;
    let good = Terminal::mews(sandbox, &["attach", "--observe", "flood"])?;
    sandbox.json(["inspect", "flood"])?;
    pause::until("two viewers", testkit::process::LIMIT, || {
        let shown = sandbox.json(["inspect", "flood"]).ok()?;
        (shown.pointer("/cages/0/ptys/0/viewers")?.as_u64()? == 2).then_some(())
    })?;
    let handle = stop(&stuck)?;
    flooded(sandbox)?;
    good.wait_for("the-end")?;
    for pid in pids_of(sandbox, "mews-ptybroker") {
        let kib = resident_kib(pid)?;
        ensure!(kib < BROKER_KIB_MAX, "the broker holds {kib} KiB");
    }
    handle.signal(libc::SIGCONT)?;
    stuck.wait_for("the-end")?;
    let (a, b) = (stuck.screen(), good.screen());
    ensure!(a == b, "two screens:\n{}\n--\n{}", a.join("\n"), b.join("\n"));
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let raw = sandbox.mews(["logs", "--raw", "flood"])?.expect(0)?.stdout;
    ensure!(raw == flood_bytes(1_000_000, "the-end\r\n"), "the recording has {} bytes", raw.len());
    Ok(())
}

/// What `seq 1 LAST` prints on a terminal.
pub(crate) fn flood_bytes(last: u32, after: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 1..=last {
        bytes.extend_from_slice(number.to_string().as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(after.as_bytes());
    bytes
}

fn lagging(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "while [ ! -e go ]; do sleep 0.02; done; seq 1 1000000; printf '\\033[2J\\033[H'; \
                  for i in $(seq 1 20); do echo \"row $i\"; done; touch flooded; read x";
    let run = start(sandbox, &["--name", "lag"], &["bash", "-c", script])?;
    let mut viewer = Terminal::mews(sandbox, &["attach", "lag"])?;
    viewer.wait_raw(b"lag")?;
    let handle = stop(&viewer)?;
    flooded(sandbox)?;
    handle.signal(libc::SIGCONT)?;
    let want: Vec<String> = (1..=20).map(|number| format!("row {number}")).collect();
    viewer.wait_until("the right screen", |lines| lines.starts_with(&want))?;
    viewer.send("\r")?;
    ensure!(viewer.wait_exit()? == 0, "exit");
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

fn none(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "alone"], &["bash", "-c", FLOOD])?;
    flooded(sandbox)?;
    let mut late = Terminal::mews(sandbox, &["attach", "alone"])?;
    late.wait_for("the-end")?;
    let screen = late.screen();
    ensure!(screen.iter().any(|line| line == "1000000"), "{screen:?}");
    sandbox.file("ws/stop", "")?;
    ensure!(late.wait_exit()? == 0, "exit");
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

fn many(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "crowd"], &["bash", "-c", FLOOD])?;
    let crowd: Vec<Terminal> = (0..8)
        .map(|_| Terminal::undrawn(sandbox, &["attach", "--observe", "crowd"]))
        .collect::<anyhow::Result<_>>()?;
    flooded(sandbox)?;
    for viewer in &crowd {
        viewer.wait_raw(b"the-end")?;
    }
    for pid in pids_of(sandbox, "mews-ptybroker") {
        let kib = resident_kib(pid)?;
        ensure!(kib < BROKER_KIB_MAX, "the broker holds {kib} KiB");
    }
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}
