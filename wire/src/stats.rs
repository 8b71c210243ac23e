//! What a cage uses at one moment. What cannot be known on its host is named in `absent`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stats {
    pub at_ms: i64,
    /// How long it ran, pauses left out.
    pub ran_ms: Option<u64>,
    pub cpu: Option<CpuUse>,
    pub memory: Option<MemoryUse>,
    pub pids: Option<PidsUse>,
    pub io: Option<IoUse>,
    pub pressure: Option<Pressures>,
    pub output: Option<OutputUse>,
    /// What is not told above, and why.
    pub absent: BTreeMap<String, String>,
}

/// Of everything in the cage. `by` here and below: `cgroup v1`, `cgroup v2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuUse {
    pub by: String,
    pub total_us: u64,
    pub user_us: Option<u64>,
    pub system_us: Option<u64>,
    /// For how long `limits.cpu` held it back.
    pub throttled_us: Option<u64>,
    /// Thousandths of a CPU.
    pub limit_milli: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryUse {
    pub by: String,
    pub current_bytes: u64,
    pub peak_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub swap_limit_bytes: Option<u64>,
    /// Processes that the kernel killed for their memory.
    pub oom_kills: u64,
}

/// Processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PidsUse {
    pub by: String,
    pub current: u64,
    pub peak: Option<u64>,
    pub limit: Option<u64>,
    /// Forks that met the limit.
    pub refused: u64,
}

/// Bytes from and to block devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IoUse {
    pub by: String,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Bytes a second, each way.
    pub limit_bytes: Option<u64>,
}

/// Time lost to waiting (PSI), per resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pressures {
    pub cpu: Option<Pressure>,
    pub memory: Option<Pressure>,
    pub io: Option<Pressure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pressure {
    /// Some process waited.
    pub some: Stall,
    /// All that could run waited.
    pub full: Option<Stall>,
}

/// Percent of the last 10, 60 and 300 seconds, and all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stall {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total_us: u64,
}

/// Printed by all commands, to terminals and pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputUse {
    pub bytes: u64,
    pub limit_bytes: Option<u64>,
}
