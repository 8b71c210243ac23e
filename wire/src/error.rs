//! Errors that leave a process: a stable code, words for people, details for programs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Stable codes; the HTTP status of each is in SESSIONS.md 7 and mapped once, in sessiond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BadRequest,
    ValidationFailed,
    Unauthenticated,
    Forbidden,
    NotFound,
    Conflict,
    RunActive,
    LimitReached,
    Gone,
    PayloadTooLarge,
    /// The policy file is wrong, or asks for what this build or host cannot enforce.
    PolicyInvalid,
    /// A wall could not be put up; `details.wall` names it. Nothing ran.
    CageUnavailable,
    RateLimited,
    Internal,
    ProviderUnreachable,
    StorageUnavailable,
    SupervisorUnavailable,
    /// Two sides of different builds speak no version of the protocol in common; nothing was done.
    VersionMismatch,
    /// The cage lives, and nobody here can talk to its broker; it can be killed.
    Unreachable,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WireError {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl WireError {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Value::Null }
    }

    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// A wall of the cage could not be put up.
    #[must_use]
    pub fn wall(wall: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::CageUnavailable, message).with(serde_json::json!({ "wall": wall }))
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for WireError {}
