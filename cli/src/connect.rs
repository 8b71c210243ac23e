//! Reaching the daemons, and starting them where nobody answers: PROTOCOL.md 9.
//!
//! Starters wait for each other on `<run>/start.lock`; the supervisor itself holds `<run>/lock`
//! for as long as it lives, so the two are different files.

use crate::escape::command as typed;
use crate::failure::Failure;
use crate::out::progress::Progress;
use crate::{programs, sys};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use wire::dirs::Dirs;

/// Longest start of the daemons.
const START_MS: u16 = 20_000;
/// Last lines of a log that are shown when a start fails.
const LOG_LINES: usize = 5;

/// A connection, if a daemon listens.
pub(crate) fn connect(dirs: &Dirs) -> Result<Option<UnixStream>, Failure> {
    if dirs.run_is_fallback && dirs.run.symlink_metadata().is_ok() {
        check_fallback(&dirs.run)?;
    }
    match link::packet::connect_stream(&dirs.api_socket()) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied(dirs)),
        Err(error) => {
            let path = dirs.api_socket();
            let failure = Failure::unreachable(format!("cannot reach {}: {error}", path.display()));
            Err(failure.next(look_at(&dirs.run)))
        }
    }
}

/// Nobody listens there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Starts the supervisor, which starts sessiond, unless `is_there` finds that another starter was
/// faster. Waits until both are ready. Blocks: nothing else is to be done meanwhile.
pub(crate) fn start(dirs: &Dirs, is_there: impl Fn() -> bool) -> Result<(), Failure> {
    let _progress = Progress::new("starting the daemons");
    make_folders(dirs)?;
    let _turn = take_turn(&dirs.run.join("start.lock"))?;
    if is_there() {
        return Ok(());
    }
    let log_path = dirs.log("mews-supervisor");
    let log = open_log(&log_path)?;
    let (mut ready, tell) = io::pipe().map_err(|e| Failure::new(format!("no pipe: {e}")))?;
    let mut command = Command::new(programs::find("mews-supervisor")?);
    command.arg("--ready-fd").arg(tell.as_raw_fd().to_string());
    command.current_dir("/").stdin(Stdio::null());
    command.stdout(log.try_clone().map_or_else(|_full| Stdio::null(), Stdio::from));
    command.stderr(Stdio::from(log));
    sys::in_new_session(&mut command);
    sys::inherit(&mut command, tell.as_raw_fd());
    let child = command.spawn();
    drop((command, tell));
    child
        .map_err(|error| Failure::unreachable(format!("cannot start mews-supervisor: {error}")))?;
    let said = match wait_ready(&mut ready) {
        Waited::Ready => return Ok(()),
        Waited::Failed(words) => tail(&words),
        Waited::Nothing => last_lines(&log_path),
    };
    let why = if said.is_empty() { String::new() } else { format!(":\n{said}") };
    Err(Failure::unreachable(format!("the daemons did not start{why}")).next(format!(
        "{}; mews doctor",
        typed(&["less".to_owned(), log_path.display().to_string()])
    )))
}

/// Whether a supervisor listens: it may be there before sessiond has found it. Its socket is one of
/// packets, so the kernel refuses a stream (EPROTOTYPE) and does not wake it; a socket that nobody
/// holds refuses otherwise.
pub(crate) fn supervisor_is_there(dirs: &Dirs) -> bool {
    match link::packet::connect_stream(&dirs.supervisor_socket()) {
        Err(error) => !is_absent(&error),
        Ok(_stream) => true,
    }
}

/// Whether a service manager listens for the daemons, and starts them itself for whoever connects.
pub(crate) fn is_activated(dirs: &Dirs) -> bool {
    let stream = link::packet::connect_stream(&dirs.api_socket());
    stream.is_ok_and(|stream| link::Peer::of(&stream).is_ok_and(|peer| peer.pid == 1))
}

/// Whether mews ever ran here: without its database there is nothing to find.
pub(crate) fn was_used(dirs: &Dirs) -> bool {
    // What cannot be looked at may be there.
    dirs.database().try_exists().unwrap_or(true)
}

/// What the supervisor says of its start.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Ready,
    /// Why it does not come up.
    Failed(String),
    /// It ended without a word, or the time was over.
    Nothing,
}

fn wait_ready(ready: &mut io::PipeReader) -> Waited {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut said = Vec::new();
    let mut buffer = [0_u8; 64];
    loop {
        let mut fds = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(START_MS)) {
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(0) | Err(_) => return Waited::Nothing,
            Ok(_) => {}
        }
        match ready.read(&mut buffer) {
            Ok(0) | Err(_) => return failed(&said),
            Ok(count) => said.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
        if said.starts_with(b"ready\n") {
            return Waited::Ready;
        }
    }
}

