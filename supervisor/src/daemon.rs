//! The long-lived supervisor: one per run folder.

use crate::files;
use crate::host::Host;
use crate::signals::Asked;
use crate::supervisor::{Stop, Supervisor};
use crate::{equip, late, reconcile, server, service, sessiond, signals, viewers};
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// How long a supervisor that was killed may take to be gone: many descriptors, a loaded machine.
const OTHER_GONE: Duration = Duration::from_secs(3);

/// `given`: the API's listener, if a service manager holds it.
pub(crate) async fn run(
    host: Host,
    ready: Option<OwnedFd>,
    given: Option<OwnedFd>,
) -> anyhow::Result<()> {
    let word = ready.as_ref().map(OwnedFd::try_clone).transpose()?;
    let run = run_until_stopped(host, ready, given).await;
    if let (Err(error), Some(word)) = (&run, word) {
        // Where nobody waits any more, the log has it; a disk that is full has not.
        let _nobody = writeln!(File::from(word), "failed {error:#}");
    }
    run
}

async fn run_until_stopped(
    host: Host,
    ready: Option<OwnedFd>,
    given: Option<OwnedFd>,
) -> anyhow::Result<()> {
    let _lock = lock(&host)?;
    let mut signals = signals::Signals::register()?;
    let supervisor = equip(host)?;
    supervisor.keep_given_socket(given);
    let watchdog = tokio::task::spawn_local(service::feed_watchdog());
    reconcile::run(&supervisor).await.context("looking at what was left")?;
    let listener = server::bind(&supervisor).context("supervisor.sock")?;
    let serving = tokio::task::spawn_local(server::run(listener, Rc::clone(&supervisor)));
    let keeper = tokio::task::spawn_local(sessiond::keep(Rc::clone(&supervisor)));
    tokio::task::spawn_local(late::write(Rc::clone(&supervisor)));
    // The rules may have changed while no supervisor looked.
    tokio::task::spawn_local(viewers::dismiss(Rc::clone(&supervisor)));
    tokio::task::spawn_local(say_ready(Rc::clone(&supervisor), ready));
    tracing::info!(root = supervisor.host.is_root(), cages = supervisor.living().len(), "ready");
    loop {
        tokio::select! {
            why = supervisor.stopped() => {
                tracing::info!(?why, "stopping");
                break;
            }
            asked = signals.next() => match asked {
                Asked::Reload if supervisor.host.is_root() => {
                    if supervisor.admission.reload(&supervisor.host) {
                        supervisor.dirty.mark_rules();
                        tokio::task::spawn_local(viewers::dismiss(Rc::clone(&supervisor)));
                    }
                }
                Asked::Reload | Asked::End => {
                    supervisor.stop(Stop::Signal);
                    break;
                }
            },
        }
    }
    service::say_stopping();
    let kept = keeper.await.context("ending sessiond")?;
    watchdog.abort();
    serving.abort();
    if supervisor.living().is_empty() {
        supervisor.layout.tidy();
    }
    files::remove_any(&supervisor.host.dirs.supervisor_socket())?;
    kept.map_err(Into::into)
}

/// Held for life. The CLI's `<run>/lock` is another one: it guards the starting.
///
/// A supervisor that is being killed holds it a little longer than its sockets, so that whoever found
/// these dead would find it alive here: it has its time to be gone. A thread waits, as flock(2) knows no
/// limit of time; where that passes, the process ends, and the thread with it.
fn lock(host: &Host) -> anyhow::Result<Flock<File>> {
    let path = host.dirs.run.join("supervisor.lock");
    let file = File::options().create(true).append(true).open(&path).context("lock file")?;
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, nix::Error::EWOULDBLOCK)) => file,
        Err((_file, errno)) => return Err(errno).context("lock file"),
    };
    let (taken, wait) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // Nobody listens any more: the time is over.
        drop(taken.send(Flock::lock(file, FlockArg::LockExclusive)));
    });
    let Ok(lock) = wait.recv_timeout(OTHER_GONE) else {
        bail!("a supervisor runs already in {}", host.dirs.run.display())
    };
    drop(waiter.join());
    lock.map_err(|(_file, errno)| errno).context("lock file")
}

async fn say_ready(supervisor: Rc<Supervisor>, ready: Option<OwnedFd>) {
    supervisor.first_hello().await;
    service::say_ready();
    let Some(ready) = ready else { return };
    if let Err(error) = File::from(ready).write_all(b"ready\n") {
        tracing::debug!(%error, "nobody waits for us to be ready");
    }
}
