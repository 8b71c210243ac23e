//! A disk that gets full: a small tmpfs holds everything that mews keeps.

use super::super::{BYSTANDER, flow};
use crate::audit;
use crate::runner::need_root;
use crate::talk::{finish, in_workspace, kill_both, number, start, text, wait_exit};
use anyhow::{Context as _, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

/// The state folder on a disk of its own; let go with everything on it.
struct Disk<'a> {
    sandbox: &'a Sandbox,
    path: PathBuf,
}

impl<'a> Disk<'a> {
    fn small(sandbox: &'a Sandbox) -> anyhow::Result<Self> {
        need_root()?;
        let path = sandbox.state_dir();
        let options = "size=24m,mode=0755";
        mount(Some("mews-test"), &path, Some("tmpfs"), MsFlags::empty(), Some(options))?;
        Ok(Self { sandbox, path })
    }

    /// To the last block.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::options().append(true).create(true).open(self.filler())?;
        for block in [1 << 20, 64 << 10, 4 << 10, 1] {
            let bytes = vec![0; block];
            while file.write_all(&bytes).is_ok() {}
        }
        let full = file.write_all(&[0; 8192]).is_err();
        ensure!(full, "the disk does not get full");
        Ok(())
    }

    fn make_room(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        std::fs::remove_file(self.filler()).ok();
        self.sandbox.mews(["daemon", "stop", "--kill"]).ok();
        umount2(&self.path, MntFlags::MNT_DETACH).ok();
    }
}

/// Cages run, viewers see every byte, reading and killing work, the rest is refused with the reason.
pub(super) fn full(sandbox: &Sandbox) -> anyhow::Result<()> {
    let disk = Disk::small(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    start(sandbox, &["--name", "killed"], &["sleep", "1000"])?;
    let script = "echo ready; while read line; do echo got $line; done";
    let mut viewer = Terminal::mews(sandbox, &["run", "--name", "seen", "--", "sh", "-c", script])?;
    viewer.wait_for("ready")?;
    viewer.send("one\r")?;
    viewer.wait_for("got one")?;
    audit::agrees(sandbox)?;
    disk.fill()?;
    viewer.send("two\r")?;
    viewer.wait_for("got two")?;
    let refused = sandbox.mews(["run", "--no-tty", "--name", "never", "--", "touch", "it-ran"])?;
    ensure!(refused.code == 125, "exits {}: {}", refused.code, refused.err());
    says_why(&refused.err())?;
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(listed.contains(BYSTANDER), "{listed}");
    sandbox.mews(["kill", "killed"])?.expect(0)?;
    disk.make_room()?;
    recovered(sandbox)?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    wait_exit(sandbox, "killed")?.expect(0)?;
    let shown = sandbox.json(["inspect", "killed"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "cancelled", "{shown}");
    viewer.send("\u{4}")?;
    ensure!(viewer.wait_exit()? == 0, "the viewer's exit");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

fn says_why(said: &str) -> anyhow::Result<()> {
    let said = said.to_lowercase();
    let named = ["full", "no space", "room"].iter().any(|word| said.contains(word));
    ensure!(named, "it does not say that the disk is full: {said}");
    Ok(())
}

/// Nobody does anything but wait for it.
fn recovered(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut said = String::new();
    let works = pause::until("it works again", LIMIT, || {
        let ran = sandbox.mews(["run", "--no-tty", "--", "true"]).ok()?;
        said = ran.err();
        (ran.code == 0).then_some(())
    });
    works.context(said)
}

/// The exit, which no file could take, is told as soon as one can.
pub(super) fn full_at_the_end(sandbox: &Sandbox) -> anyhow::Result<()> {
    let disk = Disk::small(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    let words = ["sh", "-c", "while [ ! -e stop ]; do sleep 0.02; done; touch ended; exit 11"];
    start(sandbox, &["--name", "ends"], &words)?;
    audit::agrees(sandbox)?;
    disk.fill()?;
    sandbox.file("ws/stop", "")?;
    let waiting = super::begin(sandbox, &["wait", "--exit", "ends"])?;
    pause::until("it ended", LIMIT, || in_workspace(sandbox, "ended").exists().then_some(()))?;
    disk.make_room()?;
    recovered(sandbox)?;
    let waited = finish(waiting)?.expect(0)?;
    ensure!(waited.out().trim() == "11", "{}", waited.out());
    let shown = sandbox.json(["inspect", "ends"])?;
    ensure!(number(&shown, "/runs/0/exit/code")? == 11, "{shown}");
    wait_exit(sandbox, "ends")?.expect(0)?;
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

/// Daemons that die on a full disk are not there until there is room; each client is told why.
pub(super) fn full_at_start(sandbox: &Sandbox) -> anyhow::Result<()> {
    let disk = Disk::small(sandbox)?;
    flow::begin(sandbox, BYSTANDER)?;
    disk.fill()?;
    kill_both(sandbox)?;
    let refused = sandbox.mews(["ls"])?;
    ensure!(refused.code == 69, "exits {}: {}", refused.code, refused.err());
    says_why(&refused.err())?;
    disk.make_room()?;
    sandbox.mews(["ls"])?.expect(0).context("with room")?;
    flow::lines(sandbox, BYSTANDER)?;
    flow::stop(sandbox, BYSTANDER)?;
    ensure!(Path::new(&disk.path).join("db/mews.db").exists(), "the database is gone");
    audit::agrees(sandbox)
}
