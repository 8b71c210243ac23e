//! The facts that a plan is resolved against.

use super::{kernel, sys};
use crate::cgroup::{Layout, Version};
use crate::plan::{Controller, HostFacts};

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
        freezer: if limits.kill { Controller::V2 } else { Controller::Absent },
        rlimits_hard: kernel::hard_rlimits(),
    }
}

fn controller(version: Option<Version>) -> Controller {
    match version {
        None => Controller::Absent,
        Some(Version::V1) => Controller::V1,
        Some(Version::V2) => Controller::V2,
    }
}
