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

/// SO_PEERGROUPS: the supplementary groups that the peer had when it connected.
///
/// # Errors
/// The descriptor is not a connected Unix socket.
pub fn groups_of(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut room = vec![0_u32; 64];
    loop {
        let (result, count) = sys::peer_groups(socket.as_fd(), &mut room);
        match result {
            Ok(()) => {
                room.truncate(count);
                return Ok(room);
            }
            // They do not change once connected, so the second time fits.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > room.len() => {
                room.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The name that a Unix stream socket is bound to; an accepted connection has its listener's. `None`:
/// it has none, as the connecting end and both ends of a pair.
///
/// # Errors
/// The descriptor is no Unix stream socket.
pub fn bound_name(socket: &impl AsFd) -> io::Result<Option<Vec<u8>>> {
    use nix::sys::socket::{SockType, UnixAddr, getsockname, getsockopt, sockopt};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    if getsockopt(&socket.as_fd(), sockopt::SockType)? != SockType::Stream {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name: UnixAddr = getsockname(socket.as_fd().as_raw_fd())?;
    Ok(name.path().map(|path| path.as_os_str().as_bytes().to_vec()))
}

/// Whether it waits for connections instead of being one.
///
/// # Errors
/// The descriptor is no socket.
pub fn is_listener(socket: &impl AsFd) -> io::Result<bool> {
    use nix::sys::socket::{getsockopt, sockopt};
    Ok(getsockopt(&socket.as_fd(), sockopt::AcceptConn)?)
}

/// A second descriptor of the same open file.
///
/// # Errors
/// EMFILE.
pub fn duplicate(fd: &impl AsFd) -> io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn an_accepted_connection_bears_the_name_of_its_listener_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let theirs = UnixStream::connect(&path).unwrap();
        let (ours, _address) = listener.accept().unwrap();
        let name = bound_name(&ours).unwrap();
        assert_eq!(name.as_deref(), Some(path.as_os_str().as_encoded_bytes()));
        assert_eq!(bound_name(&listener).unwrap(), name);
        assert_eq!(bound_name(&theirs).unwrap(), None);
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(bound_name(&one).unwrap(), None);
        assert!(is_listener(&listener).unwrap() && !is_listener(&ours).unwrap());
        let (packets, _theirs) = crate::Packets::pair().unwrap();
        assert!(bound_name(&packets).is_err(), "another kind of socket");
        assert!(bound_name(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn groups_are_our_own_on_a_pair() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut groups = groups_of(&one).unwrap();
        let mut own: Vec<u32> =
            nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        groups.sort_unstable();
        own.sort_unstable();
        assert_eq!(groups, own);
    }
}
