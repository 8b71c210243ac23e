//! The recording of one terminal: a pure policy ([`Recorder`]) and a thin [`Writer`].
//!
//! The first half of the budget is the head, `<pty>.rec`. Then come two tail files in turn: when
//! one is full, the older is emptied and used again. At the end the tail is appended to the head,
//! with the cut marked. Format: [`wire::recording`].

use std::io;
use std::os::fd::AsFd;
use wire::{PtyId, Size};

/// One of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Head,
    TailA,
    TailB,
}

/// What the writer must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Append(Part, Vec<u8>),
    /// Empty the file.
    Truncate(Part),
    /// Append `record` and then the tail files, in this order, to the head, and remove them.
    Join {
        record: Vec<u8>,
        tails: Vec<Part>,
    },
}

/// Chunks of about 100 ms or 64 KiB, within `record_bytes` altogether.
#[derive(Debug)]
pub struct Recorder {
    record_bytes: u64,
}

impl Recorder {
    /// `start_ms`: what times in the file count from.
    #[must_use]
    pub fn new(record_bytes: u64, size: Size, _start_ms: u64) -> Self {
        let _ = size;
        Self { record_bytes }
    }

    #[must_use]
    pub fn output(&mut self, _bytes: &[u8], _now_ms: u64) -> Vec<Action> {
        let _ = self.record_bytes;
        Vec::new()
    }

    #[must_use]
    pub fn size(&mut self, _size: Size, _now_ms: u64) -> Vec<Action> {
        Vec::new()
    }

    /// When [`Self::tick`] must be called next, if at all.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        None
    }

    #[must_use]
    pub fn tick(&mut self, _now_ms: u64) -> Vec<Action> {
        Vec::new()
    }

    /// The terminal is closed: writes what waits and joins the files.
    #[must_use]
    pub fn finish(self, _now_ms: u64) -> Vec<Action> {
        Vec::new()
    }
}

/// The files of one recording.
#[derive(Debug)]
pub struct Writer {}

impl Writer {
    /// Creates `<pty>.rec` in the folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(_dir: impl AsFd, _pty: PtyId) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Does what the recorder says.
    ///
    /// # Errors
    /// The disk is full or gone; stop recording.
    pub fn perform(&mut self, _actions: Vec<Action>) -> io::Result<()> {
        Ok(())
    }
}
