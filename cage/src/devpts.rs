//! How many terminals a cage may have: `max=` of its own devpts.
//!
//! The host's pool is shared by all (`kernel.pty.max`), so a cage must not drain it. The mount belongs
//! to bwrap's outer user namespace, where nothing inside has a capability, so it is done from
//! outside: a helper process of the cage's uid enters that namespace and remounts.

use crate::sys;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const DEVPTS: &str = "/dev/pts";

#[derive(Debug, thiserror::Error)]
pub enum DevptsError {
    #[error("the mount namespace of process {pid} cannot be opened: {source}")]
    Namespace { pid: i32, source: io::Error },
    #[error("no process to remount {DEVPTS} in: {0}")]
    Helper(#[source] io::Error),
    #[error("{DEVPTS} of process {pid} cannot be remounted with max={max}: {source}")]
    Remount { pid: i32, max: u32, source: io::Error },
}

/// Lets the cage that process `pid` is in have at most `max` terminals. The caller needs the uid that
/// made the cage, or root; it may have threads.
///
/// # Errors
/// The process is gone, or the kernel refuses the remount.
pub fn limit(pid: i32, max: u32) -> Result<(), DevptsError> {
    let unreadable = |source| DevptsError::Namespace { pid, source };
    let mounts = File::open(format!("/proc/{pid}/ns/mnt")).map_err(unreadable)?;
    let users = sys::owner_of_namespace(mounts.as_fd()).map_err(unreadable)?;
    // Everything is allocated before the fork: the child may not.
    let options = CString::new(format!("max={max},ptmxmode=666,mode=620")).unwrap_or_default();
    let helper = match sys::fork().map_err(DevptsError::Helper)? {
        None => sys::exit_now(remount(users.as_fd(), mounts.as_fd(), &options)),
        Some(helper) => Pid::from_raw(helper),
    };
    let status = loop {
        match waitpid(helper, None) {
            Err(Errno::EINTR) => {}
            other => break other.map_err(|errno| DevptsError::Helper(errno.into()))?,
        }
    };
    let WaitStatus::Exited(_helper, errno) = status else {
        return Err(DevptsError::Helper(io::Error::other(format!("it ended with {status:?}"))));
    };
    if errno == 0 {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(errno);
    Err(DevptsError::Remount { pid, max, source })
}

/// In the helper: only async-signal-safe calls. Returns an errno, which is its exit code.
fn remount(users: BorrowedFd<'_>, mounts: BorrowedFd<'_>, options: &CStr) -> i32 {
    // What bwrap mounted it with; a remount without them would take them away.
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let none: Option<&CStr> = None;
    let done = setns(users, CloneFlags::CLONE_NEWUSER)
        .and_then(|()| setns(mounts, CloneFlags::CLONE_NEWNS))
        .and_then(|()| mount(none, c"/dev/pts", none, flags, Some(options)));
    done.err().map_or(0, |errno| errno as i32)
}

/// The limit that stands in the cage of process `pid`, read back from its mount table. `None`: it
/// has no devpts of its own, or one without a limit.
///
/// # Errors
/// The process is gone.
pub fn max_of(pid: i32) -> io::Result<Option<u32>> {
    Ok(parse_max(&std::fs::read_to_string(format!("/proc/{pid}/mountinfo"))?))
}

fn parse_max(mountinfo: &str) -> Option<u32> {
    mountinfo.lines().filter_map(max_in_line).next_back()
}

/// `id parent dev root MOUNTPOINT options … - TYPE source SUPER_OPTIONS`.
fn max_in_line(line: &str) -> Option<u32> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    if mount.split(' ').nth(4)? != DEVPTS || kind.next()? != "devpts" {
        return None;
    }
    kind.nth(1)?.split(',').find_map(|option| option.strip_prefix("max=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_mount_table() {
        let line = |options| format!("61 59 0:55 / /dev/pts rw - devpts devpts {options}\n");
        let other = "60 59 0:5 / /dev rw - tmpfs tmpfs rw,max=7\n";
        for (options, max) in
            [("rw,mode=620,ptmxmode=666", None), ("rw,mode=620,ptmxmode=666,max=4", Some(4))]
        {
            assert_eq!(parse_max(&format!("{other}{}", line(options))), max);
        }
        assert_eq!(parse_max(other), None);
    }
}
