//! From arguments to a running daemon.

use crate::access::Admission;
use crate::app::App;
use crate::keeper::Keeper;
use crate::store::{Store, grants};
use crate::supervisor_link::SupervisorLink;
use crate::{api, checkpoints, epoch, serve, sys};
use anyhow::{Context, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Uid;
use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use wire::dirs::Dirs;

const USAGE: &str = "usage: mews-sessiond --listen-fd N --lock-fd N (the supervisor starts it)";
/// How long answers that are under way may take when the daemon is told to end.
const ANSWERS_DUE: Duration = Duration::from_secs(1);

/// Runs until a signal asks for the end.
///
/// # Errors
/// Wrong arguments, root, or the database cannot be opened.
pub fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let (listener, lock) = descriptors(arguments)?;
    log_to_stderr();
    let own = Uid::effective();
    if own.is_root() {
        bail!("mews-sessiond does not run as root; mews-supervisor starts it as a user of its own");
    }
    // Two on one database would not hear of each other's changes. The descriptor stays open to the end.
    if !link::owner::take(&lock).context("the lock")? {
        bail!("another mews-sessiond serves here already");
    }
    let dirs = Dirs::resolve(own.as_raw(), |name| std::env::var(name).ok());
    raise_descriptor_limit();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()
        .context("runtime")?
        .block_on(serve_until_told(&dirs, listener, own))
}

async fn serve_until_told(dirs: &Dirs, listener: OwnedFd, own: Uid) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let database = dirs.database();
    make_folder(&database)?;
    let store =
        Store::open(&database).with_context(|| format!("the database {}", database.display()))?;
    let epoch = store.write(epoch::next).await.context("the database")?;
    store.write(checkpoints::settle).await.context("the database")?;
    store.write(grants::delete_unmade).await.context("the database")?;
    let (current, link) = watch::channel(None);
    let admission = admission(dirs, own);
    let app = Arc::new(App::new(store, SupervisorLink::new(link), epoch, admission));
    let kept = listener.try_clone().context("the listener")?;
    let socket = UnixListener::from_std(never_blocking(listener).context("the listener")?);
    let socket = socket.context("the listener")?;
    let keeper =
        Keeper { app: Arc::clone(&app), socket: dirs.supervisor_socket(), listener: kept, current };
    tracing::info!(epoch, ?admission, "sessiond");
    let (router, stopped) = (api::router(Arc::clone(&app)), app.stopping.subscribe());
    let served = serve::serve(socket, router, Arc::clone(&app), stopped);
    tokio::pin!(served);
    let kept = keeper.run();
    tokio::pin!(kept);
    tokio::select! {
        () = kept.as_mut() => {}
        () = served.as_mut() => {}
        _ = terminated.recv() => tracing::info!("told to end"),
        _ = interrupted.recv() => tracing::info!("interrupted"),
    }
    app.stopping.send_replace(true);
    // What was asked is answered: whoever stops the daemons wants to hear that they stop.
    tokio::select! {
        () = kept => {}
        _late = tokio::time::timeout(ANSWERS_DUE, served) => {}
    }
    Ok(())
}

/// Whether accept(2) waits is a flag that all holders of a listener share, and systemd clears it each time
/// that it passes it to a new supervisor. One accept that waits would stop everything here; so, where it
/// does, it gives up at once.
fn never_blocking(listener: OwnedFd) -> anyhow::Result<std::os::unix::net::UnixListener> {
    setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::microseconds(1))?;
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The API's listener, and the file whose lock says that we are the one.
fn descriptors(arguments: impl Iterator<Item = String>) -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let words: Vec<String> = arguments.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["--listen-fd", listener, "--lock-fd", lock] = words.as_slice() else { bail!(USAGE) };
    let (listener, lock) = (listener.parse().context(USAGE)?, lock.parse().context(USAGE)?);
    if listener == lock {
        bail!(USAGE);
    }
    Ok((inherited(listener)?, inherited(lock)?))
}

fn inherited(number: RawFd) -> anyhow::Result<OwnedFd> {
    let fd = sys::inherited(number).with_context(|| format!("descriptor {number}"))?;
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("an inherited descriptor")?;
    Ok(fd)
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MEWS_LOG")
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

/// Whom we serve follows from whose run folder it is: root's on a shared host, else our own.
fn admission(dirs: &Dirs, own: Uid) -> Admission {
    let owner = fs::metadata(&dirs.run).map(|meta| meta.uid());
    if owner.is_ok_and(|uid| uid == own.as_raw()) {
        return Admission::Only(own.as_raw());
    }
    Admission::Asked
}

/// In system mode the supervisor has made it before; a user's own is ours to make.
fn make_folder(database: &Path) -> anyhow::Result<()> {
    let folder = database.parent().context("the database has no folder")?;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("the folder {}", folder.display()))
}

/// A connection a viewer, a descriptor or two each: 1024 is soon too few.
fn raise_descriptor_limit() {
    if let Ok((_soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "descriptor limit");
    }
}
