//! Bytes of files: copied by the cheapest way that the file system has, and compared.

use crate::Stamp;
use crate::sys;
use nix::errno::Errno;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, ftruncate, lseek};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const BLOCK_BYTES: usize = 128 * 1024;
/// Most bytes of one copy_file_range(2).
const RANGE_BYTES: u64 = 1 << 30;

/// Ways of copying that this pair of file systems has refused once are not tried again.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    no_clone: bool,
    no_range: bool,
}

impl Contents {
    /// Fills the empty file `to`. Whether it shares its blocks now.
    pub(crate) fn copy(&mut self, from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<bool, Errno> {
        if size == 0 {
            return Ok(false);
        }
        if !self.no_clone {
            match sys::clone_file(from.as_fd(), to.as_fd()) {
                Ok(()) => return Ok(true),
                Err(Errno::EOPNOTSUPP | Errno::EXDEV | Errno::EINVAL | Errno::ENOTTY) => {
                    self.no_clone = true;
                }
                Err(errno) => return Err(errno),
            }
        }
        ftruncate(to, offset(size)?)?;
        let mut at = 0;
        while let Some((start, end)) = data(from, at, size)? {
            self.range(from, to, start, end)?;
            at = end;
        }
        Ok(false)
    }

    fn range(&mut self, from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
        let mut at = start;
        while at < end && !self.no_range {
            let length = usize::try_from((end - at).min(RANGE_BYTES)).unwrap_or(BLOCK_BYTES);
            match sys::copy_range(from.as_fd(), to.as_fd(), offset(at)?, length) {
                // It has become shorter; the rest is a hole.
                Ok(0) => return Ok(()),
                Ok(count) => at = at.saturating_add(u64::try_from(count).unwrap_or(0)),
                Err(Errno::EXDEV | Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                    self.no_range = true;
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if at >= end {
            return Ok(());
        }
        let from = File::from(from.try_clone().map_err(crate::tree::errno)?);
        let to = File::from(to.try_clone().map_err(crate::tree::errno)?);
        let mut block = vec![0; BLOCK_BYTES];
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
            let count = read_at(&from, block.get_mut(..length).unwrap_or_default(), at)?;
            if count == 0 {
                break;
            }
            to.write_all_at(block.get(..count).unwrap_or_default(), at)
                .map_err(crate::tree::errno)?;
            at = at.saturating_add(u64::try_from(count).unwrap_or(0));
        }
        Ok(())
    }
}

/// Whether two files of the same size hold the same bytes. Where both have a hole nothing is read:
/// a program may have made one of any size.
pub(crate) fn equal(one: OwnedFd, other: OwnedFd, size: u64) -> Result<bool, Errno> {
    let next = |at| -> Result<u64, Errno> {
        let starts = [data(&one, at, size)?, data(&other, at, size)?];
        Ok(starts.into_iter().flatten().map(|(start, _)| start).min().unwrap_or(size).max(at))
    };
    let readers = [&one, &other].map(|fd| fd.try_clone().map(File::from));
    let [one, other] = readers;
    let (one, other) = (one.map_err(crate::tree::errno)?, other.map_err(crate::tree::errno)?);
    let (mut left, mut right) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut at = next(0)?;
    loop {
        let count = read_at(&one, &mut left, at)?;
        if read_at(&other, &mut right, at)? != count || left.get(..count) != right.get(..count) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        at = at.saturating_add(u64::try_from(count).unwrap_or(0));
        if left.get(..count).is_some_and(|block| block.iter().all(|byte| *byte == 0)) {
            at = next(at)?;
        }
    }
}

pub(crate) fn set_mtime(fd: impl AsFd, mtime: Stamp) -> Result<(), Errno> {
    futimens(fd, &TimeSpec::UTIME_OMIT, &TimeSpec::new(mtime.seconds, mtime.nanoseconds))
}

/// As many bytes as there are, up to the whole block.
fn read_at(file: &File, block: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let from = at.saturating_add(u64::try_from(filled).unwrap_or(0));
        match file.read_at(rest, from) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(crate::tree::errno(error)),
        }
    }
    Ok(filled)
}

/// The next stretch that is no hole.
fn data(file: &OwnedFd, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let start = match lseek(file, offset(at)?, Whence::SeekData) {
        Ok(start) => start.cast_unsigned(),
        Err(Errno::ENXIO) => return Ok(None),
        Err(Errno::EINVAL) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno),
    };
    if start >= size {
        return Ok(None);
    }
    let end = lseek(file, offset(start)?, Whence::SeekHole)?.cast_unsigned();
    Ok(Some((start, end.min(size))))
}

fn offset(at: u64) -> Result<i64, Errno> {
    i64::try_from(at).map_err(|_too_large| Errno::EFBIG)
}
