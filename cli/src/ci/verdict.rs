//! What a run came to, in the words of a report.

use crate::failure::Failure;
use crate::verb::watching::{self, Watched};
use wire::{Cause, Exit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Passed,
    /// The command's own doing, or a limit that it ran into.
    Failed,
    /// Nothing ran, or it was not let come to its end.
    Error,
    /// Nobody waited for its end.
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    /// `exited`, `walltime`, `cage_setup` …: as in the status file.
    pub(crate) cause: String,
    /// One line for people.
    pub(crate) message: String,
}

/// `signal`: what mews itself was told meanwhile.
pub(crate) fn verdict(outcome: Result<&Watched, &Failure>, signal: Option<i32>) -> Verdict {
    let watched = match (outcome, signal) {
        (Err(failure), None) => return not_started(failure),
        (Err(failure), Some(signal)) => {
            return cancelled(signal, &format!(": {}", failure.error.message));
        }
        (Ok(watched), _) => watched,
    };
    match (&watched.exit, signal) {
        (None, Some(signal)) => cancelled(signal, ", before the command began"),
        (None, None) => new(Kind::Skipped, "detached", "it was left, and runs on".to_owned()),
        (Some(exit), _) if exit.status() == 0 => new(Kind::Passed, "exited", "passed".to_owned()),
        (Some(exit), Some(signal)) => cancelled(signal, &format!("; {}", words(exit))),
        (Some(exit), None) => new(kind(exit.cause), exit.cause.as_str(), words(exit)),
    }
}

fn new(kind: Kind, cause: &str, message: String) -> Verdict {
    Verdict { kind, cause: cause.to_owned(), message }
}

fn not_started(failure: &Failure) -> Verdict {
    let next = failure.next.as_ref().map(|next| format!("; try: {next}")).unwrap_or_default();
    let cause = crate::status_file::cause(failure);
    new(Kind::Error, cause.as_str(), format!("{}{next}", failure.error.message))
}

fn cancelled(signal: i32, more: &str) -> Verdict {
    let words = format!("mews was told to end by {}{more}", signal_name(signal));
    new(Kind::Error, Cause::Cancelled.as_str(), words)
}

fn kind(cause: Cause) -> Kind {
    match cause {
        Cause::Exited
        | Cause::Signaled
        | Cause::Walltime
        | Cause::Idle
        | Cause::Oom
        | Cause::Limit
        | Cause::Budget
        | Cause::NoProgress
        | Cause::Unknown => Kind::Failed,
        Cause::Cancelled
        | Cause::CageSetup
        | Cause::PolicyDenied
        | Cause::ProviderUnreachable
        | Cause::BrokerLost
        | Cause::StatusLost
        | Cause::DaemonCrash => Kind::Error,
    }
}

fn words(exit: &Exit) -> String {
    let own = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by {}", signal_name(i32::from(signal))),
        (None, None) => "no exit status".to_owned(),
    };
    match (watching::words(exit), exit.cause) {
        (Some(words), Cause::Exited) => format!("{own}: {words}"),
        (Some(words), _) => words,
        (None, Cause::Cancelled) => format!("cancelled; {own}"),
        (None, _) => own,
    }
}

fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => known.as_str().to_owned(),
        Err(_real_time) => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{ErrorCode, WireError};

    fn exit(cause: Cause, code: Option<u8>, signal: Option<u8>) -> Watched {
        let exit = Exit { code, signal, cause, ..Exit::not_started(0, cause, String::new()) };
        let exit = Exit { message: None, ..exit };
        Watched { status: exit.status(), exit: Some(exit) }
    }

    #[test]
    fn each_end_has_its_kind_and_words() {
        for (cause, code, signal, told, kind, words) in [
            (Cause::Exited, Some(0), None, None, Kind::Passed, "passed"),
            (Cause::Exited, Some(0), None, Some(15), Kind::Passed, "passed"),
            (Cause::Exited, Some(7), None, None, Kind::Failed, "exit status 7"),
            (Cause::Signaled, None, Some(11), None, Kind::Failed, "killed by SIGSEGV"),
            (Cause::Walltime, None, Some(9), None, Kind::Failed, "the time limit"),
            (Cause::Oom, None, Some(9), None, Kind::Failed, "the memory limit"),
            (Cause::CageSetup, Some(125), None, None, Kind::Error, "could not be built"),
            (Cause::BrokerLost, None, Some(9), None, Kind::Error, "the broker"),
            (Cause::Signaled, None, Some(15), Some(15), Kind::Error, "told to end by SIGTERM"),
            (Cause::Cancelled, None, Some(9), None, Kind::Error, "cancelled; killed by SIGKILL"),
        ] {
            let found = verdict(Ok(&exit(cause, code, signal)), told);
            assert_eq!(found.kind, kind, "{cause:?}");
            assert!(found.message.contains(words), "{found:?}");
        }
    }

    #[test]
    fn what_never_ran_is_an_error() {
        let failure = Failure::from(WireError::new(ErrorCode::PolicyInvalid, "no such policy"))
            .next("mews policy list");
        let found = verdict(Err(&failure), None);
        assert_eq!((found.kind, found.cause.as_str()), (Kind::Error, "policy_denied"));
        assert!(found.message.contains("no such policy; try: mews policy list"), "{found:?}");
        let nothing = Watched { status: 143, exit: None };
        assert_eq!(verdict(Ok(&nothing), Some(15)).cause, "cancelled");
        assert_eq!(verdict(Ok(&nothing), None).kind, Kind::Skipped);
    }
}
