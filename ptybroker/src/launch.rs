//! From descriptors to pid 1 of the cage: the stub, bwrap, and who came out of it.
//!
//! 1. Pipes: info (who is pid 1), status (how bwrap ended), its words, and one for the stub's own
//!    failure, which exec closes.
//! 2. fork: the stub joins the cgroups *before* bwrap runs, so that the cage sees `/` as its cgroup
//!    and every byte is charged to it; then stdio, then exec by descriptor.
//! 3. The info document is read until it is complete: a pipe may give it in pieces.

use crate::boot::LaunchFds;
use crate::sys;
use link::Packets;
use nix::unistd::{pipe2, read};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// bwrap's words are kept up to here; the rest is read and thrown away.
const WORDS_BYTES_MAX: usize = 4096;
const INFO_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("no process for the cage: {0}")]
    Fork(io::Error),
    #[error("the cage could not join its cgroup: {0}")]
    Cgroup(io::Error),
    #[error("bwrap could not be started: {0}")]
    Exec(io::Error),
    #[error("bwrap: {0}")]
    Bwrap(String),
    #[error("pipes for bwrap: {0}")]
    Pipes(io::Error),
}

impl LaunchError {
    /// The wall that this failure is reported under.
    #[must_use]
    pub fn wall(&self) -> &'static str {
        match self {
            Self::Cgroup(_) => "cgroup",
            Self::Fork(_) | Self::Exec(_) | Self::Bwrap(_) | Self::Pipes(_) => "bwrap",
        }
    }
}

/// bwrap runs, or will have said why not.
#[derive(Debug)]
pub struct Launched {
    pub monitor_pid: i32,
    pub orders: Packets,
    pub words: Words,
    info: AsyncFd<OwnedFd>,
    status: AsyncFd<OwnedFd>,
    stub: AsyncFd<OwnedFd>,
}

/// Which step of the stub failed, as the byte it sends.
const STEP_CGROUP: u8 = 1;
const STEP_EXEC: u8 = 2;

/// Forks the stub. Called inside the runtime, while the process has one thread.
///
/// # Errors
/// No process or no descriptors left.
pub fn start(fds: &LaunchFds) -> Result<Launched, LaunchError> {
    let pipe = || pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| LaunchError::Pipes(e.into()));
    let (info, info_end) = pipe()?;
    let (status, status_end) = pipe()?;
    let (words, words_end) = pipe()?;
    let (stub, stub_end) = pipe()?;
    let (orders, orders_end) =
        Packets::pair().map_err(|e| LaunchError::Pipes(io::Error::other(e)))?;
    let null = nix::fcntl::open(
        c"/dev/null",
        nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )
    .map_err(|e| LaunchError::Pipes(e.into()))?;

    let argv = arguments(fds, info_end.as_raw_fd(), status_end.as_raw_fd(), orders_end.as_raw_fd());
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut kept = vec![info_end.as_raw_fd(), status_end.as_raw_fd(), orders_end.as_raw_fd()];
    kept.extend([fds.args.as_raw_fd(), fds.init.as_raw_fd()]);
    kept.extend(fds.inherited.iter().map(AsRawFd::as_raw_fd));
    let cgroups: Vec<RawFd> = fds.cgroup_procs.iter().map(AsRawFd::as_raw_fd).collect();

    let pid = sys::fork().map_err(LaunchError::Fork)?;
    if pid == 0 {
        let stdio = [null.as_raw_fd(), null.as_raw_fd(), words_end.as_raw_fd()];
        let (step, error) = become_bwrap(&cgroups, stdio, &kept, fds.bwrap.as_raw_fd(), &pointers);
        let errno = u8::try_from(error.raw_os_error().unwrap_or(0)).unwrap_or(0);
        // Nobody is left to tell if the broker is gone too.
        drop(sys::write_raw(stub_end.as_raw_fd(), &[step, errno]));
        sys::exit_now(125);
    }
    let watch = |fd| link::nonblocking::watch_input(nonblocking(fd)?);
    Ok(Launched {
        monitor_pid: pid,
        orders,
        words: Words { pipe: watch(words).map_err(LaunchError::Pipes)?, text: Vec::new() },
        info: watch(info).map_err(LaunchError::Pipes)?,
        status: watch(status).map_err(LaunchError::Pipes)?,
        stub: watch(stub).map_err(LaunchError::Pipes)?,
    })
}

