//! What a cage uses, as the kernel counts it.

use super::CageCgroup;
use super::group::{Controller, Group, Version};
use std::collections::BTreeMap;
use wire::stats::{CpuUse, IoUse, MemoryUse, PidsUse, Pressure, Pressures, Stall, Stats};

/// v1 says "no limit" with the largest multiple of a page.
pub(super) const NO_LIMIT: u64 = 1 << 62;

impl CageCgroup {
    /// All but what a broker counts. A few reads of files; nothing waits.
    #[must_use]
    pub fn measure(&self) -> Stats {
        let carrier = |controller| self.groups.iter().find(|group| group.has(controller));
        let v2 = self.groups.iter().find(|group| group.version() == Version::V2);
        let mut absent = BTreeMap::new();
        let mut told = |what: &str, is_told: bool, why: &str| {
            if !is_told {
                absent.insert(what.to_owned(), why.to_owned());
            }
        };
        let cpu = cpu(v2, carrier(Controller::Cpu));
        told("cpu", cpu.is_some(), "no cgroup of this cage counts it");
        let memory = carrier(Controller::Memory).and_then(memory);
        told("memory", memory.is_some(), &uncounted("limits.memory"));
        let pids = carrier(Controller::Pids).and_then(pids);
        told("pids", pids.is_some(), &uncounted("limits.pids"));
        let io = carrier(Controller::Io).and_then(io);
        told("io", io.is_some(), &uncounted("limits.io"));
        let pressure = v2.map(pressures).filter(|all| *all != Pressures::default());
        told("pressure", pressure.is_some(), "the kernel has no PSI, or no cgroup v2 of ours");
        Stats { cpu, memory, pids, io, pressure, absent, ..Stats::default() }
    }
}

fn uncounted(key: &str) -> String {
    format!("this host has no controller for it, or the cage was started without {key}")
}

fn number(group: &Group, file: &str) -> Option<u64> {
    group.read(file).ok()?.trim().parse().ok()
}

/// A file that holds a limit: `max` and what v1 takes for it are none.
fn limit(group: &Group, file: &str) -> Option<u64> {
    number(group, file).filter(|value| *value < NO_LIMIT)
}

fn key(group: &Group, file: &str, name: &str) -> Option<u64> {
    super::events::key(&group.read(file).ok()?, name)
}

/// A v2 tree counts it without a controller; what holds it back only the controller knows.
fn cpu(v2: Option<&Group>, carrier: Option<&Group>) -> Option<CpuUse> {
    let of_v2 = |name| v2.and_then(|group| key(group, "cpu.stat", name));
    let (by, total_us) = match (of_v2("usage_usec"), carrier) {
        (Some(total), _) => (Version::V2, total),
        (None, Some(group)) => (Version::V1, number(group, "cpuacct.usage")? / 1000),
        (None, None) => return None,
    };
    let throttled_us = carrier.and_then(|group| match group.version() {
        Version::V1 => key(group, "cpu.stat", "throttled_time").map(|ns| ns / 1000),
        Version::V2 => key(group, "cpu.stat", "throttled_usec"),
    });
    Some(CpuUse {
        by: by.how().to_owned(),
        total_us,
        user_us: of_v2("user_usec"),
        system_us: of_v2("system_usec"),
        throttled_us,
        limit_milli: carrier.and_then(cpu_limit),
    })
}

fn cpu_limit(group: &Group) -> Option<u64> {
    let (quota, period): (u64, u64) = match group.version() {
        Version::V1 => (number(group, "cpu.cfs_quota_us")?, number(group, "cpu.cfs_period_us")?),
        Version::V2 => {
            let text = group.read("cpu.max").ok()?;
            let mut words = text.split_whitespace();
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
        }
    };
    quota.saturating_mul(1000).checked_div(period)
}

