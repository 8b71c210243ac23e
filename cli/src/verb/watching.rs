//! From the end of a viewing to an exit status: for `run`, `exec`, `shell` and `attach`.

use crate::api::Api;
use crate::failure::Failure;
use crate::out::Say;
use crate::viewer::Ending;
use crate::viewer::keys::DetachKeys;
use wire::frame::CloseReason;
use wire::{Cause, Exit, PtyId};

/// How long the daemons may take to tell the exit of a command whose stream was lost.
const EXIT_MS: u64 = 5_000;

/// What a viewing came to.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) status: u8,
    pub(crate) exit: Option<Exit>,
}

/// `--detach-keys`, shared by the verbs that have a terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    /// Keys that leave the terminal; 'none': no keys do
    #[arg(long, value_name = "KEYS", default_value = crate::viewer::keys::DEFAULT)]
    pub(crate) detach_keys: String,
}

impl Keys {
    pub(crate) fn parse(&self) -> Result<Option<DetachKeys>, Failure> {
        DetachKeys::parse(&self.detach_keys)
            .map_err(|why| Failure::usage(format!("--detach-keys: {why}")))
    }
}

/// The status of an exit; words where it did not end by itself.
pub(crate) fn ended(exit: Exit, say: &Say) -> Watched {
    if let Some(words) = words(&exit) {
        say.note(&words);
        if let Some(next) = next(&exit) {
            say.next(next);
        }
    }
    Watched { status: exit.status(), exit: Some(exit) }
}

/// The same for every ending but an exit; `name` is what to come back to.
pub(crate) async fn conclude(
    ending: Ending,
    api: &Api,
    pty: PtyId,
    name: &str,
    say: &Say,
) -> Result<Watched, Failure> {
    match ending {
        Ending::Exited(exit) => Ok(ended(exit, say)),
        Ending::Detached => {
            say.note(&format!("detached; come back with: mews attach {name}"));
            Ok(Watched { status: 0, exit: None })
        }
        Ending::Signalled(signal) => {
            say.note(&format!("left by a signal; come back with: mews attach {name}"));
            Ok(Watched { status: 128 + u8::try_from(signal).unwrap_or(0), exit: None })
        }
        Ending::Closed(CloseReason::TooSlow) => Err(Failure::new(
            "this terminal took no output for too long, so the broker has let go of it",
        )
        .next(format!("mews attach {name}"))),
        Ending::Closed(reason @ (CloseReason::BadFrame | CloseReason::Detached)) => {
            Err(Failure::new(format!("the broker has closed the stream: {}", reason.as_str()))
                .next(format!("mews attach {name}")))
        }
        Ending::Closed(
            CloseReason::Exited | CloseReason::SessionEnded | CloseReason::BrokerLost,
        )
        | Ending::Lost => lost(api, pty, name, say).await,
    }
}

/// The stream did not tell how it ended; the daemons may know.
async fn lost(api: &Api, pty: PtyId, name: &str, say: &Say) -> Result<Watched, Failure> {
    match api.wait(pty, EXIT_MS).await {
        Ok(Some(exit)) => Ok(ended(exit, say)),
        Ok(None) => Err(Failure::new(
            "the connection to the terminal was lost, and the daemons know of no exit",
        )
        .next(format!("mews attach {name}"))),
        Err(failure) => Err(Failure::new(format!(
            "the connection to the terminal was lost ({})",
            failure.error.message
        ))
        .next(format!("mews inspect {name}"))),
    }
}

/// What helps, where mews ended it or could not start it.
fn next(exit: &Exit) -> Option<&'static str> {
    match (exit.cause, exit.status()) {
        (Cause::Exited, 126) => Some("chmod +x FILE; or its interpreter: mews run -- sh FILE"),
        (Cause::Exited, 127) => Some(
            "mews run -- sh -c 'LINE' for a line of shell; --read FOLDER for what is not below /usr",
        ),
        (Cause::Walltime, _any) => Some("the same with a longer --timeout"),
        (Cause::Idle, _any) => Some("the same with --limit idle=1h"),
        (Cause::Oom, _any) => Some("the same with more: --memory 4G"),
        _other => None,
    }
}

pub(crate) fn words(exit: &Exit) -> Option<String> {
    let said = exit.message.as_deref().map(crate::escape::escape);
    let why = match exit.cause {
        // A shell prints nothing there either; a program that was not found has its message.
        Cause::Exited | Cause::Signaled | Cause::Cancelled => return said,
        Cause::Walltime => "the time limit was reached; the cage was killed",
        Cause::Idle => "the idle limit was reached; the cage was killed",
        Cause::Oom => "the memory limit was reached; the cage was killed",
        Cause::Limit => "a limit was reached; the cage was killed",
        Cause::Budget => "the budget is used up; the cage was killed",
        Cause::CageSetup => "the cage could not be built; nothing ran",
        Cause::PolicyDenied => "the policy does not allow it; nothing ran",
        Cause::ProviderUnreachable => "the provider cannot be reached; nothing ran",
        Cause::BrokerLost => "the broker of this cage died, and its cage with it",
        Cause::StatusLost => "the cage is gone and nobody kept its exit status",
        Cause::DaemonCrash => "the daemons died before anything ran",
        Cause::NoProgress => "it made no progress; the cage was killed",
        Cause::Unknown => "it ended for a reason that only a newer mews can name",
    };
    Some(said.map_or_else(|| why.to_owned(), |said| format!("{why} ({said})")))
}
