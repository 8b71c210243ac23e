//! One call per wrapper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;

/// The child leaves the caller's session: no controlling terminal, no signals from its keys.
pub(crate) fn in_new_session(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let leave = || nix::unistd::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: between fork and exec only setsid(2), which is async-signal-safe.
    unsafe { command.pre_exec(leave) };
}

/// The child inherits this descriptor under its own number.
pub(crate) fn inherit(command: &mut Command, fd: RawFd) {
    use std::os::unix::process::CommandExt;
    let keep = move || clear_close_on_exec(fd);
    // SAFETY: between fork and exec only fcntl(2), which is async-signal-safe.
    unsafe { command.pre_exec(keep) };
}

/// The child inherits this descriptor as number `as_fd`, which must be in use in the parent (so
/// that it is not the pipe by which the child reports that exec failed).
pub(crate) fn inherit_as(command: &mut Command, fd: RawFd, as_fd: RawFd) {
    use std::os::unix::process::CommandExt;
    let put = move || if fd == as_fd { clear_close_on_exec(fd) } else { dup2(fd, as_fd) };
    // SAFETY: between fork and exec only fcntl(2) or dup2(2), which are async-signal-safe.
    unsafe { command.pre_exec(put) };
}

fn clear_close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn dup2(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers; `to` is the child's own table, nobody else uses it there.
    let done = unsafe { libc::dup2(from, to) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// TIOCGWINSZ: columns and rows. ENOTTY.
pub(crate) fn window_size(fd: BorrowedFd<'_>) -> io::Result<wire::Size> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is to a `winsize` that outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(wire::Size { cols: size.ws_col, rows: size.ws_row })
}

/// fcntl(F_DUPFD_CLOEXEC): a descriptor of our own for a number that the caller gave us. EBADF.
pub(crate) fn duplicate_number(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
