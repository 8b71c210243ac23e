//! The limits of a living cage: what is in effect, by what, and how it changes.

use crate::WallState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the number of a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Bytes,
    BytesPerSecond,
    Ms,
    Count,
    /// Thousandths of a CPU.
    MilliCpu,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// As in the policy, without `limits.`.
    pub limit: String,
    pub unit: Unit,
    /// Absent: no limit.
    pub value: Option<u64>,
    pub state: WallState,
    /// By what it is enforced, or why it is not.
    pub how: String,
    /// Why it cannot change while the cage lives; absent: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitChange {
    pub limit: String,
    pub unit: Unit,
    pub from: Option<u64>,
    pub to: Option<u64>,
}

/// Keys of `[limits]` with values as a policy writes them; null or `"none"`: no limit.
pub type LimitsAsked = Map<String, Value>;

/// All limits of a cage, in the order of the documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsView {
    pub limits: Vec<LimitView>,
    /// What this request changed.
    #[serde(default)]
    pub changes: Vec<LimitChange>,
    /// The supervisor's newest event of this cage.
    #[serde(default)]
    pub seq: u64,
}
