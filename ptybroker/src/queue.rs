//! What waits to be written to one viewer, and what becomes of a viewer that does not keep up.
//!
//! ```text
//! current ──bound reached──▶ grace (100 ms, terminal not read) ──all is written──▶ current
//!    │ before it caught up       │ time over
//!    └───────────┬───────────────┘
//!                ▼
//!            lagging: pending output dropped, `throttled` sent ──all written──▶ wants a snapshot ──▶ current
//! ```
//! A viewer that takes what waits within its grace misses nothing, ever. One that does not may miss
//! bytes, it never sees a wrong screen. Control frames are never behind data
//! (only the last frame is, so that a close comes after what was printed). A frame that is partly
//! written is always finished. Times are milliseconds of any steady clock, passed in.

mod pending;

use bytes::Bytes;
use pending::{Item, Kind, Pending};
use std::io::IoSlice;
use wire::Size;
use wire::frame::Frame;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Output that waits at most, in bytes, but for one piece that reached the bound.
    pub output_bytes_max: usize,
    pub control_bytes_max: usize,
    pub grace_ms: u64,
    pub stall_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            output_bytes_max: 256 * 1024,
            control_bytes_max: 64 * 1024,
            grace_ms: 100,
            stall_ms: 30_000,
        }
    }
}

/// What became of a piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits its turn.
    Queued,
    /// It waits its turn, but the terminal must not be read until [`ViewerQueue::paused`] is over.
    Pause,
    /// It is lost to this viewer, who is lagging: a snapshot will make up for it.
    Dropped,
}

/// What [`ViewerQueue::tick`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    Fine,
    /// The viewer took nothing for `stall_ms`: close it, with `too_slow`.
    TooSlow,
}

/// One time of lagging, for the session's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    /// The first byte that the viewer missed.
    pub from: u64,
    pub dropped: u64,
    pub lasted_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Current,
    Grace { until_ms: u64 },
    Lagging { from: u64, dropped: u64, since_ms: u64 },
}

#[derive(Debug)]
pub struct ViewerQueue {
    limits: Limits,
    state: State,
    /// No more grace before the viewer has caught up.
    grace_used: bool,
    pending: Pending,
    /// When bytes were taken last, or began to wait.
    progress_ms: u64,
    /// Rows of the viewer's own terminal, if they are known.
    viewer_rows: Option<u16>,
    /// The first snapshot is under way, or was never needed.
    shown: bool,
}

impl ViewerQueue {
    #[must_use]
    pub fn new(limits: Limits, now_ms: u64) -> Self {
        Self {
            limits,
            state: State::Current,
            grace_used: false,
            pending: Pending::default(),
            progress_ms: now_ms,
            viewer_rows: None,
            shown: false,
        }
    }

    /// The viewer's own terminal has so many rows; until told, as many as the program's.
    pub fn set_viewer_rows(&mut self, rows: u16) {
        self.viewer_rows = Some(rows);
    }

    /// Before all data that waits. `false`: the viewer takes nothing and its control queue is
    /// full; close it.
    #[must_use]
    pub fn push_control(&mut self, frame: &Frame, now_ms: u64) -> bool {
        let bytes = frame.to_bytes();
        let fits = self.pending.control_bytes() + bytes.len() <= self.limits.control_bytes_max;
        if fits {
            self.begin_waiting(now_ms);
            self.pending.push(Item::framed(Kind::Control, bytes));
        }
        fits
    }

    /// Behind everything else; what is pushed later is ignored.
    pub fn push_last(&mut self, frame: &Frame, now_ms: u64) {
        self.begin_waiting(now_ms);
        self.pending.push(Item::framed(Kind::Last, frame.to_bytes()));
    }

    /// Output whose first byte has the sequence `seq`; shared, not copied.
    pub fn push_output(&mut self, seq: u64, bytes: &Bytes, now_ms: u64) -> Pushed {
        if let State::Lagging { dropped, .. } = &mut self.state {
            *dropped += bytes.len() as u64;
            return Pushed::Dropped;
        }
        let waits = self.pending.output_bytes() + bytes.len();
        let bound = self.limits.output_bytes_max;
        if waits <= bound {
            self.queue_output(seq, bytes, now_ms);
            return Pushed::Queued;
        }
        match self.state {
            State::Current if !self.grace_used => {
                self.grace_used = true;
                self.state = State::Grace { until_ms: now_ms.saturating_add(self.limits.grace_ms) };
                self.queue_output(seq, bytes, now_ms);
                Pushed::Pause
            }
            State::Current | State::Grace { .. } | State::Lagging { .. } => {
                self.queue_output(seq, bytes, now_ms);
                self.drop_pending(now_ms);
                Pushed::Dropped
            }
        }
    }

