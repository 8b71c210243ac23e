//! The master side of one terminal: bytes out, keys in, size.

use crate::sys;
use link::Duplex;
use link::nonblocking::TERMINAL_READ_BYTES;
use nix::errno::Errno;
use nix::unistd::{read, write};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};
use wire::Size;

/// Keys that wait for a program that reads none; above it the viewer is pushed back.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Taken from one terminal before the others have their turn.
pub const READ_BYTES: usize = 64 * 1024;
/// A window that is being dragged tells the program no more often than this.
const RESIZE_MS: u64 = 30;

#[derive(Debug)]
pub struct Tty {
    master: Duplex,
    input: VecDeque<u8>,
    unread: bool,
    /// Keys and sizes wait.
    still: bool,
    wanted_size: Option<Size>,
    resized_ms: u64,
}

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Bytes(usize),
    /// Nothing now.
    Blocked,
    /// Nobody holds the terminal.
    HungUp,
}

impl Tty {
    /// # Errors
    /// Not a terminal's master.
    pub fn new(master: OwnedFd) -> io::Result<Self> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let master = Duplex::new(master)?;
        Ok(Self {
            master,
            input: VecDeque::new(),
            unread: true,
            still: false,
            wanted_size: None,
            resized_ms: 0,
        })
    }

    /// Reads into `buffer` until it is full or nothing more is there.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Taken {
        let mut filled = 0;
        loop {
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                return Taken::Bytes(filled);
            };
            if !self.unread {
                if filled > 0 {
                    return Taken::Bytes(filled);
                }
                match self.master.poll_read_ready(context) {
                    Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                    Poll::Ready(Err(_)) | Poll::Pending => return Taken::Blocked,
                }
            }
            self.unread = true;
            match read(self.master.get_ref(), room) {
                Ok(0) | Err(Errno::EIO) => {
                    self.unread = false;
                    return if filled > 0 { self.again(filled) } else { Taken::HungUp };
                }
                Ok(count) => {
                    filled += count;
                    self.unread = count == TERMINAL_READ_BYTES.min(room.len());
                }
                Err(Errno::EINTR) => {}
                Err(_) => self.unread = false,
            }
        }
    }

    /// A hangup behind bytes is found again by the next read.
    fn again(&mut self, filled: usize) -> Taken {
        self.unread = true;
        Taken::Bytes(filled)
    }

    /// Looks again whatever was found before: the payload has ended.
    pub fn look_again(&mut self) {
        self.unread = true;
    }

    pub fn queue(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
    }

    #[must_use]
    pub fn takes_input(&self) -> bool {
        self.input.len() < INPUT_BYTES_MAX
    }

    pub fn stand_still(&mut self, still: bool) {
        self.still = still;
    }

    /// Writes waiting keys. Whether any went.
    pub fn poll_write(&mut self, context: &mut Context<'_>) -> bool {
        if self.still {
            return false;
        }
        let mut went = false;
        while !self.input.is_empty() {
            let keys = self.input.as_slices().0;
            match self.master.poll_write(context, |fd| write(fd, keys)) {
                Poll::Ready(Ok(count)) => {
                    self.input.drain(..count);
                    went |= count > 0;
                }
                Poll::Ready(Err(_)) => self.input.clear(),
                Poll::Pending => return went,
            }
        }
        self.master.wrote_all();
        went
    }

    pub fn want_size(&mut self, size: Size) {
        self.wanted_size = Some(size);
    }

    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.wanted_size.filter(|_| !self.still).map(|_| self.resized_ms + RESIZE_MS)
    }

    /// Sets the wanted size if it is time to. The size that is new.
    pub fn resize_if_due(&mut self, now_ms: u64) -> Option<Size> {
        if self.still {
            return None;
        }
        if self.resized_ms > 0 && now_ms < self.resized_ms + RESIZE_MS {
            return None;
        }
        let size = self.wanted_size.take()?;
        self.resized_ms = now_ms;
        sys::set_size(self.master.get_ref().as_fd(), size).ok().map(|()| size)
    }
}
