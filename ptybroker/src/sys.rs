//! One call per wrapper. What the stub does between fork and exec is async-signal-safe: no
//! wrapper here allocates.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use wire::Size;

/// Takes over a descriptor that the boot text names.
///
/// # Errors
/// EBADF: it is not open.
pub(crate) fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    set_inheritable(fd, false)?;
    // SAFETY: it is open (fcntl has just worked), and `boot` takes each number once, before
    // anything else in this process has opened or owned a descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// F_SETFD, fcntl(2): whether it stays open over exec.
pub(crate) fn set_inheritable(fd: RawFd, inheritable: bool) -> io::Result<()> {
    let flags = if inheritable { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: takes no pointers.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
    check(done)
}

/// Everything from `first` up is closed at exec, close_range(2). ENOSYS before Linux 5.11.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    let first = u32::try_from(first).unwrap_or(3);
    // SAFETY: takes no pointers; with CLOEXEC nothing is closed now.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 4) };
    check(i32::from(done < 0).wrapping_neg())
}

/// fork(2). The broker is single-threaded when it does so. Zero in the child.
pub(crate) fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: no other thread exists, and the child only calls wrappers of this module.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    Ok(pid)
}

/// dup2(2): `onto` is `fd`, open over exec.
pub(crate) fn duplicate_onto(fd: RawFd, onto: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers; only the stub calls it, for 0 to 2.
    check(unsafe { libc::dup2(fd, onto) })
}

/// write(2) of the two bytes that make `cgroup.procs` take the writer.
pub(crate) fn write_raw(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe `bytes`.
    let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    check(i32::from(done < 0).wrapping_neg())
}

/// Default disposition of a signal, sigaction(2).
pub(crate) fn default_signal(signal: libc::c_int) {
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// A signal that is thrown away, sigaction(2).
pub(crate) fn ignore_signal(signal: libc::c_int) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// malloc_trim(3): what the start has freed goes back to the kernel. Elsewhere than glibc: nothing.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers, and frees nothing that is in use.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// execveat(2) of an open program. Returns only if it failed.
pub(crate) fn execute(program: RawFd, argv: &[*const libc::c_char]) -> io::Error {
    let empty: &CStr = c"";
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer and point to C strings that outlive the call
    // (`launch` keeps the `CString`s that `argv` points to).
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program,
            empty.as_ptr(),
            argv.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// _exit(2): no destructors, no buffers, for the stub.
pub(crate) fn exit_now(status: libc::c_int) -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

/// TIOCSWINSZ, ioctl_tty(2): the kernel sends SIGWINCH to the foreground group.
pub(crate) fn set_size(master: BorrowedFd<'_>, size: Size) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is what this request reads.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
}

/// FIONREAD, ioctl(2): bytes that a pipe holds now.
pub(crate) fn bytes_waiting(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: `count` is what this request writes.
    check(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// SECCOMP_SET_MODE_FILTER for all threads, seccomp(2). EACCES without no_new_privs.
pub(crate) fn set_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = libc::c_ushort::try_from(program.len())
        .map_err(|_too_long| io::Error::from_raw_os_error(libc::EINVAL))?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `filter` describes `program`; the kernel copies it and writes nothing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    check(if done == 0 { 0 } else { -1 })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
