//! A child of ours that is somebody else: for looking at what belongs to an operator with the
//! operator's own eyes, and for reading what they wrote. It has no descriptor but its answer's.

use super::child::become_another;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Forks; the child drops to `(uid, gid)` with no other group and no capability, works, writes what
/// came of it to `answer` and ends. An answer that is empty says that it could not.
pub(crate) fn fork_as(
    identity: (u32, u32),
    answer: &OwnedFd,
    work: impl FnOnce() -> Vec<u8>,
) -> io::Result<libc::pid_t> {
    // SAFETY: this process has one thread, so that nobody holds a lock in the child, which may
    // therefore allocate; it never returns from here and runs no destructor of ours.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        super::done(pid.into())?;
        return Ok(pid);
    }
    if let Some(mut answer) = alone_with(answer)
        && become_another(identity).is_ok()
    {
        let bytes = catch_unwind(AssertUnwindSafe(work)).unwrap_or_default();
        // A reader that went away has no use for it.
        let _gone = answer.write_all(&bytes);
    }
    // SAFETY: takes no pointers, runs no handlers.
    unsafe { libc::_exit(0) }
}

/// The answer's descriptor as number 3, and no other left.
fn alone_with(answer: &OwnedFd) -> Option<File> {
    const ONLY: i32 = 3;
    if answer.as_raw_fd() != ONLY {
        // SAFETY: takes no pointers.
        if unsafe { libc::dup2(answer.as_raw_fd(), ONLY) } < 0 {
            return None;
        }
    }
    // SAFETY: takes no pointers. What owned those numbers lives on in the parent alone.
    if unsafe { libc::syscall(libc::SYS_close_range, ONLY + 1, u32::MAX, 0) } < 0 {
        return None;
    }
    // SAFETY: open, by the lines above, and nothing else in this child uses the number.
    Some(unsafe { File::from_raw_fd(ONLY) })
}
