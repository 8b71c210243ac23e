//! No process can be started any more (fork gives EAGAIN): a pids cgroup around the supervisor.

use super::super::{BYSTANDER, flow};
use crate::audit;
use crate::runner::{need_root, skip};
use crate::talk::{daemon_pids, in_workspace};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use testkit::Sandbox;

/// A group of ours with a pids limit, and the supervisor in it.
struct Group {
    path: PathBuf,
    from: PathBuf,
    pid: i32,
}

impl Group {
    fn around(pid: i32) -> anyhow::Result<Self> {
        need_root()?;
        let (root, from) = hierarchy(pid)?;
        let path = root.join(format!("mews-fork-{pid}"));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let group = Self { path, from, pid };
        if !group.path.join("pids.max").exists() {
            return Err(skip("no pids controller here"));
        }
        fs::write(group.path.join("cgroup.procs"), pid.to_string())?;
        group.limit("1")?;
        Ok(group)
    }

    fn limit(&self, max: &str) -> anyhow::Result<()> {
        fs::write(self.path.join("pids.max"), max).context("pids.max")
    }
}

impl Drop for Group {
    /// Back where they were, with whatever they started meanwhile.
    fn drop(&mut self) {
        self.limit("max").ok();
        let members = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines().chain([self.pid.to_string().as_str()]) {
            fs::write(self.from.join("cgroup.procs"), member).ok();
        }
        fs::remove_dir(&self.path).ok();
    }
}

/// The root of the hierarchy that counts pids, and where the process is in it.
fn hierarchy(pid: i32) -> anyhow::Result<(PathBuf, PathBuf)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    for (mark, root) in [(":pids:", "/sys/fs/cgroup/pids"), ("0::", "/sys/fs/cgroup")] {
        let line = groups.lines().find(|line| line.contains(mark));
        let path = line.and_then(|line| line.rsplit_once(':')).map(|(_head, path)| path);
        if let Some(path) = path.filter(|_| PathBuf::from(root).join("cgroup.procs").exists()) {
            let root = PathBuf::from(root);
            let from = root.join(path.trim_start_matches('/'));
            return Ok((root, from));
        }
    }
    Err(skip("no cgroup hierarchy that counts pids"))
}

pub(super) fn none_left(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let group = Group::around(supervisor)?;
    for _twice in 0..2 {
        let refused = sandbox.mews(["run", "--no-tty", "--", "touch", "it-ran"])?.expect(125)?;
        let said = refused.err();
        ensure!(said.contains("fork") || said.contains("temporarily unavailable"), "{said}");
    }
    sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"])?.expect(0)?;
    // A sessiond that dies now comes back as soon as there is room.
    crate::talk::kill(sessiond)?;
    drop(group);
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    ensure!(daemon_pids(sandbox)?.1 == supervisor, "the supervisor died");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
