//! Walltime and idleness: they run while the first command does and the cage is not suspended.

use super::Broker;
use crate::clocks;
use cage::policy::Millis;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

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

/// A limit of time as policies write it.
pub(super) fn words(ms: Option<u64>) -> String {
    Millis(ms.unwrap_or(0)).to_string()
}
