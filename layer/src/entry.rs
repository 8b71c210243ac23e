//! One entry of a folder, as the kernel tells it without opening it.

use crate::Stamp;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fstat, fstatat, utimensat};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wire::EntryKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    File,
    Folder,
    Symlink,
    Fifo,
    /// Character device 0:0: in an overlay's layer, "nothing is here".
    Whiteout,
    /// Sockets and devices: of a running program or host, never copied.
    Other,
}

impl Kind {
    pub(crate) fn to_wire(self) -> Option<EntryKind> {
        match self {
            Self::File => Some(EntryKind::File),
            Self::Folder => Some(EntryKind::Folder),
            Self::Symlink => Some(EntryKind::Symlink),
            Self::Fifo => Some(EntryKind::Fifo),
            Self::Whiteout | Self::Other => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Permission bits, with setuid, setgid and sticky.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) links: u64,
    pub(crate) mtime: Stamp,
    pub(crate) ctime: Stamp,
}

impl From<FileStat> for Entry {
    fn from(stat: FileStat) -> Self {
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Folder,
            libc::S_IFLNK => Kind::Symlink,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFCHR if stat.st_rdev == 0 => Kind::Whiteout,
            _ => Kind::Other,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            size: stat.st_size.cast_unsigned(),
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink,
            mtime: Stamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec },
            ctime: Stamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec },
        }
    }
}

impl Entry {
    /// The same thing, not touched since, by the one clock that no program can set.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode && self.device == other.device && self.ctime == other.ctime
    }

    /// The same thing with the same content, though its name has changed (which moves ctime).
    pub(crate) fn is_same_but_for_name(&self, other: &Self) -> bool {
        self.inode == other.inode
            && self.device == other.device
            && self.kind == other.kind
            && self.mode == other.mode
            && (self.kind == Kind::Folder || (self.size == other.size && self.mtime == other.mtime))
    }
}

/// Nothing there is `None`.
pub(crate) fn look(folder: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Entry>, Errno> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn of(fd: impl AsFd) -> Result<Entry, Errno> {
    fstat(fd).map(Entry::from)
}

/// Mode of exactly this entry: a name that is something else by now, or a link, is ESTALE.
///
/// By descriptor and its link in /proc, since fchmodat(2) follows links, and fchmod(2) needs an open
/// file, which a mode may forbid.
pub(crate) fn set_mode(
    folder: BorrowedFd<'_>,
    name: &[u8],
    entry: &Entry,
    mode: u32,
) -> Result<(), Errno> {
    let handle = handle(folder, name)?;
    let found = of(&handle)?;
    if found.inode != entry.inode || found.kind != entry.kind || found.kind == Kind::Symlink {
        return Err(Errno::ESTALE);
    }
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    nix::sys::stat::fchmodat(
        nix::fcntl::AT_FDCWD,
        link.as_str(),
        bits(mode),
        nix::sys::stat::FchmodatFlags::FollowSymlink,
    )
}

/// A descriptor that only names the entry: never blocks, opens nothing.
pub(crate) fn handle(folder: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(folder, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

/// Times of an entry of any kind.
pub(crate) fn set_mtime(folder: BorrowedFd<'_>, name: &[u8], mtime: Stamp) -> Result<(), Errno> {
    let mtime = TimeSpec::new(mtime.seconds, mtime.nanoseconds);
    utimensat(folder, name, &TimeSpec::UTIME_OMIT, &mtime, UtimensatFlags::NoFollowSymlink)
}

pub(crate) fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}