fn memory(group: &Group) -> Option<MemoryUse> {
    let by = group.version().how().to_owned();
    Some(match group.version() {
        Version::V1 => {
            let current_bytes = number(group, "memory.usage_in_bytes")?;
            let limit_bytes = limit(group, "memory.limit_in_bytes");
            let beyond = |both: u64, part: u64| both.saturating_sub(part);
            let both = number(group, "memory.memsw.usage_in_bytes");
            let both_limit = limit(group, "memory.memsw.limit_in_bytes");
            MemoryUse {
                by,
                current_bytes,
                peak_bytes: number(group, "memory.max_usage_in_bytes"),
                limit_bytes,
                swap_bytes: both.map(|both| beyond(both, current_bytes)),
                swap_limit_bytes: both_limit.zip(limit_bytes).map(|(both, own)| beyond(both, own)),
                oom_kills: key(group, "memory.oom_control", "oom_kill").unwrap_or(0),
            }
        }
        Version::V2 => MemoryUse {
            by,
            current_bytes: number(group, "memory.current")?,
            peak_bytes: number(group, "memory.peak"),
            limit_bytes: limit(group, "memory.max"),
            swap_bytes: number(group, "memory.swap.current"),
            swap_limit_bytes: limit(group, "memory.swap.max"),
            oom_kills: key(group, "memory.events", "oom_kill").unwrap_or(0),
        },
    })
}

fn pids(group: &Group) -> Option<PidsUse> {
    Some(PidsUse {
        by: group.version().how().to_owned(),
        current: number(group, "pids.current")?,
        peak: number(group, "pids.peak"),
        limit: limit(group, "pids.max"),
        refused: key(group, "pids.events", "max").unwrap_or(0),
    })
}

fn io(group: &Group) -> Option<IoUse> {
    let version = group.version();
    let text = group.read(io_file(version)).ok()?;
    let (read_bytes, write_bytes) = io_bytes(version, &text);
    let limit_bytes = super::io::limit_bytes(group);
    Some(IoUse { by: version.how().to_owned(), read_bytes, write_bytes, limit_bytes })
}

pub(super) fn io_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "blkio.throttle.io_service_bytes_recursive",
        Version::V2 => "io.stat",
    }
}

/// Over all devices: v1 has lines of `8:0 Read 512`, v2 of `8:0 rbytes=512 wbytes=0 …`.
#[must_use]
pub fn io_bytes(version: Version, text: &str) -> (u64, u64) {
    let mut sums = (0_u64, 0_u64);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let add = |sum: &mut u64, number: &str| {
            *sum = sum.saturating_add(number.parse().unwrap_or(0));
        };
        match (version, words.as_slice()) {
            (Version::V1, [_, "Read", number]) => add(&mut sums.0, number),
            (Version::V1, [_, "Write", number]) => add(&mut sums.1, number),
            (Version::V1, _) => {}
            (Version::V2, words) => {
                for word in words {
                    match word.split_once('=') {
                        Some(("rbytes", number)) => add(&mut sums.0, number),
                        Some(("wbytes", number)) => add(&mut sums.1, number),
                        Some(_) | None => {}
                    }
                }
            }
        }
    }
    sums
}

fn pressures(group: &Group) -> Pressures {
    let of = |file| group.read(file).ok().as_deref().and_then(pressure);
    Pressures { cpu: of("cpu.pressure"), memory: of("memory.pressure"), io: of("io.pressure") }
}

fn pressure(text: &str) -> Option<Pressure> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).and_then(stall);
    Some(Pressure { some: line("some ")?, full: line("full ") })
}

fn stall(line: &str) -> Option<Stall> {
    let value = |name: &str| {
        line.split(' ').find_map(|word| word.split_once('=').filter(|(key, _)| *key == name))
    };
    let percent = |name| value(name).and_then(|(_, number)| number.parse().ok());
    Some(Stall {
        avg10: percent("avg10")?,
        avg60: percent("avg60")?,
        avg300: percent("avg300")?,
        total_us: value("total")?.1.trim().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_over_devices() {
        let v1 = "254:0 Read 4096\n254:0 Write 512\n254:0 Sync 1\n8:0 Read 1\nTotal 4610\n";
        assert_eq!(io_bytes(Version::V1, v1), (4097, 512));
        let v2 = "8:0 rbytes=90 wbytes=7 rios=1 wios=2 dbytes=0 dios=0\n9:1 rbytes=10 wbytes=3\n";
        assert_eq!(io_bytes(Version::V2, v2), (100, 10));
        assert_eq!(io_bytes(Version::V2, ""), (0, 0));
    }

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=1.50 avg60=0.00 avg300=0.25 total=77\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        let pressure = pressure(text).unwrap();
        assert_eq!((pressure.some.avg10, pressure.some.total_us), (1.5, 77));
        assert_eq!(pressure.full.unwrap().total_us, 5);
        assert!(super::pressure("").is_none());
    }
}