fn failed(said: &[u8]) -> Waited {
    match String::from_utf8_lossy(said).strip_prefix("failed ") {
        Some(words) => Waited::Failed(words.trim_end().to_owned()),
        None => Waited::Nothing,
    }
}

fn take_turn(path: &Path) -> Result<Flock<File>, Failure> {
    let broken =
        |error: io::Error| Failure::unreachable(format!("cannot lock {}: {error}", path.display()));
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).map_err(broken)?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_file, errno)| broken(errno.into()))
}

/// The folders that must be there before the supervisor is; it makes all others.
fn make_folders(dirs: &Dirs) -> Result<(), Failure> {
    let root = nix::unistd::geteuid().is_root();
    let mode = if root { 0o711 } else { 0o700 };
    make_folder(&dirs.run, mode)?;
    if dirs.run_is_fallback {
        check_fallback(&dirs.run)?;
    }
    make_folder(&dirs.state, mode)?;
    make_folder(&dirs.state.join("log"), 0o700)
}

fn make_folder(path: &Path, mode: u32) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    // The umask may take bits that others need (0711), so the mode is set once more.
    let made = builder.recursive(true).mode(mode).create(path);
    made.and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(mode))).map_err(
        |error| {
            Failure::unreachable(format!("cannot make {}: {error}", path.display()))
                .next(look_at(path))
        },
    )
}

/// What is in the way of a folder of mews, and the way around it.
fn look_at(path: &Path) -> String {
    let parent = path.parent().unwrap_or(path);
    let look = ["ls", "-ld", &parent.to_string_lossy(), &path.to_string_lossy()].map(str::to_owned);
    format!("{}; or other folders: MEWS_RUN_DIR, MEWS_STATE_DIR", typed(&look))
}

/// Anybody can make a folder below the temp folder: it must be ours, closed, and no link.
fn check_fallback(run: &Path) -> Result<(), Failure> {
    let refuse = |why: String| {
        let what = format!("{} cannot be used: {why}", run.display());
        let mut failure = Failure::unreachable(what);
        failure.next = Some("set XDG_RUNTIME_DIR or MEWS_RUN_DIR to a folder of your own".into());
        failure
    };
    let found = run.symlink_metadata().map_err(|error| refuse(error.to_string()))?;
    if !found.is_dir() {
        return Err(refuse("it is a link or no folder".into()));
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refuse(format!("it belongs to uid {}", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        return Err(refuse(format!("others may enter it (mode {:03o})", found.mode() & 0o777)));
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File, Failure> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
        .open(path)
        .map_err(|error| Failure::unreachable(format!("cannot open {}: {error}", path.display())))
}

fn last_lines(path: &PathBuf) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    tail(&String::from_utf8_lossy(&bytes))
}

/// The last lines of what a program said, indented.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    let last = lines.get(from..).unwrap_or_default();
    last.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn denied(dirs: &Dirs) -> Failure {
    let mut failure =
        Failure::unreachable(format!("{} is another user's", dirs.api_socket().display()));
    failure.error.code = wire::ErrorCode::Forbidden;
    failure.status = 4;
    failure.next("unset MEWS_RUN_DIR to use your own daemons")
}

/// How long a daemon that is told to stop may take.
pub(crate) const STOP: Duration = Duration::from_secs(15);

/// Waits for the end of a process; a pidfd, so that a reused number is no trap.
pub(crate) async fn ended(pid: i32) -> Result<(), Failure> {
    let Ok(process) = link::PidFd::open(pid) else { return Ok(()) };
    let watched = link::nonblocking::watch_input(process.into())
        .map_err(|error| Failure::new(format!("cannot watch process {pid}: {error}")))?;
    match tokio::time::timeout(STOP, watched.readable()).await {
        Ok(_ended) => Ok(()),
        Err(_late) => {
            Err(Failure::new(format!("process {pid} has not ended yet")).next("mews daemon status"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_fallback_folder_is_used_only_if_it_is_ours_and_closed() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("run");
        make_folder(&run, 0o700).unwrap();
        check_fallback(&run).unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&run, &link).unwrap();
        assert!(check_fallback(&link).is_err());
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(check_fallback(&run).is_err());
        assert!(check_fallback(&base.path().join("none")).is_err());
    }

    #[test]
    fn ready_is_the_word_and_not_the_end() {
        let (mut ready, mut tell) = io::pipe().unwrap();
        tell.write_all(b"ready\n").unwrap();
        assert_eq!(wait_ready(&mut ready), Waited::Ready);
        drop(tell);
        assert_eq!(wait_ready(&mut ready), Waited::Nothing);
        let (mut ready, mut tell) = io::pipe().unwrap();
        tell.write_all(b"failed the disk is full\n").unwrap();
        drop(tell);
        assert_eq!(wait_ready(&mut ready), Waited::Failed("the disk is full".into()));
    }

    #[test]
    fn twenty_starters_take_turns() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("start.lock");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _turn = take_turn(&path).unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
        });
    }
}
