//! System calls that nix does not wrap: one call per wrapper.

use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that the supervisor left open for this program.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: `inherited` has seen that it is open; each number is taken once, at the start.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Whether this number is an open descriptor: `fcntl(F_GETFD)`.
pub(crate) fn inherited(fd: RawFd) -> bool {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0
}

/// ioctl_ficlone(2). EOPNOTSUPP, EXDEV, EINVAL, ENOTTY: not on this file system.
pub(crate) fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the argument of this ioctl is a descriptor, not a pointer.
    let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) };
    Errno::result(done).map(drop)
}

/// flistxattr(2): names, each ended by NUL. ERANGE: more than fits.
pub(crate) fn list_xattr(fd: BorrowedFd<'_>, names: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: pointer and length describe `names`.
    let length =
        unsafe { libc::flistxattr(fd.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    Errno::result(length).map(isize::cast_unsigned)
}

/// fgetxattr(2). ENODATA: not set. ERANGE: larger than `value`.
pub(crate) fn get_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `name` ends with NUL, pointer and length describe `value`.
    let length = unsafe {
        libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    Errno::result(length).map(isize::cast_unsigned)
}

/// fsetxattr(2).
pub(crate) fn set_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: `name` ends with NUL, pointer and length describe `value`.
    let done = unsafe {
        libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    Errno::result(done).map(drop)
}

/// fremovexattr(2). ENODATA: it was not set.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // SAFETY: `name` ends with NUL.
    let done = unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) };
    Errno::result(done).map(drop)
}

/// copy_file_range(2) at these offsets of both. 0: the end of `from`.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    at: i64,
    bytes: usize,
) -> Result<usize, Errno> {
    let (mut source, mut target) = (at, at);
    // SAFETY: both offsets outlive the call.
    let count = unsafe {
        libc::copy_file_range(
            from.as_raw_fd(),
            &raw mut source,
            to.as_raw_fd(),
            &raw mut target,
            bytes,
            0,
        )
    };
    Errno::result(count).map(isize::cast_unsigned)
}
