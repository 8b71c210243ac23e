//! How a payload's end is told: from what was reported, what was asked and what the cgroup counted.

use cage::orders::ExecExit;
use wire::{Cause, Exit, Usage};

/// How it ended, as far as pid 1 could say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Reported(ExecExit),
    /// exec(2) failed.
    NotStarted {
        errno: i32,
        what: String,
    },
    /// The cage was killed as a whole: nobody in it reported.
    Lost,
}

/// What the broker knows beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Somebody was about to end it, and why.
    pub ending: Option<Cause>,
    /// The broker itself ended it.
    pub alarm: Option<Alarmed>,
    /// The kernel killed for memory since this payload began.
    pub oom_killed: bool,
    pub wall_ms: u64,
    pub output_bytes: u64,
    /// Of the whole cage.
    pub cage: Usage,
}

/// A limit that was met, and which one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarmed {
    pub cause: Cause,
    pub message: Option<String>,
}

pub const SIGKILL: u8 = 9;
/// Of a program's name in a message.
const NAME_CHARS_MAX: usize = 300;

/// The first known of: who said so, our own clocks, the kernel's counts, the status itself.
#[must_use]
pub fn conclude(end: &End, circumstances: &Circumstances) -> Exit {
    let mut usage = Usage {
        wall_ms: circumstances.wall_ms,
        output_bytes: circumstances.output_bytes,
        ..circumstances.cage.clone()
    };
    let alarm = circumstances.alarm.as_ref();
    let ordered = circumstances.ending.or(alarm.map(|alarm| alarm.cause));
    let message = alarm.filter(|_| circumstances.ending.is_none()).and_then(|a| a.message.clone());
    let for_memory = circumstances.oom_killed.then_some(Cause::Oom);
    let (code, signal, core, cause) = match end {
        End::NotStarted { errno, what } => {
            return Exit { usage, ..not_started(*errno, what) };
        }
        End::Lost => {
            let cause = ordered.or(for_memory).unwrap_or(Cause::StatusLost);
            (None, Some(SIGKILL), false, cause)
        }
        End::Reported(report) => {
            usage.user_us = report.user_us;
            usage.system_us = report.system_us;
            usage.max_rss_kib = report.max_rss_kib;
            let killed = report.signal == Some(SIGKILL);
            let itself = if report.signal.is_some() { Cause::Signaled } else { Cause::Exited };
            let cause = ordered.or(for_memory.filter(|_| killed)).unwrap_or(itself);
            (report.code, report.signal, report.core, cause)
        }
    };
    Exit { code, signal, core, cause, message, usage }
}

/// The words and the status that a shell would give.
fn not_started(errno: i32, what: &str) -> Exit {
    use libc::{EACCES, ELOOP, ENOENT, ENOEXEC, ENOTDIR, EPERM};
    let (code, words) = match errno {
        ENOENT if what.contains('/') => (127, "no such file or directory".to_owned()),
        ENOENT => (127, "command not found".to_owned()),
        ENOTDIR | ELOOP => (127, os_words(errno)),
        EACCES | EPERM => (126, "permission denied".to_owned()),
        ENOEXEC => (126, "cannot execute: not a program".to_owned()),
        other => (126, format!("cannot execute: {}", os_words(other))),
    };
    // The name may be as long as an argument may be; the exit must fit into a packet.
    let name: String = what.chars().take(NAME_CHARS_MAX).collect();
    Exit::not_started(code, Cause::Exited, format!("{name}: {words}"))
}

fn os_words(errno: i32) -> String {
    nix::errno::Errno::from_raw(errno).desc().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(code: Option<u8>, signal: Option<u8>) -> End {
        End::Reported(ExecExit {
            id: 1,
            code,
            signal,
            core: false,
            user_us: 5,
            system_us: 6,
            max_rss_kib: 7,
        })
    }

    #[test]
    fn the_cause_is_the_first_known() {
        let none = Circumstances::default();
        let oom = Circumstances { oom_killed: true, ..none.clone() };
        let alarm =
            |cause, message: &str| Some(Alarmed { cause, message: Some(message.to_owned()) });
        let walltime = Circumstances { alarm: alarm(Cause::Walltime, "walltime"), ..none.clone() };
        let output = Circumstances { alarm: alarm(Cause::Limit, "output_bytes"), ..none.clone() };
        let cancelled = Circumstances {
            ending: Some(Cause::Cancelled),
            alarm: alarm(Cause::Walltime, "walltime"),
            oom_killed: true,
            ..none.clone()
        };
        for (end, circumstances, status, cause) in [
            (reported(Some(7), None), &none, 7, Cause::Exited),
            (reported(None, Some(15)), &none, 143, Cause::Signaled),
            (reported(None, Some(9)), &none, 137, Cause::Signaled),
            (reported(None, Some(9)), &oom, 137, Cause::Oom),
            (reported(Some(0), None), &oom, 0, Cause::Exited),
            (End::Lost, &oom, 137, Cause::Oom),
            (End::Lost, &walltime, 124, Cause::Walltime),
            (End::Lost, &output, 137, Cause::Limit),
            (End::Lost, &cancelled, 137, Cause::Cancelled),
            (reported(Some(0), None), &cancelled, 0, Cause::Cancelled),
            (End::Lost, &none, 125, Cause::StatusLost),
        ] {
            let exit = conclude(&end, circumstances);
            assert_eq!((exit.status(), exit.cause), (status, cause), "{end:?} {circumstances:?}");
            let limit = circumstances.alarm.as_ref().filter(|_| cause != Cause::Cancelled);
            assert_eq!(exit.message, limit.and_then(|alarm| alarm.message.clone()));
        }
    }

    #[test]
    fn what_cannot_be_started_is_told_as_a_shell_tells_it() {
        for (errno, what, code, message) in [
            (2, "nope", 127, "nope: command not found"),
            (2, "./nope", 127, "./nope: no such file or directory"),
            (13, "./data", 126, "./data: permission denied"),
            (8, "./data", 126, "./data: cannot execute: not a program"),
        ] {
            let end = End::NotStarted { errno, what: what.to_owned() };
            let exit = conclude(&end, &Circumstances::default());
            assert_eq!(exit.code, Some(code));
            assert_eq!(exit.message.as_deref(), Some(message));
        }
    }
}
