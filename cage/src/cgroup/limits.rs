//! The limits of a cage, written and read back. cgroups-rs writes them (it knows the files of both
//! versions); what it does not know is written here.

use super::CgroupError;
use super::group::{Controller, Group, Version};
use super::hierarchy::Hierarchy;
use super::io::{self, Disk};
use cgroups_rs::MaxValue;
use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;

/// The kernel's own period for CPU quotas, microseconds.
const CPU_PERIOD_US: u64 = 100_000;
const PAGE_BYTES: u64 = 4096;

/// What to enforce; absent: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// On top of memory. Only beside a memory limit.
    pub swap_bytes: Option<u64>,
    pub pids: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    pub io: Option<IoLimit>,
    /// On out-of-memory the whole cage dies (v2; on v1 the broker does it, told by the eventfd).
    pub oom_group: bool,
    /// An operator's uid: the cage stands in a group of theirs, beside those of other operators, and
    /// takes its cpu time from that one's. The kernel gives siblings the same.
    pub share_of: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimit {
    pub disk: Disk,
    /// A second, each way.
    pub bytes: u64,
}

impl Limits {
    /// The controllers of this hierarchy that a cage with these limits has. On v2 all: they count
    /// for nothing, and a limit may be set later. On v1 each costs a join, so only those needed.
    pub(super) fn controllers_of(&self, hierarchy: &Hierarchy) -> Vec<Controller> {
        let asked = |controller: &Controller| match controller {
            Controller::Memory => self.memory_bytes.is_some(),
            Controller::Pids => self.pids.is_some(),
            Controller::Cpu => self.cpu_milli.is_some() || self.share_of.is_some(),
            Controller::Io => self.io.is_some(),
        };
        let all = hierarchy.controllers().iter().copied();
        all.filter(|one| hierarchy.version() == Version::V2 || asked(one)).collect()
    }
}

/// Writes every limit that this group carries and compares what the kernel then says.
pub(super) fn write(group: &Group, limits: &Limits) -> Result<(), CgroupError> {
    change(group, &Limits::default(), limits)?;
    if limits.oom_group && group.version() == Version::V2 && group.has(Controller::Memory) {
        let wall = Controller::Memory.wall();
        let wrote = group.write("memory.oom.group", "1");
        wrote.map_err(|error| refused(group, wall, &error))?;
        confirm(group, wall, "memory.oom.group", Some(1))?;
    }
    Ok(())
}

/// The same for those limits that are not as they were.
pub(super) fn change(group: &Group, from: &Limits, to: &Limits) -> Result<(), CgroupError> {
    let memory_of = |limits: &Limits| (limits.memory_bytes, limits.swap_bytes);
    if group.has(Controller::Memory) && memory_of(from) != memory_of(to) {
        Memory::of(group).set(to.memory_bytes, to.swap_bytes)?;
    }
    if group.has(Controller::Pids) && from.pids != to.pids {
        pids_max(group, to.pids)?;
    }
    if group.has(Controller::Cpu) && from.cpu_milli != to.cpu_milli {
        cpu(group, to.cpu_milli)?;
    }
    if group.has(Controller::Io)
        && from.io != to.io
        && let Some(disk) = to.io.or(from.io).map(|limit| limit.disk)
    {
        io::set(group, disk, to.io.map(|limit| limit.bytes))?;
    }
    Ok(())
}

struct Memory<'a> {
    group: &'a Group,
    controller: MemController,
}

impl<'a> Memory<'a> {
    fn of(group: &'a Group) -> Self {
        let v2 = group.version() == Version::V2;
        Self { group, controller: MemController::new(group.path().to_owned(), v2) }
    }

    fn set(&self, memory: Option<u64>, swap: Option<u64>) -> Result<(), CgroupError> {
        match self.group.version() {
            Version::V1 => self.set_v1(memory, swap),
            Version::V2 => {
                self.set_v2(memory)?;
                self.set_swap("memory.swap.max", swap)
            }
        }
    }

    /// v1 limits memory alone and memory with swap, and the first never exceeds the second. What
    /// the cage uses beyond the new limit it takes back first, or else refuses.
    fn set_v1(&self, memory: Option<u64>, swap: Option<u64>) -> Result<(), CgroupError> {
        let file = "memory.memsw.limit_in_bytes";
        let both = memory.zip(swap).map(|(memory, swap)| memory.saturating_add(swap));
        let now = self.number(file).unwrap_or(u64::MAX);
        let grows_beyond = memory.is_none_or(|memory| memory > now);
        if grows_beyond {
            self.set_swap(file, both)?;
        }
        self.set_memory("memory.limit_in_bytes", "memory.usage_in_bytes", memory)?;
        if grows_beyond { Ok(()) } else { self.set_swap(file, both) }
    }

