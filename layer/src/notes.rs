//! Notes beside a tree: files that only this program reads and writes.

use crate::entry::bits;
use crate::problem::{At, Problem};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::fsync;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Largest note. A manifest of ten million entries has about two of these gigabytes.
const BYTES_MAX: u64 = 4 << 30;

/// The whole note, if there is one.
pub(crate) fn read(holder: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(holder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno).at("open", name),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).at("read", name)?;
    Ok(Some(bytes))
}

/// A new note, on the disk when this returns; in place of an older one.
pub(crate) fn write(holder: BorrowedFd<'_>, name: &[u8], bytes: &[u8]) -> Result<(), Problem> {
    let new = [name, b".part"].concat();
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(holder, new.as_slice(), flags, bits(0o600)).at("write", name)?;
    let mut file = File::from(file);
    file.write_all(bytes).at("write", name)?;
    fsync(file.as_fd()).at("write", name)?;
    renameat(holder, new.as_slice(), holder, name).at("write", name)
}
