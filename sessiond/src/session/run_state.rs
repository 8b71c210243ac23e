//! The run machine (SESSIONS.md 3): `pending → running ⇄ suspended → done | failed | cancelled`.

use super::Denied;
use wire::api::RunState;
use wire::{Cause, ErrorCode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed,
    Cancelled,
}

impl Outcome {
    /// What an exit of this cause makes of its run. A program that ends by itself is done,
    /// whatever its status: the status stands in the exit.
    #[must_use]
    pub fn of(cause: Cause) -> Self {
        match cause {
            Cause::Exited | Cause::Signaled => Self::Done,
            Cause::Cancelled => Self::Cancelled,
            Cause::Walltime
            | Cause::Idle
            | Cause::Oom
            | Cause::Limit
            | Cause::Budget
            | Cause::CageSetup
            | Cause::PolicyDenied
            | Cause::ProviderUnreachable
            | Cause::BrokerLost
            | Cause::StatusLost
            | Cause::DaemonCrash
            | Cause::NoProgress
            | Cause::Unknown => Self::Failed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its cage was told to go.
    Started,
    Suspended,
    Resumed,
    Ended(Outcome),
}

const OVER: Denied = Denied::new(ErrorCode::Gone, "This run has ended.");
const NOT_STARTED: Denied = Denied::new(ErrorCode::Conflict, "This run has not started yet.");

/// One step of the machine. A step to the state that it has is no change, told twice.
///
/// # Errors
/// The event does not fit the state; nothing changes.
pub fn step(state: RunState, event: Event) -> Result<RunState, Denied> {
    match (state, event) {
        (RunState::Pending | RunState::Running, Event::Started) => Ok(RunState::Running),
        (RunState::Suspended, Event::Started | Event::Suspended) => Ok(RunState::Suspended),
        (RunState::Running, Event::Suspended) => Ok(RunState::Suspended),
        (RunState::Suspended | RunState::Running, Event::Resumed) => Ok(RunState::Running),
        (RunState::Pending, Event::Suspended | Event::Resumed) => Err(NOT_STARTED),
        (RunState::Pending | RunState::Running | RunState::Suspended, Event::Ended(outcome)) => {
            Ok(match outcome {
                Outcome::Done => RunState::Done,
                Outcome::Failed => RunState::Failed,
                Outcome::Cancelled => RunState::Cancelled,
            })
        }
        (
            RunState::Done | RunState::Failed | RunState::Cancelled,
            Event::Started | Event::Suspended | Event::Resumed | Event::Ended(_),
        ) => Err(OVER),
    }
}
