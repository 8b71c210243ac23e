//! Wrong requests, ends and deaths while it stands.

use super::{COUNT, count, must_go_on, must_stand, pause_it, resume_it, resume_it_and_end};
use crate::suite::terminal::broker;
use crate::talk::{
    daemon_pids, event_types, events, in_workspace, number, read, start, text, wait_exit,
};
use anyhow::{Context as _, ensure};
use testkit::process::LIMIT;
use testkit::{Act, Sandbox, pause};

pub(super) fn waiting(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let script = "touch up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    start(sandbox, &["--name", name], &["bash", "-c", script])?;
    let up = in_workspace(sandbox, "up");
    pause::until("it runs", LIMIT, || up.exists().then_some(()))
}

pub(super) fn twice(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "twice")?;
    let not_paused = sandbox.mews(["resume", "twice"])?.expect(5)?;
    ensure!(not_paused.err().contains("not paused"), "{}", not_paused.err());
    pause_it(sandbox, "twice")?;
    pause_it(sandbox, "twice")?;
    let types = event_types(&events(sandbox, "twice")?)?;
    ensure!(types.iter().filter(|it| *it == "cage.suspended").count() == 1, "{types:?}");
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(listed.contains("paused"), "{listed}");
    sandbox.file("ws/stop", "")?;
    resume_it_and_end(sandbox, "twice", 6)?;
    for verb in ["pause", "resume"] {
        let over = sandbox.mews([verb, "twice"])?;
        ensure!(over.err().contains("has ended"), "{verb}: {}", over.err());
    }
    let nobody = sandbox.mews(["pause", "nobody"])?;
    ensure!(nobody.err().contains("nobody"), "{}", nobody.err());
    Ok(())
}

/// Each keeps its memory, and nothing ends it.
pub(super) fn cap(sandbox: &Sandbox) -> anyhow::Result<()> {
    const MOST: usize = 32;
    let names: Vec<String> = (0..=MOST).map(|number| format!("many-{number}")).collect();
    for name in &names {
        start(sandbox, &["--name", name], &["sleep", "1000"])?;
    }
    let (last, rest) = names.split_last().context("names")?;
    for name in rest {
        pause_it(sandbox, name)?;
    }
    for verb in ["pause", "checkpoint"] {
        let told = sandbox.mews([verb, last])?.expect(5)?;
        ensure!(told.err().contains("32 of at most 32 paused"), "{verb}: {}", told.err());
    }
    let exec = ["exec", "--no-tty", last, "--", "true"];
    sandbox.mews(exec)?.expect(0)?;
    sandbox.mews(["resume", "many-0"])?.expect(0)?;
    pause_it(sandbox, last)?;
    // One that stands already has its place.
    pause_it(sandbox, last)
}

pub(super) fn refused(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "still")?;
    pause_it(sandbox, "still")?;
    let exec = sandbox.mews(["exec", "still", "--", "touch", "ran"])?.expect(125)?;
    ensure!(exec.err().contains("mews resume"), "{}", exec.err());
    let signal = sandbox.mews(["kill", "-s", "TERM", "still"])?.expect(5)?;
    ensure!(signal.err().contains("mews resume"), "{}", signal.err());
    ensure!(!in_workspace(sandbox, "ran").exists(), "it ran");
    sandbox.file("ws/stop", "")?;
    resume_it_and_end(sandbox, "still", 6)
}

pub(super) fn ended(sandbox: &Sandbox, verb: &str) -> anyhow::Result<()> {
    waiting(sandbox, "gone")?;
    pause_it(sandbox, "gone")?;
    sandbox.mews([verb, "gone"])?.expect(0)?;
    let shown = sandbox.json(["inspect", "gone"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "cancelled", "{shown}");
    ensure!(text(&shown, "/state")? == "ended", "{shown}");
    Ok(())
}

/// As by the kernel's out-of-memory killer.
pub(super) fn init_dies(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "init")?;
    pause_it(sandbox, "init")?;
    let shown = sandbox.json(["inspect", "init"])?;
    let pid = i32::try_from(number(&shown, "/cages/0/pid")?)?;
    link::PidFd::open(pid)?.signal(libc::SIGKILL)?;
    wait_exit(sandbox, "init")?;
    let shown = sandbox.json(["inspect", "init"])?;
    ensure!(number(&shown, "/runs/0/exit/signal")? == 9, "{shown}");
    Ok(())
}

pub(super) fn broker_dies(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "lost")?;
    pause_it(sandbox, "lost")?;
    link::PidFd::open(broker(sandbox)?)?.signal(libc::SIGKILL)?;
    wait_exit(sandbox, "lost")?;
    let shown = sandbox.json(["inspect", "lost"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "broker_lost", "{shown}");
    Ok(())
}

pub(super) fn daemons_die(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "busy"], &["bash", "-c", COUNT])?;
    count(sandbox)?;
    pause_it(sandbox, "busy")?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    for pid in [supervisor, sessiond] {
        link::PidFd::open(pid)?.signal(libc::SIGKILL)?;
    }
    must_stand(sandbox, "count")?;
    let shown = sandbox.json(["inspect", "busy"])?;
    ensure!(text(&shown, "/state")? == "paused", "{shown}");
    must_stand(sandbox, "count")?;
    let stood = read(sandbox, "count")?;
    resume_it(sandbox, "busy")?;
    must_go_on(sandbox, &stood)?;
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, "busy")?.expect(0)?;
    Ok(())
}

/// Afterwards it stands as said, or runs: never half of it.
pub(super) fn supervisor_dies(sandbox: &Sandbox, failpoint: &str) -> anyhow::Result<()> {
    sandbox.arm(failpoint, Act::Kill)?;
    start(sandbox, &["--name", "busy"], &["bash", "-c", COUNT])?;
    count(sandbox)?;
    // It dies in one of the two.
    let paused = sandbox.mews(["pause", "busy"])?;
    if failpoint == "resume.thawed" {
        paused.expect(0)?;
        sandbox.mews(["resume", "busy"])?;
    }
    ensure!(sandbox.has_met(failpoint), "{failpoint} was not reached");
    let shown = pause::until("the new supervisor has it", LIMIT, || {
        let shown = sandbox.json(["inspect", "busy"]).ok()?;
        let phase = text(&shown, "/cages/0/phase").ok()?;
        let types = event_types(&events(sandbox, "busy").ok()?).ok()?;
        let adopted = types.iter().any(|it| it == "cage.adopted");
        (adopted && matches!(phase.as_str(), "running" | "suspended")).then_some(shown)
    })?;
    if text(&shown, "/cages/0/phase")? == "suspended" {
        must_stand(sandbox, "count")?;
        resume_it(sandbox, "busy")?;
    }
    let stood = read(sandbox, "count")?;
    must_go_on(sandbox, &stood)?;
    let state = text(&sandbox.json(["inspect", "busy"])?, "/state")?;
    ensure!(state == "running", "{state}");
    pause_it(sandbox, "busy")?;
    must_stand(sandbox, "count")?;
    sandbox.file("ws/stop", "")?;
    resume_it_and_end(sandbox, "busy", 6)
}
