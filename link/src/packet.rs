//! SEQPACKET sockets: one message a packet, descriptors beside it, nothing smeared over two.

use crate::sys;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, listen, recvmsg, sendmsg, socket, socketpair,
};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// Largest packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Most descriptors beside one packet.
pub const PACKET_FDS_MAX: usize = 16;
/// `sun_path` holds 108 bytes; longer paths go through `/proc/self/fd`.
const SOCKET_PATH_BYTES_MAX: usize = 100;

thread_local! {
    /// Room for the largest packet. Most are small, and cleared memory for each would cost more than
    /// the packet itself.
    /// Asked for as zeroes, so that only the pages that were written to take memory.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PACKET_BYTES_MAX]);
}

/// Whether a socket of this name was bound to this path by [`bind_socket`] or its like.
#[must_use]
pub fn is_bound_to(name: &[u8], path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path_bytes = path.as_os_str().as_bytes();
    if path_bytes.len() <= SOCKET_PATH_BYTES_MAX {
        return name == path_bytes;
    }
    let short = Path::new(std::ffi::OsStr::from_bytes(name));
    short.starts_with("/proc/self/fd") && short.file_name() == path.file_name()
}

#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// MSG_TRUNC or MSG_CTRUNC: something is lost, so the link must be closed.
    #[error(
        "a packet was cut (larger than {PACKET_BYTES_MAX} bytes or {PACKET_FDS_MAX} descriptors)"
    )]
    Truncated,
    #[error("a packet of {0} bytes is larger than {PACKET_BYTES_MAX}")]
    TooLarge(usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// One end of a packet link. Blocking unless made otherwise.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    /// Two connected ends, close-on-exec.
    ///
    /// # Errors
    /// EMFILE.
    pub fn pair() -> Result<(Self, Self), LinkError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Self(a), Self(b)))
    }

    /// # Errors
    /// ENOENT or ECONNREFUSED: nobody listens there.
    pub fn connect(path: &Path) -> Result<Self, LinkError> {
        let fd = seqpacket()?;
        with_short_path(path, |short| {
            connect(fd.as_raw_fd(), &UnixAddr::new(short)?).map_err(io::Error::from)
        })?;
        Ok(Self(fd))
    }

    /// Wraps a descriptor that is a connected SEQPACKET socket.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// # Errors
    /// The peer is gone (EPIPE, ECONNRESET), the packet is too large, or EAGAIN if non-blocking.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        if bytes.len() > PACKET_BYTES_MAX || fds.len() > PACKET_FDS_MAX {
            return Err(LinkError::TooLarge(bytes.len()));
        }
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        loop {
            let parts = [IoSlice::new(bytes)];
            let flags = MsgFlags::MSG_NOSIGNAL;
            match sendmsg::<UnixAddr>(self.0.as_raw_fd(), &parts, control, flags, None) {
                Ok(_whole) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next packet, or `None` when the peer has closed its end.
    ///
    /// # Errors
    /// A cut packet, or EAGAIN if non-blocking.
    pub fn recv(&self) -> Result<Option<Packet>, LinkError> {
        SCRATCH.with_borrow_mut(|scratch| self.recv_into(scratch))
    }

    fn recv_into(&self, scratch: &mut [u8]) -> Result<Option<Packet>, LinkError> {
        let mut space = cmsg_space!([RawFd; PACKET_FDS_MAX]);
        let (length, flags, fds) = loop {
            let mut parts = [IoSliceMut::new(scratch)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                Ok(message) => {
                    // Own what came before anything can fail, so that nothing leaks.
                    let mut fds = Vec::new();
                    for control in message.cmsgs()? {
                        if let ControlMessageOwned::ScmRights(raw) = control {
                            fds.extend(raw.into_iter().map(sys::own));
                        }
                    }
                    break (message.bytes, message.flags, fds);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        };
        if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
            return Err(LinkError::Truncated);
        }
        if length == 0 && fds.is_empty() {
            return Ok(None);
        }
        let bytes = scratch.get(..length).unwrap_or_default().to_vec();
        Ok(Some(Packet { bytes, fds }))
    }

    /// # Errors
    /// fcntl fails on a descriptor that is not ours.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        fcntl(&self.0, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Packets {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Packets> for OwnedFd {
    fn from(packets: Packets) -> Self {
        packets.0
    }
}

/// A listening SEQPACKET socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Binds a new socket file with `mode`; an older file of that name is replaced.
    ///
    /// # Errors
    /// The folder is missing or not ours to write.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        bind_socket(path, mode, SockType::SeqPacket).map(Self)
    }

    /// Wraps a descriptor that listens already.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// # Errors
    /// EAGAIN if non-blocking, EMFILE.
    pub fn accept(&self) -> io::Result<Packets> {
        loop {
            match accept4(&self.0, SockFlag::SOCK_CLOEXEC) {
                Ok(fd) => return Ok(Packets(fd)),
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.0
    }
}

/// Binds and listens on a Unix socket of this type, close-on-exec, replacing an older file.
/// The file has `mode` before anybody can connect.
///
/// # Errors
/// The folder is missing or not ours to write.
pub fn bind_socket(path: &Path, mode: u32, kind: SockType) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    // The mode of the socket file comes from the inode's; nobody can connect before listen().
    with_short_path(path, |short| {
        bind(fd.as_raw_fd(), &UnixAddr::new(short)?).map_err(io::Error::from)
    })?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listen(&fd, Backlog::new(128)?)?;
    Ok(fd)
}

/// Connects a stream socket, also where the path is longer than `sun_path`.
///
/// # Errors
/// ENOENT or ECONNREFUSED: nobody listens there.
pub fn connect_stream(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    with_short_path(path, |short| {
        connect(fd.as_raw_fd(), &UnixAddr::new(short)?).map_err(io::Error::from)
    })?;
    Ok(fd.into())
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Calls `act` with a name for `path` that fits into `sun_path`.
fn with_short_path<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return act(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return act(path) };
    let folder = std::fs::File::open(folder)?;
    act(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn packets_keep_their_borders_and_descriptors() {
        let (a, b) = Packets::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        a.send(b"one", &[writer.as_fd()]).unwrap();
        a.send(b"two", &[]).unwrap();
        drop(writer);
        let first = b.recv().unwrap().unwrap();
        assert_eq!((first.bytes.as_slice(), first.fds.len()), (b"one".as_slice(), 1));
        std::fs::File::from(first.fds.into_iter().next().unwrap()).write_all(b"x").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(b.recv().unwrap().unwrap().bytes, b"two");
        drop(a);
        assert!(b.recv().unwrap().is_none());
    }

    #[test]
    fn long_socket_paths_work() {
        let base =
            std::env::temp_dir().join(format!("link-{}-{}", std::process::id(), "x".repeat(120)));
        std::fs::create_dir_all(&base).unwrap();
        let path = base.join("s.sock");
        let listener = Listener::bind(&path, 0o600).unwrap();
        let client = Packets::connect(&path).unwrap();
        client.send(b"hi", &[]).unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(server.recv().unwrap().unwrap().bytes, b"hi");
        std::fs::remove_dir_all(&base).unwrap();
    }
}
