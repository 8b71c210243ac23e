//! A cage that stands still, and how each of its processes came to.

use serde::{Deserialize, Serialize};

/// How a process was brought to stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It obeyed SIGTSTP as the system does by default.
    Tstp,
    /// Its own handler of SIGTSTP stopped it.
    Handler,
    /// By SIGSTOP: it has children, or there is no freezer.
    Stop,
    /// It was stopped before, by its shell or its user, and stays so.
    Stopped,
    /// By the freezer alone.
    Frozen,
    /// It ended meanwhile.
    Exited,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stilled {
    /// As the cage numbers it.
    pub pid: i32,
    /// Its command name, 15 bytes at most.
    pub name: String,
    pub how: How,
    /// It was asked to stop, could have, and did not in time.
    pub refused: bool,
}

/// A whole cage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suspension {
    /// What holds it: `cgroup v2`, or `signals` where this host has no freezer for us.
    pub by: String,
    /// Processes of each kind.
    pub tstp: u32,
    pub handler: u32,
    pub stop: u32,
    pub stopped: u32,
    pub frozen: u32,
    pub exited: u32,
    pub refused: u32,
    /// The first of them one by one: those that refused, then the rarest kinds.
    pub processes: Vec<Stilled>,
}

/// Of a suspension's processes, in events and answers.
pub const STILLED_SHOWN_MAX: usize = 100;

impl Suspension {
    #[must_use]
    pub fn new(by: &str, mut processes: Vec<Stilled>) -> Self {
        let count = |how| {
            let count = processes.iter().filter(|process| process.how == how).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let counts = Self {
            by: by.to_owned(),
            tstp: count(How::Tstp),
            handler: count(How::Handler),
            stop: count(How::Stop),
            stopped: count(How::Stopped),
            frozen: count(How::Frozen),
            exited: count(How::Exited),
            refused: u32::try_from(processes.iter().filter(|process| process.refused).count())
                .unwrap_or(u32::MAX),
            processes: Vec::new(),
        };
        processes.sort_by_key(|process| (!process.refused, counts.of(process.how), process.pid));
        processes.truncate(STILLED_SHOWN_MAX);
        Self { processes, ..counts }
    }

    fn of(&self, how: How) -> u32 {
        match how {
            How::Tstp => self.tstp,
            How::Handler => self.handler,
            How::Stop => self.stop,
            How::Stopped => self.stopped,
            How::Frozen => self.frozen,
            How::Exited => self.exited,
        }
    }

    /// Processes that stand still.
    #[must_use]
    pub fn still(&self) -> u32 {
        self.tstp + self.handler + self.stop + self.stopped + self.frozen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rare_ones_are_shown_and_all_are_counted() {
        let stilled = |pid, how| Stilled { pid, name: "sh".to_owned(), how, refused: false };
        let mut all: Vec<Stilled> = (10..1000).map(|pid| stilled(pid, How::Frozen)).collect();
        all.push(stilled(2000, How::Handler));
        let suspension = Suspension::new("cgroup v2", all);
        assert_eq!((suspension.frozen, suspension.handler, suspension.still()), (990, 1, 991));
        assert_eq!(suspension.processes.len(), STILLED_SHOWN_MAX);
        assert_eq!(suspension.processes[0].pid, 2000);
    }
}
