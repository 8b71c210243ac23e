//! `cgroup.freeze` of a v2 tree: the whole cage stands, whatever its processes do with signals.

use super::group::{Version, write_file};
use super::{CageCgroup, CgroupError};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// The freezer of one cage. What was asked for is not yet so: `cgroup.events` says when.
#[derive(Debug)]
pub struct Freezer {
    folder: PathBuf,
    events: File,
}

impl CageCgroup {
    /// Absent where the cage has no group in a v2 tree.
    ///
    /// # Errors
    /// Its files cannot be opened.
    pub fn freezer(&self) -> Result<Option<Freezer>, CgroupError> {
        let Some(group) = self.groups.iter().find(|group| group.version() == Version::V2) else {
            return Ok(None);
        };
        let folder = group.path().to_owned();
        let path = folder.join("cgroup.events");
        match File::open(&path) {
            Ok(events) => Ok(Some(Freezer { folder, events })),
            Err(source) => Err(CgroupError::File { path, source }),
        }
    }
}

impl Freezer {
    /// The words that events and `inspect` use.
    #[must_use]
    pub fn how(&self) -> &'static str {
        Version::V2.how()
    }

    /// Asks the kernel to freeze the cage, or to let it go on.
    ///
    /// # Errors
    /// The group is gone.
    pub fn ask(&self, frozen: bool) -> Result<(), CgroupError> {
        let path = self.folder.join("cgroup.freeze");
        write_file(&path, if frozen { "1" } else { "0" })
            .map_err(|source| CgroupError::File { path, source })
    }

    /// Whether all of it stands now. Looking makes the next change known (`POLLPRI`).
    ///
    /// # Errors
    /// The group is gone.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        let text = self.read().map_err(|source| {
            let path = self.folder.join("cgroup.events");
            CgroupError::File { path, source }
        })?;
        Ok(text.lines().any(|line| line == "frozen 1"))
    }

    fn read(&self) -> io::Result<String> {
        let (mut text, mut events) = (String::new(), &self.events);
        events.rewind()?;
        events.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl AsFd for Freezer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
