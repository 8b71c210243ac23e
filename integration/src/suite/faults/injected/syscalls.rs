//! System calls of the running daemons that fail, injected by strace.

use super::super::{BYSTANDER, flow};
use crate::audit;
use crate::runner::{need_root, skip};
use crate::suite::terminal::broker;
use crate::suite::viewers::flood_bytes;
use crate::talk::{daemon_pids, in_workspace};
use anyhow::ensure;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

/// strace over a process, until this is dropped.
pub(super) struct Strace {
    child: Child,
    log: PathBuf,
}

impl Strace {
    /// `all`: its threads too, and whatever it starts from now on.
    pub(super) fn over(
        sandbox: &Sandbox,
        pid: i32,
        all: bool,
        inject: &str,
    ) -> anyhow::Result<Self> {
        need_root()?;
        if !Path::new("/usr/bin/strace").exists() {
            return Err(skip("needs strace"));
        }
        let log = sandbox.root().join(format!("strace-{pid}"));
        let (pid_text, log_text) = (pid.to_string(), log.to_string_lossy().into_owned());
        let calls = inject.split(':').next().unwrap_or_default();
        let (trace, inject) = (format!("trace={calls}"), format!("inject={inject}"));
        let words = ["-q", "-p", &pid_text, "-o", &log_text, "-e", &trace, "-e", &inject];
        let mut command = Command::new("/usr/bin/strace");
        command
            .args(all.then_some("-f"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let strace = Self { child: command.spawn()?, log };
        pause::until("strace holds it", LIMIT, || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
            (tracer.trim() != "0").then_some(())
        })?;
        Ok(strace)
    }

    /// How many calls were made to fail.
    pub(super) fn injected(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains("(INJECTED)")).count()
    }
}

impl Drop for Strace {
    /// It lets go of the process first.
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).unwrap_or(0);
        if let Ok(handle) = link::PidFd::open(pid) {
            handle.signal(libc::SIGTERM).ok();
        }
        self.child.wait().ok();
    }
}

/// Every third of these calls gives EINTR, in both daemons and in a broker that is flooded.
pub(super) fn interrupted(sandbox: &Sandbox) -> anyhow::Result<()> {
    const LAST: u32 = 20_000;
    // Those that the kernel interrupts; read and write of an eventfd are never.
    const CALLS: &str = "recvmsg,sendmsg,recvfrom,sendto,accept4,epoll_wait,epoll_pwait,poll,ppoll,\
                         waitid,wait4:error=EINTR:when=1+3";
    let script = format!("echo up; read line; seq 1 {LAST}");
    let words = ["run", "--name", "flood", "--", "sh", "-c", &script];
    let mut viewer = Terminal::mews(sandbox, &words)?;
    viewer.wait_for("up")?;
    let pid = broker(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let held = [(pid, false), (sessiond, true), (supervisor, false)]
        .into_iter()
        .map(|(pid, threads)| Strace::over(sandbox, pid, threads, CALLS))
        .collect::<anyhow::Result<Vec<Strace>>>()?;
    viewer.send("go\r")?;
    sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"])?.expect(0)?;
    sandbox.mews(["pause", BYSTANDER])?.expect(0)?;
    sandbox.mews(["resume", BYSTANDER])?.expect(0)?;
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    ensure!(viewer.wait_exit()? == 0, "the viewer's exit: {}", viewer.screen().join("\n"));
    for strace in &held {
        ensure!(strace.injected() > 5, "{}: nothing was injected", strace.log.display());
    }
    drop(held);
    let raw = sandbox.mews(["logs", "--raw", "flood"])?.expect(0)?.out();
    let want = String::from_utf8_lossy(&flood_bytes(LAST, "")).into_owned();
    ensure!(raw.ends_with(&want), "the recording has {} bytes", raw.len());
    ensure!(daemon_pids(sandbox)? == (sessiond, supervisor), "a daemon died");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

/// A commit that did not reach the file is no commit: nothing that rests on it is acknowledged.
pub(super) fn writes_fail(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, _supervisor) = daemon_pids(sandbox)?;
    let strace = Strace::over(sandbox, sessiond, true, "pwrite64,fsync,fdatasync:error=EIO")?;
    let refused = sandbox.mews(["run", "--no-tty", "--", "touch", "it-ran"])?.expect(125)?;
    ensure!(refused.err().contains("database cannot be written"), "{}", refused.err());
    ensure!(strace.injected() > 0, "nothing was injected");
    sandbox.mews(["ls"])?.expect(0)?;
    drop(strace);
    pause::until("it works again", LIMIT, || {
        let ran = sandbox.mews(["run", "--no-tty", "--", "true"]).ok()?;
        (ran.code == 0).then_some(())
    })?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