    /// v2 kills where it cannot take back. So it is asked to take back first, by `memory.high`, and
    /// what is still in use then decides.
    fn set_v2(&self, memory: Option<u64>) -> Result<(), CgroupError> {
        let (file, used) = ("memory.max", "memory.current");
        let in_use = |bytes| self.number(used).filter(|used| *used > bytes);
        let Some(bytes) = memory.filter(|bytes| in_use(*bytes).is_some()) else {
            return self.set_memory(file, used, memory);
        };
        let high = |value: &str| {
            let wrote = self.group.write("memory.high", value);
            wrote.map_err(|error| refused(self.group, Controller::Memory.wall(), &error))
        };
        high(&bytes.to_string())?;
        let set = match in_use(bytes) {
            Some(used) => Err(CgroupError::InUse { used, wanted: bytes }),
            None => self.set_memory(file, used, memory),
        };
        high("max")?;
        set
    }

    fn set_memory(&self, file: &str, used: &str, bytes: Option<u64>) -> Result<(), CgroupError> {
        let wall = Controller::Memory.wall();
        let wrote = self.controller.set_limit(signed(bytes));
        wrote.map_err(|error| self.explain(wall, used, bytes, &error))?;
        confirm(self.group, wall, file, bytes.map(whole_pages))
    }

    /// A kernel that does not count swap and a host that has none come to the same for a limit.
    fn set_swap(&self, file: &str, value: Option<u64>) -> Result<(), CgroupError> {
        let wall = "cgroup.swap";
        if !self.group.path().join(file).exists() {
            let absent = value.is_some() && host_has_swap();
            return if absent { Err(CgroupError::Absent { wall }) } else { Ok(()) };
        }
        let wrote = self.controller.set_memswap_limit(signed(value));
        let used = match self.group.version() {
            Version::V1 => "memory.memsw.usage_in_bytes",
            Version::V2 => "memory.swap.current",
        };
        wrote.map_err(|error| self.explain(wall, used, value, &error))?;
        confirm(self.group, wall, file, value.map(whole_pages))
    }

    /// The kernel says EBUSY where it could not take back enough.
    fn explain(
        &self,
        wall: &'static str,
        used: &str,
        wanted: Option<u64>,
        error: &dyn std::error::Error,
    ) -> CgroupError {
        let used = self.number(used);
        match used.zip(wanted).filter(|(used, wanted)| used > wanted) {
            Some((used, wanted)) => CgroupError::InUse { used, wanted },
            None => refused(self.group, wall, error),
        }
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.group.read(file).ok()?.trim().parse().ok()
    }
}

fn pids_max(group: &Group, pids: Option<u64>) -> Result<(), CgroupError> {
    let wall = Controller::Pids.wall();
    let value = pids.map_or(MaxValue::Max, |_| MaxValue::Value(signed(pids)));
    PidController::new(group.path().to_owned(), group.version() == Version::V2)
        .set_pid_max(value)
        .map_err(|error| refused(group, wall, &error))?;
    confirm(group, wall, "pids.max", pids)
}

fn cpu(group: &Group, milli: Option<u64>) -> Result<(), CgroupError> {
    let wall = Controller::Cpu.wall();
    let quota = milli.map(|milli| milli.saturating_mul(CPU_PERIOD_US / 1000));
    let v2 = group.version() == Version::V2;
    CpuController::new(group.path().to_owned(), v2)
        .set_cfs_quota_and_period(Some(signed(quota)), Some(CPU_PERIOD_US))
        .map_err(|error| refused(group, wall, &error))?;
    confirm(group, wall, if v2 { "cpu.max" } else { "cpu.cfs_quota_us" }, quota)
}

/// The first word of the file must be the number that was asked for. No limit is `max`, `-1`, or
/// what v1 takes for the largest number of bytes.
fn confirm(
    group: &Group,
    wall: &'static str,
    file: &str,
    wanted: Option<u64>,
) -> Result<(), CgroupError> {
    let got = group.read(file).map_err(|error| refused(group, wall, &error))?;
    let got = got.split_whitespace().next().unwrap_or_default();
    let number: Option<u64> = got.parse().ok().filter(|number| *number < super::measure::NO_LIMIT);
    if number == wanted {
        return Ok(());
    }
    let (path, wanted) = (group.path().to_owned(), wanted.unwrap_or(u64::MAX));
    Err(CgroupError::Mismatch { wall, path, wanted, got: got.to_owned() })
}

fn refused(group: &Group, wall: &'static str, error: &dyn std::error::Error) -> CgroupError {
    let message = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    CgroupError::Limit { wall, path: group.path().to_owned(), message }
}

fn host_has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE_BYTES * PAGE_BYTES
}

/// No limit is -1, for both versions.
fn signed(value: Option<u64>) -> i64 {
    value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX))
}