    /// Rendered lines above the screen (`Scrollback::history`), in frames. Not counted as output.
    pub fn push_history(&mut self, pieces: Vec<Bytes>, now_ms: u64) {
        self.begin_waiting(now_ms);
        for piece in pieces {
            self.pending.push_history(&piece);
        }
    }

    /// The screen after the byte before `seq`, in frames; ends a time of lagging. Nothing is sent
    /// of an empty one: the program has printed nothing yet, and the viewer's screen stays as it
    /// is. Before the first, what is on the viewer's screen is scrolled away, not painted over.
    pub fn push_snapshot(
        &mut self,
        seq: u64,
        size: Size,
        bytes: Vec<u8>,
        now_ms: u64,
    ) -> Option<Episode> {
        self.begin_waiting(now_ms);
        if !self.shown && !bytes.is_empty() {
            // From any row, so many line feeds move just the rows above the cursor out.
            let rows = self.viewer_rows.unwrap_or(size.rows);
            self.pending.push_history(&vec![b'\n'; usize::from(rows).saturating_sub(1)].into());
        }
        self.shown = true;
        self.pending.push_snapshot(seq, size, &bytes.into());
        match std::mem::replace(&mut self.state, State::Current) {
            State::Lagging { from, dropped, since_ms } => {
                Some(Episode { from, dropped, lasted_ms: now_ms.saturating_sub(since_ms) })
            }
            State::Current | State::Grace { .. } => None,
        }
    }

    /// Whether there is room again after a loss: push a snapshot now.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        matches!(self.state, State::Lagging { .. }) && self.pending.is_empty()
    }

    /// The time of lagging that has not ended, for when the viewer goes.
    #[must_use]
    pub fn open_episode(&self, now_ms: u64) -> Option<Episode> {
        match self.state {
            State::Lagging { from, dropped, since_ms } => {
                Some(Episode { from, dropped, lasted_ms: now_ms.saturating_sub(since_ms) })
            }
            State::Current | State::Grace { .. } => None,
        }
    }

    /// Whether the terminal must not be read on this viewer's account.
    #[must_use]
    pub fn paused(&self) -> bool {
        matches!(self.state, State::Grace { .. })
    }

    /// When [`Self::tick`] must be called next, if at all.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.pending.is_empty() {
            return None;
        }
        let stall = self.progress_ms.saturating_add(self.limits.stall_ms);
        match self.state {
            State::Grace { until_ms } => Some(until_ms.min(stall)),
            State::Current | State::Lagging { .. } => Some(stall),
        }
    }

    pub fn tick(&mut self, now_ms: u64) -> Tick {
        if let State::Grace { until_ms } = self.state
            && now_ms >= until_ms
        {
            self.drop_pending(now_ms);
        }
        let stalled = now_ms.saturating_sub(self.progress_ms) >= self.limits.stall_ms;
        if stalled && !self.pending.is_empty() { Tick::TooSlow } else { Tick::Fine }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the last frame is written: close the stream.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.pending.is_closed() && self.pending.is_empty()
    }

    /// What to write next, in order (at most 64 slices). Call [`Self::written`] before anything
    /// else.
    pub fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        self.pending.slices(out);
    }

    /// `bytes` of what [`Self::slices`] gave are written.
    pub fn written(&mut self, bytes: usize, now_ms: u64) {
        if bytes > 0 {
            self.progress_ms = now_ms;
        }
        self.pending.written(bytes);
        if matches!(self.state, State::Lagging { .. }) || self.pending.output_bytes() > 0 {
            return;
        }
        // It has caught up, and still has what its socket holds to go on with meanwhile.
        self.state = State::Current;
        self.grace_used = false;
    }

    /// Bytes that wait, of any kind.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// All output that waits is lost to the viewer, who is told so.
    fn drop_pending(&mut self, now_ms: u64) {
        if let Some((from, dropped)) = self.pending.drop_screen() {
            let told = Frame::Throttled { from, dropped }.to_bytes();
            self.pending.push(Item::framed(Kind::Control, told));
            self.state = State::Lagging { from, dropped, since_ms: now_ms };
        } else {
            self.state = State::Current;
        }
    }

    fn queue_output(&mut self, seq: u64, bytes: &Bytes, now_ms: u64) {
        self.begin_waiting(now_ms);
        self.pending.push_output(seq, bytes);
    }

    /// The time without progress counts from when there is something to take.
    fn begin_waiting(&mut self, now_ms: u64) {
        if self.pending.is_empty() {
            self.progress_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests;
