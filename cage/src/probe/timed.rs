//! Running a small program with an end to its time.

use link::PidFd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The output of a program that prints less than a pipe holds.
///
/// # Errors
/// It could not be started, or did not end in time (then it is killed).
pub(super) fn run(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_clear()
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let handle = PidFd::open(pid)?;
    let mut fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    let ended = poll(&mut fds, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX))?;
    if ended == 0 {
        child.kill()?;
        child.wait()?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_back_and_a_program_that_hangs_is_killed() {
        let said = run(Command::new("/bin/echo").arg("a"), Duration::from_secs(10)).unwrap();
        assert_eq!(said.stdout, b"a\n");
        let hung = run(Command::new("/bin/sleep").arg("600"), Duration::from_millis(20));
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
