//! Suspend and resume of a cage, beside the bare freezer of the same cgroup.

use super::rounds;
use super::spawn::link::Supervisor;
use super::table::{Aim, Series, Table};
use anyhow::Context as _;
use cage::cgroup::{CageCgroup, CgroupPaths, Controller, Freezer, GroupPath, Layout, Version};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Instant;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};
use wire::{CageId, Overrides};

const SIZES: [usize; 3] = [1, 100, 1000];
/// CAGE.md 11, in milliseconds.
const FREEZE_OF_1000: f64 = 15.0;

/// Whether every row is within twice its aim.
///
/// # Errors
/// A cage could not be built.
pub(crate) fn run() -> anyhow::Result<bool> {
    let sandbox = Sandbox::new()?;
    let mut table = Table::new("suspend, in ms", "freezer");
    let mut supervisor = Supervisor::start(&sandbox)?;
    for processes in SIZES {
        let cage = sleepers(&sandbox, &mut supervisor, processes)?;
        let freezer = freezer(&sandbox, cage)?;
        let [mut raw_freeze, mut raw_thaw, mut suspend, mut resume] =
            [(); 4].map(|()| Series::default());
        for _round in 0..rounds(100) {
            raw_freeze.push_ms(timed(|| set(&freezer, true))?);
            raw_thaw.push_ms(timed(|| set(&freezer, false))?);
            suspend.push_ms(timed(|| supervisor.suspend(cage))?);
            resume.push_ms(timed(|| supervisor.resume(cage))?);
        }
        let row = |what: &str| format!("{what}, {processes} processes");
        table.compare(&row("suspend"), &raw_freeze, &suspend, Aim::None);
        table.compare(&row("resume"), &raw_thaw, &resume, Aim::None);
        table.alone(&row("freezer p99"), raw_freeze.percentile(99), Aim::None);
        table.alone(&row("suspend p99"), suspend.percentile(99), Aim::None);
        table.alone(&row("resume p99"), resume.percentile(99), Aim::None);
        if processes == 1000 {
            let aim = Aim::AtMost(FREEZE_OF_1000);
            table.alone("freezer alone, 1000 processes", raw_freeze.median(), aim);
        }
        supervisor.kill(cage)?;
    }
    drop(supervisor);
    sandbox.finish()?;
    Ok(table.all_met())
}

fn sleepers(
    sandbox: &Sandbox,
    supervisor: &mut Supervisor,
    count: usize,
) -> anyhow::Result<CageId> {
    let script = format!("for i in $(seq {count}); do sleep 1000 & done; touch up-{count}; wait");
    let overrides = Overrides { pids: Some(1100), ..Overrides::default() };
    let argv = ["/bin/sh", "-c", &script];
    let cage = supervisor.spawn_with(&sandbox.workspace(), &argv, overrides)?;
    supervisor.wait_for(cage, "pty.started")?;
    let up = sandbox.workspace().join(format!("up-{count}"));
    pause::until("all of them", LIMIT, || up.exists().then_some(()))?;
    Ok(cage)
}

fn freezer(sandbox: &Sandbox, cage: CageId) -> anyhow::Result<Freezer> {
    let bases = Layout::probe(sandbox.cgroup_parent())?.bases();
    let base = bases.into_iter().find(|base| base.version == Version::V2);
    let path = base.context("no cgroup v2 tree that we may use")?.path;
    let path = path.join(cage.to_string()).join("payload");
    let none: Vec<Controller> = Vec::new();
    let group = GroupPath { version: Version::V2, controllers: none, path };
    let group = CageCgroup::reopen(&CgroupPaths { groups: vec![group] });
    group.freezer()?.context("the cage has no group in it")
}

fn set(freezer: &Freezer, frozen: bool) -> anyhow::Result<()> {
    freezer.is_frozen()?;
    freezer.ask(frozen)?;
    while freezer.is_frozen()? != frozen {
        poll(&mut [PollFd::new(freezer.as_fd(), PollFlags::POLLPRI)], PollTimeout::NONE)?;
    }
    Ok(())
}

fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<std::time::Duration> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}
