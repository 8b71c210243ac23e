//! Daemons that die in the middle: afterwards a checkpoint is whole or it is not there.

use super::*;
use crate::talk::text;
use testkit::Act;

/// Of either daemon, while a checkpoint is taken.
pub(super) const TAKING: [&str; 7] = [
    "checkpoint.meant",
    "checkpoint.asked",
    "checkpoint.suspended",
    "checkpoint.unnamed",
    "checkpoint.named",
    "checkpoint.kept",
    "checkpoint.answered",
];
/// Of sessiond, on the way back.
pub(super) const BACK: [&str; 4] =
    ["rollback.meant", "rollback.killed", "rollback.restored", "rollback.told"];

pub(super) fn dies_taking(sandbox: &Sandbox, step: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    waiting(sandbox, "--overlay", "apart")?;
    inside(sandbox, "apart", CHANGES)?;
    sandbox.arm(step, Act::Kill)?;
    let told = sandbox.mews(["checkpoint", "apart"])?;
    ensure!(sandbox.has_met(step), "{step} was not reached: {}", told.err());
    settled(sandbox)?;
    let shown = sandbox.json(["inspect", "apart"])?;
    let state = text(&shown, "/state")?;
    ensure!(matches!(state.as_str(), "paused" | "running"), "{state}");
    if state == "paused" {
        sandbox.mews(["resume", "apart"])?.expect(0)?;
    }
    there_and_back(sandbox)
}

pub(super) fn dies_going_back(sandbox: &Sandbox, step: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    waiting(sandbox, "--overlay", "apart")?;
    inside(sandbox, "apart", CHANGES)?;
    let then = diff(sandbox, "apart")?;
    checkpoint(sandbox, "apart", &["--resume"])?;
    inside(sandbox, "apart", "echo later > later; rm made")?;
    sandbox.arm(step, Act::Kill)?;
    let told = sandbox.mews(["rollback", "apart", "--yes"])?;
    ensure!(sandbox.has_met(step), "{step} was not reached: {}", told.err());
    settled(sandbox)?;
    // Said again, it is finished.
    sandbox.mews(["rollback", "apart", "--yes", "--restart"])?.expect(0)?;
    must_be(diff(sandbox, "apart")?, then)?;
    there_and_back(sandbox)
}

/// Rows and files agree, and nothing is half there.
fn settled(sandbox: &Sandbox) -> anyhow::Result<()> {
    let agree = || {
        let rows = checkpoints(sandbox, "apart").ok()?;
        let states: Vec<String> = rows.iter().filter_map(|row| text(row, "/state").ok()).collect();
        let whole = states.iter().filter(|state| *state == "taken").count();
        let ended = states.iter().all(|state| matches!(state.as_str(), "taken" | "failed"));
        (ended && saved(sandbox).ok()? == (whole, 0)).then_some(())
    };
    pause::until("rows and files agree", LIMIT, agree)
}

/// Checkpoints with their name, and those without.
fn saved(sandbox: &Sandbox) -> anyhow::Result<(usize, usize)> {
    let mut found = (0, 0);
    for layer in std::fs::read_dir(sandbox.state_dir().join("layers"))? {
        for entry in std::fs::read_dir(layer?.path().join("checkpoints"))? {
            match entry?.file_name().to_string_lossy().ends_with(".new") {
                true => found.1 += 1,
                false => found.0 += 1,
            }
        }
    }
    Ok(found)
}

fn there_and_back(sandbox: &Sandbox) -> anyhow::Result<()> {
    let then = diff(sandbox, "apart")?;
    checkpoint(sandbox, "apart", &["--resume"])?;
    inside(sandbox, "apart", "echo other > README; mkdir more")?;
    sandbox.mews(["rollback", "apart", "--yes", "--restart"])?.expect(0)?;
    must_be(diff(sandbox, "apart")?, then)?;
    must_be(inside(sandbox, "apart", "echo alive")?, "alive\n".to_owned())
}
