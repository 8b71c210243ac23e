//! The commands that run or are about to: who reports what about each, in which order it goes up.
//!
//! ```text
//!            pid             end of the pipe           exit (leader's word, or reaped here)
//! starting ───────▶ known ────────────────────▶ running ──────────────────────────▶ gone
//!    │ failed          │ failed                    (an exit that comes earlier waits for `started`)
//!    └─────────────────┴──▶ at the end of the pipe: `exec_failed`, gone
//! ```

use crate::init::report::{Record, Step};
use crate::orders::{ExecExit, Report};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Arg;

#[derive(Debug)]
pub(crate) struct Running {
    argv0: Arg,
    cwd: Arg,
    /// Of its terminal, until `started` takes it away.
    master: Option<OwnedFd>,
    /// Until its end was read.
    pipe: Option<OwnedFd>,
    pids: Option<Pids>,
    failure: Option<(Step, i32)>,
    exit: Option<ExecExit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pids {
    pub(crate) payload: i32,
    pub(crate) leader: i32,
}

/// A report, and the descriptor that goes with it.
pub(crate) type Upward = (Report, Option<OwnedFd>);

#[derive(Debug, Default)]
pub(crate) struct Commands(BTreeMap<u64, Running>);

impl Commands {
    pub(crate) fn add(
        &mut self,
        id: u64,
        argv0: Arg,
        cwd: Arg,
        pipe: OwnedFd,
        master: Option<OwnedFd>,
    ) {
        let running =
            Running { argv0, cwd, master, pipe: Some(pipe), pids: None, failure: None, exit: None };
        self.0.insert(id, running);
    }

    /// The report pipes that have not ended.
    pub(crate) fn pipes(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.0.iter().filter_map(|(id, running)| Some((*id, running.pipe.as_ref()?.as_fd())))
    }

    /// Of a payload that runs.
    pub(crate) fn payload(&self, id: u64) -> Option<i32> {
        Some(self.0.get(&id)?.pids?.payload)
    }

    pub(crate) fn by_payload(&self, pid: i32) -> Option<u64> {
        let mut all = self.0.iter();
        all.find_map(|(id, running)| (running.pids?.payload == pid).then_some(*id))
    }

    pub(crate) fn leaders(&self) -> impl Iterator<Item = i32> {
        self.0.values().filter_map(|running| Some(running.pids?.leader))
    }

    pub(crate) fn record(&mut self, id: u64, record: Record) {
        let Some(running) = self.0.get_mut(&id) else { return };
        match record {
            Record::Pid { payload, leader } => running.pids = Some(Pids { payload, leader }),
            Record::Failed { step, errno } => running.failure = Some((step, errno)),
        }
    }

    /// The report pipe ended: by exec(2), or because whoever held it is gone.
    pub(crate) fn pipe_ended(&mut self, id: u64) -> Vec<Upward> {
        let Some(running) = self.0.get_mut(&id) else { return Vec::new() };
        running.pipe = None;
        let failure = match (running.failure, running.pids) {
            (None, Some(pids)) => {
                let mut reports =
                    vec![(Report::Started { id, pid: pids.payload }, running.master.take())];
                if let Some(exit) = running.exit {
                    reports.push((Report::Exited(exit), None));
                    self.0.remove(&id);
                }
                return reports;
            }
            (Some(failure), _) => failure,
            // Zygote or leader was killed before there was a payload.
            (None, None) => (Step::Fork, libc::EAGAIN),
        };
        let (step, errno) = failure;
        let what = match step {
            Step::Folder => running.cwd.lossy(),
            Step::Fork | Step::Session | Step::Exec => running.argv0.lossy(),
        };
        self.0.remove(&id);
        vec![(Report::ExecFailed { id, errno, what }, None)]
    }

    /// From the leader, or from pid 1 that reaped in its stead; the second word is not heard.
    pub(crate) fn exited(&mut self, exit: ExecExit) -> Option<Upward> {
        let running = self.0.get_mut(&exit.id)?;
        if running.pipe.is_some() {
            running.exit.get_or_insert(exit);
            return None;
        }
        self.0.remove(&exit.id);
        Some((Report::Exited(exit), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let mut commands = Commands::default();
        let (reader, _writer) = std::io::pipe().unwrap();
        commands.add(1, "true".into(), "/ws".into(), reader.into(), None);
        commands
    }

    fn exit() -> ExecExit {
        let (code, signal, core) = (Some(7), None, false);
        ExecExit { id: 1, code, signal, core, user_us: 0, system_us: 0, max_rss_kib: 0 }
    }

    const PID: Record = Record::Pid { payload: 9, leader: 8 };

    fn reports(upward: Vec<Upward>) -> Vec<Report> {
        upward.into_iter().map(|(report, _fd)| report).collect()
    }

    #[test]
    fn started_comes_before_an_exit_that_was_faster() {
        let mut commands = commands();
        commands.record(1, PID);
        assert!(commands.exited(exit()).is_none());
        let both = reports(commands.pipe_ended(1));
        assert_eq!(both, [Report::Started { id: 1, pid: 9 }, Report::Exited(exit())]);
        assert!(commands.exited(exit()).is_none(), "one exit only");
    }

    #[test]
    fn a_failed_exec_is_no_start_and_no_exit() {
        for (step, what) in [(Step::Exec, "true"), (Step::Folder, "/ws")] {
            let mut commands = commands();
            commands.record(1, PID);
            commands.record(1, Record::Failed { step, errno: libc::ENOENT });
            let what = what.to_owned();
            let wanted = [Report::ExecFailed { id: 1, errno: libc::ENOENT, what }];
            assert_eq!(reports(commands.pipe_ended(1)), wanted);
            assert!(commands.exited(exit()).is_none());
        }
    }

    #[test]
    fn a_leader_killed_before_the_fork_is_a_failure() {
        let mut commands = commands();
        let wanted = [Report::ExecFailed { id: 1, errno: libc::EAGAIN, what: "true".to_owned() }];
        assert_eq!(reports(commands.pipe_ended(1)), wanted);
    }
}
