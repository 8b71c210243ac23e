//! System calls that nix does not wrap safely: one call per wrapper.

#[cfg(feature = "init")]
pub(crate) mod inside;

use std::io;
#[cfg(feature = "policy")]
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// fork(2): `None` in the child. EAGAIN: a limit on processes.
///
/// In a process with threads the child may do only what is async-signal-safe, then [`exit_now`].
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: every caller is single-threaded (cage-init and its children) or keeps to
    // async-signal-safe calls in the child (devpts); all children end in exec or `exit_now`.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// _exit(2): no destructors, no buffers flushed.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns, touches no memory.
    unsafe { libc::_exit(code) }
}

/// Takes ownership of a descriptor that the kernel has just made for us, or that was handed to this
/// program at its start.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that a system call has just returned, or one that the
    // program's argument names and that nothing else in the process owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// getxattr(2) into a small buffer: the value, `None` if there is none.
#[cfg(feature = "policy")]
pub(crate) fn attribute(path: &std::ffi::CStr, name: &std::ffi::CStr) -> Option<Vec<u8>> {
    let mut value = [0_u8; 64];
    // SAFETY: NUL-terminated strings; pointer and length are the array's.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    usize::try_from(length).ok().and_then(|length| value.get(..length)).map(<[u8]>::to_vec)
}

/// setxattr(2).
#[cfg(all(test, feature = "policy"))]
pub(crate) fn set_attribute(
    path: &std::ffi::CStr,
    name: &std::ffi::CStr,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: NUL-terminated strings; pointer and length are the slice's.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// NS_GET_USERNS, ioctl_ns(2): the user namespace that owns this namespace.
#[cfg(feature = "policy")]
pub(crate) fn owner_of_namespace(ns: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 1)`.
    const NS_GET_USERNS: u32 = 0xb701;
    // SAFETY: this ioctl takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(ns.as_raw_fd(), NS_GET_USERNS as _) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(own(fd)) }
}
