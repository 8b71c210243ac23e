//! One call per wrapper.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that our parent left open for us.
///
/// # Errors
/// EBADF: there is none of that number.
pub(crate) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() || fd < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open (just checked), above the standard ones, and named by our parent in
    // `--listen-fd` or `--lock-fd` for us alone; this is called once for each, before anything else
    // opens descriptors.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
