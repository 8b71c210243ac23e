//! A state of a session that can be come back to.

use crate::stats::Stats;
use crate::{CageId, Copied, PtyId, SpawnSpec, Suspension, WorkspaceMode};
use serde::{Deserialize, Serialize};

/// One cage, as it stood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CageCheckpoint {
    pub cage: CageId,
    /// How it came to stand still, process by process.
    pub suspension: Suspension,
    /// What it had used until then. Absent: an older supervisor took it.
    #[serde(default)]
    pub usage: Option<Box<Stats>>,
    /// Commands that had not ended.
    pub ptys: Vec<PtyCheckpoint>,
    /// Absent: the cage works in the operator's folder itself, and files are not covered.
    pub layer: Option<SavedLayer>,
    /// What started it, with the variables that its policy passes: enough to start it again.
    pub spec: Option<SpawnSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PtyCheckpoint {
    pub pty: PtyId,
    pub argv: Vec<String>,
    pub tty: bool,
    /// As the cage numbers it.
    pub pid: Option<i32>,
    /// Bytes of output so far.
    pub seq: u64,
    /// The last lines, as many as the terminal has rows, as text with its colours.
    pub screen: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SavedLayer {
    pub mode: WorkspaceMode,
    pub copied: Copied,
}
