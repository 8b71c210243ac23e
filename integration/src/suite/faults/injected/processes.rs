//! No process can be started any more (fork gives EAGAIN): a pids cgroup around the supervisor.

use super::super::{BYSTANDER, flow};
use crate::audit;
use crate::runner::{need_root, skip};
use crate::talk::{daemon_pids, in_workspace};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use testkit::Sandbox;

/// A group of ours with one limit, and a process in it.
pub(super) struct Group {
    path: PathBuf,
    from: PathBuf,
    pid: i32,
    /// The limit's file, and what takes it away.
    limit: (&'static str, &'static str),
}

impl Group {
    fn around(pid: i32) -> anyhow::Result<Self> {
        Self::new(pid, "pids", &[("pids.max", "max")], "1")
    }

    pub(super) fn of_memory(pid: i32, bytes: &str) -> anyhow::Result<Self> {
        let limits = [("memory.limit_in_bytes", "-1"), ("memory.max", "max")];
        Self::new(pid, "memory", &limits, bytes)
    }

    fn new(
        pid: i32,
        controller: &str,
        limits: &[(&'static str, &'static str)],
        value: &str,
    ) -> anyhow::Result<Self> {
        need_root()?;
        let (root, from) = hierarchy(pid, controller)?;
        let path = root.join(format!("mews-{controller}-{pid}"));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let known = limits.iter().copied().find(|(file, _none)| path.join(file).exists());
        let Some(limit) = known else {
            fs::remove_dir(&path)?;
            return Err(skip(&format!("no {controller} controller here")));
        };
        let group = Self { path, from, pid, limit };
        // While it is empty: what one in it is just given would be in the way.
        group.limit(value)?;
        fs::write(group.path.join("cgroup.procs"), pid.to_string())?;
        Ok(group)
    }

    fn limit(&self, value: &str) -> anyhow::Result<()> {
        fs::write(self.path.join(self.limit.0), value).context(self.limit.0)
    }

    /// How many of it the kernel has killed for memory.
    pub(super) fn oom_kills(&self) -> anyhow::Result<u64> {
        let files = ["memory.oom_control", "memory.events"].map(|name| self.path.join(name));
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).context("counts")?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.context("no count of kills")?.trim().parse()?)
    }
}

impl Drop for Group {
    /// Back where they were, with whatever they started meanwhile.
    fn drop(&mut self) {
        self.limit(self.limit.1).ok();
        let members = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines().chain([self.pid.to_string().as_str()]) {
            fs::write(self.from.join("cgroup.procs"), member).ok();
        }
        fs::remove_dir(&self.path).ok();
    }
}

/// The root of the hierarchy that has the controller, and where the process is in it.
fn hierarchy(pid: i32, controller: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let v1 = (format!(":{controller}:"), Path::new("/sys/fs/cgroup").join(controller));
    for (mark, root) in [v1, ("0::".to_owned(), "/sys/fs/cgroup".into())] {
        let line = groups.lines().find(|line| line.contains(&mark));
        let path = line.and_then(|line| line.rsplit_once(':')).map(|(_head, path)| path);
        if let Some(path) = path.filter(|_| root.join("cgroup.procs").exists()) {
            let from = root.join(path.trim_start_matches('/'));
            return Ok((root, from));
        }
    }
    Err(skip("no cgroup hierarchy that has it"))
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
