//! sessiond: started, watched, started again; or found alive and taken over.
//!
//! `<run>/sessiond.pid` holds `pid start_time`. Its API listener is held here too, so that clients
//! wait in the backlog while a new sessiond comes up; a taken-over one brings it with its hello.

use crate::cage::record::Process;
use crate::files;
use crate::launch::{self, LaunchError};
use crate::server;
use crate::supervisor::Supervisor;
use crate::sys::child::Prepared;
use link::PidFd;
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
/// A sessiond that lived this long did not fail at its start.
const LIVED: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Asked to end, it finishes its answers; then it is killed.
const END_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessiondError {
    #[error("the API socket: {0}")]
    Socket(io::Error),
    #[error("its log: {0}")]
    Log(io::Error),
    #[error("its pid file: {0}")]
    PidFile(io::Error),
    #[error("a one-shot has no sessiond")]
    OneShot,
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// The running sessiond.
struct Living {
    handle: Rc<PidFd>,
    pid: i32,
}

/// Keeps one running until the supervisor stops; then ends it.
pub(crate) async fn keep(supervisor: Rc<Supervisor>) {
    let mut pause = PAUSE_MIN;
    let mut living = find(&supervisor);
    loop {
        let since = Instant::now();
        let current = match living.take() {
            Some(found) => Ok(found),
            None => start(&supervisor).await,
        };
        match current {
            Ok(current) => {
                tokio::select! {
                    () = launch::ended(&current.handle, current.pid) => {}
                    _why = supervisor.stopped() => return end(&supervisor, &current).await,
                }
                tracing::warn!(pid = current.pid, "sessiond ended; it is started again");
            }
            Err(error) => tracing::error!(%error, "sessiond could not be started"),
        }
        pause = if since.elapsed() > LIVED { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _why = supervisor.stopped() => return,
        }
    }
}

/// One that an earlier supervisor started and that lives.
fn find(supervisor: &Supervisor) -> Option<Living> {
    let text = std::fs::read_to_string(pid_file(supervisor)).ok()?;
    let (pid, start_time) = parse_pid_file(&text)?;
    let handle = PidFd::open_same(pid, start_time).ok().filter(PidFd::is_alive)?;
    tracing::info!(pid, "a living sessiond is taken over");
    Some(Living { handle: Rc::new(handle), pid })
}

fn parse_pid_file(text: &str) -> Option<(i32, u64)> {
    let (pid, start_time) = text.trim_end().split_once(' ')?;
    Some((pid.parse().ok().filter(|pid| *pid > 1)?, start_time.parse().ok()?))
}

fn pid_file(supervisor: &Supervisor) -> PathBuf {
    supervisor.host.dirs.run.join("sessiond.pid")
}

async fn start(supervisor: &Supervisor) -> Result<Living, SessiondError> {
    let listener = match supervisor.api_listener() {
        Some(listener) => listener,
        None => server::bind_api(supervisor).map_err(SessiondError::Socket)?,
    };
    let kept = listener.try_clone().map_err(SessiondError::Socket)?;
    supervisor.set_api_listener(Some(kept));
    let mut started = launch::start(prepare(supervisor, listener)?)?;
    started.executed().await?;
    let process = Process::of(started.pid).map_err(SessiondError::PidFile)?;
    let text = format!("{} {}\n", process.pid, process.start_time);
    files::write_whole(&pid_file(supervisor), text.as_bytes()).map_err(SessiondError::PidFile)?;
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
    Ok(Prepared {
        program,
        argv: ["mews-sessiond", "--listen-fd", "3"].map(c).into_iter().flatten().collect(),
        env: environment(supervisor),
        fds: vec![(null.into(), 0), (log_too.into(), 1), (log.into(), 2), (listener, LISTEN_FD)],
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
    let failpoints = link::failpoint::folder().and_then(|folder| {
        let folder = folder.to_string_lossy().into_owned();
        c(&format!("{}={folder}", link::failpoint::VARIABLE))
    });
    folders.into_iter().chain(passed).chain([failpoints]).flatten().collect()
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

async fn end(supervisor: &Supervisor, living: &Living) {
    // ESRCH: it has ended.
    let _ended = living.handle.signal(libc::SIGTERM);
    let ended = launch::ended(&living.handle, living.pid);
    if tokio::time::timeout(END_DEADLINE, ended).await.is_err() {
        let _ended = living.handle.signal(libc::SIGKILL);
        launch::ended(&living.handle, living.pid).await;
    }
    let api = (!supervisor.api_is_given.get()).then(|| supervisor.host.dirs.api_socket());
    for path in std::iter::once(pid_file(supervisor)).chain(api) {
        if let Err(error) = files::remove_any(&path) {
            tracing::warn!(path = %path.display(), %error, "left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_files() {
        for (text, want) in [
            ("12 345\n", Some((12, 345))),
            ("12", None),
            ("1 5", None),
            ("-3 5", None),
            ("x 5", None),
            ("12 345 6", None),
        ] {
            assert_eq!(parse_pid_file(text), want, "{text}");
        }
    }
}
