//! Packet links under tokio.

use crate::{LinkError, Packet, Packets, sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The most that one read of a terminal gives. Less means that this was all; what comes later wakes
/// the reader. To ask once more would wait for the kernel's worker, just when a key needs it.
pub const TERMINAL_READ_BYTES: usize = 4095;

/// Between two tries of what fails for want of descriptors or memory: nobody tells when there are some
/// again.
pub const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Waits of tokio for input on any pollable descriptor: pipes, pidfds, event files. Room for
/// writing wakes nobody; what is also written is a [`crate::Duplex`].
///
/// # Errors
/// Called outside a runtime, or the descriptor cannot be polled (EPERM: a regular file).
pub fn watch_input(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::READABLE)
}

/// The same for room.
///
/// # Errors
/// As for [`watch_input`].
pub fn watch_room(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::WRITABLE)
}

/// The same for a change that the kernel tells of (`POLLPRI`): `cgroup.events` and its like.
///
/// # Errors
/// As for [`watch_input`].
pub fn watch_change(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::PRIORITY)
}

/// A packet link whose waits are tokio's. One reader and one writer at a time. Room is waited for
/// only while there is none, so that a packet that the peer takes wakes nobody here.
#[derive(Debug)]
pub struct AsyncPackets(AsyncFd<Packets>);

impl AsyncPackets {
    /// # Errors
    /// Called outside a runtime, or the descriptor cannot be polled.
    pub fn new(packets: Packets) -> io::Result<Self> {
        packets.set_nonblocking()?;
        sys::watch(packets, Interest::READABLE).map(Self)
    }

    /// Cancel-safe: a packet is taken whole or not at all.
    ///
    /// # Errors
    /// As for [`Packets::recv`].
    pub async fn recv(&self) -> Result<Option<Packet>, LinkError> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.0.get_ref().recv() {
                Err(LinkError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready()
                }
                other => return other,
            }
        }
    }

    /// Cancel-safe: a packet is sent whole or not at all.
    ///
    /// # Errors
    /// As for [`Packets::send`].
    pub async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        if self.try_send(bytes, fds)? {
            return Ok(());
        }
        let room = watch_room(self.as_fd().try_clone_to_owned()?)?;
        loop {
            let mut ready = room.writable().await?;
            if self.try_send(bytes, fds)? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// At once or not at all: `Ok(false)` when the peer's queue is full.
    ///
    /// # Errors
    /// As for [`Packets::send`].
    pub fn try_send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, LinkError> {
        match self.0.get_ref().send(bytes, fds) {
            Err(LinkError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(other) => Err(other),
            Ok(()) => Ok(true),
        }
    }
}

impl AsFd for AsyncPackets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsRawFd for AsyncPackets {
    fn as_raw_fd(&self) -> RawFd {
        self.0.get_ref().as_raw_fd()
    }
}
