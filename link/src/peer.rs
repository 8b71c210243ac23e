//! Who is at the other end of a Unix socket.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// SO_PEERCRED: as it was when the peer connected (or made the pair).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    /// A hint only: the process may be gone and its number used again.
    pub pid: i32,
}

impl Peer {
    /// # Errors
    /// The descriptor is not a connected Unix socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let cred = sys::peer_cred(socket.as_fd())?;
        Ok(Self { uid: cred.uid, gid: cred.gid, pid: cred.pid })
    }
}

/// A second descriptor of the same open file.
///
/// # Errors
/// EMFILE.
pub fn duplicate(fd: &impl AsFd) -> io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
