//! What a crowd of idle cages costs whoever comes next, and what the daemons keep in memory for it.
//!
//! Two sets of daemons side by side, one without any other cage and one with a crowd, measured in turn:
//! what differs is ours, not the machine's.

use super::pss_bytes;
use super::pty::{Jobs, Kind, Systems, echo};
use super::rounds;
use super::table::{Aim, Series, Table};
use crate::talk::daemon_pids;
use anyhow::{Context as _, ensure};
use link::PidFd;
use std::time::{Duration, Instant};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

const CROWD: usize = 100;
/// For the memory of the daemons.
const LARGER: usize = 200;
/// SECURITY.md 5, in milliseconds.
pub(super) const RESTART_MS: f64 = 2000.0;
const AT_ONCE: usize = 4;
const RUNS_EACH: usize = 4;

/// Whether every row is within twice its aim.
///
/// # Errors
/// A cage could not be built.
pub(crate) fn run() -> anyhow::Result<bool> {
    let (quiet, crowded) = (Place::new()?, Place::new()?);
    let mut table = Table::new(&format!("{CROWD} idle cages, beside none"), "none");
    quiet.memory(&mut table, 0)?;
    grow(&crowded.sandbox, 0, CROWD)?;
    compare(&mut table, &quiet, &crowded)?;
    grow(&crowded.sandbox, CROWD, LARGER)?;
    crowded.memory(&mut table, LARGER)?;
    quiet.sandbox.finish()?;
    crowded.sandbox.finish()?;
    Ok(table.all_met())
}

fn compare(table: &mut Table, quiet: &Place, crowded: &Place) -> anyhow::Result<()> {
    let [mut run, mut rate, mut key, mut slow_key, mut supervisor, mut sessiond] =
        std::array::from_fn(|_| [Series::default(), Series::default()]);
    for _round in 0..rounds(5) {
        for (index, place) in [quiet, crowded].into_iter().enumerate() {
            let living = if index == 0 { 0 } else { CROWD };
            let push = |series: &mut [Series; 2], value: f64| {
                if let Some(series) = series.get_mut(index) {
                    series.push(value);
                }
            };
            for _run in 0..RUNS_EACH {
                push(&mut run, ms(timed(|| mews(&place.sandbox, &["run", "--", "true"]))?));
            }
            push(&mut rate, per_second(&place.sandbox)?);
            let keys = echo(&Systems::new(&place.sandbox, &place.jobs), Kind::Mews)?;
            push(&mut key, keys.median());
            push(&mut slow_key, keys.percentile(99));
            push(&mut supervisor, ms(restart(&place.sandbox, Daemon::Supervisor, living)?));
            push(&mut sessiond, ms(restart(&place.sandbox, Daemon::Sessiond, living)?));
        }
    }
    let mut row = |name: &str, [quiet, crowded]: &[Series; 2]| {
        table.compare(name, quiet, crowded, Aim::None);
    };
    row("a run of true, ms", &run);
    row(&format!("runs a second, {AT_ONCE} at a time"), &rate);
    row("echo p50, us", &key);
    row("echo p99, us", &slow_key);
    row("supervisor dies, until ready, ms", &supervisor);
    row("sessiond dies, until ready, ms", &sessiond);
    for (name, [_quiet, crowded]) in [("supervisor", &supervisor), ("sessiond", &sessiond)] {
        let row = format!("{name} is back with {CROWD} cages, ms");
        table.alone(&row, crowded.percentile(100), Aim::AtMost(RESTART_MS));
    }
    Ok(())
}

struct Place {
    sandbox: Sandbox,
    jobs: Jobs,
}

impl Place {
    fn new() -> anyhow::Result<Self> {
        let sandbox = Sandbox::new()?;
        let jobs = Jobs::new(sandbox.workspace())?;
        mews(&sandbox, &["daemon", "start"])?;
        Ok(Self { sandbox, jobs })
    }

    fn memory(&self, table: &mut Table, cages: usize) -> anyhow::Result<()> {
        let (sessiond, supervisor) = daemon_pids(&self.sandbox)?;
        for (name, pid) in [("supervisor", supervisor), ("sessiond", sessiond)] {
            table.alone(
                &format!("{name} with {cages} cages, PSS in MB"),
                pss_bytes(pid) / 1e6,
                Aim::None,
            );
        }
        Ok(())
    }
}

/// Idle cages `from..to`.
pub(super) fn grow(sandbox: &Sandbox, from: usize, to: usize) -> anyhow::Result<()> {
    for number in from..to {
        let name = format!("c{number}");
        let idle = "trap 'exit 0' TERM; while :; do read x; done";
        mews(sandbox, &["run", "-d", "--name", &name, "--", "sh", "-c", idle])
            .with_context(|| format!("cage {number}"))?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Daemon {
    Supervisor,
    Sessiond,
}

/// From the death of a daemon until every cage is listed as running and both daemons are ready.
pub(super) fn restart(
    sandbox: &Sandbox,
    daemon: Daemon,
    living: usize,
) -> anyhow::Result<Duration> {
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let pid = if daemon == Daemon::Supervisor { supervisor } else { sessiond };
    let victim = PidFd::open(pid)?;
    let began = Instant::now();
    victim.signal(libc::SIGKILL)?;
    let listed = pause::until("both are ready", LIMIT, || {
        // Whoever comes next starts a supervisor that is gone.
        let listed = sandbox.mews(["--json", "ls"]).ok()?.json_lines().ok()?;
        let pids = daemon_pids(sandbox).ok()?;
        (pids.0 != pid && pids.1 != pid).then_some(listed)
    })?;
    let took = began.elapsed();
    let running = |it: &&serde_json::Value| it.pointer("/state").is_some_and(|it| it == "running");
    let there = listed.iter().filter(running).count();
    ensure!(there == living, "{there} of {living} cages are listed as running");
    Ok(took)
}

fn per_second(sandbox: &Sandbox) -> anyhow::Result<f64> {
    let time = timed(|| {
        std::thread::scope(|scope| {
            let one = || (0..RUNS_EACH).try_for_each(|_| mews(sandbox, &["run", "--", "true"]));
            let all: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
            all.into_iter().try_for_each(|one| {
                one.join().unwrap_or_else(|_| anyhow::bail!("a client's thread panicked"))
            })
        })
    })?;
    Ok((AT_ONCE * RUNS_EACH) as f64 / time.as_secs_f64())
}

pub(super) fn mews(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<()> {
    sandbox.mews(args)?.expect(0).map(drop)
}

pub(super) fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
