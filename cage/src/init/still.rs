//! Making the cage's processes stand still, and letting them go on as if nothing had been.
//!
//! The order matters both ways: a shell that runs while its job is stopped says so and takes the
//! terminal. So parents stop first, from the top down, by SIGSTOP, which no program sees; then the
//! leaves are asked by SIGTSTP, so that an editor can restore the screen. Going on is the reverse.
//! Whoever cannot obey (it ignores SIGTSTP, or the kernel would discard it in an orphaned group)
//! is not waited for; the freezer holds it.

use super::kill::send;
use super::processes::{Process, Processes, Signals, has_stopped, signals_of};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};
use wire::{How, Stilled};

/// Parents that fork faster than they are stopped are left to the freezer after so many rounds.
const ROUNDS_MAX: usize = 16;
/// SIGSTOP takes effect at once, but for a process in an uninterruptible sleep.
const STOP_TIME: Duration = Duration::from_millis(100);
/// The shell of a program whose handler was late waits so long for it.
const LATE_TIME: Duration = Duration::from_millis(300);
/// A handler that was late may stop its program so long after the cage went on.
const LATE_WATCH: Duration = Duration::from_secs(10);
/// Between two looks at processes that are no children of ours: nothing tells when they stop.
const LOOK: Duration = Duration::from_millis(1);

/// What was done to whom, to be undone.
#[derive(Debug, Default)]
pub(crate) struct Still {
    /// Stopped by SIGSTOP, in the order in which they were.
    parents: Vec<i32>,
    leaves: Vec<i32>,
    /// Stopped by SIGSTOP after they were asked in vain.
    rest: Vec<i32>,
    /// Asked in vain.
    refused: Vec<i32>,
    /// Their handlers had not come to an end; they may stop after the cage goes on.
    late: Vec<i32>,
}

/// Processes whose handlers may still stop them after a resume, and until when that is looked for.
#[derive(Debug)]
pub(crate) struct Late {
    pids: Vec<i32>,
    until: Instant,
}

impl Late {
    /// Lets those go on that have stopped meanwhile, once each; whether there is nothing left to do.
    pub(crate) fn is_over(&mut self) -> bool {
        self.pids.retain(|pid| !continue_stopped(*pid));
        self.pids.is_empty() || Instant::now() >= self.until
    }
}

impl Still {
    /// Stops what is not in `spared`. Also says how each stands now.
    pub(crate) fn make(spared: &BTreeSet<i32>, grace: Duration, all: bool) -> (Self, Vec<Stilled>) {
        let before = Processes::read(spared);
        let mut still = Self::default();
        let now = still.stop_parents(&before, spared);
        let asked = still.ask_leaves(now.as_ref().unwrap_or(&before), grace);
        if all {
            still.stop_all(spared);
        }
        let stilled = still.account(&asked, &before, &Processes::read(spared));
        (still, stilled)
    }

    /// Until a look finds none that runs; what that one saw, if it was not the first.
    fn stop_parents(&mut self, first: &Processes, spared: &BTreeSet<i32>) -> Option<Processes> {
        let mut seen: Option<Processes> = None;
        for _round in 0..ROUNDS_MAX {
            let mut stopped = Vec::new();
            // Each level stands before the next is touched: a shell that is woken to be stopped
            // would first see what has become of its children.
            for level in seen.as_ref().unwrap_or(first).parents() {
                let fresh = level.into_iter().filter(|process| process.runs());
                stopped.extend(stop(fresh.map(|process| process.pid).collect()));
            }
            if stopped.is_empty() {
                break;
            }
            self.parents.extend(stopped);
            seen = Some(Processes::read(spared));
        }
        seen
    }

    /// What those that were asked do with signals, for the account.
    fn ask_leaves(&mut self, now: &Processes, grace: Duration) -> BTreeMap<i32, Signals> {
        let mut asked = BTreeMap::new();
        for leaf in now.leaves().filter(|process| process.runs()) {
            let signals = signals_of(leaf.pid);
            let obeys = signals.obeys(libc::SIGTSTP, now.is_orphaned(leaf));
            if obeys && send(leaf.pid, libc::SIGTSTP).is_ok() {
                asked.insert(leaf.pid, signals);
            }
        }
        self.refused = wait_while(asked.keys().copied().collect(), grace, |pid| !has_stopped(pid));
        self.leaves = asked.keys().copied().filter(|pid| !self.refused.contains(pid)).collect();
        let catches = |pid: &&i32| asked.get(pid).is_some_and(|it| it.catches(libc::SIGTSTP));
        self.late = self.refused.iter().filter(catches).copied().collect();
        asked
    }

