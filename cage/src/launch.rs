//! What the supervisor hands to a broker that it starts: descriptors by number, and this text.
//!
//! The broker finds a sealed memfd with a [`Boot`] as JSON at descriptor [`BOOT_FD`]; every other
//! descriptor is named there. It has no arguments and no environment that matter.

use serde::{Deserialize, Serialize};
pub use wire::broker::Clocks;
use wire::{CageId, RunId, SessionId};

/// Where the broker finds its [`Boot`].
pub const BOOT_FD: i32 = 3;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    pub proto: u32,
    pub cage: CageId,
    pub session: SessionId,
    pub run: RunId,
    pub fds: BootFds,
    pub program: crate::orders::Program,
    pub clocks: Clocks,
    pub terminal: Terminal,
    /// Most terminals at once; also the cage's own devpts `max=` (checked by the supervisor).
    pub ptys_max: u32,
    /// As whom the supervisor connects: nobody else of the cage's own uid may go round its permit
    /// table.
    pub supervisor_uid: u32,
}

/// Descriptor numbers in the broker. bwrap inherits those marked so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootFds {
    /// Listening SEQPACKET socket, `<run>/sup/<id>.sock`.
    pub listener: i32,
    /// Until `go`: its end means that the supervisor is gone, and broker and cage end.
    pub tether: i32,
    /// `<state>/cages/<id>`, O_DIRECTORY.
    pub state_dir: i32,
    /// The bwrap program, to be exec'ed by descriptor.
    pub bwrap: i32,
    /// NUL-separated bwrap options but `--info-fd` and `--json-status-fd`; for `--args`. Inherited.
    pub args: i32,
    /// mews-cage-init; the command is `/proc/self/fd/N ORDER_FD`. Inherited.
    pub init: i32,
    /// The seccomp filter for the order `program`.
    pub seccomp: Option<i32>,
    /// `--ro-bind-data`, `--bind-fd` and the like, named in `args`. Inherited.
    pub inherited: Vec<i32>,
    /// `cgroup.procs` or `tasks` files, opened by the supervisor, to which the stub writes `0`.
    pub cgroup_procs: Vec<i32>,
    pub memory_events: Option<CounterFile>,
    pub pids_events: Option<CounterFile>,
    /// v1: an eventfd that the supervisor registered for `memory.oom_control`; readable: the cage met
    /// its memory limit, and with `oom_group` the broker kills it as a whole.
    pub oom_event: Option<i32>,
    pub oom_group: bool,
    /// v2 `cgroup.events` of the payload's cgroup.
    pub cgroup_events: Option<i32>,
    /// v1 `memory.max_usage_in_bytes`, v2 `memory.peak`.
    pub memory_peak: Option<i32>,
    /// v1 `cpuacct.usage` (no key, nanoseconds), v2 `cpu.stat`/`usage_usec`.
    pub cpu_usage: Option<CounterFile>,
    /// v2 `pids.peak`.
    pub pids_peak: Option<i32>,
    /// v1 `blkio.throttle.io_service_bytes_recursive`, v2 `io.stat`.
    pub io_usage: Option<IoFile>,
}

/// A file that says what was read from and written to devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoFile {
    pub fd: i32,
    /// Which of the two forms it has.
    pub v2: bool,
}

#[cfg(feature = "policy")]
impl IoFile {
    #[must_use]
    pub fn version(&self) -> crate::cgroup::Version {
        if self.v2 { crate::cgroup::Version::V2 } else { crate::cgroup::Version::V1 }
    }
}

/// A file of `key value` lines and the key that counts.
/// v1: `memory.oom_control`/`oom_kill`, `pids.events`/`max`; v2: `memory.events`/`oom_kill`, `pids.events`/`max`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterFile {
    pub fd: i32,
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    pub scrollback_lines: u32,
    pub scrollback_bytes: u64,
    pub ring_bytes: u64,
    pub record: bool,
    pub record_bytes: u64,
}

impl Default for Terminal {
    fn default() -> Self {
        Self {
            scrollback_lines: 10_000,
            scrollback_bytes: 8 << 20,
            ring_bytes: 1 << 20,
            record: true,
            record_bytes: 64 << 20,
        }
    }
}
