//! Daemons that die while a grant is made or revoked: afterwards it is whole, or it is not there, and
//! nobody has a key that was not told.
//! Those that die while one is used are rows of the suite `faults`.

use super::{by, idle};
use anyhow::ensure;
use testkit::process::LIMIT;
use testkit::{Act, Sandbox, pause};

pub(super) const STEPS: [&str; 8] = [
    "mint.rows",
    "grant.written",
    "mint.kept",
    "mint.answered",
    "mint.made",
    "revoke.asked",
    "revoke.kept",
    "revoke.answered",
];

pub(super) fn dies_at(sandbox: &Sandbox, step: &str) -> anyhow::Result<()> {
    // So that the daemons run and have a session.
    let first = super::make(sandbox, "first", "1", &[])?;
    let words = ["grants", "make", "--in", "first", "--cages", "1", "--for", "1h", "--to"];
    let file = sandbox.root().join("home/second.key");
    let path = file.to_string_lossy().into_owned();
    let revokes = step.starts_with("revoke.");
    let id = super::text(&super::only(sandbox)?, "/id")?;
    sandbox.arm(step, Act::Kill)?;
    let told = match revokes {
        true => sandbox.mews(["grants", "revoke", &id])?,
        false => sandbox.mews([&words[..], &[&path]].concat())?,
    };
    ensure!(sandbox.has_met(step), "{step} was not reached: {}", told.err());
    sandbox.mews(["ls"])?.expect(0)?;
    if revokes {
        // Said again where it was not acknowledged; then it is so, whoever died.
        if told.code != 0 {
            sandbox.mews(["grants", "revoke", &id])?.expect(0)?;
        }
        by(sandbox, &first, "echo ran >> ran")?.expect(3)?;
        ensure!(!sandbox.workspace().join("ran").exists(), "a revoked one gave a cage");
        return sandbox.mews(["end", "first"])?.expect(0).map(drop);
    }
    let acknowledged = told.code == 0;
    ensure!(file.exists() == acknowledged, "a key that nobody was told: {}", told.err());
    // All was done but to tell it: it is listed, so that it can be revoked.
    let wanted = if acknowledged || step == "mint.made" { 2 } else { 1 };
    pause::until("no grant is left without a key", LIMIT, || {
        let all = sandbox.mews(["--json", "grants"]).ok()?.json_lines().ok()?;
        (all.len() == wanted && on_disk(sandbox) == Some(wanted)).then_some(())
    })?;
    // The other one is as it was.
    by(sandbox, &first, "echo ran >> ran")?.expect(0)?;
    idle(sandbox, "first")?;
    by(sandbox, &first, "echo ran >> ran")?.expect(5)?;
    ensure!(crate::talk::read(sandbox, "ran")? == "ran\n", "once");
    sandbox.mews(["end", "first"])?.expect(0).map(drop)
}

fn on_disk(sandbox: &Sandbox) -> Option<usize> {
    Some(std::fs::read_dir(sandbox.state_dir().join("sup/grants")).ok()?.count())
}
