//! The session machine (SESSIONS.md 2).
//!
//! ```text
//!          ┌────────── run ends ──────────┐
//! create → idle ── message, command ──→ running ⇄ paused
//!          ├── message at a limit ──→ queued ──→ running
//!          └── end ──→ ended                         any ──→ failed
//! ```

use super::Denied;
use wire::ErrorCode;
use wire::api::SessionState;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    Operator,
    Model,
    CompactionPending,
    AwaitingApproval,
    Budget,
    WaitingForToolResults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Idle,
    Running,
    Queued,
    Paused(PauseReason),
    Ended,
    Failed,
}

impl State {
    /// As the API says it; a pause's reason stands beside it.
    #[must_use]
    pub fn shown(self) -> SessionState {
        match self {
            Self::Idle => SessionState::Idle,
            Self::Running => SessionState::Running,
            Self::Queued => SessionState::Queued,
            Self::Paused(_) => SessionState::Paused,
            Self::Ended => SessionState::Ended,
            Self::Failed => SessionState::Failed,
        }
    }
}

impl From<SessionState> for State {
    fn from(shown: SessionState) -> Self {
        match shown {
            SessionState::Idle => Self::Idle,
            SessionState::Running => Self::Running,
            SessionState::Queued => Self::Queued,
            SessionState::Paused => Self::Paused(PauseReason::Operator),
            SessionState::Ended => Self::Ended,
            SessionState::Failed => Self::Failed,
        }
    }
}

/// Whether the limits leave room for one more run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Free,
    /// At a limit; the caller waits in the queue.
    FullQueue,
    /// At a limit; the caller would rather be refused.
    FullRefuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message to the primary: a run of kind `agent`.
    Message(Room),
    /// A run of kind `job` or `shell`.
    Command(Room),
    /// Out of the queue, or out of a pause at its current point.
    Resume(Room),
    /// A resume that names a pause point that is not the current one.
    ResumeElsewhere,
    /// The queued message is taken back.
    Discard,
    /// The run ended, either way.
    RunEnded,
    Pause(PauseReason),
    Rollback,
    /// A resume that finds nothing left to do.
    NothingLeft,
    End,
    /// Unrecoverable error of ours.
    Fail,
}

/// What the caller must do in the same transaction or right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    StartRun,
    QueueRun,
    CancelQueuedRun,
    SuspendCages,
    ResumeCages,
    KillCages,
    EndCages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub next: State,
    pub actions: Vec<Action>,
}

const RUN_ACTIVE: Denied = Denied::new(
    ErrorCode::RunActive,
    "This session has a run already; wait for its end, or start another session.",
);
const PAUSED: Denied = Denied::new(ErrorCode::Conflict, "This session is paused; resume it first.");
const QUEUED: Denied =
    Denied::new(ErrorCode::Conflict, "This session waits in the queue; discard or wait.");
const ENDED: Denied = Denied::new(ErrorCode::Gone, "This session has ended; start a new one.");
const FAILED: Denied = Denied::new(ErrorCode::Gone, "This session has failed; start a new one.");
const NO_RUN: Denied = Denied::new(ErrorCode::Conflict, "This session has no active run.");
const NOT_PAUSED: Denied = Denied::new(ErrorCode::Conflict, "This session is not paused.");
const NOT_QUEUED: Denied = Denied::new(ErrorCode::Conflict, "This session has no queued message.");
const NOT_CURRENT: Denied =
    Denied::new(ErrorCode::Conflict, "That is not the point at which this session is paused.");
const FULL: Denied = Denied::new(
    ErrorCode::LimitReached,
    "The limit of runs is reached; end one, or ask to be queued.",
);

