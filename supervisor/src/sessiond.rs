//! sessiond: started, watched, started again; or found alive and taken over.
//!
//! It holds a lock on `<run>/sessiond.lock` from its first moment to its last, so the kernel knows
//! which process is the one; a supervisor that dies behind the fork leaves no second one behind. Its
//! API listener is held here too, so that clients wait in the backlog while a new sessiond comes up; a
//! taken-over one brings it with its hello.

use crate::files;
use crate::launch::{self, LaunchError};
use crate::server;
use crate::supervisor::{Stop, Supervisor};
use crate::sys::child::Prepared;
use link::{PidFd, failpoint, owner};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

const LISTEN_FD: i32 = 3;
const LOCK_FD: i32 = 4;
/// A sessiond that lived this long did not fail at its start.
const LIVED: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Less than what a database needs to be opened.
const ROOM_MIN: u64 = 64 << 10;
/// One that has never come up is tried so often: what ails it at its start ails it every time.
const FAILURES_MAX: u32 = 3;
/// Asked to end, it finishes its answers; then it is killed.
const END_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessiondError {
    #[error("api.sock: {0}")]
    Socket(io::Error),
    #[error("its log: {0}")]
    Log(io::Error),
    #[error("its lock: {0}")]
    Lock(io::Error),
    #[error("a one-shot has no sessiond")]
    OneShot,
    #[error("mews-sessiond does not start: {0}")]
    Never(String),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// The running sessiond.
struct Living {
    handle: Rc<PidFd>,
    pid: i32,
}

/// Keeps one running until the supervisor stops; then ends it.
///
/// # Errors
/// It has never come up: what it said last. Without it nobody is served, so the supervisor gives up.
pub(crate) async fn keep(supervisor: Rc<Supervisor>) -> Result<(), SessiondError> {
    let mut pause = PAUSE_MIN;
    let mut failures = 0;
    loop {
        let since = Instant::now();
        let said = LastWords::from_here(&supervisor.host.dirs.log("mews-sessiond"));
        let found = find(&supervisor);
        let is_found = found.is_some();
        let current = match found {
            Some(found) => Ok(found),
            None => start(&supervisor).await,
        };
        let ours = current.as_ref().err().map(ToString::to_string);
        match current {
            Ok(current) => {
                tokio::select! {
                    () = launch::ended(&current.handle, current.pid) => {
                        tracing::warn!(pid = current.pid, "sessiond ended; it is started again");
                        failures += 1;
                    }
                    () = supervisor.foreign_sessiond(current.pid) => {
                        tracing::warn!(pid = current.pid, "a sessiond of another build is replaced");
                        end(&current).await;
                        // One of our own that is foreign to us will be so every time.
                        failures += u32::from(!is_found);
                    }
                    _why = supervisor.stopped() => {
                        end(&current).await;
                        remove_files(&supervisor);
                        return Ok(());
                    }
                }
            }
            Err(error) => {
                tracing::error!(%error, "sessiond could not be started");
                failures += 1;
            }
        }
        if failures >= FAILURES_MAX && !supervisor.has_met_sessiond() {
            supervisor.stop(Stop::NoSessiond);
            remove_files(&supervisor);
            return Err(SessiondError::Never(said.read(&supervisor.host.dirs.state, ours)));
        }
        pause = if since.elapsed() > LIVED { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _why = supervisor.stopped() => {
                remove_files(&supervisor);
                return Ok(());
            }
        }
    }
}

/// One that lives: an earlier supervisor started it, or ours lost the race for the lock to it.
fn find(supervisor: &Supervisor) -> Option<Living> {
    let (handle, pid) = owner::holder(open_lock(supervisor).ok()?).ok()??;
    tracing::info!(pid, "a living sessiond is taken over");
    Some(Living { handle: Rc::new(handle), pid })
}

fn lock_file(supervisor: &Supervisor) -> PathBuf {
    supervisor.host.dirs.run.join("sessiond.lock")
}

fn open_lock(supervisor: &Supervisor) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(lock_file(supervisor))
}

async fn start(supervisor: &Supervisor) -> Result<Living, SessiondError> {
    let listener = match supervisor.api_listener() {
        Some(listener) => listener,
        None => server::bind_api(supervisor).map_err(SessiondError::Socket)?,
    };
    let kept = listener.try_clone().map_err(SessiondError::Socket)?;
    supervisor.set_api_listener(Some(kept));
    let mut started = launch::start(prepare(supervisor, listener)?)?;
    failpoint::reach("sessiond.forked");
    started.executed().await?;
    tracing::info!(pid = started.pid, "sessiond started");
    Ok(Living { handle: started.handle, pid: started.pid })
}

