//! kill -9 at every named step of every verb: what was acknowledged stands, what was half done is
//! finished or undone and said, and nothing is left over.
//!
//! One test a step: a bystander prints lines all along and must lose none; for each victim a cage of
//! its own is at the step when the victim dies; the next command of a client brings the daemons back;
//! then database, records, kernel and folders must agree ([`crate::audit`]).

pub(in crate::suite) mod flow;
mod injected;
mod table;

use crate::audit;
use crate::runner::Test;
use crate::suite::terminal::{broker, pids_of};
use crate::talk::{daemon_pids, finish, wait_exit};
use anyhow::{Context as _, ensure};
use flow::Flow;
use link::PidFd;
use std::collections::BTreeMap;
use std::process::Child;
use table::{Daemon, ROWS, Row, VICTIMS, Victim};
use testkit::process::LIMIT;
use testkit::{Act, Sandbox, pause};

const BYSTANDER: &str = "bystander";

pub(crate) fn tests() -> Vec<Test> {
    let rows = ROWS.iter().map(|row| Test::new(format!("faults.{}", row.step), |s| one(s, row)));
    rows.chain(injected::tests()).collect()
}

/// For whoever wants to die at one of them.
pub(crate) fn steps() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.step).collect()
}

fn one(sandbox: &Sandbox, row: &Row) -> anyhow::Result<()> {
    sandbox.mews(["run", "--no-tty", "--name", "first", "--", "true"])?.expect(0)?;
    wait_exit(sandbox, "first")?.expect(0)?;
    audit::agrees(sandbox)?;
    sandbox.mews(["rm", "first"])?.expect(0)?;
    let before = descriptors(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    let bystander = broker(sandbox)?;
    let (mut cells, mut wrong) = (Vec::new(), Vec::new());
    for (victim, want) in VICTIMS.into_iter().zip(row.outcomes) {
        let Some(want) = want else {
            cells.push("–".to_owned());
            continue;
        };
        let got = case(sandbox, row, victim, bystander);
        let got = got.with_context(|| format!("{}, {victim:?} dies", row.step))?;
        if got != want {
            wrong.push(format!("{victim:?} dies: {got}, not {want}"));
        }
        cells.push(got);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)?;
    sandbox.mews(["rm", BYSTANDER])?.expect(0)?;
    audit::agrees(sandbox)?;
    audit::no_cage_is_left(sandbox)?;
    let mut more = Vec::new();
    pause::until("no descriptor is left", LIMIT, || {
        let now = descriptors(sandbox).ok()?;
        let pairs = before.iter().zip(&now);
        more = pairs.flat_map(|(before, now)| audit::more_open(before, now)).collect();
        more.is_empty().then_some(())
    })
    .with_context(|| more.join(", "))?;
    print!("{} | ", cells.join(" | "));
    Ok(())
}

/// Open in sessiond and in the supervisor.
fn descriptors(sandbox: &Sandbox) -> anyhow::Result<[BTreeMap<String, usize>; 2]> {
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    Ok([audit::descriptors(sessiond), audit::descriptors(supervisor)])
}

fn case(sandbox: &Sandbox, row: &Row, victim: Victim, bystander: i32) -> anyhow::Result<String> {
    let name = format!("{victim:?}").to_lowercase();
    row.flow.prepare(sandbox, &name)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let (it, other) = match row.at {
        Daemon::Supervisor => (supervisor, sessiond),
        Daemon::Sessiond => (sessiond, supervisor),
    };
    let it = PidFd::open(it)?;
    let act = if victim == Victim::Itself { Act::Kill } else { Act::Stop };
    sandbox.arm(row.step, act)?;
    disturb(sandbox, row.flow, row.at, bystander)?;
    let mut client = row.flow.act(sandbox, &name)?;
    meet(sandbox, row, &mut client)?;
    if act == Act::Kill {
        pause::until("it is dead", LIMIT, || (!it.is_alive()).then_some(()))?;
    } else {
        match victim {
            Victim::Itself => {}
            Victim::Other => kill(other)?,
            Victim::Both => {
                kill(other)?;
                it.signal(libc::SIGKILL)?;
            }
            Victim::Broker => kill(broker_beside(sandbox, bystander)?)?,
        }
        // ESRCH: it was the victim.
        it.signal(libc::SIGCONT).ok();
    }
    let client = finish(client)?;
    // In real life this is the next command of anybody.
    sandbox.mews(["ls"])?.expect(0)?;
    if client.code != 0 {
        ensure!(!client.err().is_empty(), "the client fails with {} and no word", client.code);
    }
    audit::agrees(sandbox).with_context(|| format!("the client said: {}", client.err()))?;
    let outcome = row.flow.outcome(sandbox, &name, &client)?;
    let there = sandbox.mews(["inspect", BYSTANDER])?.expect(0)?.out();
    ensure!(there.contains("running"), "{there}");
    flow::lines(sandbox, BYSTANDER).context("the bystander")?;
    flow::remove(sandbox, &name, &outcome)?;
    Ok(outcome)
}

/// The death that the step is a recovery from.
fn disturb(sandbox: &Sandbox, flow: Flow, at: Daemon, bystander: i32) -> anyhow::Result<()> {
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    match (flow, at) {
        (Flow::Adopt, Daemon::Supervisor) => kill(supervisor),
        (Flow::Adopt, Daemon::Sessiond) => kill(sessiond),
        (Flow::Bury, _) => {
            let broker = broker_beside(sandbox, bystander)?;
            kill(supervisor)?;
            kill(broker)
        }
        (Flow::Discard, _) => sandbox.arm("spawn.fork_recorded", Act::Kill),
        (
            Flow::Run
            | Flow::Granted
            | Flow::Refused
            | Flow::Exec
            | Flow::Pause
            | Flow::Resume
            | Flow::Kill
            | Flow::End
            | Flow::Exit
            | Flow::Remove,
            _,
        ) => Ok(()),
    }
}

fn meet(sandbox: &Sandbox, row: &Row, client: &mut Child) -> anyhow::Result<()> {
    let met =
        pause::until("the step is reached", LIMIT, || sandbox.has_met(row.step).then_some(()));
    if met.is_err() {
        client.kill().ok();
        client.wait().ok();
    }
    met?;
    // So that the next victim's is another one.
    std::fs::remove_file(sandbox.root().join("steps").join(format!("{}.met", row.step)))?;
    Ok(())
}

fn kill(pid: i32) -> anyhow::Result<()> {
    let handle = PidFd::open(pid)?;
    handle.signal(libc::SIGKILL)?;
    pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))
}

/// That of the cage at the step. Between its fork and its exec it still has its parent's name.
fn broker_beside(sandbox: &Sandbox, bystander: i32) -> anyhow::Result<i32> {
    pause::until("the cage has a broker", LIMIT, || {
        pids_of(sandbox, "mews-ptybroker").into_iter().find(|pid| *pid != bystander)
    })
}
