//! Limits, and by what each is enforced here.

use super::{Controller, HostFacts};
use crate::cgroup::{Disk, IoLimit};
use crate::launch::Clocks;
use serde::{Deserialize, Serialize};

pub(crate) const NO_DISK: &str =
    "the workspace lies on no disk that the kernel can slow down for one cage";

pub(crate) const NO_LAYER: &str = "the programs write to your own folder, which has no bounds of ours; run with --overlay or --copy";

/// Numbers of the kernel's resources (x86-64 and aarch64).
pub mod resource {
    pub const FSIZE: u32 = 1;
    pub const CORE: u32 = 4;
    pub const NPROC: u32 = 6;
    pub const NOFILE: u32 = 7;
    pub const MEMLOCK: u32 = 8;
    pub const SIGPENDING: u32 = 11;
    pub const MSGQUEUE: u32 = 12;
    pub const NICE: u32 = 13;
    pub const RTPRIO: u32 = 14;

    /// As people know it.
    #[must_use]
    pub const fn name(resource: u32) -> &'static str {
        match resource {
            FSIZE => "fsize",
            CORE => "core",
            NPROC => "nproc",
            NOFILE => "nofile",
            MEMLOCK => "memlock",
            SIGPENDING => "sigpending",
            MSGQUEUE => "msgqueue",
            NICE => "nice",
            RTPRIO => "rtprio",
            _ => "other",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes.
    pub memory: Limit,
    /// Bytes.
    pub swap: Limit,
    pub pids: Limit,
    /// Thousandths of one CPU.
    pub cpu_milli: Limit,
    /// Bytes a second, each way, of the disk that the workspace lies on.
    #[serde(default = "Limit::off")]
    pub io: Limit,
    #[serde(default)]
    pub io_disk: Option<Disk>,
    /// The whole cage dies as one.
    pub oom_group: bool,
    pub walltime_ms: Option<u64>,
    /// Without a key or a byte of output.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// Printed by all commands together.
    #[serde(default)]
    pub output_bytes: Option<u64>,
    /// What the session's layer takes on the disk, as the supervisor measures it.
    #[serde(default)]
    pub workspace_bytes: Option<u64>,
    #[serde(default)]
    pub workspace_inodes: Option<u64>,
    /// Most terminals at once, and `max=` of the cage's own devpts.
    pub ptys: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What the policy asks for.
    pub value: Option<u64>,
    pub by: Enforcement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    CgroupV1,
    CgroupV2,
    /// A weaker means.
    Rlimit,
    Absent,
    /// The policy does not ask for it.
    Off,
}

impl Limit {
    fn off() -> Self {
        Self { value: None, by: Enforcement::Off }
    }

    pub(super) fn by_cgroup(value: Option<u64>, controller: Controller) -> Self {
        let by = match (value, controller) {
            (None, _) => Enforcement::Off,
            (Some(_), Controller::Absent) => Enforcement::Absent,
            (Some(_), Controller::V1) => Enforcement::CgroupV1,
            (Some(_), Controller::V2) => Enforcement::CgroupV2,
        };
        Self { value, by }
    }

    /// The value to write into a cgroup; `None` if the cgroup does not carry this limit.
    #[must_use]
    pub fn for_cgroup(&self) -> Option<u64> {
        match self.by {
            Enforcement::CgroupV1 | Enforcement::CgroupV2 => self.value,
            Enforcement::Rlimit | Enforcement::Absent | Enforcement::Off => None,
        }
    }
}

impl Limits {
    /// Those that the broker keeps.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        Clocks {
            walltime_ms: self.walltime_ms,
            idle_ms: self.idle_ms,
            output_bytes: self.output_bytes,
        }
    }

    /// Those that cgroups hold.
    #[must_use]
    pub fn of_cgroup(&self) -> crate::cgroup::Limits {
        let io = self.io.for_cgroup().zip(self.io_disk);
        crate::cgroup::Limits {
            memory_bytes: self.memory.for_cgroup(),
            swap_bytes: self.swap.for_cgroup(),
            pids: self.pids.for_cgroup(),
            cpu_milli: self.cpu_milli.for_cgroup(),
            io: io.map(|(bytes, disk)| IoLimit { disk, bytes }),
            oom_group: self.oom_group,
            share_of: None,
        }
    }
}

impl HostFacts {
    /// The hard limit that a cage inherits.
    #[must_use]
    pub fn rlimit_hard(&self, resource: u32) -> u64 {
        self.rlimits_hard
            .iter()
            .find(|(number, _)| *number == resource)
            .map_or(u64::MAX, |(_, value)| *value)
    }
}