fn prepare(supervisor: &Supervisor, listener: OwnedFd) -> Result<Prepared, SessiondError> {
    let ids = supervisor.host.sessiond;
    let program = supervisor.programs.sessiond.as_ref().ok_or(SessiondError::OneShot)?;
    let program = program.try_clone().map_err(SessiondError::Log)?;
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(SessiondError::Log)?;
    let log = open_log(&supervisor.host.dirs.log("mews-sessiond")).map_err(SessiondError::Log)?;
    let log_too = log.try_clone().map_err(SessiondError::Log)?;
    let lock = open_lock(supervisor).map_err(SessiondError::Lock)?;
    Ok(Prepared {
        program,
        argv: ["mews-sessiond", "--listen-fd", "3", "--lock-fd", "4"]
            .map(c)
            .into_iter()
            .flatten()
            .collect(),
        env: environment(supervisor),
        fds: vec![
            (null.into(), 0),
            (log_too.into(), 1),
            (log.into(), 2),
            (listener, LISTEN_FD),
            (lock.into(), LOCK_FD),
        ],
        mounts: None,
        identity: supervisor.host.is_root().then_some((ids.uid, ids.gid)),
        limits: vec![(libc::RLIMIT_CORE, 0)],
        oom_score_adj: None,
    })
}

/// The folders as we resolved them, and what words and programs it may need. Nothing else of ours.
fn environment(supervisor: &Supervisor) -> Vec<CString> {
    let dirs = &supervisor.host.dirs;
    let folders = [
        ("MEWS_RUN_DIR", &dirs.run),
        ("MEWS_STATE_DIR", &dirs.state),
        ("MEWS_CONFIG_DIR", &dirs.config),
    ];
    let folders = folders.map(|(name, path)| {
        let mut line = format!("{name}=").into_bytes();
        line.extend_from_slice(path.as_os_str().as_bytes());
        CString::new(line).ok()
    });
    let passed = ["PATH", "LANG", "MEWS_LOG"];
    let passed =
        passed.map(|name| std::env::var(name).ok().and_then(|v| c(&format!("{name}={v}"))));
    let failpoints = failpoint::folder().and_then(|folder| {
        let folder = folder.to_string_lossy().into_owned();
        c(&format!("{}={folder}", failpoint::VARIABLE))
    });
    let speaks = wire::hello::SPEAKS;
    let speaks = failpoint::variable(speaks).and_then(|text| c(&format!("{speaks}={text}")));
    folders.into_iter().chain(passed).chain([failpoints, speaks]).flatten().collect()
}

fn c(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

/// Appending, 0600, in a folder of its own.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::options().append(true).create(true).mode(0o600).open(path)
}

async fn end(living: &Living) {
    // ESRCH: it has ended.
    let _ended = living.handle.signal(libc::SIGTERM);
    let ended = launch::ended(&living.handle, living.pid);
    if tokio::time::timeout(END_DEADLINE, ended).await.is_err() {
        let _ended = living.handle.signal(libc::SIGKILL);
        launch::ended(&living.handle, living.pid).await;
    }
}

fn remove_files(supervisor: &Supervisor) {
    let api = (!supervisor.api_is_given.get()).then(|| supervisor.host.dirs.api_socket());
    for path in std::iter::once(lock_file(supervisor)).chain(api) {
        if let Err(error) = files::remove_any(&path) {
            tracing::warn!(path = %path.display(), %error, "left behind");
        }
    }
}

/// What is added to a log from now on.
struct LastWords {
    path: PathBuf,
    from: u64,
}

impl LastWords {
    fn from_here(path: &Path) -> Self {
        let from = std::fs::metadata(path).map_or(0, |meta| meta.len());
        Self { path: path.to_owned(), from }
    }

    /// The last line of it; a disk that is full takes none, and is named instead. `ours`: why it was not
    /// even started.
    fn read(&self, state: &Path, ours: Option<String>) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let from = usize::try_from(self.from).unwrap_or(usize::MAX);
        let text = String::from_utf8_lossy(bytes.get(from..).unwrap_or_default());
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        match last {
            Some(last) => last.to_owned(),
            None if !has_room(state) => {
                format!("the disk of {} is full; make room and try again", state.display())
            }
            None => ours.unwrap_or_else(|| "it said nothing".to_owned()),
        }
    }
}

/// For a line or two; where nobody can tell, there is.
fn has_room(folder: &Path) -> bool {
    nix::sys::statvfs::statvfs(folder)
        .is_ok_and(|disk| disk.blocks_available() * disk.fragment_size() >= ROOM_MIN)
}
