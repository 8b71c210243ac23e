//! The life of one terminal, without its input and output.
//!
//! ```text
//! detached ⇄ active ──payload ended──▶ draining ──last holder gone, or time over──▶ closed
//!     └─────────────payload ended────────▲
//! ```
//! Background processes that keep the terminal open do not hold the end back beyond the drain time.

/// How long a terminal is read after its payload ended, while somebody still holds it.
pub const DRAIN_MS: u64 = 250;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No viewer.
    Detached,
    Active,
    /// The payload ended; what was printed is still read.
    Draining,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    FirstViewerCame,
    LastViewerLeft,
    PayloadEnded,
    /// Nobody can write to it any more, and everything written was read.
    HoldersGone,
    DrainTimeOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    StartDrainClock,
    /// Nothing more is read: files, then the broker is told.
    Finish,
}

#[must_use]
pub fn step(state: State, event: Event) -> (State, Action) {
    match (state, event) {
        (State::Detached, Event::FirstViewerCame) => (State::Active, Action::None),
        (State::Active, Event::LastViewerLeft) => (State::Detached, Action::None),
        (State::Detached | State::Active, Event::PayloadEnded) => {
            (State::Draining, Action::StartDrainClock)
        }
        (State::Draining, Event::HoldersGone | Event::DrainTimeOver) => {
            (State::Closed, Action::Finish)
        }
        // A program that lets go of its terminal may open it again.
        (State::Detached | State::Active, Event::HoldersGone | Event::DrainTimeOver)
        | (State::Detached, Event::LastViewerLeft)
        | (State::Active, Event::FirstViewerCame)
        | (
            State::Draining,
            Event::FirstViewerCame | Event::LastViewerLeft | Event::PayloadEnded,
        )
        // Leaving `closed` is impossible.
        | (
            State::Closed,
            Event::FirstViewerCame
            | Event::LastViewerLeft
            | Event::PayloadEnded
            | Event::HoldersGone
            | Event::DrainTimeOver,
        ) => (state, Action::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn the_whole_table() {
        let states = [State::Detached, State::Active, State::Draining, State::Closed];
        let events = [
            Event::FirstViewerCame,
            Event::LastViewerLeft,
            Event::PayloadEnded,
            Event::HoldersGone,
            Event::DrainTimeOver,
        ];
        let mut table = String::new();
        for state in states {
            for event in events {
                let (next, action) = step(state, event);
                if (next, action) != (state, Action::None) {
                    writeln!(table, "{state:?} + {event:?} = {next:?}, {action:?}").unwrap();
                }
            }
        }
        let expected = "\
Detached + FirstViewerCame = Active, None
Detached + PayloadEnded = Draining, StartDrainClock
Active + LastViewerLeft = Detached, None
Active + PayloadEnded = Draining, StartDrainClock
Draining + HoldersGone = Closed, Finish
Draining + DrainTimeOver = Closed, Finish
";
        assert_eq!(table, expected);
    }
}
