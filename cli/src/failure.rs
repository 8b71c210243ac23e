//! Why a verb failed, for people and for programs: what, why, the next thing to type.

use crate::escape::command;
use wire::{ErrorCode, WireError};

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit status of a client verb: 1 failed, 2 usage, 3 not found, 4 denied, 5 conflict,
    /// 69 daemon unreachable.
    pub(crate) status: u8,
    pub(crate) error: WireError,
    /// The next command to type.
    pub(crate) next: Option<String>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::from(WireError::new(ErrorCode::Internal, what))
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::from(WireError::new(ErrorCode::BadRequest, what))
    }

    pub(crate) fn unreachable(what: impl Into<String>) -> Self {
        Self::from(WireError::new(ErrorCode::SupervisorUnavailable, what))
            .next("mews daemon start; mews doctor")
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// What was typed wrong is looked up where it was typed, if nobody knows better.
    pub(crate) fn or_help(self, help: impl FnOnce() -> String) -> Self {
        if self.next.is_some() { self } else { self.next(help()) }
    }

    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.error.code == code
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let next = hint(&error);
        Self { status: status(error.code), error, next }
    }
}

fn status(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::BadRequest | ErrorCode::ValidationFailed => 2,
        ErrorCode::NotFound | ErrorCode::Gone => 3,
        ErrorCode::Unauthenticated | ErrorCode::Forbidden => 4,
        ErrorCode::Conflict | ErrorCode::RunActive | ErrorCode::LimitReached => 5,
        ErrorCode::Unreachable => 5,
        ErrorCode::StorageUnavailable
        | ErrorCode::SupervisorUnavailable
        | ErrorCode::VersionMismatch => 69,
        ErrorCode::PayloadTooLarge
        | ErrorCode::PolicyInvalid
        | ErrorCode::CageUnavailable
        | ErrorCode::RateLimited
        | ErrorCode::Internal
        | ErrorCode::ProviderUnreachable
        | ErrorCode::Unknown => 1,
    }
}

fn hint(error: &WireError) -> Option<String> {
    match error.code {
        ErrorCode::NotFound | ErrorCode::Gone => Some("mews ls -a".to_owned()),
        ErrorCode::CageUnavailable => Some("mews doctor".to_owned()),
        ErrorCode::PolicyInvalid => policy_hint(&error.details),
        ErrorCode::SupervisorUnavailable => Some("mews daemon start".to_owned()),
        ErrorCode::VersionMismatch => Some(crate::hello::hint(&error.details)),
        ErrorCode::Unreachable => Some("mews kill; or start the mews that began it".to_owned()),
        ErrorCode::Conflict | ErrorCode::RunActive => Some("mews ls".to_owned()),
        ErrorCode::LimitReached => Some("mews ls; mews end ID".to_owned()),
        ErrorCode::Unauthenticated | ErrorCode::Forbidden => Some(
            "ask the admin of this host, or use daemons of your own: mews --user run".to_owned(),
        ),
        ErrorCode::RateLimited => Some("the same again in a moment".to_owned()),
        ErrorCode::StorageUnavailable => Some("mews daemon status; df -h".to_owned()),
        ErrorCode::Internal | ErrorCode::Unknown => Some("mews doctor".to_owned()),
        // The help of the verb: [`Failure::or_help`].
        ErrorCode::BadRequest
        | ErrorCode::ValidationFailed
        | ErrorCode::PayloadTooLarge
        | ErrorCode::ProviderUnreachable => None,
    }
}

/// A file can be mended and checked again, a name can only be another one; of a flag there is neither.
fn policy_hint(details: &serde_json::Value) -> Option<String> {
    let word = |name: &str| details.get(name).and_then(serde_json::Value::as_str);
    match (word("file"), word("reason")) {
        (Some(_name), Some("not_found")) => Some("mews policy list".to_owned()),
        (Some(file), _reason) => {
            Some(command(&["mews", "policy", "check", file].map(str::to_owned)))
        }
        (None, _reason) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_verbs_exit_by_the_table() {
        for (code, want) in [
            (ErrorCode::Internal, 1),
            (ErrorCode::BadRequest, 2),
            (ErrorCode::NotFound, 3),
            (ErrorCode::Forbidden, 4),
            (ErrorCode::Conflict, 5),
            (ErrorCode::SupervisorUnavailable, 69),
        ] {
            assert_eq!(Failure::from(WireError::new(code, "m")).status, want, "{code:?}");
        }
    }
}
