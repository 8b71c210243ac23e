//! The operator's own terminal: raw while a program has it, and as it was on every way out.

use crate::out::progress;
use crate::sys;
use crate::viewer::modes::Modes;
use nix::sys::termios::{self, OutputFlags, SetArg, Termios};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use wire::Size;

/// Standard input and output are terminals.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The size of the terminal on standard output, if it has one.
pub(crate) fn size() -> Option<Size> {
    let size = sys::window_size(io::stdout().as_fd()).ok()?;
    (size.cols > 0 && size.rows > 0).then_some(size)
}

/// Of the one on standard error, where signs of life go.
pub(crate) fn size_of_stderr() -> Option<Size> {
    let size = sys::window_size(io::stderr().as_fd()).ok()?;
    (size.cols > 0).then_some(size)
}

/// Raw mode; dropping it brings back what was, also in a panic.
#[derive(Debug)]
pub(crate) struct Raw {
    terminal: OwnedFd,
    before: Termios,
    /// What the program has switched on, to be undone.
    pub(crate) modes: Modes,
}

impl Raw {
    /// Every key is a byte from here on; what is written still begins its lines at the left.
    pub(crate) fn keys() -> io::Result<Self> {
        let terminal = io::stdin().as_fd().try_clone_to_owned()?;
        let before = termios::tcgetattr(&terminal)?;
        progress::hush(true);
        let raw = Self { terminal, before, modes: Modes::default() };
        raw.set(OutputFlags::OPOST)?;
        Ok(raw)
    }

    /// What is written goes to the terminal as it is, too.
    pub(crate) fn output(&self) -> io::Result<()> {
        self.set(OutputFlags::empty())
    }

    fn set(&self, kept: OutputFlags) -> io::Result<()> {
        let mut raw = self.before.clone();
        termios::cfmakeraw(&mut raw);
        raw.output_flags |= self.before.output_flags & kept;
        Ok(termios::tcsetattr(&self.terminal, SetArg::TCSANOW, &raw)?)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        write_soon(&self.modes.undo());
        // A terminal that is gone (SIGHUP) needs nothing any more.
        termios::tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before).ok();
        progress::hush(false);
    }
}

/// To standard output, but not for ever: a terminal that takes nothing must not hold us.
pub(crate) fn write_soon(mut bytes: &[u8]) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stdout = io::stdout();
    while !bytes.is_empty() {
        let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, PollTimeout::from(500_u16)) {
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match nix::unistd::write(&stdout, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
            Err(_gone) => return,
        }
    }
}
