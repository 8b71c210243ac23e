//! What a cage used over the last minutes, look by look.

use std::collections::VecDeque;
use wire::stats::{Pressure, Stats};

/// As many as the widest terminal shows.
const SAMPLES: usize = 240;

/// Graphs of one cage. A value that is not counted here has no graph.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<Stats>,
    /// In hundredths of a CPU: 100 is one.
    pub(super) cpu: Series,
    pub(super) memory: Series,
    pub(super) read: Series,
    pub(super) written: Series,
    /// Hundredths of a percent of the time that somebody waited.
    pub(super) cpu_pressure: Series,
    pub(super) memory_pressure: Series,
    pub(super) io_pressure: Series,
}

/// The newest value last.
#[derive(Debug, Default)]
pub(super) struct Series(VecDeque<u64>);

impl Series {
    fn push(&mut self, value: Option<u64>) {
        let Some(value) = value else { return };
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.0.back().copied()
    }

    /// So many, the newest at the right edge; what was before the first is 0.
    pub(super) fn shown(&self, width: usize) -> Vec<u64> {
        let skip = self.0.len().saturating_sub(width);
        let known = self.0.iter().skip(skip).copied();
        let missing = width.saturating_sub(self.0.len());
        std::iter::repeat_n(0, missing).chain(known).collect()
    }
}

impl History {
    pub(super) fn push(&mut self, now: &Stats) {
        let since = self.last.as_ref().map(|before| now.at_ms.saturating_sub(before.at_ms));
        // The same look twice tells nothing.
        if since.is_some_and(|ms| ms <= 0) {
            return;
        }
        self.memory.push(now.memory.as_ref().map(|memory| memory.current_bytes));
        if let (Some(before), Some(ms)) = (&self.last, since.and_then(|ms| u64::try_from(ms).ok()))
        {
            let cpu = |stats: &Stats| stats.cpu.as_ref().map(|cpu| cpu.total_us);
            let read = |stats: &Stats| stats.io.as_ref().map(|io| io.read_bytes);
            let written = |stats: &Stats| stats.io.as_ref().map(|io| io.write_bytes);
            // Microseconds in milliseconds: a thousandth is a tenth of a percent.
            self.cpu.push(grown(before, now, cpu).map(|us| us / 10 / ms));
            self.read.push(grown(before, now, read).map(|bytes| bytes.saturating_mul(1000) / ms));
            self.written
                .push(grown(before, now, written).map(|bytes| bytes.saturating_mul(1000) / ms));
        }
        if let Some(all) = &now.pressure {
            self.cpu_pressure.push(waited(all.cpu.as_ref()));
            self.memory_pressure.push(waited(all.memory.as_ref()));
            self.io_pressure.push(waited(all.io.as_ref()));
        }
        self.last = Some(now.clone());
    }

    pub(super) fn last(&self) -> Option<&Stats> {
        self.last.as_ref()
    }
}

/// None where it is not counted, or was begun anew.
fn grown(before: &Stats, now: &Stats, of: impl Fn(&Stats) -> Option<u64>) -> Option<u64> {
    of(now)?.checked_sub(of(before)?)
}

/// Of the last ten seconds, in hundredths of a percent.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10000")]
fn waited(pressure: Option<&Pressure>) -> Option<u64> {
    let percent = pressure?.some.avg10.clamp(0.0, 100.0);
    Some((percent * 100.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::stats::{CpuUse, MemoryUse, Pressures, Stall};

    fn stats(at_ms: i64, cpu_us: u64, memory: u64) -> Stats {
        Stats {
            at_ms,
            cpu: Some(CpuUse { total_us: cpu_us, ..CpuUse::default() }),
            memory: Some(MemoryUse { current_bytes: memory, ..MemoryUse::default() }),
            ..Stats::default()
        }
    }

    #[test]
    fn use_is_what_grew_between_two_looks() {
        let mut history = History::default();
        history.push(&stats(1000, 0, 7));
        assert_eq!(history.cpu.last(), None);
        history.push(&stats(3000, 3_000_000, 8));
        assert_eq!((history.cpu.last(), history.memory.last()), (Some(150), Some(8)));
        assert_eq!(history.read.last(), None, "nobody counts it");
        // A cage in its place counts from 0 again.
        history.push(&stats(4000, 5, 9));
        assert_eq!(history.cpu.last(), Some(150));
    }

    #[test]
    fn graphs_end_at_the_right_edge_and_are_bounded() {
        let mut series = Series::default();
        series.push(Some(3));
        series.push(None);
        assert_eq!(series.shown(3), [0, 0, 3]);
        (0..1000).for_each(|value| series.push(Some(value)));
        assert_eq!(series.shown(2), [998, 999]);
        assert_eq!(series.0.len(), SAMPLES);
    }

    #[test]
    fn pressure_is_of_the_last_ten_seconds() {
        let mut now = stats(1, 0, 0);
        let some = Stall { avg10: 12.5, ..Stall::default() };
        let io = Some(Pressure { some, full: None });
        now.pressure = Some(Pressures { io, ..Pressures::default() });
        let mut history = History::default();
        history.push(&now);
        assert_eq!((history.io_pressure.last(), history.cpu_pressure.last()), (Some(1250), None));
    }
}
