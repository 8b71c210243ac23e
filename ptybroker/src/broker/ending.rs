//! Ends: of a command, of the cage, of the broker.
//!
//! 1. The payload ended and its output is read (or the cage is lost, and what was left is read).
//! 2. First command: pid 1 kills the other ones and tells how each ended; the cage is killed;
//!    `exit.json` is whole on disk; then the events; then viewers and supervisor are told.
//! 3. The broker lives until its events are acknowledged and its viewers have everything, or for
//!    ten minutes after the last sign of either.

use super::command::Command;
use super::timing::{millis, words};
use super::{Broker, Happening, Phase};
use crate::clocks::Alarm;
use crate::exit::{self, Alarmed, Circumstances, End};
use crate::terminal::Command as Tell;
use cage::orders::{Order, Target};
use cage::policy::Bytes;
use std::time::Duration;
use wire::broker::BrokerNotice;
use wire::frame::{Close, CloseReason};
use wire::{Cause, EventBody, Exit, PtyId};

/// How long a broker that nobody needs waits for somebody who does.
const ALONE_MAX: Duration = Duration::from_secs(600);
/// How long pid 1 may take to tell how the other commands ended.
const OTHERS: Duration = Duration::from_secs(1);

const WITH_THE_CAGE: &str = "the cage has ended with its first command";

/// The end of the first command, which is the cage's.
#[derive(Debug)]
pub(super) struct MainEnd {
    pty: PtyId,
    exit: Exit,
    bytes: u64,
    lines: u64,
}

impl Broker {
    /// Everything that a command printed is kept.
    pub(super) fn drained(&mut self, pty: PtyId, bytes: u64, lines: u64) {
        self.look_at_pids();
        let oom_killed = self.counters.oom_kills();
        let cage = self.counters.usage();
        let (ending, alarm) = (self.ending, self.alarm.clone());
        let Some(command) = self.commands.get_mut(&pty) else { return };
        let circumstances = Circumstances {
            ending,
            alarm,
            oom_killed: oom_killed > command.oom_kills_before,
            wall_ms: command.started.map_or(0, |at| millis(at.elapsed())),
            output_bytes: bytes,
            cage,
        };
        let end = command.end.clone().unwrap_or(End::Lost);
        let mut exit = exit::conclude(&end, &circumstances);
        if command.ends_with_cage
            && exit.signal == Some(exit::SIGKILL)
            && exit.cause == Cause::Signaled
        {
            exit.message.get_or_insert_with(|| WITH_THE_CAGE.to_owned());
        }
        command.exit = Some(exit.clone());
        if self.main == Some(pty) {
            self.end_others(MainEnd { pty, exit, bytes, lines });
        } else {
            self.log(&EventBody::PtyClosed { pty, exit: exit.clone(), bytes, lines });
            let reason = match self.phase {
                Phase::Gate | Phase::Running => CloseReason::Exited,
                Phase::Ended => CloseReason::SessionEnded,
            };
            self.close(pty, reason, exit);
        }
    }

