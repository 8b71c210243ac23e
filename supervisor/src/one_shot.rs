//! One job in the foreground: the CLI plays sessiond's part over a socket pair. Same cages, no
//! database; nothing outlives the caller, and no file is left.

use crate::cage::driver;
use crate::cage::record::Record;
use crate::host::Host;
use crate::supervisor::{Stop, Supervisor};
use crate::{ending, equip, files, layers, signals, upstream};
use ::cage::cgroup::CageCgroup;
use link::Packets;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Cause;

/// SIGKILL to a cgroup works in milliseconds, or the kernel is stuck.
const ORPHAN_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) async fn run(host: Host, caller: OwnedFd) -> anyhow::Result<()> {
    let folders = [host.dirs.run.clone(), host.dirs.state.clone()];
    // Held for life: whoever gets it later knows that we were killed.
    let _lock = lock(&host.dirs.run)?;
    sweep(&host);
    let result = serve(host, caller).await;
    for folder in &folders {
        files::remove_any(folder)?;
    }
    result
}

async fn serve(host: Host, caller: OwnedFd) -> anyhow::Result<()> {
    let mut signals = signals::Signals::register()?;
    let supervisor = equip(host)?;
    let link = upstream::serve(Packets::from_fd(caller), None, Rc::clone(&supervisor));
    let result = tokio::select! {
        result = link => result,
        why = supervisor.stopped() => {
            tracing::debug!(?why, "stopping");
            Ok(())
        }
        _any = signals.next() => Ok(()),
    };
    supervisor.stop(Stop::CallerGone);
    clear(&supervisor).await;
    result.map_err(Into::into)
}

fn lock(run: &Path) -> io::Result<Flock<File>> {
    let file = File::options().create(true).append(true).open(run.join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_file, errno)| errno.into())
}

/// What one-shots left that were killed: their cages end, their folders go.
fn sweep(host: &Host) {
    let (Some(runs), Some(states)) = (host.dirs.run.parent(), host.dirs.state.parent()) else {
        return;
    };
    for entry in std::fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_one_shot = name.to_string_lossy().starts_with("one-shot-");
        if !is_one_shot || entry.path() == host.dirs.run || !entry.path().join("lock").exists() {
            continue;
        }
        let Ok(_lock) = lock(&entry.path()) else { continue };
        let state = states.join(&name);
        for record in Record::load_all(&state.join("sup")).unwrap_or_default() {
            end_orphan(&record);
        }
        for folder in [state, entry.path()] {
            if let Err(error) = files::remove_any(&folder) {
                tracing::warn!(folder = %folder.display(), %error, "left by a killed one-shot");
            }
        }
    }
}

fn end_orphan(record: &Record) {
    for process in [record.broker, record.init] {
        if let Some(handle) = driver::handle_of(process) {
            // ESRCH: it ended meanwhile.
            let _dead = handle.signal(libc::SIGKILL);
        }
    }
    let Some(cgroup) = record.cgroup.as_ref().map(CageCgroup::reopen) else { return };
    let killed = cgroup.kill_all(Instant::now() + ORPHAN_DEADLINE).and_then(|()| cgroup.remove());
    if let Err(error) = killed {
        tracing::warn!(cage = %record.cage, %error, "a cgroup of a killed one-shot");
    }
}

async fn clear(supervisor: &Supervisor) {
    for cage in supervisor.cages() {
        if let Err(error) = ending::kill(supervisor, &cage, Cause::Cancelled).await {
            tracing::error!(cage = %cage.id, %error, "a cage does not end");
        }
        if let Err(error) = supervisor.forget(&cage) {
            tracing::error!(cage = %cage.id, %error, "files are left");
        }
    }
    layers::forget_all(supervisor).await;
    supervisor.layout.tidy();
}
