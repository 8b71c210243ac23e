//! Who types the command.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// A uid without an account, far from those that mews gives to cages.
const FIRST_UID: u32 = 0x6000_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// As whom the tests run.
    Me,
    /// Another uid; only root can.
    Uid(u32),
}

impl Caller {
    /// An ordinary user: another uid if root runs the tests, else whoever does.
    #[must_use]
    pub fn ordinary(number: u32) -> Self {
        if is_root() { Self::Uid(FIRST_UID + number) } else { Self::Me }
    }

    #[must_use]
    pub fn uid(self) -> u32 {
        match self {
            Self::Me => nix::unistd::geteuid().as_raw(),
            Self::Uid(uid) => uid,
        }
    }

    /// With no supplementary groups either (std drops them when root sets a uid).
    pub fn apply(self, command: &mut Command) {
        if let Self::Uid(uid) = self {
            command.uid(uid).gid(uid);
        }
    }
}

#[must_use]
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
