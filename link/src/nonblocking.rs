//! Packet links under tokio.

use crate::{LinkError, Packet, Packets, sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Both directions: what is often both read and written is better a [`crate::Duplex`].
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Waits of tokio on any pollable descriptor: PTY masters, pipes, pidfds, event files.
///
/// # Errors
/// Called outside a runtime, or the descriptor cannot be polled (EPERM: a regular file).
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, BOTH)
}

/// The same for a descriptor that is only read: room for writing wakes nobody.
///
/// # Errors
/// As for [`watch`].
pub fn watch_input(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::READABLE)
}

/// The same for a descriptor that is only written.
///
/// # Errors
/// As for [`watch`].
pub fn watch_room(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::WRITABLE)
}

/// A packet link whose waits are tokio's. One reader and one writer at a time.
#[derive(Debug)]
pub struct AsyncPackets(AsyncFd<Packets>);

impl AsyncPackets {
    /// # Errors
    /// Called outside a runtime, or the descriptor cannot be polled.
    pub fn new(packets: Packets) -> io::Result<Self> {
        packets.set_nonblocking()?;
        sys::watch(packets, BOTH).map(Self)
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
        loop {
            let mut ready = self.0.writable().await?;
            match self.0.get_ref().send(bytes, fds) {
                Err(LinkError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready()
                }
                other => return other,
            }
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
