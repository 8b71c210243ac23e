//! What the broker counts: time without a sign of life, and what was printed.

use super::{Neighbour, ended, limits_met, met, policy};
use crate::suite::terminal::run as on_terminal;
use crate::talk::{Mode, in_workspace, run_with_status, start};
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

pub(super) fn idle(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let policy = policy(sandbox, "idle = \"1s\"")?;
    let (finished, status) = run_with_status(sandbox, mode, &["-p", &policy], &["sleep", "100"])?;
    let said = finished.expect(124)?.err();
    ensure!(said.contains("idle: no key and no output for 1s"), "{said}");
    met(status.pointer("/exit").context("exit")?, "idle", "idle")
}

pub(super) fn output(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let policy = policy(sandbox, "output_bytes = \"100K\"")?;
    let (finished, status) = run_with_status(sandbox, mode, &["-p", &policy], &["yes"])?;
    let finished = finished.expect(137)?;
    ensure!(
        finished.err().contains("output_bytes: it printed more than 100K"),
        "{}",
        finished.err()
    );
    ensure!(finished.stdout.len() > 100 << 10, "{} bytes came", finished.stdout.len());
    met(status.pointer("/exit").context("exit")?, "limit", "output_bytes")
}

/// Laid over the policy's, which stay where no flag names them.
pub(super) fn by_flags(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "output_bytes = \"100M\"\npids = 99")?;
    let flags = ["-p", &policy, "--limit", "output_bytes=100K", "--limit", "walltime=none"];
    let (finished, status) = run_with_status(sandbox, Mode::Daemons, &flags, &["yes"])?;
    finished.expect(137)?;
    met(status.pointer("/exit").context("exit")?, "limit", "output_bytes")?;
    let run = start(sandbox, &[&flags[..], &["--name", "flags"]].concat(), &["sleep", "1000"])?;
    let shown = sandbox.mews(["limits", &run.session])?.expect(0)?.out();
    for (limit, value) in [("output_bytes", "100K"), ("walltime", "none"), ("pids", "99")] {
        let has = |line: &str| line.split_whitespace().take(2).eq([limit, value]);
        ensure!(shown.lines().any(has), "{limit}: {shown}");
    }
    for (bad, said) in [
        ("idle", "KEY=VALUE"),
        ("idle=soon", "idle: "),
        ("memroy=1G", "known are memory"),
        ("memory=4K", "so little"),
    ] {
        let told = sandbox.mews(["run", "--limit", bad, "--", "true"])?;
        ensure!(told.code != 0 && told.err().contains(said), "{bad}: {told:?}");
    }
    Ok(())
}

pub(super) fn output_terminal(sandbox: &Sandbox) -> anyhow::Result<()> {
    let near = Neighbour::start(sandbox)?;
    let policy = policy(sandbox, "output_bytes = \"1M\"")?;
    let run = start(sandbox, &["-p", &policy], &["yes"])?;
    let exit = ended(sandbox, &run.session)?;
    met(&exit, "limit", "output_bytes")?;
    ensure!(limits_met(sandbox, &run.session)? == ["output_bytes"], "the event");
    near.ends_unharmed(sandbox)
}

/// Each prints less than the cage may, together they print more.
pub(super) fn output_together(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "output_bytes = \"100K\"")?;
    let run = start(sandbox, &["-p", &policy], &["sleep", "100"])?;
    let print = ["exec", &*run.session, "--no-tty", "--", "head", "-c", "70000", "/dev/zero"];
    let first = sandbox.mews(print)?.expect(0)?;
    ensure!(first.stdout.len() == 70_000, "{} bytes", first.stdout.len());
    sandbox.mews(print)?;
    met(&ended(sandbox, &run.session)?, "limit", "output_bytes")
}

/// A program that prints nothing lives as long as somebody types.
pub(super) fn keys(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "idle = \"3s\"")?;
    let script = "stty -echo; echo ready; exec cat > /dev/null";
    let options = ["--name", "typed", "-p", &policy];
    let mut terminal = Terminal::mews(sandbox, &on_terminal(&options, &["bash", "-c", script]))?;
    terminal.wait_for("ready")?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        terminal.send("x\r")?;
        pause::briefly();
        ensure!(limits_met(sandbox, "typed")?.is_empty(), "it ended under typing hands");
    }
    ensure!(terminal.wait_exit()? == 124, "its exit status");
    ensure!(limits_met(sandbox, "typed")? == ["idle"], "the event");
    Ok(())
}

/// The limit is passed while the cage stands, and not met.
pub(super) fn idle_paused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "idle = \"4s\"")?;
    let script = "touch up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let begun = Instant::now();
    let run = start(sandbox, &["--name", "still", "-p", &policy], &["bash", "-c", script])?;
    let up = in_workspace(sandbox, "up");
    pause::until("it runs", LIMIT, || up.exists().then_some(()))?;
    sandbox.mews(["pause", "still"])?.expect(0)?;
    pause::until("more time than it has", LIMIT, || {
        (begun.elapsed() > Duration::from_millis(4500)).then_some(())
    })?;
    sandbox.file("ws/stop", "")?;
    sandbox.mews(["resume", "still"])?.expect(0)?;
    let exit = ended(sandbox, &run.session)?;
    ensure!(exit.pointer("/code").is_some_and(|code| code == 6), "{exit}");
    Ok(())
}
