//! cgroups of cages: v1, v2 or hybrid, chosen per controller by doing (CAGE.md 5).
//!
//! A cage's groups are `<base>/<cage>`, or `<base>/u<uid>/<cage>` where operators share a host, in each v1 hierarchy that carries one of its limits and
//! `<base>/<cage>/payload` in the v2 tree, where limits, freeze, kill and events are. (On v2 a group
//! with processes may have no children, so the level above stays free for the broker; on v1 nothing
//! will ever stand beside the payload, and each memory cgroup more costs every spawn.)
//! Joining a v1 hierarchy waits for an RCU grace period, so only those that carry a limit are joined.
//!
//! All calls are short and block; waiting calls take a deadline. Nothing here keeps state: two
//! processes may hold the same [`CageCgroup`].

mod delegation;
mod events;
mod freezer;
mod group;
mod hierarchy;
mod io;
mod layout;
mod limits;
mod measure;
mod members;

pub use events::{Counter, Counters};
pub use freezer::Freezer;
pub use group::{Controller, GroupPath, Version};
pub use io::Disk;
pub use layout::{Layout, LimitFacts};
pub use limits::{IoLimit, Limits};
pub use measure::io_bytes;

use group::Group;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::CageId;

/// How long a group that was told to die may take until it is an error.
const REMOVE_DEADLINE: Duration = Duration::from_secs(2);

