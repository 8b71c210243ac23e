//! A busy host: cages with terminals, viewers and floods, all at once (SECURITY.md 5), scaled to this
//! machine.
//!
//! `MEWS_BENCH_CAGES` sets how many; 256 is the whole load. For each: eight terminals and two viewers;
//! one in sixteen floods.

use super::crowd::{Daemon, RESTART_MS, mews, ms, restart, timed};
use super::pss_bytes;
use super::pty::{Jobs, Kind, Systems, echo};
use super::rounds;
use super::table::{Aim, Series, Table};
use crate::suite::terminal::pids_of;
use crate::talk::daemon_pids;
use anyhow::{Context as _, ensure};
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

const CAGES_PER_CPU: usize = 32;
const TERMINALS_EACH: usize = 8;
const VIEWERS_EACH: usize = 2;
const CAGES_PER_FLOOD: usize = 16;
const SPAWN_P99_MS: f64 = 500.0;
const ECHO_P99_US: f64 = 50_000.0;
/// What a broker may take: eight rings and screens of their full size, and its own.
const BROKER_MB: f64 = 8.0 * 6.0 + 8.0;

/// Prints numbered lines for each line typed, so that a lost byte shows.
const SUBJECT: &str = "stty -echo; echo up; n=0; while read x; do
    for i in $(seq 500); do n=$((n+1)); echo line $n; done; done";

/// Whether every row is within twice its aim.
///
/// # Errors
/// A cage could not be built, or something was lost.
pub(crate) fn run() -> anyhow::Result<bool> {
    let cpus = std::thread::available_parallelism()?.get();
    let cages = std::env::var("MEWS_BENCH_CAGES").ok().and_then(|text| text.parse().ok());
    let cages: usize = cages.unwrap_or(cpus * CAGES_PER_CPU);
    let sandbox = Sandbox::new()?;
    let floods = cages.div_ceil(CAGES_PER_FLOOD);
    let title = format!(
        "{cages} cages, {} terminals, {} viewers, {floods} floods, {cpus} cpus",
        cages * TERMINALS_EACH,
        cages * VIEWERS_EACH,
    );
    let mut table = Table::new(&title, "");
    let mut spawn = Series::default();
    for number in 0..cages {
        spawn.push(ms(timed(|| furnish(&sandbox, number))?));
    }
    table.alone("spawn p99 while it fills, ms", spawn.percentile(99), Aim::AtMost(SPAWN_P99_MS));
    for number in 0..cages {
        for _more in 1..TERMINALS_EACH {
            mews(&sandbox, &["exec", "-d", &name(number), "--", "cat"])?;
        }
    }
    let viewers = watch(&sandbox, cages)?;
    for number in 0..floods {
        mews(&sandbox, &["exec", "-d", &name(number * CAGES_PER_FLOOD), "--", "yes", "flood"])?;
    }
    measure(&sandbox, &mut table, cages)?;
    whole(&sandbox, &viewers)?;
    memory(&sandbox, &mut table)?;
    drop(viewers);
    sandbox.finish()?;
    Ok(table.all_met())
}

fn name(number: usize) -> String {
    format!("c{number}")
}

fn furnish(sandbox: &Sandbox, number: usize) -> anyhow::Result<()> {
    let name = name(number);
    mews(sandbox, &["run", "-d", "--name", &name, "--", "sh", "-c", SUBJECT, &name])
}

/// Clients that take what comes.
fn watch(sandbox: &Sandbox, cages: usize) -> anyhow::Result<Vec<Terminal>> {
    let mut viewers = Vec::new();
    for number in 0..cages {
        for _viewer in 0..VIEWERS_EACH {
            let viewer = Terminal::undrawn(sandbox, &["attach", &name(number)])?;
            viewer.wait_raw(b"up")?;
            viewers.push(viewer);
        }
    }
    Ok(viewers)
}

fn measure(sandbox: &Sandbox, table: &mut Table, cages: usize) -> anyhow::Result<()> {
    let jobs = Jobs::new(sandbox.workspace())?;
    let [mut run, mut supervisor, mut sessiond] = std::array::from_fn(|_| Series::default());
    for _round in 0..rounds(5) {
        for _run in 0..10 {
            run.push(ms(timed(|| mews(sandbox, &["run", "--", "true"]))?));
        }
        supervisor.push(ms(restart(sandbox, Daemon::Supervisor, cages)?));
        sessiond.push(ms(restart(sandbox, Daemon::Sessiond, cages)?));
    }
    let keys = echo(&Systems::new(sandbox, &jobs), Kind::Mews)?;
    table.alone("a run of true, p50, ms", run.median(), Aim::None);
    table.alone("a run of true, p99, ms", run.percentile(99), Aim::AtMost(SPAWN_P99_MS));
    table.alone("echo p50, us", keys.median(), Aim::None);
    table.alone("echo p99, us", keys.percentile(99), Aim::AtMost(ECHO_P99_US));
    for (name, series) in [("supervisor", &supervisor), ("sessiond", &sessiond)] {
        let row = format!("{name} dies, until ready, slowest, ms");
        table.alone(&row, series.percentile(100), Aim::AtMost(RESTART_MS));
    }
    Ok(())
}

/// Every cage prints, and every byte of it is there.
fn whole(sandbox: &Sandbox, viewers: &[Terminal]) -> anyhow::Result<()> {
    // The first viewer of each has the keyboard.
    for writer in viewers.iter().step_by(VIEWERS_EACH) {
        writer.send("\r")?;
    }
    let want: String = (1..=500).map(|number| format!("line {number}\r\n")).collect();
    let want = format!("up\r\n{want}");
    for number in 0..viewers.len() / VIEWERS_EACH {
        let mut got = String::new();
        pause::until("all lines", LIMIT, || {
            got = sandbox.mews(["logs", "--raw", &name(number)]).ok()?.out();
            (got.len() >= want.len()).then_some(())
        })
        .with_context(|| format!("{}: {} bytes", name(number), got.len()))?;
        ensure!(got == want, "{} lost or doubled a byte", name(number));
    }
    Ok(())
}

fn memory(sandbox: &Sandbox, table: &mut Table) -> anyhow::Result<()> {
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    table.alone("supervisor, PSS in MB", pss_bytes(supervisor) / 1e6, Aim::None);
    table.alone("sessiond, PSS in MB", pss_bytes(sessiond) / 1e6, Aim::None);
    let mut brokers = Series::default();
    for pid in pids_of(sandbox, "mews-ptybroker") {
        brokers.push(pss_bytes(pid) / 1e6);
    }
    table.alone("a broker, p50, PSS in MB", brokers.median(), Aim::None);
    table.alone("the largest broker, PSS in MB", brokers.percentile(100), Aim::AtMost(BROKER_MB));
    Ok(())
}