/// One step of the machine.
///
/// # Errors
/// The event does not fit the state; nothing changes.
pub fn step(state: State, event: Event) -> Result<Step, Denied> {
    match state {
        State::Idle => idle(event),
        State::Running => running(event),
        State::Queued => queued(event),
        State::Paused(_) => paused(state, event),
        State::Ended => Err(ENDED),
        State::Failed => match event {
            Event::End => to(State::Ended, &[Action::EndCages]),
            Event::Message(_)
            | Event::Command(_)
            | Event::Resume(_)
            | Event::ResumeElsewhere
            | Event::Discard
            | Event::RunEnded
            | Event::Pause(_)
            | Event::Rollback
            | Event::NothingLeft
            | Event::Fail => Err(FAILED),
        },
    }
}

fn idle(event: Event) -> Result<Step, Denied> {
    match event {
        Event::Message(Room::Free) | Event::Command(Room::Free) => {
            to(State::Running, &[Action::StartRun])
        }
        Event::Message(Room::FullQueue) | Event::Command(Room::FullQueue) => {
            to(State::Queued, &[Action::QueueRun])
        }
        Event::Message(Room::FullRefuse) | Event::Command(Room::FullRefuse) => Err(FULL),
        Event::Resume(_) | Event::ResumeElsewhere | Event::Rollback | Event::NothingLeft => {
            Err(NOT_PAUSED)
        }
        Event::Discard => Err(NOT_QUEUED),
        Event::RunEnded | Event::Pause(_) => Err(NO_RUN),
        Event::End => to(State::Ended, &[Action::EndCages]),
        Event::Fail => to(State::Failed, &[Action::KillCages]),
    }
}

fn running(event: Event) -> Result<Step, Denied> {
    match event {
        Event::Message(_) | Event::Command(_) => Err(RUN_ACTIVE),
        Event::Resume(_) | Event::ResumeElsewhere | Event::Rollback | Event::NothingLeft => {
            Err(NOT_PAUSED)
        }
        Event::Discard => Err(NOT_QUEUED),
        Event::RunEnded => to(State::Idle, &[]),
        Event::Pause(reason) => to(State::Paused(reason), &[Action::SuspendCages]),
        Event::End => to(State::Ended, &[Action::EndCages]),
        Event::Fail => to(State::Failed, &[Action::KillCages]),
    }
}

fn queued(event: Event) -> Result<Step, Denied> {
    match event {
        Event::Resume(Room::Free) => to(State::Running, &[Action::StartRun]),
        Event::Resume(Room::FullQueue | Room::FullRefuse) => Err(FULL),
        Event::Discard => to(State::Idle, &[Action::CancelQueuedRun]),
        Event::Message(_) | Event::Command(_) => Err(QUEUED),
        Event::ResumeElsewhere | Event::Rollback | Event::NothingLeft => Err(NOT_PAUSED),
        Event::RunEnded | Event::Pause(_) => Err(NO_RUN),
        Event::End => to(State::Ended, &[Action::CancelQueuedRun, Action::EndCages]),
        Event::Fail => to(State::Failed, &[Action::CancelQueuedRun, Action::KillCages]),
    }
}

fn paused(state: State, event: Event) -> Result<Step, Denied> {
    match event {
        Event::Resume(Room::Free) => to(State::Running, &[Action::ResumeCages]),
        // It waits with its run suspended as it is.
        Event::Resume(Room::FullQueue | Room::FullRefuse) => to(State::Queued, &[]),
        Event::ResumeElsewhere => Err(NOT_CURRENT),
        Event::Rollback => to(State::Idle, &[Action::KillCages]),
        Event::NothingLeft => to(State::Idle, &[]),
        // A suspended cage can still end: killed, or out of memory.
        Event::RunEnded => to(State::Idle, &[]),
        Event::Message(_) | Event::Command(_) => Err(PAUSED),
        Event::Pause(_) => to(state, &[]),
        Event::Discard => Err(NOT_QUEUED),
        Event::End => to(State::Ended, &[Action::EndCages]),
        Event::Fail => to(State::Failed, &[Action::KillCages]),
    }
}

fn to(next: State, actions: &[Action]) -> Result<Step, Denied> {
    Ok(Step { next, actions: actions.to_vec() })
}
