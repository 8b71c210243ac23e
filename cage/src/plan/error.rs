//! Why no plan could be made. Nothing was started.

use crate::policy::{PolicyError, Problem, Said};
use serde_json::json;
use std::path::PathBuf;
use wire::{ErrorCode, WireError};

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The host lacks what the policy (or every cage) requires.
    #[error("{message}")]
    Wall { wall: String, message: String },
    /// The folder to work in cannot be lent.
    #[error("the workspace {}: {why}", path.display())]
    Workspace { path: PathBuf, why: String },
    /// A path of the policy or the command line cannot be lent.
    #[error("{key} {path:?}: {why}")]
    Path { key: String, path: String, why: String },
    /// The command line asks for what cannot be.
    #[error("{flag}: {why}")]
    Flag { flag: String, why: String },
}

impl PlanError {
    /// A path that cannot be lent or guarded, with the line that says it; `None`: the command line does.
    pub(super) fn of_path(said: Option<&Said>, key: &str, path: &str, why: &str) -> Self {
        let key = key.to_owned();
        let Some(said) = said else {
            return Self::Path { key, path: path.to_owned(), why: why.to_owned() };
        };
        Self::Policy(PolicyError {
            problem: Problem::BadValue,
            file: said.file.clone(),
            line: Some(said.line),
            key: Some(key),
            message: format!("{path:?} {why}"),
        })
    }
}

impl From<PlanError> for WireError {
    fn from(error: PlanError) -> Self {
        let message = error.to_string();
        match error {
            PlanError::Policy(error) => error.into(),
            PlanError::Wall { wall, .. } => Self::wall(&wall, message),
            PlanError::Workspace { path, .. } => Self::new(ErrorCode::ValidationFailed, message)
                .with(json!({ "key": "workspace", "path": path.to_string_lossy() })),
            PlanError::Path { key, path, .. } => Self::new(ErrorCode::PolicyInvalid, message)
                .with(json!({ "key": key, "path": path })),
            PlanError::Flag { flag, .. } => {
                Self::new(ErrorCode::ValidationFailed, message).with(json!({ "flag": flag }))
            }
        }
    }
}
