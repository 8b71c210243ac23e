//! The audit trail: who asked for what, by what right, about whom, and what came of it.

use crate::{CageId, GrantId, SessionId};
use serde::{Deserialize, Serialize};

/// Entries that sessiond keeps; older ones go.
pub const AUDIT_ROWS_MAX: i64 = 100_000;
/// Bytes of one file of the supervisor's own journal; there are two, the older one goes.
pub const AUDIT_BYTES_MAX: u64 = 8 << 20;

/// One line of the supervisor's journal. An act has two: `asked` before it is done, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Rises from line to line, also over restarts and a lost file.
    pub seq: u64,
    /// The `asked` whose outcome this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    pub at_ms: i64,
    #[serde(flatten)]
    pub act: Act,
    /// `asked`, `done`, or the code of the error.
    pub outcome: String,
}

/// Who does what to whose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Act {
    /// Whose connection asked: the kernel's word.
    pub uid: u32,
    /// By an admin's right: on what is another's.
    #[serde(default)]
    pub admin: bool,
    /// By this grant; or the one that is made or revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    pub verb: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cage: Option<CageId>,
    /// Whose that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// What the supervisor answers to `audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    pub lines: Vec<AuditLine>,
}

/// Who wrote an entry down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Keeper {
    /// The supervisor, whose journal sessiond cannot write.
    Supervisor,
    Sessiond,
}

/// An act with its outcome, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditView {
    pub at_ms: i64,
    #[serde(flatten)]
    pub act: Act,
    /// `asked`: it is under way, or whoever did it died.
    pub outcome: String,
    pub source: Keeper,
}