    /// Where there is no freezer: until nothing runs.
    fn stop_all(&mut self, spared: &BTreeSet<i32>) {
        for _round in 0..ROUNDS_MAX {
            let seen = Processes::read(spared);
            let running = seen.iter().filter(|process| process.runs());
            let running: Vec<i32> = running.map(|process| process.pid).collect();
            if running.is_empty() {
                return;
            }
            self.rest.extend(stop(running));
        }
    }

    fn account(
        &self,
        asked: &BTreeMap<i32, Signals>,
        before: &Processes,
        now: &Processes,
    ) -> Vec<Stilled> {
        let by_us: BTreeSet<i32> = self.parents.iter().chain(&self.rest).copied().collect();
        let obeyed: BTreeSet<i32> = self.leaves.iter().copied().collect();
        let refused: BTreeSet<i32> = self.refused.iter().copied().collect();
        let catches = |pid| asked.get(&pid).is_some_and(|it| it.catches(libc::SIGTSTP));
        let how = |process: &Process| match process.pid {
            _ if !process.is_stopped() => How::Frozen,
            pid if by_us.contains(&pid) => How::Stop,
            pid if !obeyed.contains(&pid) => How::Stopped,
            pid if catches(pid) => How::Handler,
            _ => How::Tstp,
        };
        let there = now.iter().map(|process| Stilled {
            pid: process.pid,
            name: process.name.clone(),
            how: how(process),
            refused: refused.contains(&process.pid),
        });
        let ended = before.iter().filter(|process| now.get(process.pid).is_none()).map(|process| {
            let (pid, name) = (process.pid, process.name.clone());
            Stilled { pid, name, how: How::Exited, refused: false }
        });
        there.chain(ended).collect()
    }

    /// Leaves first, and only when they run their parents, from the bottom up. Those that may still
    /// stop by themselves come back, to be looked after.
    pub(crate) fn undo(self) -> Option<Late> {
        let leaves = [self.leaves, self.rest].concat();
        for pid in &leaves {
            // Killed while it stood.
            send(*pid, libc::SIGCONT).ok();
        }
        wait_while(leaves, STOP_TIME, has_stopped);
        let mut late = self.late;
        // Where no parent stands still, none has to wait.
        if !self.parents.is_empty() {
            late = wait_while(late, LATE_TIME, |pid| !continue_stopped(pid));
        }
        for pid in self.parents.iter().rev() {
            send(*pid, libc::SIGCONT).ok();
        }
        (!late.is_empty()).then(|| Late { pids: late, until: Instant::now() + LATE_WATCH })
    }
}

/// Those that were there to be stopped.
fn stop(mut pids: Vec<i32>) -> Vec<i32> {
    pids.retain(|pid| send(*pid, libc::SIGSTOP).is_ok());
    wait_while(pids.clone(), STOP_TIME, |pid| !has_stopped(pid));
    pids
}

/// Lets a process go on if it has stopped; whether it had, or is not there any more.
fn continue_stopped(pid: i32) -> bool {
    let stopped = has_stopped(pid);
    if stopped {
        send(pid, libc::SIGCONT).ok();
    }
    stopped
}

/// Looks again and again while `pending` holds for one of them, for at most this time. Those for
/// which it still holds.
#[expect(clippy::disallowed_methods, reason = "nothing tells when what is no child of ours stops")]
fn wait_while(mut pids: Vec<i32>, time: Duration, pending: impl Fn(i32) -> bool) -> Vec<i32> {
    let end = Instant::now() + time;
    loop {
        pids.retain(|pid| pending(*pid));
        if pids.is_empty() || Instant::now() >= end {
            return pids;
        }
        sleep(LOOK);
    }
}
