//! Checkpoint and rollback of a large workspace in which little has changed, beside `cp -a` of the
//! same layer: what any copy of it costs.

use super::rounds;
use super::table::{Aim, Series, Table};
use crate::talk::start;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::Sandbox;

const FOLDERS: usize = 500;
const FILES_IN_EACH: usize = 100;
const CHANGED: usize = 1000;

/// # Errors
/// A cage could not be built, or a copy failed.
pub(crate) fn run() -> anyhow::Result<bool> {
    let sandbox = Sandbox::new()?;
    furnish(&sandbox)?;
    start(&sandbox, &["--overlay", "--name", "big"], &["sleep", "100000"])?;
    let what = format!("{} files, {CHANGED} of them changed, in ms", FOLDERS * FILES_IN_EACH);
    let mut table = Table::new(&what, "cp -a");
    let [mut copy, mut take, mut restore, mut back, mut whole] =
        [(); 5].map(|()| Series::default());
    for _round in 0..rounds(10) {
        change(&sandbox)?;
        copy.push_ms(copied(&sandbox, &upper(&sandbox)?)?);
        take.push_ms(timed(|| mews(&sandbox, &["checkpoint", "big"]))?);
        restore.push_ms(copied(&sandbox, &upper(&sandbox)?)?);
        back.push_ms(timed(|| mews(&sandbox, &["rollback", "big", "--yes", "--restart"]))?);
        whole.push_ms(copied(&sandbox, &sandbox.workspace())?);
    }
    table.compare("checkpoint", &copy, &take, Aim::None);
    table.compare("rollback, with a new start", &restore, &back, Aim::None);
    table.compare("checkpoint, beside a copy of the workspace", &whole, &take, Aim::None);
    sandbox.finish()?;
    Ok(table.all_met())
}

fn furnish(sandbox: &Sandbox) -> anyhow::Result<()> {
    for folder in 0..FOLDERS {
        let folder = sandbox.folder(&format!("ws/d{folder}"))?;
        for file in 0..FILES_IN_EACH {
            fs::write(folder.join(format!("f{file}")), "x".repeat(4000))?;
        }
    }
    Ok(())
}

/// The same files each time, with other contents.
fn change(sandbox: &Sandbox) -> anyhow::Result<()> {
    let folders = CHANGED / FILES_IN_EACH;
    let script =
        format!("for d in $(seq {folders}); do for f in d$d/*; do echo y >> $f; done; done");
    mews(sandbox, &["exec", "big", "--", "sh", "-c", &script])
}

fn upper(sandbox: &Sandbox) -> anyhow::Result<PathBuf> {
    let layer = fs::read_dir(sandbox.state_dir().join("layers"))?.next().context("no layer")??;
    Ok(layer.path().join("live/upper"))
}

/// On the disk, as a checkpoint is.
fn copied(sandbox: &Sandbox, from: &std::path::Path) -> anyhow::Result<Duration> {
    let to = sandbox.root().join("copy");
    let time = timed(|| {
        let done = Command::new("cp").arg("-a").arg(from).arg(&to).status()?;
        let synced = Command::new("sync").arg("-f").arg(&to).status()?;
        ensure!(done.success() && synced.success(), "cp -a {}", from.display());
        Ok(())
    });
    fs::remove_dir_all(&to)?;
    time
}

fn mews(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<()> {
    sandbox.mews(args)?.expect(0).map(drop)
}

fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}
