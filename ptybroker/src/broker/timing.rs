//! Walltime and idleness: they run while the first command does and the cage is not suspended.

use super::{Broker, Phase};
use crate::clocks::{self, Alarm};
use cage::launch::Clocks;
use cage::policy::Millis;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wire::{ErrorCode, WireError};

#[derive(Debug, Default)]
pub struct Timing {
    /// Since when the clocks run.
    since: Option<Instant>,
    /// Before that.
    ran: Duration,
    /// When they stopped, and how long nothing had moved then.
    quiet: Option<(Instant, Duration)>,
    tasks: Vec<AbortHandle>,
}

impl Timing {
    /// Without the time in which the cage stood still.
    pub fn ran(&self) -> Duration {
        self.ran + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Broker {
    /// They go on from where they stood.
    pub(super) fn start_clocks(&mut self) {
        if self.is_suspended() {
            return;
        }
        let inbox = &self.shared.inbox;
        let timing = &mut self.timing;
        let now = Instant::now();
        timing.since = Some(now);
        if let Some(ms) = self.clocks.walltime_ms {
            let left = Duration::from_millis(ms).saturating_sub(timing.ran);
            timing.tasks.push(clocks::walltime(left, inbox.clone()));
        }
        // A key that came while they stood is a sign of life.
        let quiet = timing.quiet.take().filter(|(stopped, _)| self.active_at.get() <= *stopped);
        let quiet = quiet.map_or(Duration::ZERO, |(_, quiet)| quiet);
        self.active_at.set(now.checked_sub(quiet).unwrap_or(now));
        if let Some(ms) = self.clocks.idle_ms {
            let active_at = Rc::clone(&self.active_at);
            timing.tasks.push(clocks::idle(Duration::from_millis(ms), active_at, inbox.clone()));
        }
    }

    pub(super) fn stop_clocks(&mut self) {
        let timing = &mut self.timing;
        for task in timing.tasks.drain(..) {
            task.abort();
        }
        if let Some(since) = timing.since.take() {
            timing.ran += since.elapsed();
            timing.quiet = Some((Instant::now(), self.active_at.get().elapsed()));
        }
    }
}

impl Broker {
    /// Those that are passed already would end the cage at once: that is what `kill` is for.
    pub(super) fn set_clocks(&mut self, clocks: Clocks) -> Result<(), WireError> {
        if self.phase == Phase::Ended {
            return Err(WireError::new(ErrorCode::Gone, "the cage has ended"));
        }
        self.must_not_be_passed(&clocks)?;
        let run = self.timing.since.is_some();
        self.stop_clocks();
        if self.clocks.idle_ms != clocks.idle_ms {
            // The operator who sets it is a sign of life.
            self.timing.quiet = None;
        }
        self.output.limit(clocks.output_bytes);
        self.clocks = clocks;
        if run {
            self.start_clocks();
        }
        Ok(())
    }

    pub(super) fn is_over(&self, alarm: Alarm) -> bool {
        let past = |limit: Option<u64>, time: Duration| {
            limit.is_some_and(|ms| time >= Duration::from_millis(ms))
        };
        self.timing.since.is_some()
            && match alarm {
                Alarm::Walltime => past(self.clocks.walltime_ms, self.timing.ran()),
                Alarm::Idle => past(self.clocks.idle_ms, self.active_at.get().elapsed()),
                Alarm::AtMemoryLimit | Alarm::OomKill | Alarm::PidsMet => false,
            }
    }

    /// If they run.
    pub(super) fn restart_clocks(&mut self) {
        if self.timing.since.is_some() {
            self.stop_clocks();
            self.start_clocks();
        }
    }

    fn must_not_be_passed(&self, clocks: &Clocks) -> Result<(), WireError> {
        let ran = millis(self.timing.ran());
        let printed = self.output.bytes();
        let passed = if clocks.walltime_ms.is_some_and(|limit| limit <= ran) {
            ("walltime", format!("it has run for {} already", Millis(ran)))
        } else if clocks.output_bytes.is_some_and(|limit| limit < printed) {
            ("output_bytes", format!("it has printed {} bytes already", printed))
        } else {
            return Ok(());
        };
        let (limit, why) = passed;
        let words = format!("{limit}: {why}; nothing is changed. `mews kill` ends it");
        Err(WireError::new(ErrorCode::Conflict, words).with(serde_json::json!({ "limit": limit })))
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A limit of time as policies write it.
pub(super) fn words(ms: Option<u64>) -> String {
    Millis(ms.unwrap_or(0)).to_string()
}
