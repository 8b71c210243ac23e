//! What is wrong with a policy: which file, which line, which key, and how to mend it.

use serde_json::json;
use std::fmt;
use wire::{ErrorCode, WireError};

/// Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    pub problem: Problem,
    /// As people know it: a path, or `preset shell`.
    pub file: String,
    /// From 1; absent where the whole file is meant.
    pub line: Option<usize>,
    /// Dotted: `limits.memory`.
    pub key: Option<String>,
    /// What is wrong, and how to mend it.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not TOML.
    Syntax,
    UnknownKey,
    /// A key or value that the design knows and this build cannot enforce.
    Unsupported,
    BadValue,
    /// No such policy, or its file cannot be read.
    NotFound,
    /// `extends` runs in a circle, or too deep.
    Extends,
    /// Not `version = 1`.
    Version,
    /// A project file asks for more than it may: it can only tighten.
    Widens,
}

impl Problem {
    /// Stable, for programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::UnknownKey => "unknown_key",
            Self::Unsupported => "unsupported",
            Self::BadValue => "bad_value",
            Self::NotFound => "not_found",
            Self::Extends => "extends",
            Self::Version => "version",
            Self::Widens => "widens",
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl From<PolicyError> for WireError {
    fn from(error: PolicyError) -> Self {
        Self::new(ErrorCode::PolicyInvalid, error.to_string()).with(json!({
            "reason": error.problem.code(),
            "file": error.file,
            "line": error.line,
            "key": error.key,
        }))
    }
}
