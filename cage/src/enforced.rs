//! A plan as people read it: which walls stand, and by what.

use crate::plan::{CagePlan, Enforcement, HostFacts, Limit, resource};
use crate::policy::{Bytes, Millis};
use wire::{Enforced, WallState};

impl CagePlan {
    /// In the order in which they are put up. True once the attestation matched.
    #[must_use]
    pub fn enforced(&self, facts: &HostFacts) -> Enforced {
        let mut walls = Enforced::default();
        let on = WallState::Enforced;
        walls.push("user", on, format!("uid {}, never 0", self.user.uid));
        walls.push("userns", on, "own user, mount, pid, network, ipc, uts and cgroup namespaces");
        let lent = self.sources.len();
        walls.push(
            "files",
            on,
            format!("root built from nothing, {lent} of the host's paths lent"),
        );
        walls.push("network", on, self.network());
        let bytes = |value| Bytes(value).to_string();
        push_limit(&mut walls, "cgroup.memory", self.limits.memory, bytes);
        push_limit(&mut walls, "cgroup.swap", self.limits.swap, bytes);
        push_limit(&mut walls, "cgroup.pids", self.limits.pids, |value| value.to_string());
        push_limit(&mut walls, "cgroup.cpu", self.limits.cpu_milli, cpus);
        walls.push("ptys", on, format!("at most {} terminals", self.limits.ptys));
        for limit in &self.rlimits {
            let name = format!("rlimit.{}", resource::name(limit.resource));
            walls.push(&name, on, limit.hard.to_string());
        }
        let time = |ms: u64| Millis(ms).to_string();
        push_clock(&mut walls, "walltime", self.limits.walltime_ms.map(time));
        push_clock(&mut walls, "idle", self.limits.idle_ms.map(time));
        push_clock(&mut walls, "output_bytes", self.limits.output_bytes.map(bytes));
        walls.push("capabilities", on, "none");
        walls.push("no_new_privs", on, "set");
        let rules = self.landlock.rules.len();
        walls.push("landlock", on, format!("ABI {}, {rules} rules", facts.landlock_abi));
        walls.push("seccomp", on, "allow list, profile default");
        walls
    }

    fn network(&self) -> String {
        let doors: Vec<String> =
            self.forwarders.iter().map(|door| door.listen.to_string()).collect();
        match doors.is_empty() {
            true => "none but loopback".to_owned(),
            false => format!("none but loopback; {} leads to a lent socket", doors.join(", ")),
        }
    }
}

fn push_limit(walls: &mut Enforced, name: &str, limit: Limit, words: impl Fn(u64) -> String) {
    let value = limit.value.map(&words).unwrap_or_default();
    let (state, how) = match limit.by {
        Enforcement::CgroupV1 => (WallState::Enforced, format!("cgroup v1, {value}")),
        Enforcement::CgroupV2 => (WallState::Enforced, format!("cgroup v2, {value}")),
        Enforcement::Rlimit => (WallState::Emulated, format!("rlimit NPROC, {value}")),
        Enforcement::Absent => (
            WallState::Absent,
            format!("{value} asked for, but no cgroup here that we may write to"),
        ),
        Enforcement::Off => (WallState::Off, "no limit asked for".to_owned()),
    };
    walls.push(name, state, how);
}

/// Kept by the broker.
fn push_clock(walls: &mut Enforced, name: &str, value: Option<String>) {
    let state = if value.is_some() { WallState::Enforced } else { WallState::Off };
    walls.push(name, state, value.unwrap_or_else(|| "no limit asked for".to_owned()));
}

fn cpus(milli: u64) -> String {
    format!("{}.{:03} CPUs", milli / 1000, milli % 1000)
}
