//! The leader of one payload: it leads the session and owns the controlling terminal, so that the
//! payload's process group can be stopped and continued as under a shell.
//!
//! All signals are blocked in it, SIGHUP among them: the hangup of its terminal must not kill it
//! before it has reported. It keeps no descriptor of the terminal, so that the master ends when the
//! last holder is gone.

use crate::init::payload::{Stdio, become_payload, tell};
use crate::init::report::{Record, Step, Word};
use crate::orders::ExecExit;
use crate::sys::{self, inside};
use link::Packets;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, setsid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wire::Arg;

/// One command, as the zygote has it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) id: u64,
    pub(crate) argv: Vec<Arg>,
    pub(crate) env: Vec<(Arg, Arg)>,
    pub(crate) cwd: Arg,
    pub(crate) umask: u32,
}

/// Leads `command` to its end and ends itself. Runs in a fork of the zygote.
pub(crate) fn lead(words: &Packets, command: Command, stdio: Stdio, report: OwnedFd) -> ! {
    nix::sys::prctl::set_name(c"mews-leader").ok();
    let payload = match start(&command, &stdio, &report) {
        Ok(payload) => payload,
        Err((step, error)) => {
            tell(&report, Record::Failed { step, errno: error.raw_os_error().unwrap_or(0) });
            sys::exit_now(1)
        }
    };
    drop((stdio, report));
    let id = command.id;
    drop(command);
    report_end(words, id, payload);
    sys::exit_now(0)
}

fn start(command: &Command, stdio: &Stdio, report: &OwnedFd) -> Result<i32, (Step, io::Error)> {
    setsid().map_err(|e| (Step::Session, e.into()))?;
    if let Stdio::Terminal(slave) = stdio {
        inside::take_terminal(slave.as_fd()).map_err(|e| (Step::Session, e))?;
    }
    // So that waiting works: the zygote ignores it and needs to reap nobody.
    inside::set_disposition(libc::SIGCHLD, false);
    match sys::fork().map_err(|e| (Step::Fork, e))? {
        None => become_payload(command, stdio, report),
        Some(payload) => Ok(payload),
    }
}

/// Reports first and reaps after, so that a kill between the two loses nothing: the zombie then
/// falls to pid 1.
fn report_end(words: &Packets, id: u64, payload: i32) {
    let Some(ended) = wait_and_relay(payload) else { return };
    if let Ok(bytes) = serde_json::to_vec(&Word::Exited(exit_of(id, &ended))) {
        drop(words.send(&bytes, &[]));
    }
    waitpid(Pid::from_raw(payload), None).ok();
}

/// Waits for the payload's end. The hangup of a terminal comes to the session's leader alone, so it
/// is passed on, as the kernel does it when a leader dies of it: SIGHUP and SIGCONT to the group.
fn wait_and_relay(payload: i32) -> Option<inside::Ended> {
    let awaited = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGHUP]);
    loop {
        match inside::look_at(payload) {
            Ok(Some(ended)) => return Some(ended),
            Ok(None) => {}
            Err(_no_child) => return None,
        }
        // Both are blocked, so none is lost between the look and the wait.
        if awaited.wait() == Ok(Signal::SIGHUP) {
            let group = Pid::from_raw(-payload);
            kill(group, Signal::SIGHUP).ok();
            kill(group, Signal::SIGCONT).ok();
        }
    }
}

/// What the kernel said, in the order's own terms.
pub(crate) fn exit_of(id: u64, ended: &inside::Ended) -> ExecExit {
    let value = u8::try_from(ended.value & 0xff).unwrap_or(u8::MAX);
    let exited = ended.how == libc::CLD_EXITED;
    ExecExit {
        id,
        code: exited.then_some(value),
        signal: (!exited).then_some(value),
        core: ended.how == libc::CLD_DUMPED,
        user_us: micros(ended.usage.ru_utime),
        system_us: micros(ended.usage.ru_stime),
        max_rss_kib: u64::try_from(ended.usage.ru_maxrss).unwrap_or(0),
    }
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
}
