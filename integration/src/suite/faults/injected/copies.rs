//! The machine stops at once: what is in the files at that moment is all there is.
//!
//! sessiond is stopped where it is, in the middle of a load, and its files are copied as they are: the
//! same as if everything had been killed there. Not the same as a power cut that takes what the kernel
//! had not written yet.

use super::super::{BYSTANDER, flow};
use super::stalled::Stalled;
use crate::audit;
use crate::talk::daemon_pids;
use anyhow::{Context as _, ensure};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

const COPIES: usize = 40;
const CLIENTS: usize = 3;

/// What was acknowledged so far, and whether there is to be more.
#[derive(Default)]
struct Load {
    runs: Mutex<Vec<String>>,
    count: AtomicUsize,
    enough: AtomicBool,
}

impl Load {
    fn acknowledged(&self) -> Vec<String> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs, and their events, one after the other.
    fn client(&self, sandbox: &Sandbox, number: usize) -> anyhow::Result<()> {
        let mut round = 0;
        while !self.enough.load(Ordering::Relaxed) {
            round += 1;
            let name = format!("r{number}-{round}");
            sandbox.mews(["run", "-d", "--name", &name, "--", "true"])?.expect(0)?;
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// As long as this is there, the load ends with whoever drops it.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.enough.store(true, Ordering::Relaxed);
    }
}

pub(super) fn hold_what_was_acknowledged(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let load = Load::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let load = &load;
                scope.spawn(move || load.client(sandbox, number))
            })
            .collect();
        let ends = Ends(&load);
        let copied = copies(sandbox, &load);
        drop(ends);
        for client in clients {
            client.join().map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
        }
        copied
    })?;
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

fn copies(sandbox: &Sandbox, load: &Load) -> anyhow::Result<()> {
    let (sessiond, _supervisor) = daemon_pids(sandbox)?;
    let mut with_wal = 0;
    for number in 0..COPIES {
        let before = load.count.load(Ordering::Relaxed);
        // The load goes on between two copies, and each is taken at another moment of it.
        pause::until("another run is acknowledged", LIMIT, || {
            (load.count.load(Ordering::Relaxed) > before).then_some(())
        })?;
        let stalled = Stalled::wholly(sessiond)?;
        let known = load.acknowledged();
        let copy =
            copy(&sandbox.state_dir().join("db"), &sandbox.root().join(format!("copy{number}")));
        drop(stalled);
        let copy = copy?;
        with_wal +=
            usize::from(std::fs::metadata(copy.join("mews.db-wal")).is_ok_and(|it| it.len() > 0));
        whole(&copy, &known).with_context(|| format!("copy {number}, {} runs", known.len()))?;
        std::fs::remove_dir_all(&copy)?;
    }
    ensure!(with_wal > COPIES / 2, "{with_wal} copies have something in their log: no load");
    Ok(())
}

/// The database and its log; what else is there belongs to who has it open.
fn copy(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir(to)?;
    for name in ["mews.db", "mews.db-wal"] {
        std::fs::copy(from.join(name), to.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(to.to_owned())
}

/// As the next sessiond would find it.
fn whole(folder: &Path, acknowledged: &[String]) -> anyhow::Result<()> {
    let db = Connection::open(folder.join("mews.db"))?;
    let word: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(word == "ok", "integrity: {word}");
    let mut broken = db.prepare("PRAGMA foreign_key_check")?;
    ensure!(!broken.exists([])?, "a row without its owner");
    let of = "SELECT count(*) FROM runs r JOIN sessions s ON r.session = s.id WHERE s.name = ?1";
    let mut runs = db.prepare(of)?;
    for name in acknowledged {
        let count: u32 = runs.query_row([name], |row| row.get(0))?;
        ensure!(count == 1, "{name} was acknowledged, and has {count} runs");
    }
    let holes = audit::sequences(&db)?;
    ensure!(holes.is_empty(), "{}", holes.join("\n"));
    Ok(())
}
