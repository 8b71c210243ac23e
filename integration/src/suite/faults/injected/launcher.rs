//! The program that made the cage dies: bwrap's outer process, which waits for pid 1 as long as the
//! cage lives. A cage whose maker is gone is not one that anybody vouches for.

use super::super::{BYSTANDER, flow};
use crate::audit;
use crate::suite::users::as_user;
use crate::talk::{kill, number, text, wait_exit};
use anyhow::{Context as _, ensure};
use link::PidFd;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, leftovers, pause};

/// Children of a process, as the kernel lists them for its first thread.
fn children(pid: i32) -> anyhow::Result<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// By its record: an ordinary user's broker cannot be looked at.
fn broker_of(sandbox: &Sandbox, cage: &str) -> anyhow::Result<i32> {
    let record = std::fs::read(sandbox.state_dir().join("sup").join(format!("{cage}.json")))?;
    Ok(i32::try_from(number(&serde_json::from_slice(&record)?, "/broker/pid")?)?)
}

/// The bwrap that a broker has started.
fn launcher_of(broker: i32) -> anyhow::Result<i32> {
    let is_bwrap =
        |pid: &i32| leftovers::arguments(&pid.to_string()).first().is_some_and(|it| it == "bwrap");
    children(broker)?.into_iter().find(is_bwrap).context("the broker has no bwrap")
}

pub(super) fn killed(sandbox: &Sandbox) -> anyhow::Result<()> {
    kills_it(sandbox)
}

pub(super) fn killed_of_a_user(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, kills_it)
}

fn kills_it(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "echo ready; sleep 1000";
    let mut viewer =
        Terminal::mews(sandbox, &["run", "--name", "orphan", "--", "sh", "-c", script])?;
    viewer.wait_for("ready")?;
    let shown = sandbox.json(["inspect", "orphan"])?;
    let launcher = launcher_of(broker_of(sandbox, &text(&shown, "/cages/0/id")?)?)?;
    let init = PidFd::open(i32::try_from(number(&shown, "/cages/0/pid")?)?)?;
    flow::begin(sandbox, BYSTANDER)?;
    kill(launcher)?;
    pause::until("the cage is dead", LIMIT, || (!init.is_alive()).then_some(()))?;
    let waited = wait_exit(sandbox, "orphan")?.expect(0)?;
    ensure!(waited.out().trim() == "125", "wait says {}", waited.out());
    ensure!(viewer.wait_exit()? == 125, "the viewer's exit");
    viewer.check_sane()?;
    let shown = sandbox.json(["inspect", "orphan"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "status_lost", "{shown}");
    let why = text(&shown, "/runs/0/exit/message")?;
    ensure!(why.contains("bwrap"), "it says {why}");
    sandbox.mews(["exec", "--no-tty", BYSTANDER, "--", "true"])?.expect(0)?;
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)?;
    for name in ["orphan", BYSTANDER] {
        sandbox.mews(["rm", name])?.expect(0)?;
    }
    audit::agrees(sandbox)?;
    audit::no_cage_is_left(sandbox)
}