/// In the child: only async-signal-safe calls, nothing allocated.
fn become_bwrap(
    cgroups: &[RawFd],
    stdio: [RawFd; 3],
    kept: &[RawFd],
    program: RawFd,
    argv: &[*const libc::c_char],
) -> (u8, io::Error) {
    for procs in cgroups {
        if let Err(error) = sys::write_raw(*procs, b"0\n") {
            return (STEP_CGROUP, error);
        }
    }
    // Rust ignores SIGPIPE, and the broker SIGXFSZ; the cage must not inherit that.
    sys::default_signal(libc::SIGPIPE);
    sys::default_signal(libc::SIGXFSZ);
    for (onto, fd) in (0..).zip(stdio) {
        if let Err(error) = sys::duplicate_onto(fd, onto) {
            return (STEP_EXEC, error);
        }
    }
    for fd in kept {
        if let Err(error) = sys::set_inheritable(*fd, true) {
            return (STEP_EXEC, error);
        }
    }
    (STEP_EXEC, sys::execute(program, argv))
}

fn arguments(fds: &LaunchFds, info: RawFd, status: RawFd, orders: RawFd) -> Vec<CString> {
    [
        "bwrap".to_owned(),
        "--info-fd".to_owned(),
        info.to_string(),
        "--json-status-fd".to_owned(),
        status.to_string(),
        "--args".to_owned(),
        fds.args.as_raw_fd().to_string(),
        "--".to_owned(),
        format!("/proc/self/fd/{}", fds.init.as_raw_fd()),
        orders.to_string(),
    ]
    .into_iter()
    .filter_map(|text| CString::new(text).ok())
    .collect()
}

impl Launched {
    /// The host's number of the cage's pid 1.
    ///
    /// # Errors
    /// The stub or bwrap failed; with its words.
    pub async fn init_pid(&mut self) -> Result<i32, LaunchError> {
        let failure = read_all(&self.stub, 2).await.unwrap_or_default();
        if let [step, errno, ..] = *failure.as_slice() {
            let error = io::Error::from_raw_os_error(i32::from(errno));
            return Err(if step == STEP_CGROUP {
                LaunchError::Cgroup(error)
            } else {
                LaunchError::Exec(error)
            });
        }
        let mut text = Vec::new();
        loop {
            if let Some(pid) = child_pid(&text) {
                return Ok(pid);
            }
            let more = read_some(&self.info).await.unwrap_or_default();
            if more.is_empty() || text.len() > INFO_BYTES_MAX {
                return Err(LaunchError::Bwrap(self.words.to_the_end().await));
            }
            text.extend_from_slice(&more);
        }
    }

    /// What stays of a launch once pid 1 is known.
    #[must_use]
    pub fn into_parts(self) -> (Packets, Words, AsyncFd<OwnedFd>) {
        (self.orders, self.words, self.status)
    }
}

fn child_pid(text: &[u8]) -> Option<i32> {
    let document: serde_json::Value = serde_json::from_slice(text).ok()?;
    document.get("child-pid")?.as_i64().and_then(|pid| i32::try_from(pid).ok())
}

/// What bwrap and pid 1 write to their standard error.
#[derive(Debug)]
pub struct Words {
    pipe: AsyncFd<OwnedFd>,
    text: Vec<u8>,
}

impl Words {
    /// Reads on, keeping a bounded part, until the last writer is gone.
    pub async fn drain(&mut self) {
        while let Ok(more) = read_some(&self.pipe).await {
            if more.is_empty() {
                break;
            }
            let room = WORDS_BYTES_MAX.saturating_sub(self.text.len());
            self.text.extend(more.into_iter().take(room));
        }
    }

    /// All words, trimmed, on one line.
    pub async fn to_the_end(&mut self) -> String {
        self.drain().await;
        let text = String::from_utf8_lossy(&self.text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let joined = lines.join("; ");
        let words = joined.strip_prefix("bwrap: ").unwrap_or(&joined);
        if words.is_empty() { "it ended without a word".to_owned() } else { words.to_owned() }
    }
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    Ok(fd)
}

/// The next bytes; empty at the end.
async fn read_some(pipe: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut bytes = [0_u8; 1024];
    loop {
        let mut ready = pipe.readable().await?;
        match read(pipe.get_ref(), &mut bytes) {
            Ok(length) => return Ok(bytes.get(..length).unwrap_or_default().to_vec()),
            Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

async fn read_all(pipe: &AsyncFd<OwnedFd>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let more = read_some(pipe).await?;
        if more.is_empty() || all.len() >= bytes_max {
            return Ok(all);
        }
        all.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_info_document_counts_only_when_complete() {
        let text = b"{\n    \"child-pid\": 4711,\n    \"mnt-namespace\": 4026532\n}\n";
        for cut in 0..text.len() - 2 {
            assert_eq!(child_pid(&text[..cut]), None, "{cut}");
        }
        assert_eq!(child_pid(text), Some(4711));
    }
}
