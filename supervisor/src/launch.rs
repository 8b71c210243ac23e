//! Starting a program of ours as somebody else: fork, the child's steps, and the word on whether
//! its exec went well.

use crate::sys::child::{self, Prepared, Step};
use link::PidFd;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("fork: {0}")]
    Fork(io::Error),
    #[error("{step}: {source}")]
    Step { step: &'static str, source: io::Error },
}

/// A started child of ours.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) handle: Rc<PidFd>,
    report: OwnedFd,
}

/// Forks. The parent's copies of what `prepared` owns are closed on return.
pub(crate) fn start(prepared: Prepared) -> Result<Started, LaunchError> {
    let (report, theirs) = io::pipe().map_err(LaunchError::Fork)?;
    let theirs = OwnedFd::from(theirs);
    let pid = child::fork(&prepared, &theirs).map_err(LaunchError::Fork)?;
    let handle = Rc::new(PidFd::open(pid).map_err(LaunchError::Fork)?);
    Ok(Started { pid, handle, report: report.into() })
}

impl Started {
    /// Waits for its exec, or tells the step that failed.
    pub(crate) async fn executed(&mut self) -> Result<(), LaunchError> {
        let copy = self.report.try_clone().map_err(LaunchError::Fork)?;
        let report = link::nonblocking::watch_input(copy).map_err(LaunchError::Fork)?;
        // A pipe is readable when the message or the end (exec closed it) is there.
        let _ready = report.readable().await.map_err(LaunchError::Fork)?;
        let mut message = Vec::new();
        let pipe = self.report.try_clone().map_err(LaunchError::Fork)?;
        File::from(pipe).read_to_end(&mut message).map_err(LaunchError::Fork)?;
        match message.as_slice() {
            [] => Ok(()),
            [step, a, b, c, d, ..] => Err(LaunchError::Step {
                step: Step::name(*step),
                source: io::Error::from_raw_os_error(i32::from_le_bytes([*a, *b, *c, *d])),
            }),
            _short => Err(LaunchError::Fork(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Returns when the process has ended, ours or not; reaps it if it is our child.
pub(crate) async fn ended(handle: &PidFd, pid: i32) {
    wait_for(handle).await;
    reap(pid);
}

/// For a child that was killed: the kernel may need a while, which nobody waits for.
pub(crate) fn reap_later(handle: PidFd, pid: i32) {
    tokio::task::spawn_local(async move { ended(&handle, pid).await });
}

/// Returns when the process has ended.
pub(crate) async fn wait_for(handle: &PidFd) {
    use std::os::fd::AsFd;
    let Ok(copy) = handle.as_fd().try_clone_to_owned() else { return };
    if let Ok(watched) = link::nonblocking::watch_input(copy) {
        // An error here means that the reactor is gone, and with it everything else.
        let _ended = watched.readable().await;
    }
}

fn reap(pid: i32) {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    // ECHILD: an earlier supervisor's child; whoever adopted it reaps it.
    let _status = waitpid(nix::unistd::Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}
