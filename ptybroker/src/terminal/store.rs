//! What is kept of one terminal: byte ring, recording, and the picture of screen and scrollback.

use crate::boot::StateDir;
use crate::limiter::TokenBucket;
use crate::ring::{ByteRing, Read};
use crate::scrollback::Scrollback;
use crate::terminal::picture::Picture;
use crate::terminal::record::Recording;
use cage::launch::Terminal as Bounds;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::screen::{Last, ScreenView, Times, last_name};
use wire::{PtyId, Size};

/// Answers to a program's queries, bytes a second.
const REPLIES_PER_SECOND: u64 = 4096;

#[derive(Debug)]
pub struct Store {
    pub ring: ByteRing,
    pub picture: Picture,
    recording: Recording,
    replies: TokenBucket,
    times: Times,
}

impl Store {
    #[must_use]
    pub fn new(bounds: &Bounds, folder: &StateDir, pty: PtyId, size: Size, now_ms: u64) -> Self {
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let record_bytes = bounds.record.then_some(bounds.record_bytes);
        let mut ring = ByteRing::new(bytes(bounds.ring_bytes));
        ring.note_size(0, size);
        let lines_max = bounds.scrollback_lines as usize;
        let scrollback = Scrollback::new(lines_max, bytes(bounds.scrollback_bytes));
        Self {
            ring,
            picture: Picture::new(scrollback, size),
            recording: Recording::start(folder, pty, record_bytes, size, now_ms),
            replies: TokenBucket::new(REPLIES_PER_SECOND, REPLIES_PER_SECOND, now_ms),
            times: Times::default(),
        }
    }

    /// Output goes into all stores; the sequence of its first byte comes back.
    pub fn take(&mut self, chunk: &[u8], now_ms: u64) -> u64 {
        let at_ms = wall_ms();
        if self.times.wants(at_ms) {
            let line = self.picture.line_now();
            self.times.mark(at_ms, line);
        }
        let seq = self.ring.push(chunk);
        self.recording.output(chunk, now_ms);
        self.picture.output(chunk, now_ms);
        seq
    }

    pub fn resize(&mut self, size: Size, now_ms: u64) {
        if size == self.size() {
            return;
        }
        self.ring.note_size(self.ring.end(), size);
        self.recording.size(size, now_ms);
        self.picture.resize(size);
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.picture.size()
    }

    #[must_use]
    pub fn seq(&self) -> u64 {
        self.ring.end()
    }

    /// Answers that the program waits for and no viewer's terminal gives.
    pub fn take_replies(&mut self, wanted: bool, now_ms: u64) -> Vec<u8> {
        let replies = self.picture.take_replies();
        let allowed = wanted && self.replies.take(replies.len() as u64, now_ms);
        if allowed { replies } else { Vec::new() }
    }

    /// Scrollback and screen as lines with `\n`.
    pub fn rendered(&mut self) -> Vec<u8> {
        let mut text = self.picture.scrollback().to_bytes();
        for line in self.picture.lines() {
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        text
    }

    /// The rendered lines that were printed since.
    pub fn since(&mut self, since_ms: i64) -> Vec<u8> {
        let text = self.rendered();
        self.times().cut(&text, since_ms).to_vec()
    }

    /// Output from this byte on, as far as memory has it.
    #[must_use]
    pub fn from(&self, seq: u64) -> Vec<u8> {
        match self.ring.read(seq.clamp(self.ring.oldest(), self.ring.end())) {
            Read::Bytes(pieces) => pieces.concat(),
            Read::Gap { .. } => Vec::new(),
        }
    }

    pub fn screen(&mut self) -> ScreenView {
        let seq = self.seq();
        self.picture.view(seq)
    }

    fn times(&mut self) -> Times {
        let scrollback = self.picture.scrollback();
        let first = scrollback.lines_total() - scrollback.len() as u64;
        Times { first, marks: self.times.marks.clone() }
    }

    /// Raw output: what is recorded, else the newest that memory has.
    pub fn raw(&mut self, folder: &StateDir) -> Vec<u8> {
        let in_memory = match self.ring.read(0) {
            Read::Bytes(pieces) => Some(pieces.concat()),
            Read::Gap { .. } => None,
        };
        in_memory.or_else(|| self.recording.raw(folder)).unwrap_or_else(|| self.newest())
    }

    fn newest(&self) -> Vec<u8> {
        match self.ring.read(self.ring.oldest()) {
            Read::Bytes(pieces) => pieces.concat(),
            Read::Gap { .. } => Vec::new(),
        }
    }

    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.recording.deadline_ms().into_iter().chain(self.picture.deadline_ms()).min()
    }

    pub fn tick(&mut self, now_ms: u64) {
        self.recording.tick(now_ms);
        self.picture.tick(now_ms);
    }

    /// The files that must outlive the broker.
    pub fn finish(&mut self, folder: &StateDir, pty: PtyId, now_ms: u64) {
        self.recording.finish(now_ms);
        drop(folder.write_file(&format!("{pty}.scrollback"), &self.rendered()));
        drop(folder.write_file(&last_name(pty), &self.last()));
    }

    /// As JSON, what is known beside the output.
    pub fn last(&mut self) -> Vec<u8> {
        let last = Last { screen: Some(self.screen()), times: self.times() };
        serde_json::to_vec(&last).unwrap_or_default()
    }

    /// Lines that the terminal ever had.
    pub fn lines(&mut self) -> u64 {
        self.picture.scrollback().lines_total() + self.picture.lines().len() as u64
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
