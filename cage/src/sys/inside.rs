//! What pid 1, zygote, leaders and forwarders need.

use super::own;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// How a child ended, and what it used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) pid: i32,
    /// CLD_EXITED, CLD_KILLED or CLD_DUMPED.
    pub(crate) how: i32,
    /// The exit code or the signal.
    pub(crate) value: i32,
    pub(crate) usage: libc::rusage,
}

/// waitid(2) for one child, leaving it a zombie (WNOWAIT): the kernel's own call also gives the
/// usage, which the C library's does not. `None`: it has not ended. ECHILD: no such child.
pub(crate) fn look_at(pid: i32) -> io::Result<Option<Ended>> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let ended = waitid(libc::P_PID, pid.unsigned_abs(), options)?;
    Ok((ended.pid != 0).then_some(ended))
}

/// waitid(2) for any child that has ended, reaping it. `None`: there is none now.
pub(crate) fn reap_any() -> io::Result<Option<Ended>> {
    match waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG) {
        Ok(ended) if ended.pid == 0 => Ok(None),
        Ok(ended) => Ok(Some(ended)),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

fn waitid(kind: libc::idtype_t, pid: u32, options: i32) -> io::Result<Ended> {
    let mut info = zeroed::<libc::siginfo_t>();
    let mut usage = zeroed::<libc::rusage>();
    // SAFETY: both pointers describe locals that outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_waitid, kind, pid, &raw mut info, options, &raw mut usage)
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid(2) has filled the SIGCHLD fields, or left the zeroes.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let value = unsafe { info.si_status() };
    Ok(Ended { pid, how: info.si_code, value, usage })
}

fn zeroed<T: Copy>() -> T {
    // SAFETY: used for plain C structures of integers only, for which zeroes are a value.
    unsafe { MaybeUninit::<T>::zeroed().assume_init() }
}

/// rt_sigaction(2): sets the disposition of a signal to default or ignore. The kernel's own call,
/// since C libraries keep some numbers for themselves, which may come to us ignored all the same.
/// SIGKILL and SIGSTOP cannot be changed, and cannot have been.
pub(crate) fn set_disposition(signal: i32, ignore: bool) {
    // The kernel's structure: handler, flags, restorer, mask. Without a handler the rest is unused.
    let action: [usize; 4] = [usize::from(ignore), 0, 0, 0];
    let old: *mut usize = std::ptr::null_mut();
    // SAFETY: reads the four words, with a mask of 8 bytes; installs no handler, so no code of ours
    // can run in signal context.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), old, 8_usize) };
}

/// prlimit(2) on ourselves: sets if `new` is given, returns what was before.
pub(crate) fn rlimit(resource: u32, new: Option<(u64, u64)>) -> io::Result<(u64, u64)> {
    let new = new.map(|(soft, hard)| libc::rlimit64 { rlim_cur: soft, rlim_max: hard });
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `new` is null or points to a local, `old` is one; the kernel's layout is rlimit64.
    let done = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, new, &raw mut old) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok((old.rlim_cur, old.rlim_max)) }
}

/// seccomp(2), SECCOMP_SET_MODE_FILTER. `instructions` is a `sock_filter` array as bytes.
/// EINVAL: not a program. EACCES: no_new_privs is missing.
pub(crate) fn load_filter(instructions: &[u8]) -> io::Result<()> {
    let count = instructions.len() / size_of::<libc::sock_filter>();
    let len = u16::try_from(count).map_err(|_too_long| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions, which lie within `instructions`, and does not
    // write to them; it takes them from user memory bytewise, so alignment does not matter.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// close_range(2) from `first` up. Before 5.9: ENOSYS.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: called right after fork in a child that uses none of these descriptors again.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// close(2) of a number whose owner lies in frames that this process never returns to.
pub(crate) fn close_number(number: i32) {
    // SAFETY: called right after fork, in a child that diverges and does not use it again.
    unsafe { libc::close(number) };
}

/// TIOCSPTLCK 0, ioctl_tty(2): lets the other side of a new terminal be opened.
pub(crate) fn unlock_terminal(master: BorrowedFd<'_>) -> io::Result<()> {
    let zero: libc::c_int = 0;
    // SAFETY: reads one int.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK as _, &raw const zero) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// TIOCGPTPEER: the other side, without a path. Linux 4.13.
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes open flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(own(fd)) }
}

/// TIOCSWINSZ.
pub(crate) fn set_terminal_size(fd: BorrowedFd<'_>, cols: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: reads one winsize.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSWINSZ as _, &raw const size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// TIOCSCTTY: the caller is a session leader without a controlling terminal.
pub(crate) fn take_terminal(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes its argument by value.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY as _, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// dup3(2) onto a number that this process keeps for that purpose (0, 1, 2, 3).
pub(crate) fn put_at(fd: BorrowedFd<'_>, number: i32, close_on_exec: bool) -> io::Result<()> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: callers own whatever stood at `number` before and do not use it again.
    let done = unsafe { libc::dup3(fd.as_raw_fd(), number, flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
