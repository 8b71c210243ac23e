//! No descriptors left in one of the processes (EMFILE): who waits is served later, nobody spins, and
//! no cage dies of it.

use super::super::{BYSTANDER, flow};
use super::{begin, cpu_us};
use crate::audit;
use crate::suite::terminal::{broker, pids_of};
use crate::talk::{daemon_pids, finish};
use anyhow::ensure;
use std::process::Command;
use std::time::Instant;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

/// As many as are open now; given back at the end.
struct Exhausted {
    pid: i32,
    before: String,
}

impl Exhausted {
    fn of(pid: i32) -> anyhow::Result<Self> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        let (soft, hard) = (words.get(3).copied(), words.get(4).copied());
        let before = format!("{}:{}", soft.unwrap_or("1024"), hard.unwrap_or("1024"));
        // Numbers are given from the lowest free one: below the limit none may be free.
        let open: Vec<i32> = std::fs::read_dir(format!("/proc/{pid}/fd"))?
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
            .collect();
        let free = (0..).find(|number| !open.contains(number)).unwrap_or(0);
        let exhausted = Self { pid, before };
        exhausted.set(&format!("{free}:"))?;
        Ok(exhausted)
    }

    fn set(&self, limit: &str) -> anyhow::Result<()> {
        let pid = self.pid.to_string();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let id = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|ids| ids.split_whitespace().next()).unwrap_or("0").to_owned()
        };
        // Who is not the same user needs a capability that a container's root lacks.
        let mut command = Command::new("setpriv");
        if testkit::caller::is_root() {
            command.args(["--reuid", &id("Uid:"), "--regid", &id("Gid:"), "--clear-groups"]);
        }
        let words = ["prlimit", "--pid", pid.as_str(), &format!("--nofile={limit}")];
        let status = command.args(words).status()?;
        ensure!(status.success(), "prlimit {limit}: {status}");
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        self.set(&self.before)
    }
}

/// Until the bystander has printed so many lines more: at least a second. The share of it that the
/// process was busy, in percent.
fn busy_share(
    sandbox: &Sandbox,
    pid: i32,
    count: &dyn Fn() -> anyhow::Result<usize>,
) -> anyhow::Result<u64> {
    let (from, used, since) = (count()?, cpu_us(pid)?, Instant::now());
    pause::until("fifty lines are printed", LIMIT, || (count().ok()? >= from + 50).then_some(()))?;
    let spent = u64::try_from(since.elapsed().as_micros())?.max(1);
    ensure!(sandbox.root().exists(), "the sandbox is gone");
    Ok((cpu_us(pid)? - used) * 100 / spent)
}

/// Lines of the bystander, as it counts them itself in its workspace: nobody is asked for them.
fn counted(sandbox: &Sandbox) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(crate::talk::in_workspace(sandbox, "ticks"))?;
    Ok(text.lines().count())
}

fn tick(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let script = "while [ ! -e stop-ticker ]; do echo tick >> ticks; sleep 0.02; done; exit 3";
    crate::talk::start(sandbox, &["--name", "ticker"], &["sh", "-c", script])?;
    pause::until("it ticks", LIMIT, || counted(sandbox).ok().filter(|count| *count > 0)).map(drop)
}

fn done(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    sandbox.file("ws/stop-ticker", "")?;
    let waited = crate::talk::wait_exit(sandbox, "ticker")?.expect(0)?;
    ensure!(waited.out().trim() == "3", "{}", waited.out());
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

pub(super) fn of_sessiond(sandbox: &Sandbox) -> anyhow::Result<()> {
    tick(sandbox)?;
    let (sessiond, _supervisor) = daemon_pids(sandbox)?;
    let exhausted = Exhausted::of(sessiond)?;
    let waits = begin(sandbox, &["ls"])?;
    let share = busy_share(sandbox, sessiond, &|| counted(sandbox))?;
    exhausted.end()?;
    ensure!(share < 30, "sessiond is busy {share} % of the time");
    finish(waits)?.expect(0)?;
    let log = std::fs::read_to_string(sandbox.state_dir().join("log/mews-sessiond.log"))?;
    let said = log.lines().filter(|line| line.contains("accept")).count();
    ensure!(said == 1, "said {said} times");
    done(sandbox)
}

pub(super) fn of_the_supervisor(sandbox: &Sandbox) -> anyhow::Result<()> {
    tick(sandbox)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let exhausted = Exhausted::of(supervisor)?;
    // What comes with descriptors breaks links; nothing is done twice, and no cage dies.
    let acts = [
        begin(sandbox, &["logs", "--raw", BYSTANDER])?,
        begin(sandbox, &["run", "-d", "--name", "late", "--", "true"])?,
        begin(sandbox, &["exec", "--no-tty", BYSTANDER, "--", "true"])?,
    ];
    let share = busy_share(sandbox, supervisor, &|| counted(sandbox))?;
    exhausted.end()?;
    ensure!(share < 30, "the supervisor is busy {share} % of the time");
    for act in acts {
        let told = finish(act)?;
        ensure!(told.code == 0 || !told.err().is_empty(), "exits {} without a word", told.code);
    }
    ensure!(daemon_pids(sandbox)? == (sessiond, supervisor), "a daemon died");
    pause::until("every cage is reached again", LIMIT, || {
        let told = sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"]).ok()?;
        (told.code == 0).then_some(())
    })?;
    done(sandbox)
}

pub(super) fn of_a_broker(sandbox: &Sandbox) -> anyhow::Result<()> {
    crate::talk::start(sandbox, &["--name", "poor"], &["sh", "-c", "echo up; sleep 1000"])?;
    let pid = broker(sandbox)?;
    tick(sandbox)?;
    let exhausted = Exhausted::of(pid)?;
    // Descriptors that do not fit are lost on their way, and with them the link.
    let told = sandbox.mews(["exec", "--no-tty", "poor", "--", "touch", "it-ran"])?;
    ensure!(told.code != 0 && !told.err().is_empty(), "exits {}: {}", told.code, told.err());
    let share = busy_share(sandbox, pid, &|| counted(sandbox))?;
    exhausted.end()?;
    ensure!(share < 30, "the broker is busy {share} % of the time");
    ensure!(pids_of(sandbox, "mews-ptybroker").contains(&pid), "the broker died");
    pause::until("it takes commands again", LIMIT, || {
        let told = sandbox.mews(["exec", "--no-tty", "poor", "--", "true"]).ok()?;
        (told.code == 0).then_some(())
    })?;
    ensure!(!crate::talk::in_workspace(sandbox, "it-ran").exists(), "it ran");
    let viewer = Terminal::mews(sandbox, &["attach", "--observe", "poor"])?;
    viewer.wait_for("up")?;
    drop(viewer);
    sandbox.mews(["kill", "poor"])?.expect(0)?;
    done(sandbox)
}
