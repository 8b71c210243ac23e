//! Up to the gate: bwrap, the walls inside, the cage's own limit of terminals, our own walls.
//!
//! The tether is watched all the while: its end means that nobody will ever say go.

use super::Happening;
use crate::boot::{LaunchFds, StateDir};
use crate::launch::{self, LaunchError, Words};
use crate::lockup::{self, LockupError};
use cage::orders::{Attestation, Order, Program, Report, pack_order};
use link::nonblocking::{AsyncPackets, watch_input};
use link::{LinkError, PidFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// From the start to the attestation. A host that swaps may take long; one that takes longer hangs.
const ATTEST_MAX: Duration = Duration::from_secs(30);
/// For the words of a bwrap that failed.
const WORDS_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("{message}")]
    Inside { wall: String, message: String },
    #[error("pid 1 of the cage ended before it attested: {0}")]
    Ended(String),
    #[error("pid 1 of the cage: {0}")]
    Link(#[from] LinkError),
    #[error("pid 1 of the cage did not attest within {} s", ATTEST_MAX.as_secs())]
    Silent,
    #[error("the cage's own limit of terminals: {0}")]
    Terminals(#[from] cage::devpts::DevptsError),
    #[error(transparent)]
    Lockup(#[from] LockupError),
    #[error("the cage's processes: {0}")]
    Handles(io::Error),
    #[error("the supervisor went away before the cage stood")]
    TetherEnded,
}

impl StartError {
    #[must_use]
    pub fn wall(&self) -> String {
        match self {
            Self::Launch(error) => error.wall().to_owned(),
            Self::Inside { wall, .. } => wall.clone(),
            Self::Ended(_) | Self::Handles(_) => "bwrap".to_owned(),
            Self::Link(_) | Self::Silent => "attestation".to_owned(),
            Self::Terminals(_) => "ptys".to_owned(),
            Self::Lockup(_) => "broker".to_owned(),
            Self::TetherEnded => "supervisor".to_owned(),
        }
    }
}

/// A cage whose zygote stands behind its walls.
#[derive(Debug)]
pub struct Standing {
    pub orders: AsyncPackets,
    pub words: Words,
    pub init_pid: i32,
    pub monitor_pid: i32,
    pub init_handle: PidFd,
    pub processes: Processes,
    pub attestation: Attestation,
}

/// Both processes of bwrap, to wait for, and the pipe that its monitor writes its status to.
#[derive(Debug)]
pub struct Processes {
    init: AsyncFd<OwnedFd>,
    monitor: AsyncFd<OwnedFd>,
    _status: AsyncFd<OwnedFd>,
}

/// Builds the cage up to the gate. On failure nothing of it is left.
///
/// # Errors
/// Named by the wall that could not be put up.
pub async fn start(
    fds: LaunchFds,
    program: Program,
    seccomp: Option<OwnedFd>,
    ptys_max: u32,
    tether: &OwnedFd,
    folder: &StateDir,
) -> Result<Standing, StartError> {
    let mut launched = launch::start(&fds)?;
    // bwrap has its own now; ours would keep pipes and memory open.
    drop(fds);
    let monitor_pid = launched.monitor_pid;
    let built = async {
        let init_pid = launched.init_pid().await?;
        let (orders, mut words, status) = launched.into_parts();
        let init_handle = match PidFd::open(init_pid) {
            // It met something that bwrap could not do, and has been reaped already.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                return Err(ended(&mut words).await);
            }
            other => other.map_err(StartError::Handles)?,
        };
        let orders = AsyncPackets::new(orders).map_err(StartError::Handles)?;
        let attestation = attest(&orders, program, seccomp, &mut words).await?;
        if ptys_max > 0 {
            cage::devpts::limit(init_pid, ptys_max)?;
        }
        let handle = |pid| watch_input(PidFd::open(pid)?.into());
        let init = handle(init_pid).map_err(StartError::Handles)?;
        let monitor = handle(monitor_pid).map_err(StartError::Handles)?;
        let processes = Processes { init, monitor, _status: status };
        lockup::lock_up(folder)?;
        Ok(Standing { orders, words, init_pid, monitor_pid, init_handle, processes, attestation })
    };
    let built = tokio::select! {
        built = tokio::time::timeout(ATTEST_MAX, built) => built.unwrap_or(Err(StartError::Silent)),
        () = tether_ends(tether.as_fd()) => Err(StartError::TetherEnded),
    };
    if built.is_err() {
        // The order socket went with the attempt: pid 1 ends by itself. bwrap may still be at work.
        if let Ok(monitor) = PidFd::open(monitor_pid) {
            drop(monitor.signal(libc::SIGKILL));
        }
    }
    built
}

async fn attest(
    orders: &AsyncPackets,
    program: Program,
    seccomp: Option<OwnedFd>,
    words: &mut Words,
) -> Result<Attestation, StartError> {
    let (bytes, memfd) = pack_order(&Order::Program(program)).map_err(StartError::Handles)?;
    let fds: Vec<OwnedFd> = memfd.into_iter().chain(seccomp).collect();
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    // A send that fails is explained by what comes back, or by bwrap's words.
    let sent = orders.send(&bytes, &borrowed).await;
    let packet = match orders.recv().await {
        Ok(Some(packet)) => packet,
        Ok(None) => return Err(ended(words).await),
        Err(error) => return Err(sent.err().unwrap_or(error).into()),
    };
    match serde_json::from_slice(&packet.bytes) {
        Ok(Report::Attested(attestation)) => Ok(attestation),
        Ok(Report::Failed { wall, message }) => Err(StartError::Inside { wall, message }),
        Ok(other) => Err(unexpected(&format!("{other:?}"))),
        Err(error) => Err(unexpected(&error.to_string())),
    }
}

async fn ended(words: &mut Words) -> StartError {
    let said = tokio::time::timeout(WORDS_MAX, words.to_the_end()).await;
    StartError::Ended(said.unwrap_or_else(|_elapsed| "and said nothing".to_owned()))
}

fn unexpected(what: &str) -> StartError {
    let message = format!("pid 1 of the cage answered with {what}");
    StartError::Inside { wall: "attestation".to_owned(), message }
}

async fn tether_ends(tether: BorrowedFd<'_>) {
    let Ok(tether) = tether.try_clone_to_owned().and_then(watch_input) else { return };
    wait_for_end(&tether).await;
}

async fn wait_for_end(fd: &AsyncFd<OwnedFd>) {
    let mut byte = [0_u8; 64];
    while let Ok(mut ready) = fd.readable().await {
        match nix::unistd::read(fd.get_ref(), &mut byte) {
            Ok(0) => return,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
            Err(_) => return,
        }
    }
}

/// Tells when the supervisor that made the tether is gone.
pub fn watch_tether(tether: OwnedFd, inbox: mpsc::UnboundedSender<Happening>) {
    tokio::task::spawn_local(async move {
        tether_ends(tether.as_fd()).await;
        drop(inbox.send(Happening::TetherEnded));
    });
}

/// Reads what pid 1 and bwrap say from now on, so that they never wait for a reader.
pub fn watch_words(mut words: Words) {
    tokio::task::spawn_local(async move { words.drain().await });
}

/// Reaps pid 1 (ours once bwrap's monitor is gone) and the monitor, and tells when both are; also when
/// the monitor, which waits for pid 1, goes first.
pub fn watch_cage(processes: Processes, inbox: mpsc::UnboundedSender<Happening>) {
    tokio::task::spawn_local(async move {
        tokio::select! {
            // An end of both is that of pid 1.
            biased;
            _init = processes.init.readable() => {}
            _monitor = processes.monitor.readable() => drop(inbox.send(Happening::MonitorLost)),
        }
        for handle in [&processes.init, &processes.monitor] {
            drop(handle.readable().await);
        }
        // Of children there are only these two; pid 1 is one only if it outlived the monitor.
        while waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)).is_ok_and(|s| s.pid().is_some()) {}
        drop(inbox.send(Happening::CageGone));
    });
}