/// Named by the step that failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cgroup {}: cannot be made: {source}", path.display())]
    Create { path: PathBuf, source: std::io::Error },
    #[error("{wall}: {message} (cgroup {})", path.display())]
    Limit { wall: &'static str, path: PathBuf, message: String },
    #[error("{wall}: asked for {wanted}, the kernel says {got} (cgroup {})", path.display())]
    Mismatch { wall: &'static str, path: PathBuf, wanted: u64, got: String },
    #[error("cgroup.memory: {used} bytes are in use, and a limit of {wanted} would kill")]
    InUse { used: u64, wanted: u64 },
    #[error("{wall}: this host has no cgroup controller for it that can be used")]
    Absent { wall: &'static str },
    #[error("cgroup {}: systemd has not made it; try: systemctl start {unit}", path.display())]
    NoUnit { path: PathBuf, unit: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cgroup {}: still {left} processes after {waited_ms} ms", path.display())]
    StillAlive { path: PathBuf, left: usize, waited_ms: u128 },
    #[error("cgroup {}: cannot be removed: {source}", path.display())]
    Remove { path: PathBuf, source: std::io::Error },
    #[error("cgroup parent {0:?}: say auto, self, or an absolute path without `..`")]
    BadParent(String),
}

impl CgroupError {
    /// The wall that is missing because of this: `cgroup.memory`, …, else `cgroup`.
    #[must_use]
    pub fn wall(&self) -> &'static str {
        match self {
            Self::Limit { wall, .. } | Self::Mismatch { wall, .. } | Self::Absent { wall } => wall,
            Self::InUse { .. } => Controller::Memory.wall(),
            Self::Create { .. }
            | Self::NoUnit { .. }
            | Self::File { .. }
            | Self::StillAlive { .. }
            | Self::Remove { .. }
            | Self::BadParent(_) => "cgroup",
        }
    }
}

/// Where a cage's groups are, for its `cage.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupPaths {
    pub groups: Vec<GroupPath>,
}

/// The groups of one cage. Empty where this host lets us have none: then the cage's end is told by
/// its pid 1 alone.
#[derive(Debug, Default)]
pub struct CageCgroup {
    groups: Vec<Group>,
}

impl CageCgroup {
    /// Makes the groups that `limits` need, writes the limits and reads them back.
    ///
    /// # Errors
    /// A limit that this host cannot enforce is not asked of it (see [`Layout::facts`]): one that it
    /// can and then does not is an error with the wall's name. What was made is removed again.
    pub fn create(layout: &Layout, cage: CageId, limits: &Limits) -> Result<Self, CgroupError> {
        let mut made = Self::default();
        match made.fill(layout, cage, limits) {
            Ok(()) => Ok(made),
            Err(error) => {
                // The first error is the one to tell; what cannot be removed is found by `scan`.
                made.remove().ok();
                Err(error)
            }
        }
    }

    fn fill(&mut self, layout: &Layout, cage: CageId, limits: &Limits) -> Result<(), CgroupError> {
        let name = match limits.share_of {
            Some(uid) => format!("{}/{cage}", group::operators_name(uid)),
            None => cage.to_string(),
        };
        for hierarchy in layout.hierarchies() {
            let controllers = limits.controllers_of(hierarchy);
            if controllers.is_empty() && hierarchy.version() == Version::V1 {
                continue;
            }
            let group = hierarchy.make(&name, &controllers)?;
            self.groups.push(group);
            if let Some(group) = self.groups.last() {
                limits::write(group, limits)?;
            }
        }
        Ok(())
    }

    /// Writes those limits that are not as they were, and reads them back.
    ///
    /// # Errors
    /// The kernel refused one; those before it are written. [`CgroupError::InUse`]: memory that it
    /// cannot take back without killing.
    pub fn change(&self, from: &Limits, to: &Limits) -> Result<(), CgroupError> {
        self.groups.iter().try_for_each(|group| limits::change(group, from, to))
    }

    /// By what a controller's limit can be set in this cage.
    #[must_use]
    pub fn carries(&self, controller: Controller) -> Option<Version> {
        self.groups.iter().find(|group| group.has(controller)).map(Group::version)
    }

    /// The groups that an earlier process made. Those that are gone are left out.
    #[must_use]
    pub fn reopen(paths: &CgroupPaths) -> Self {
        Self { groups: paths.groups.iter().cloned().filter_map(Group::open).collect() }
    }

    #[must_use]
    pub fn paths(&self) -> CgroupPaths {
        CgroupPaths { groups: self.groups.iter().map(Group::place).collect() }
    }

    /// Whether there is no group at all.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.groups.is_empty()
    }

    /// `cgroup.procs` of each group, open for writing: a process that writes `0` joins.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn procs_files(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.groups.iter().map(|group| group.open_write("cgroup.procs")).collect()
    }

    /// Processes in the cage, zombies left out, in the caller's numbering.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        members::of(&self.groups)
    }

    /// Whether `pid` is in every group.
    #[must_use]
    pub fn contains(&self, pid: i32) -> bool {
        self.groups.iter().all(|group| members::is_in(group, pid))
    }

    /// Whether nothing lives in any group. Without groups: true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(members::is_empty)
    }

    /// One SIGKILL to everything that is there now. Does not wait.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn kill(&self) -> Result<(), CgroupError> {
        members::kill(&self.groups)
    }

    /// SIGKILL until nothing is left.
    ///
    /// # Errors
    /// [`CgroupError::StillAlive`] after the deadline.
    pub fn kill_all(&self, deadline: Instant) -> Result<(), CgroupError> {
        members::kill_until_empty(&self.groups, deadline)
    }

    /// Waits until nothing lives in any group; true if so.
    #[must_use]
    pub fn wait_empty(&self, deadline: Instant) -> bool {
        members::wait_empty(&self.groups, deadline)
    }

    /// Removes the groups; they must be empty or about to be.
    ///
    /// # Errors
    /// What is still there after two seconds.
    pub fn remove(&self) -> Result<(), CgroupError> {
        let deadline = Instant::now() + REMOVE_DEADLINE;
        let mut first_error = None;
        for group in &self.groups {
            if let Err(error) = group.remove(deadline) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// Every cage that has a group below the layout's base: what a restarted supervisor compares with
/// its run folders.
#[must_use]
pub fn scan(layout: &Layout) -> Vec<(CageId, CageCgroup)> {
    let mut found: Vec<(CageId, CageCgroup)> = Vec::new();
    for hierarchy in layout.hierarchies() {
        for (cage, group) in hierarchy.cages() {
            match found.iter_mut().find(|(id, _)| *id == cage) {
                Some((_, cgroup)) => cgroup.groups.push(group),
                None => found.push((cage, CageCgroup { groups: vec![group] })),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
