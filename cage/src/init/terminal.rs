//! A terminal of the cage's own: opened here, so that it has its right name inside.

use crate::sys::inside as sys;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::termios::{InputFlags, SetArg, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wire::Size;

pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// # Errors
/// ENOSPC: the cage has as many terminals as its devpts allows.
pub(crate) fn open_terminal(size: Size) -> io::Result<Terminal> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = open("/dev/ptmx", flags, Mode::empty())?;
    sys::unlock_terminal(master.as_fd())?;
    let slave = sys::terminal_peer(master.as_fd())?;
    sys::set_terminal_size(master.as_fd(), size.cols, size.rows)?;
    let mut modes = tcgetattr(&slave)?;
    // A line edited by the kernel erases whole characters, not bytes.
    modes.input_flags |= InputFlags::IUTF8;
    tcsetattr(&slave, SetArg::TCSANOW, &modes)?;
    Ok(Terminal { master, slave })
}
