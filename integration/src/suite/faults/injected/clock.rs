//! Clocks that begin elsewhere: daemons in a time namespace, where the monotonic clock and the boot
//! clock are a million seconds ahead. Every deadline and the start times of processes are read from
//! those; the wall clock is only told to people and cannot be moved here without moving it for all.

use super::super::flow;
use crate::audit;
use crate::runner::{need_root, skip};
use crate::talk::{daemon_pids, kill_both, number, text};
use anyhow::ensure;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

fn ahead(sandbox: &Sandbox, words: &[&str]) -> anyhow::Result<Finished> {
    let mut command = Command::new("unshare");
    command.args(["--time", "--monotonic", "1000000", "--boottime", "1000000", "--fork", "--"]);
    command.arg(sandbox.programs()?.join("mews")).args(words);
    command.env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    process::run(&mut command, b"", LIMIT)
}

pub(super) fn time_namespace(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    if Command::new("unshare")
        .args(["--time", "--fork", "true"])
        .status()
        .is_ok_and(|it| !it.success())
    {
        return Err(skip("no time namespaces here"));
    }
    ahead(sandbox, &["daemon", "start"])?.expect(0)?;
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/time"));
    ensure!(of(&supervisor.to_string())? != of("self")?, "the daemons are in our namespace");
    let timed = sandbox.mews([
        "run",
        "--no-tty",
        "--name",
        "timed",
        "--timeout",
        "1s",
        "--",
        "sleep",
        "100",
    ])?;
    ensure!(timed.code == 124, "exits {}: {}", timed.code, timed.err());
    crate::talk::wait_exit(sandbox, "timed")?.expect(0)?;
    let shown = sandbox.json(["inspect", "timed"])?;
    let wall_ms = number(&shown, "/runs/0/exit/usage/wall_ms")?;
    ensure!((1000..60_000).contains(&wall_ms), "it ran {wall_ms} ms");
    // A new supervisor there knows its cages by their start times; walltime that ran goes on.
    flow::begin(sandbox, "stays")?;
    kill_both(sandbox)?;
    ahead(sandbox, &["ls"])?.expect(0)?;
    flow::stop(sandbox, "stays")?;
    // One in another namespace reads other start times: the same processes all the same.
    flow::begin(sandbox, "moves")?;
    kill_both(sandbox)?;
    sandbox.mews(["ls"])?.expect(0)?;
    let state = text(&sandbox.json(["inspect", "moves"])?, "/runs/0/state")?;
    ensure!(state == "running", "it is {state}");
    flow::stop(sandbox, "moves")?;
    audit::agrees(sandbox)
}
