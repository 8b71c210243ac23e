//! The kernel takes a process of ours for memory: a memory cgroup around it that has no room.

use super::super::{BYSTANDER, flow};
use super::processes::Group;
use crate::audit;
use crate::suite::terminal::pids_of;
use crate::talk::{daemon_pids, start, text, wait_exit};
use anyhow::ensure;
use link::PidFd;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// Less than it takes to serve anything. What a process had before is not counted again.
const NO_ROOM: &str = "65536";

/// Ends by the kernel's hand as soon as it does something.
fn taken(sandbox: &Sandbox, pid: i32, does: &dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let handle = PidFd::open(pid)?;
    let group = Group::of_memory(pid, NO_ROOM)?;
    pause::until("the kernel has taken it", LIMIT, || {
        does().ok();
        (!handle.is_alive()).then_some(())
    })?;
    ensure!(group.oom_kills()? > 0, "it died of something else: {}", sandbox.logs());
    Ok(())
}

/// Started again outside of the group; nobody's cage has noticed.
pub(super) fn sessiond(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    taken(sandbox, sessiond, &|| sandbox.mews(["events", BYSTANDER]).map(drop))?;
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    let now = daemon_pids(sandbox)?;
    ensure!(now.0 != sessiond && now.1 == supervisor, "{now:?}");
    sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"])?.expect(0)?;
    flow::lines(sandbox, BYSTANDER)?;
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

/// Its cage goes with it, and nobody else's.
pub(super) fn broker(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "while :; do seq 1 10000; done";
    start(sandbox, &["--name", "poor"], &["sh", "-c", script])?;
    let poor = crate::suite::terminal::broker(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    taken(sandbox, poor, &|| sandbox.mews(["logs", "poor"]).map(drop))?;
    let waited = wait_exit(sandbox, "poor")?.expect(0)?;
    ensure!(waited.out().trim() == "125", "wait says {}", waited.out());
    let shown = sandbox.json(["inspect", "poor"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "broker_lost", "{shown}");
    ensure!(pids_of(sandbox, "mews-ptybroker").len() == 1, "another broker died");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
