//! Handles of processes. A pid is a hint; a pidfd is the process.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// # Errors
    /// ESRCH: there is no such process (any more).
    pub fn open(pid: i32) -> io::Result<Self> {
        sys::pidfd_open(pid).map(Self)
    }

    /// The process that has this pid *and* this start time: survives reuse of the number.
    ///
    /// # Errors
    /// ESRCH: gone, or another process has the number now.
    pub fn open_same(pid: i32, start_time: u64) -> io::Result<Self> {
        let handle = Self::open(pid)?;
        if start_time_of(pid)? == start_time {
            Ok(handle)
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    }

    /// # Errors
    /// ESRCH: it has ended and was reaped. EPERM.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        sys::pidfd_send_signal(self.0.as_fd(), signal)
    }

    /// Whether it has not ended yet (a zombie has ended).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [nix::poll::PollFd::new(self.0.as_fd(), nix::poll::PollFlags::POLLIN)];
        matches!(nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO), Ok(0))
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<PidFd> for OwnedFd {
    fn from(handle: PidFd) -> Self {
        handle.0
    }
}

/// Field 22 of `/proc/PID/stat`: clock ticks since boot when the process started.
///
/// # Errors
/// No such process, or a stat line that is not one.
pub fn start_time_of(pid: i32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a stat line");
    // The name may hold spaces and parentheses: count from the last one.
    let after = stat.rsplit_once(')').ok_or_else(bad)?.1;
    let shown: u64 =
        after.split_whitespace().nth(19).and_then(|field| field.parse().ok()).ok_or_else(bad)?;
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    Ok(shown.saturating_add_signed(boot_offset(&offsets).saturating_neg()))
}

/// By how many ticks the boot clock of our time namespace is ahead of the host's: start times are shown
/// with it, and a daemon in another one must know the same process.
fn boot_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(str::parse::<i64>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (seconds, nanoseconds) = (next(), next());
    // USER_HZ is 100 on every Linux.
    seconds.saturating_mul(100).saturating_add(nanoseconds / 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace() {
        for (text, want) in [
            ("monotonic  5 0\nboottime   1000000         0\n", 100_000_000),
            ("monotonic  5 0\nboottime   -3 500000000\n", -250),
            ("boottime 0 0\n", 0),
            ("", 0),
        ] {
            assert_eq!(boot_offset(text), want, "{text}");
        }
    }

    #[test]
    fn a_handle_tells_life_and_death_and_same_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start = start_time_of(pid).unwrap();
        let handle = PidFd::open_same(pid, start).unwrap();
        assert!(handle.is_alive());
        assert!(PidFd::open_same(pid, start + 1).is_err());
        handle.signal(libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!handle.is_alive());
    }
}
