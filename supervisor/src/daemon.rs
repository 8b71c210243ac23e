//! The long-lived supervisor: one per run folder.

use crate::files;
use crate::host::Host;
use crate::supervisor::{Stop, Supervisor};
use crate::{equip, reconcile, server, sessiond, signals};
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;

pub(crate) async fn run(host: Host, ready: Option<OwnedFd>) -> anyhow::Result<()> {
    let _lock = lock(&host)?;
    let mut signals = signals::Signals::register()?;
    let supervisor = equip(host)?;
    reconcile::run(&supervisor).await.context("looking at what was left")?;
    let listener = server::bind(&supervisor).context("supervisor.sock")?;
    let serving = tokio::task::spawn_local(server::run(listener, Rc::clone(&supervisor)));
    let keeper = tokio::task::spawn_local(sessiond::keep(Rc::clone(&supervisor)));
    if let Some(ready) = ready {
        tokio::task::spawn_local(say_ready(Rc::clone(&supervisor), ready));
    }
    tracing::info!(root = supervisor.host.is_root(), cages = supervisor.living().len(), "ready");
    tokio::select! {
        why = supervisor.stopped() => tracing::info!(?why, "stopping"),
        () = signals.any() => supervisor.stop(Stop::Signal),
    }
    keeper.await.context("ending sessiond")?;
    serving.abort();
    if supervisor.living().is_empty() {
        supervisor.layout.tidy();
    }
    files::remove_any(&supervisor.host.dirs.supervisor_socket())?;
    Ok(())
}

/// Held for life. The CLI's `<run>/lock` is another one: it guards the starting.
fn lock(host: &Host) -> anyhow::Result<Flock<File>> {
    let path = host.dirs.run.join("supervisor.lock");
    let file = File::options().create(true).append(true).open(&path).context("lock file")?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_file, nix::Error::EWOULDBLOCK)) => {
            bail!("a supervisor runs already in {}", host.dirs.run.display())
        }
        Err((_file, errno)) => Err(errno).context("lock file"),
    }
}

async fn say_ready(supervisor: Rc<Supervisor>, ready: OwnedFd) {
    supervisor.first_hello().await;
    if let Err(error) = File::from(ready).write_all(b"ready\n") {
        tracing::debug!(%error, "nobody waits for us to be ready");
    }
}
