//! How fast a cage may read and write one block device.

use super::CgroupError;
use super::group::{Controller, Group, Version};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A whole disk: the kernel throttles no partition by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Disk {
    /// The disk that a file lies on; none for what lies on no block device of its own (tmpfs,
    /// overlay, btrfs, a network).
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let device = std::fs::metadata(path).ok()?.dev();
        let place = Self { major: libc::major(device), minor: libc::minor(device) };
        let folder = PathBuf::from(format!("/sys/dev/block/{place}"));
        let folder = std::fs::canonicalize(folder).ok()?;
        if !folder.join("partition").exists() {
            return Some(place);
        }
        let text = std::fs::read_to_string(folder.parent()?.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// Bytes a second, each way. None: as fast as it goes.
pub(super) fn set(group: &Group, disk: Disk, bytes: Option<u64>) -> Result<(), CgroupError> {
    let refused = |error: io::Error| CgroupError::Limit {
        wall: Controller::Io.wall(),
        path: group.path().to_owned(),
        message: error.to_string(),
    };
    match group.version() {
        Version::V1 => {
            // 0 takes the rule away.
            let line = format!("{disk} {}", bytes.unwrap_or(0));
            for file in V1_FILES {
                group.write(file, &line).map_err(refused)?;
            }
        }
        Version::V2 => {
            let rate = bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
            group.write("io.max", &format!("{disk} rbps={rate} wbps={rate}")).map_err(refused)?;
        }
    }
    let got = rates(group);
    if got == [bytes, bytes] {
        return Ok(());
    }
    Err(CgroupError::Mismatch {
        wall: Controller::Io.wall(),
        path: group.path().to_owned(),
        wanted: bytes.unwrap_or(0),
        got: format!("{got:?}"),
    })
}

const V1_FILES: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];

pub(super) fn can_be_set(group: &Group) -> bool {
    match group.version() {
        Version::V1 => V1_FILES.iter().all(|file| group.open_write(file).is_ok()),
        Version::V2 => group.open_write("io.max").is_ok(),
    }
}

pub(super) fn limit_bytes(group: &Group) -> Option<u64> {
    rates(group)[0]
}

/// A cage has one rule at most.
fn rates(group: &Group) -> [Option<u64>; 2] {
    match group.version() {
        Version::V1 => {
            V1_FILES.map(|file| group.read(file).ok()?.split_whitespace().nth(1)?.parse().ok())
        }
        Version::V2 => ["rbps=", "wbps="].map(|name| {
            let text = group.read("io.max").ok()?;
            text.split_whitespace().find_map(|word| word.strip_prefix(name))?.parse().ok()
        }),
    }
}
