//! The limits of a cage, written and read back. cgroups-rs writes them (it knows the files of both
//! versions); what it does not know is written here.

use super::CgroupError;
use super::group::{Controller, Group, Version};
use super::hierarchy::Hierarchy;
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
    /// On out-of-memory the whole cage dies (v2; on v1 the broker does it, told by the eventfd).
    pub oom_group: bool,
    /// An operator's uid: the cage stands in a group of theirs, beside those of other operators, and
    /// takes its cpu time from that one's. The kernel gives siblings the same.
    pub share_of: Option<u32>,
}

impl Limits {
    /// The controllers of this hierarchy that these limits need.
    pub(super) fn controllers_of(&self, hierarchy: &Hierarchy) -> Vec<Controller> {
        let asked = |controller: &Controller| match controller {
            Controller::Memory => self.memory_bytes.is_some(),
            Controller::Pids => self.pids.is_some(),
            Controller::Cpu => self.cpu_milli.is_some() || self.share_of.is_some(),
        };
        hierarchy.controllers().iter().copied().filter(asked).collect()
    }
}

/// Writes every limit that this group carries and compares what the kernel then says.
pub(super) fn write(group: &Group, limits: &Limits) -> Result<(), CgroupError> {
    if let Some(bytes) = limits.memory_bytes.filter(|_| group.has(Controller::Memory)) {
        memory(group, bytes, limits)?;
    }
    if let Some(pids) = limits.pids.filter(|_| group.has(Controller::Pids)) {
        pids_max(group, pids)?;
    }
    if let Some(milli) = limits.cpu_milli.filter(|_| group.has(Controller::Cpu)) {
        cpu(group, milli)?;
    }
    Ok(())
}

fn memory(group: &Group, bytes: u64, limits: &Limits) -> Result<(), CgroupError> {
    let wall = Controller::Memory.wall();
    let v2 = group.version() == Version::V2;
    let controller = MemController::new(group.path().to_owned(), v2);
    controller.set_limit(signed(bytes)).map_err(|error| refused(group, wall, &error))?;
    let file = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
    confirm(group, wall, file, bytes / PAGE_BYTES * PAGE_BYTES)?;
    if let Some(swap) = limits.swap_bytes {
        memory_and_swap(group, &controller, bytes, swap)?;
    }
    if v2 && limits.oom_group {
        let wrote = group.write("memory.oom.group", "1");
        wrote.map_err(|error| refused(group, wall, &error))?;
        confirm(group, wall, "memory.oom.group", 1)?;
    }
    Ok(())
}

/// v1 limits memory and swap together, v2 swap alone. A kernel that does not count swap and a host
/// that has none come to the same for a limit of 0.
fn memory_and_swap(
    group: &Group,
    controller: &MemController,
    memory: u64,
    swap: u64,
) -> Result<(), CgroupError> {
    let wall = "cgroup.swap";
    let (file, value) = match group.version() {
        Version::V1 => ("memory.memsw.limit_in_bytes", memory.saturating_add(swap)),
        Version::V2 => ("memory.swap.max", swap),
    };
    if !group.path().join(file).exists() {
        return if host_has_swap() { Err(CgroupError::Absent { wall }) } else { Ok(()) };
    }
    controller.set_memswap_limit(signed(value)).map_err(|error| refused(group, wall, &error))?;
    confirm(group, wall, file, value / PAGE_BYTES * PAGE_BYTES)
}

fn pids_max(group: &Group, pids: u64) -> Result<(), CgroupError> {
    let wall = Controller::Pids.wall();
    PidController::new(group.path().to_owned(), group.version() == Version::V2)
        .set_pid_max(MaxValue::Value(signed(pids)))
        .map_err(|error| refused(group, wall, &error))?;
    confirm(group, wall, "pids.max", pids)
}

fn cpu(group: &Group, milli: u64) -> Result<(), CgroupError> {
    let wall = Controller::Cpu.wall();
    let quota = milli.saturating_mul(CPU_PERIOD_US / 1000);
    let v2 = group.version() == Version::V2;
    CpuController::new(group.path().to_owned(), v2)
        .set_cfs_quota_and_period(Some(signed(quota)), Some(CPU_PERIOD_US))
        .map_err(|error| refused(group, wall, &error))?;
    confirm(group, wall, if v2 { "cpu.max" } else { "cpu.cfs_quota_us" }, quota)
}

/// The first word of the file must be the number that was asked for.
fn confirm(group: &Group, wall: &'static str, file: &str, wanted: u64) -> Result<(), CgroupError> {
    let got = group.read(file).map_err(|error| refused(group, wall, &error))?;
    let got = got.split_whitespace().next().unwrap_or_default();
    if got.parse() == Ok(wanted) {
        return Ok(());
    }
    Err(CgroupError::Mismatch { wall, path: group.path().to_owned(), wanted, got: got.to_owned() })
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

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
