//! One connection: two sockets, two directions.

use super::BUFFER_BYTES;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};
use nix::unistd::read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What poll(2) shall wait for at one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) read: bool,
    pub(super) write: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    inner: OwnedFd,
    outer: OwnedFd,
    outward: Direction,
    inward: Direction,
}

impl Connection {
    /// Both must be non-blocking stream sockets.
    pub(super) fn new(inner: OwnedFd, outer: OwnedFd) -> Self {
        Self { inner, outer, outward: Direction::default(), inward: Direction::default() }
    }

    pub(super) fn wishes(&self) -> [(BorrowedFd<'_>, Wish); 2] {
        let wish = |from_here: &Direction, to_here: &Direction| Wish {
            read: from_here.wants_more(),
            write: to_here.has_more(),
        };
        [
            (self.inner.as_fd(), wish(&self.outward, &self.inward)),
            (self.outer.as_fd(), wish(&self.inward, &self.outward)),
        ]
    }

    /// Whether only the outer socket's hangup can still end this: its peer has closed and not just
    /// half-closed, which poll(2) tells apart for Unix sockets. Until all that it sent is passed on
    /// a wait for that would not wait.
    pub(super) fn awaits_hangup(&self) -> bool {
        self.inward.state == State::Closed && !self.is_over()
    }

    pub(super) fn outer(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }

    /// Nobody is left who could read.
    pub(super) fn hang_up(&mut self) {
        self.outward.state = State::Broken;
    }

    /// Moves what can be moved without waiting.
    pub(super) fn carry(&mut self) {
        self.outward.carry(self.inner.as_fd(), self.outer.as_fd());
        self.inward.carry(self.outer.as_fd(), self.inner.as_fd());
        // A socket that fails in one direction is no use in the other.
        if self.outward.state == State::Broken || self.inward.state == State::Broken {
            self.outward.state = State::Broken;
            self.inward.state = State::Broken;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let is_over =
            |direction: &Direction| matches!(direction.state, State::Closed | State::Broken);
        is_over(&self.outward) && is_over(&self.inward)
    }
}

/// ```text
/// Open ──end of input──▶ Draining ──buffer empty, half-close passed on──▶ Closed
///   └──────any error───────┴──▶ Broken
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Draining,
    Closed,
    Broken,
}

#[derive(Debug, Default)]
struct Direction {
    state: State,
    /// Read and not yet written; its memory is given back whenever it is empty.
    buffer: Vec<u8>,
}

impl Direction {
    fn wants_more(&self) -> bool {
        self.state == State::Open && self.buffer.is_empty()
    }

    fn has_more(&self) -> bool {
        !self.buffer.is_empty() && matches!(self.state, State::Open | State::Draining)
    }

    fn carry(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
        if self.wants_more() {
            self.fill(from);
        }
        if self.has_more() {
            self.empty(to);
        }
        if self.state == State::Draining && self.buffer.is_empty() {
            self.state = State::Closed;
            // ENOTCONN: the other side is gone altogether, and its own direction will show it.
            shutdown(to.as_raw_fd(), Shutdown::Write).ok();
        }
    }

    fn fill(&mut self, from: BorrowedFd<'_>) {
        let mut buffer = vec![0; BUFFER_BYTES];
        match read(from, &mut buffer) {
            Ok(0) => self.state = State::Draining,
            Ok(count) => {
                buffer.truncate(count);
                self.buffer = buffer;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_reset) => self.state = State::Broken,
        }
    }

    fn empty(&mut self, to: BorrowedFd<'_>) {
        match send(to.as_raw_fd(), &self.buffer, MsgFlags::MSG_NOSIGNAL) {
            Ok(count) if count >= self.buffer.len() => self.buffer = Vec::new(),
            Ok(count) => drop(self.buffer.drain(..count)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_reset) => self.state = State::Broken,
        }
    }
}
