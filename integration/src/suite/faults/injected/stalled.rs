//! Processes that stand still (SIGSTOP), for a while or all the time.

use super::super::{BYSTANDER, flow};
use super::begin;
use crate::audit;
use crate::suite::terminal::{broker, pids_of};
use crate::suite::viewers::flood_bytes;
use crate::talk::{daemon_pids, finish, number, start, text};
use anyhow::{Context as _, ensure};
use link::PidFd;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

/// Goes on when it is let go.
pub(super) struct Stalled(PidFd);

impl Stalled {
    /// Returns when every thread of it stands still.
    pub(super) fn wholly(pid: i32) -> anyhow::Result<Self> {
        let stalled = Self::pid(pid)?;
        pause::until("it stands still", LIMIT, || threads_stopped(pid).ok()?.then_some(()))?;
        Ok(stalled)
    }

    fn pid(pid: i32) -> anyhow::Result<Self> {
        let handle = PidFd::open(pid)?;
        handle.signal(libc::SIGSTOP)?;
        Ok(Self(handle))
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.signal(libc::SIGCONT).ok();
    }
}

fn threads_stopped(pid: i32) -> anyhow::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("stat"))?;
        let (_name, rest) = text.rsplit_once(')').context("a stat line")?;
        if !rest.trim_start().starts_with('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A program that answers each line, with its viewer; it ends with 5 at the end of its input.
fn answering(sandbox: &Sandbox) -> anyhow::Result<Terminal> {
    let script = "echo ready; while read line; do echo got $line; done; exit 5";
    let viewer = Terminal::mews(sandbox, &["run", "--name", "seen", "--", "sh", "-c", script])?;
    viewer.wait_for("ready")?;
    viewer.send("one\r")?;
    viewer.wait_for("got one")?;
    Ok(viewer)
}

/// Cages run and end, viewers see and type, and sessiond catches up with all of it.
pub(super) fn sessiond(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let mut viewer = answering(sandbox)?;
    let (sessiond, _supervisor) = daemon_pids(sandbox)?;
    let init = number(&sandbox.json(["inspect", BYSTANDER])?, "/cages/0/pid")?;
    let init = PidFd::open(i32::try_from(init)?)?;
    let stalled = Stalled::pid(sessiond)?;
    let waits = begin(sandbox, &["ls"])?;
    viewer.send("two\r")?;
    viewer.wait_for("got two")?;
    sandbox.file(&format!("ws/stop-{BYSTANDER}"), "")?;
    pause::until("it ended", LIMIT, || (!init.is_alive()).then_some(()))?;
    drop(stalled);
    finish(waits)?.expect(0)?;
    flow::stop(sandbox, BYSTANDER)?;
    viewer.send("\u{4}")?;
    ensure!(viewer.wait_exit()? == 5, "the viewer's exit");
    audit::agrees(sandbox)
}

/// What sessiond knows is told; what needs the supervisor is done when that goes on.
pub(super) fn supervisor(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let mut viewer = answering(sandbox)?;
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    let stalled = Stalled::pid(supervisor)?;
    sandbox.mews(["ls"])?.expect(0)?;
    sandbox.mews(["inspect", BYSTANDER])?.expect(0)?;
    sandbox.mews(["events", BYSTANDER])?.expect(0)?;
    viewer.send("two\r")?;
    viewer.wait_for("got two")?;
    let runs = begin(sandbox, &["run", "--no-tty", "--", "true"])?;
    let waits = begin(sandbox, &["wait", "--exit", BYSTANDER])?;
    sandbox.file(&format!("ws/stop-{BYSTANDER}"), "")?;
    drop(stalled);
    finish(runs)?.expect(0)?;
    let waited = finish(waits)?.expect(0)?;
    ensure!(waited.out().trim() == "7", "{}", waited.out());
    viewer.send("\u{4}")?;
    ensure!(viewer.wait_exit()? == 5, "the viewer's exit");
    audit::agrees(sandbox)
}

/// Of the only cage that is there.
fn broker_of(sandbox: &Sandbox, name: &str) -> anyhow::Result<i32> {
    start(sandbox, &["--name", name], &["sleep", "1000"])?;
    broker(sandbox)
}

/// Its cage can be killed; others do not notice.
pub(super) fn broker_stands(sandbox: &Sandbox) -> anyhow::Result<()> {
    let stuck = broker_of(sandbox, "stuck")?;
    flow::begin(sandbox, BYSTANDER)?;
    let stalled = Stalled::pid(stuck)?;
    sandbox.mews(["ls"])?.expect(0)?;
    sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"])?.expect(0)?;
    sandbox.mews(["kill", "stuck"])?.expect(0)?;
    ensure!(!stalled.0.is_alive(), "its broker is left");
    let shown = sandbox.json(["inspect", "stuck"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "cancelled", "{shown}");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

/// Every wait in every process ends early, again and again (signal(7): epoll_wait gives EINTR after
/// SIGCONT), and the supervisor reads its host policy all along: not a byte is lost.
pub(super) fn storm(sandbox: &Sandbox) -> anyhow::Result<()> {
    const LAST: u32 = 200_000;
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let last = LAST.to_string();
    let words = ["run", "--name", "flood", "--", "seq", "1", &last];
    let mut viewer = Terminal::undrawn(sandbox, &words)?;
    let mut rounds = 0_u32;
    let client = PidFd::open(i32::try_from(viewer.pid().unwrap_or(0))?)?;
    while client.is_alive() {
        let brokers = pids_of(sandbox, "mews-ptybroker");
        for pid in brokers.iter().chain([&sessiond, &supervisor]) {
            let Ok(handle) = PidFd::open(*pid) else { continue };
            for signal in [libc::SIGSTOP, libc::SIGCONT] {
                handle.signal(signal).ok();
            }
        }
        // For an ordinary user's it is the end.
        if testkit::caller::is_root() {
            PidFd::open(supervisor)?.signal(libc::SIGHUP)?;
        }
        rounds += 1;
        ensure!(rounds < 1_000_000, "the flood does not end");
    }
    ensure!(viewer.wait_exit()? == 0, "the viewer's exit");
    let raw = sandbox.mews(["logs", "--raw", "flood"])?.expect(0)?.stdout;
    ensure!(raw == flood_bytes(LAST, ""), "the recording has {} bytes", raw.len());
    ensure!(daemon_pids(sandbox)? == (sessiond, supervisor), "a daemon died");
    ensure!(rounds > 3, "{rounds} rounds are no storm");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
