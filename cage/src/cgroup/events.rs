//! What the kernel counts, as descriptors for the broker and as numbers for people.

use super::group::{Controller, Group, Version};
use super::{CageCgroup, CgroupError};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A file of `key value` lines, open for reading, and the key that counts.
#[derive(Debug)]
pub struct Counter {
    pub fd: OwnedFd,
    pub key: &'static str,
}

/// What the broker reads when supervisor and sessiond may be gone.
#[derive(Debug, Default)]
pub struct Counters {
    /// v1 `memory.oom_control`, v2 `memory.events`; key `oom_kill`.
    pub memory_events: Option<Counter>,
    /// `pids.events`, key `max`.
    pub pids_events: Option<Counter>,
    /// v2 `cgroup.events`.
    pub cgroup_events: Option<OwnedFd>,
    /// v1 `memory.max_usage_in_bytes`, v2 `memory.peak`.
    pub memory_peak: Option<OwnedFd>,
    /// v1 `cpuacct.usage`, without a key; v2 `cpu.stat`, key `usage_usec`.
    pub cpu_usage: Option<Counter>,
    /// v2 `pids.peak`.
    pub pids_peak: Option<OwnedFd>,
    /// See [`super::io_bytes`].
    pub io_usage: Option<(Version, OwnedFd)>,
}

impl CageCgroup {
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for group in &self.groups {
            let counter = |file, key| group.open_read(file).map(|fd| Counter { fd, key });
            if group.has(Controller::Memory) {
                let (events, peak) = memory_files(group.version());
                counters.memory_events = counter(events, "oom_kill");
                counters.memory_peak = group.open_read(peak);
            }
            if group.has(Controller::Pids) {
                counters.pids_events = counter("pids.events", "max");
                counters.pids_peak = group.open_read("pids.peak");
            }
            if group.has(Controller::Io) {
                let version = group.version();
                let file = super::measure::io_file(version);
                counters.io_usage = group.open_read(file).map(|fd| (version, fd));
            }
            if counters.cpu_usage.is_none() && group.has(Controller::Cpu) {
                counters.cpu_usage = counter("cpuacct.usage", "");
            }
            if group.version() == Version::V2 {
                counters.cgroup_events = group.open_read("cgroup.events");
                counters.cpu_usage = counter("cpu.stat", "usage_usec");
            }
        }
        counters
    }

    /// v1: an eventfd that becomes readable when the cage meets its memory limit, and once more when
    /// the group is removed. Absent on v2, where `memory.oom.group` does the work in the kernel, and
    /// where memory is not limited.
    ///
    /// # Errors
    /// The registration was refused.
    pub fn oom_eventfd(&self) -> Result<Option<OwnedFd>, CgroupError> {
        let is_v1_memory =
            |group: &&Group| group.version() == Version::V1 && group.has(Controller::Memory);
        self.groups.iter().find(is_v1_memory).map(register_oom).transpose()
    }
}

fn memory_files(version: Version) -> (&'static str, &'static str) {
    match version {
        Version::V1 => ("memory.oom_control", "memory.max_usage_in_bytes"),
        Version::V2 => ("memory.events", "memory.peak"),
    }
}

fn register_oom(group: &Group) -> Result<OwnedFd, CgroupError> {
    let failed = |source: io::Error| CgroupError::Limit {
        wall: Controller::Memory.wall(),
        path: group.path().to_owned(),
        message: format!("out-of-memory events cannot be watched: {source}"),
    };
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|errno| failed(errno.into()))?;
    let control = group
        .open_read("memory.oom_control")
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    group.write("cgroup.event_control", &line).map_err(failed)?;
    Ok(event.into())
}

/// The number after `key ` in a file of `key value` lines.
pub(super) fn key(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}
