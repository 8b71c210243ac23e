//! One call per wrapper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that the kernel has just made for us.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that a successful system call has just returned
    // (SCM_RIGHTS, pidfd_open), so nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// pidfd_open(2). ESRCH: no such process.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(|_too_large| io::ErrorKind::InvalidData)?;
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(own(fd)) }
}

/// pidfd_send_signal(2). ESRCH: it is gone.
pub(crate) fn pidfd_send_signal(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a null siginfo is allowed and means what kill(2) would send.
    let done =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, info, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// SO_PEERCRED of a connected Unix socket.
pub(crate) fn peer_cred(fd: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: pointer and length describe `cred`, which outlives the call.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut cred).cast(),
            &raw mut length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(cred) }
}

/// SO_PEERGROUPS of a connected Unix socket into `room`, and how many there are, also where `room` is
/// too small for them (ERANGE).
pub(crate) fn peer_groups(fd: BorrowedFd<'_>, room: &mut [u32]) -> (io::Result<()>, usize) {
    let mut length = libc::socklen_t::try_from(size_of_val(room)).unwrap_or(0);
    // SAFETY: pointer and length describe `room`, which outlives the call.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            room.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let result = if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    (result, usize::try_from(length).unwrap_or(0) / size_of::<u32>())
}

/// Hands a descriptor to tokio's reactor.
#[cfg(feature = "tokio")]
pub(crate) fn watch<T: AsRawFd>(
    fd: T,
    interest: tokio::io::Interest,
) -> io::Result<tokio::io::unix::AsyncFd<T>> {
    // SAFETY: `T` owns the descriptor and is owned by the `AsyncFd`, so the number stays ours
    // for as long as it is registered; callers pass only `OwnedFd` and `Packets`.
    unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, interest) }
        .map_err(io::Error::from)
}