    /// One that has just ended, or ends now, has a status: who kills the cage at once loses it.
    fn end_others(&mut self, end: MainEnd) {
        self.phase = Phase::Ended;
        self.stop_clocks();
        self.main_end = Some(end);
        if !self.runs_another() {
            return self.end_cage();
        }
        for command in self.commands.values_mut() {
            command.ends_with_cage = command.end.is_none();
        }
        let (target, signal) = (Target::Everything, libc::SIGKILL);
        self.init.send(&Order::Signal { target, signal }, Vec::new());
        let inbox = self.shared.inbox.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(OTHERS).await;
            drop(inbox.send(Happening::OthersWaitedFor));
        });
    }

    /// Of the commands that were started, one has not been reported as ended.
    fn runs_another(&self) -> bool {
        self.commands.values().any(|command| command.pid.is_some() && command.end.is_none())
    }

    /// Behind each report of an end.
    pub(super) fn another_ended(&mut self) {
        if !self.runs_another() {
            self.end_cage();
        }
    }

    /// Does nothing unless the first command has ended, and then once.
    pub(super) fn end_cage(&mut self) {
        let Some(MainEnd { pty, exit, bytes, lines }) = self.main_end.take() else { return };
        self.kill_cage();
        let text = serde_json::to_vec_pretty(&exit).unwrap_or_default();
        // A disk that is full takes the file; the event and the notice still carry it.
        drop(self.shared.folder.write_whole("exit.json", &text));
        self.log(&EventBody::PtyClosed { pty, exit: exit.clone(), bytes, lines });
        self.last_event = self.log(&EventBody::CageExited { exit: exit.clone() });
        self.exit = Some(exit.clone());
        self.close(pty, CloseReason::Exited, exit.clone());
        self.notify(BrokerNotice::Exited { exit });
        self.end_held();
        self.wait_alone();
    }

    /// Commands that never started end with the cage.
    fn end_held(&mut self) {
        for command in self.commands.values_mut().filter(|c| c.end.is_none() && c.pid.is_none()) {
            command.end = Some(End::Lost);
            command.tell(Tell::PayloadEnded);
        }
    }

    fn close(&self, pty: PtyId, reason: CloseReason, exit: Exit) {
        if let Some(command) = self.commands.get(&pty) {
            command.tell(Tell::Close(Close { reason, exit: Some(exit) }));
        }
    }

    /// Pid 1 is gone: nobody will report what has not been reported.
    pub(super) fn cage_lost(&mut self, _why: Option<String>) {
        // It may be alive and have broken the protocol: then it is not our cage any more.
        self.kill_cage();
        self.stop_clocks();
        for command in self.commands.values_mut().filter(|command| command.end.is_none()) {
            command.end = Some(End::Lost);
            command.tell(Tell::PayloadEnded);
            // It died before pid 1 could say that it runs: its exit tells.
            if let Some(reply) = command.waiting.take() {
                reply.done();
            }
        }
        if self.main.is_none() && self.phase != Phase::Ended {
            self.lost_before_main();
        }
        self.end_cage();
    }

    /// Nobody but us kills it: a cage that somebody else takes apart is not to go on. The kernel does
    /// where memory ends the cage as a whole, and has counted that before.
    pub(super) fn monitor_lost(&mut self) {
        if self.oom_group && self.counters.oom_kills() > self.told.oom_kills_before {
            self.tell_oom();
            self.alarm.get_or_insert(Alarmed { cause: Cause::Oom, message: None });
            return self.kill_cage();
        }
        let message = "bwrap, which made the cage, was killed; the cage was killed".to_owned();
        let cause = Cause::StatusLost;
        self.alarm.get_or_insert(Alarmed { cause, message: Some(message) });
        self.kill_cage();
    }

    /// The cage went between its attestation and its first command.
    fn lost_before_main(&mut self) {
        let cause = self
            .ending
            .or(self.alarm.as_ref().map(|alarm| alarm.cause))
            .unwrap_or(Cause::StatusLost);
        let words = "the cage ended before its first command was started".to_owned();
        let exit = Exit::not_started(125, cause, words);
        self.phase = Phase::Ended;
        let text = serde_json::to_vec_pretty(&exit).unwrap_or_default();
        drop(self.shared.folder.write_whole("exit.json", &text));
        self.last_event = self.log(&EventBody::CageExited { exit: exit.clone() });
        self.exit = Some(exit.clone());
        self.notify(BrokerNotice::Exited { exit });
        self.wait_alone();
    }

    pub(super) fn alarm(&mut self, alarm: Alarm) {
        match alarm {
            // It rang before it was changed, or before the cage stood still.
            Alarm::Walltime | Alarm::Idle if !self.is_over(alarm) => self.restart_clocks(),
            Alarm::Walltime => {
                let limit = words(self.clocks.walltime_ms);
                self.end_for(Cause::Walltime, "walltime", &format!("it ran for {limit}"));
            }
            Alarm::Idle => {
                let limit = words(self.clocks.idle_ms);
                let message = format!("no key and no output for {limit}");
                self.end_for(Cause::Idle, "idle", &message);
            }
            // v1 also rings it when the cgroup is removed, after the end; and it rings before the
            // kernel kills and counts.
            Alarm::AtMemoryLimit if self.phase == Phase::Running => {
                self.tell_oom();
                if self.oom_group {
                    self.alarm.get_or_insert(Alarmed { cause: Cause::Oom, message: None });
                    self.kill_cage();
                }
            }
            Alarm::AtMemoryLimit | Alarm::OomKill
                if self.counters.oom_kills() > self.told.oom_kills_before =>
            {
                self.tell_oom();
            }
            Alarm::PidsMet => self.look_at_pids(),
            Alarm::AtMemoryLimit | Alarm::OomKill => {}
        }
    }

    /// Also when somebody asks and when a command ends: v1 wakes nobody who waits for this.
    pub(super) fn look_at_pids(&mut self) {
        if !self.told.pids && self.counters.pids_met() > self.told.pids_met_before {
            self.told.pids = true;
            let message = "a fork was refused: the cage has as many processes as it may have";
            let (limit, message) = ("pids".to_owned(), message.to_owned());
            self.log(&EventBody::CageLimit { limit, message });
        }
    }

    fn tell_oom(&mut self) {
        if !std::mem::replace(&mut self.told.oom, true) {
            self.log(&EventBody::CageOom { limit_bytes: None });
        }
    }

    pub(super) fn output_over_limit(&mut self) {
        let limit = Bytes(self.clocks.output_bytes.unwrap_or(0));
        self.end_for(Cause::Limit, "output_bytes", &format!("it printed more than {limit}"));
    }

    pub(super) fn end_for(&mut self, cause: Cause, limit: &str, message: &str) {
        if self.phase != Phase::Running || self.alarm.is_some() {
            return;
        }
        self.alarm = Some(Alarmed { cause, message: Some(format!("{limit}: {message}")) });
        let (limit, message) = (limit.to_owned(), message.to_owned());
        self.log(&EventBody::CageLimit { limit, message });
        self.kill_cage();
    }

    /// Whether nobody needs this broker any more.
    pub(super) fn may_end(&self) -> bool {
        if self.phase != Phase::Ended || !self.cage_gone || self.main_end.is_some() {
            return false;
        }
        let told = self.events.borrow().first_unacknowledged() > self.last_event;
        let closed =
            |command: &Command| command.exit.is_some() && command.status.viewers.get() == 0;
        self.left_alone || (told && self.commands.values().all(closed))
    }

    /// Ten minutes from now, and again as long as viewers still take something.
    fn wait_alone(&self) {
        let inbox = self.shared.inbox.clone();
        let sent =
            self.commands.values().map(|c| std::rc::Rc::clone(&c.status)).collect::<Vec<_>>();
        tokio::task::spawn_local(async move {
            loop {
                let before: u64 = sent.iter().map(|status| status.written.get()).sum();
                tokio::time::sleep(ALONE_MAX).await;
                let after: u64 = sent.iter().map(|status| status.written.get()).sum();
                if before == after {
                    break;
                }
            }
            drop(inbox.send(Happening::LeftAlone));
        });
    }
}
