//! What waits to be written to one viewer, and what becomes of a viewer that does not keep up.
//!
//! ```text
//! current ──bound reached──▶ grace (100 ms, terminal not read, once) ──room──▶ current
//!    │ grace used up             │ time over
//!    └───────────┬───────────────┘
//!                ▼
//!            lagging: pending output dropped, `throttled` sent; ──all written──▶ wants a snapshot ──▶ current
//! ```
//! A viewer may miss bytes, it never sees a wrong screen. Control frames are never behind data
//! (only the last frame is, so that a close comes after what was printed).

use bytes::Bytes;
use std::io::IoSlice;
use wire::Size;
use wire::frame::Frame;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
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

#[derive(Debug)]
pub struct ViewerQueue {
    limits: Limits,
}

impl ViewerQueue {
    #[must_use]
    pub fn new(limits: Limits, _now_ms: u64) -> Self {
        Self { limits }
    }

    /// Before all data that waits. `false`: the viewer takes nothing and its control queue is
    /// full; close it.
    pub fn push_control(&mut self, _frame: &Frame, _now_ms: u64) -> bool {
        self.limits.control_bytes_max > 0
    }

    /// Behind everything else; what is pushed later is ignored.
    pub fn push_last(&mut self, _frame: &Frame, _now_ms: u64) {}

    /// Output whose first byte has the sequence `seq`; shared, not copied.
    pub fn push_output(&mut self, _seq: u64, _bytes: &Bytes, _now_ms: u64) -> Pushed {
        Pushed::Queued
    }

    /// Rendered lines above the screen (`Scrollback::history`), in frames. Not counted as output.
    pub fn push_history(&mut self, _pieces: Vec<Bytes>, _now_ms: u64) {}

    /// The screen after the byte before `seq`, in frames; ends a time of lagging.
    pub fn push_snapshot(
        &mut self,
        _seq: u64,
        _size: Size,
        _bytes: Vec<u8>,
        _now_ms: u64,
    ) -> Option<Episode> {
        None
    }

    /// Whether there is room again after a loss: push a snapshot now.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        false
    }

    /// Whether the terminal must not be read on this viewer's account.
    #[must_use]
    pub fn paused(&self) -> bool {
        false
    }

    /// When [`Self::tick`] must be called next, if at all.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        None
    }

    pub fn tick(&mut self, _now_ms: u64) -> Tick {
        Tick::Fine
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Whether the last frame is written: close the stream.
    #[must_use]
    pub fn is_done(&self) -> bool {
        false
    }

    /// What to write next, in order. Call [`Self::written`] before anything else.
    pub fn slices<'a>(&'a self, _out: &mut Vec<IoSlice<'a>>) {}

    /// `bytes` of what [`Self::slices`] gave are written.
    pub fn written(&mut self, _bytes: usize, _now_ms: u64) {}

    /// Bytes that wait, of any kind.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        0
    }
}
