//! One group: a folder in one hierarchy.

use super::{CgroupError, members};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    V1,
    V2,
}

impl Version {
    /// `cgroup v1`, `cgroup v2`: the words that `inspect` and the status file use.
    #[must_use]
    pub fn how(self) -> &'static str {
        match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    Memory,
    Pids,
    Cpu,
    Io,
}

impl Controller {
    pub const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Io];

    /// The kernel's name.
    #[must_use]
    pub fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Memory, _) => "memory",
            (Self::Pids, _) => "pids",
            (Self::Cpu, _) => "cpu",
            (Self::Io, Version::V1) => "blkio",
            (Self::Io, Version::V2) => "io",
        }
    }

    /// The wall that it carries.
    #[must_use]
    pub fn wall(self) -> &'static str {
        match self {
            Self::Memory => "cgroup.memory",
            Self::Pids => "cgroup.pids",
            Self::Cpu => "cgroup.cpu",
            Self::Io => "cgroup.io",
        }
    }
}

/// Where a group is and what it limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPath {
    pub version: Version,
    pub controllers: Vec<Controller>,
    pub path: PathBuf,
}

#[derive(Debug)]
pub(super) struct Group(GroupPath);

impl Group {
    pub(super) fn new(version: Version, controllers: Vec<Controller>, path: PathBuf) -> Self {
        Self(GroupPath { version, controllers, path })
    }

    /// The group, if its folder is there.
    pub(super) fn open(place: GroupPath) -> Option<Self> {
        place.path.is_dir().then_some(Self(place))
    }

    pub(super) fn place(&self) -> GroupPath {
        self.0.clone()
    }

    pub(super) fn version(&self) -> Version {
        self.0.version
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(super) fn has(&self, controller: Controller) -> bool {
        self.0.controllers.contains(&controller)
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        std::fs::read_to_string(self.0.path.join(file))
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write_file(&self.0.path.join(file), text)
    }

    /// Absent where the kernel has no such file.
    pub(super) fn open_read(&self, file: &str) -> Option<OwnedFd> {
        File::open(self.0.path.join(file)).ok().map(OwnedFd::from)
    }

    pub(super) fn open_write(&self, file: &str) -> Result<OwnedFd, CgroupError> {
        let path = self.0.path.join(file);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .map(OwnedFd::from)
            .map_err(|source| CgroupError::File { path, source })
    }

    /// Removes the folder (and on v2 the cage's own folder above it), waiting for what is dying; then
    /// our base, if this was the last cage in it: nobody else would, if a supervisor was killed.
    pub(super) fn remove(&self, deadline: Instant) -> Result<(), CgroupError> {
        remove_folder(&self.0.path, deadline, || members::wait_a_moment(self))?;
        let cage = match self.0.version {
            Version::V1 => Some(self.path()),
            Version::V2 => self.path().parent(),
        };
        let Some(cage) = cage else { return Ok(()) };
        remove_folder(cage, deadline, members::yield_briefly)?;
        // EBUSY, ENOTEMPTY: other cages live there.
        if let Some(above) = cage.parent()
            && std::fs::remove_dir(above).is_ok()
            && is_operators(above)
            && let Some(base) = above.parent()
        {
            std::fs::remove_dir(base).ok();
        }
        Ok(())
    }
}

/// The group of an operator's cages.
pub(super) fn operators_name(uid: u32) -> String {
    format!("u{uid}")
}

pub(super) fn is_operators(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix('u')).is_some_and(|uid| uid.parse::<u32>().is_ok())
}

/// Control files take one write; there is nothing to truncate or create.
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// rmdir(2); EBUSY means that something in it is still on its way out.
fn remove_folder(path: &Path, deadline: Instant, wait: impl Fn()) -> Result<(), CgroupError> {
    loop {
        let source = match std::fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => error,
        };
        let busy = source.raw_os_error() == Some(libc::EBUSY);
        if !busy || deadline.saturating_duration_since(Instant::now()) == Duration::ZERO {
            return Err(CgroupError::Remove { path: path.to_owned(), source });
        }
        wait();
    }
}
