//! What a broker writes to its standard error: for the log, and for the message when it dies early.

use std::cell::RefCell;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinHandle;
use wire::CageId;

/// Kept of it, and logged at most.
const BYTES_MAX: usize = 4096;
/// After its death the pipe ends at once, unless a child of it still holds it.
const END_DEADLINE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct LastWords {
    text: Rc<RefCell<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl LastWords {
    /// Reads until the other end is closed; what is more than fits is read and dropped, so that the
    /// broker never blocks.
    pub(crate) fn collect(cage: CageId, pipe: OwnedFd) -> Self {
        let text = Rc::<RefCell<Vec<u8>>>::default();
        let reader = tokio::task::spawn_local(read(cage, pipe, Rc::clone(&text)));
        Self { text, reader }
    }

    /// The error, and what the broker said before it died.
    pub(crate) async fn after(&mut self, error: &impl Display) -> String {
        if !self.reader.is_finished() {
            let _held_open = tokio::time::timeout(END_DEADLINE, &mut self.reader).await;
        }
        let text = self.text.borrow();
        let words = String::from_utf8_lossy(&text);
        match words.trim() {
            "" => error.to_string(),
            said => format!("{error}: {}", said.escape_debug()),
        }
    }
}

async fn read(cage: CageId, pipe: OwnedFd, text: Rc<RefCell<Vec<u8>>>) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    if fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
        return;
    }
    let Ok(pipe) = link::nonblocking::watch_input(pipe) else { return };
    let mut buffer = [0_u8; 1024];
    while let Ok(mut ready) = pipe.readable().await {
        match nix::unistd::read(pipe.get_ref().as_fd(), &mut buffer) {
            Ok(0) => return,
            Ok(length) => keep(cage, buffer.get(..length).unwrap_or_default(), &text),
            Err(nix::Error::EAGAIN) => ready.clear_ready(),
            Err(nix::Error::EINTR) => {}
            Err(_broken) => return,
        }
    }
}

fn keep(cage: CageId, bytes: &[u8], text: &RefCell<Vec<u8>>) {
    let mut text = text.borrow_mut();
    let room = BYTES_MAX.saturating_sub(text.len());
    let Some(fitting) = bytes.get(..room.min(bytes.len())).filter(|part| !part.is_empty()) else {
        return;
    };
    text.extend_from_slice(fitting);
    tracing::warn!(%cage, said = %String::from_utf8_lossy(fitting).escape_debug(), "broker");
}
