//! The facts that a plan is resolved against.

use super::{kernel, sys};
use crate::cgroup::{Layout, Version};
use crate::plan::{Controller, HostFacts};

/// Files of /proc that tell about the host. Those that only root can read need no mask.
const TELLING: &[&str] = &[
    "cmdline",
    "config.gz",
    "diskstats",
    "interrupts",
    "iomem",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "partitions",
    "sched_debug",
    "slabinfo",
    "swaps",
    "timer_list",
    "vmallocinfo",
];

/// What a plan is resolved against.
#[must_use]
pub fn facts(layout: &Layout) -> HostFacts {
    let limits = layout.facts();
    HostFacts {
        userns: kernel::userns_allowed().is_ok(),
        seccomp: kernel::has_seccomp(),
        landlock_abi: sys::landlock_abi(),
        memory: controller(limits.memory),
        swap: controller(limits.swap),
        pids: controller(limits.pids),
        cpu: controller(limits.cpu),
        io: controller(limits.io),
        freezer: if limits.kill { Controller::V2 } else { Controller::Absent },
        rlimits_hard: kernel::hard_rlimits(),
        telling: telling(),
    }
}

/// Those files of `/proc` that tell everyone about the host.
#[must_use]
pub fn telling() -> Vec<String> {
    let paths = TELLING.iter().map(|name| format!("/proc/{name}"));
    paths.filter(|path| is_for_everyone(path)).collect()
}

fn is_for_everyone(path: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o004 != 0)
}

fn controller(version: Option<Version>) -> Controller {
    match version {
        None => Controller::Absent,
        Some(Version::V1) => Controller::V1,
        Some(Version::V2) => Controller::V2,
    }
}
