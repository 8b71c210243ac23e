//! What is done, in order: a function of the seed alone, whatever comes of it.

use super::dice::Dice;
use crate::suite::checkpoint;
use crate::suite::faults::steps;
use std::fmt;

/// Sessions at a time.
pub(super) const SLOTS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// On a terminal, in the background.
    Run,
    /// The same, with a layer over its files.
    RunLayered,
    /// With pipes, its client staying.
    RunPipes,
    Exec,
    Pause,
    Resume,
    /// The command ends by itself.
    Stop,
    Kill,
    End,
    Remove,
    Attach,
    Detach,
    Type,
    Flood,
    KillClient,
    KillBroker,
    /// Another walltime.
    Limit,
    Checkpoint,
    /// To the newest checkpoint.
    Rollback,
    /// A request that cannot be right.
    Wrong,
}

/// What dies, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    None,
    /// Before the act.
    Sessiond,
    Supervisor,
    Both,
    /// As soon as its client runs.
    SessiondUnder,
    SupervisorUnder,
    /// Whoever reaches this step while the act lasts.
    At(&'static str),
}

impl Strike {
    pub(super) fn is_before(self) -> bool {
        matches!(self, Self::Sessiond | Self::Supervisor | Self::Both)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) act: Act,
    pub(super) slot: usize,
    pub(super) strike: Strike,
    /// The exit status of what is run.
    pub(super) code: u8,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} s{}", self.act, self.slot)?;
        if self.strike == Strike::None {
            return Ok(());
        }
        write!(f, " · {:?}", self.strike)
    }
}

const ACTS: &[(Act, usize)] = &[
    (Act::Run, 12),
    (Act::RunLayered, 10),
    (Act::RunPipes, 8),
    (Act::Exec, 14),
    (Act::Pause, 9),
    (Act::Resume, 12),
    (Act::Stop, 8),
    (Act::Kill, 5),
    (Act::End, 3),
    (Act::Remove, 12),
    (Act::Attach, 7),
    (Act::Detach, 4),
    (Act::Type, 12),
    (Act::Flood, 6),
    (Act::KillClient, 3),
    (Act::KillBroker, 3),
    (Act::Limit, 6),
    (Act::Checkpoint, 9),
    (Act::Rollback, 6),
    (Act::Wrong, 4),
];

/// The next move.
pub(super) fn next(dice: &mut Dice) -> Move {
    let all: usize = ACTS.iter().map(|(_act, weight)| weight).sum();
    let mut roll = dice.below(all);
    let mut act = Act::Wrong;
    for (candidate, weight) in ACTS {
        if roll < *weight {
            act = *candidate;
            break;
        }
        roll -= weight;
    }
    let slot = dice.below(SLOTS);
    let strike = match dice.below(20) {
        0 => Strike::Sessiond,
        1 => Strike::Supervisor,
        2 => Strike::Both,
        3 => Strike::SessiondUnder,
        4 => Strike::SupervisorUnder,
        5..=8 => dice.pick(&steps_of(act)).map_or(Strike::None, Strike::At),
        _ => Strike::None,
    };
    let code = u8::try_from(dice.below(100)).unwrap_or(0);
    Move { act, slot, strike, code }
}

/// The steps that the act goes through, by their verbs; any, for an act with none of its own.
fn steps_of(act: Act) -> Vec<&'static str> {
    let verbs: &[&str] = match act {
        Act::Run | Act::RunLayered | Act::RunPipes => &["spawn", "run", "record"],
        Act::Exec => &["exec"],
        Act::Pause => &["pause", "suspend"],
        Act::Resume => &["unpause", "resume"],
        Act::Stop => &["exit", "events", "filing"],
        Act::Kill => &["kill", "cancel", "exit"],
        Act::End => &["end", "cancel", "exit"],
        Act::Remove => &["remove", "forget"],
        Act::KillBroker => &["bury"],
        Act::Checkpoint => &["checkpoint", "suspend", "resume"],
        Act::Rollback => &["rollback", "kill"],
        // Its own steps are died at in the suite `limits`.
        Act::Limit
        | Act::Attach
        | Act::Detach
        | Act::Type
        | Act::Flood
        | Act::KillClient
        | Act::Wrong => &[],
    };
    let is_of = |step: &&str| step.split('.').next().is_some_and(|verb| verbs.contains(&verb));
    let all = steps().into_iter().chain(checkpoint::steps());
    let own: Vec<&str> = all.filter(is_of).collect();
    if own.is_empty() { steps() } else { own }
}
