//! Signals that pid 1 sends for the broker.

use super::processes::all_pids;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use std::collections::BTreeSet;

/// How often SIGKILL goes round before it gives up on a cage that forks faster.
const ROUNDS_MAX: usize = 64;

/// To a process, or with a negative number to a group. Numbers that are no signal are not sent.
pub(crate) fn send(pid: i32, signal: i32) -> Result<(), Errno> {
    let signal = Signal::try_from(signal)?;
    nix::sys::signal::kill(Pid::from_raw(pid), signal)
}

/// To every process in the cage but those in `spared`. SIGKILL goes round until a round finds nobody
/// new, so that a fork in between does not escape.
pub(crate) fn everything(spared: &BTreeSet<i32>, signal: i32) {
    let mut reached = BTreeSet::new();
    let rounds = if signal == libc::SIGKILL { ROUNDS_MAX } else { 1 };
    for _round in 0..rounds {
        let fresh: Vec<i32> = all_pids()
            .into_iter()
            .filter(|pid| !spared.contains(pid) && !reached.contains(pid))
            .collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            send(pid, signal).ok();
            reached.insert(pid);
        }
    }
}

/// Everything is blocked in pid 1 and what descends from it, until a payload execs.
pub(crate) fn block_all() -> Result<(), Errno> {
    use nix::sys::signal::{SigmaskHow, sigprocmask};
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)
}
