//! What is kept of one terminal: byte ring, recording, screen model, scrollback.

use crate::boot::StateDir;
use crate::limiter::TokenBucket;
use crate::ring::{ByteRing, Read};
use crate::screen::Guarded;
use crate::scrollback::Scrollback;
use crate::terminal::record::Recording;
use cage::launch::Terminal as Bounds;
use wire::{PtyId, Size};

/// Answers to a program's queries, bytes a second.
const REPLIES_PER_SECOND: u64 = 4096;

#[derive(Debug)]
pub struct Store {
    pub ring: ByteRing,
    pub scrollback: Scrollback,
    /// Made at the first output, or when somebody looks.
    screen: Option<Guarded>,
    size: Size,
    recording: Recording,
    replies: TokenBucket,
}

impl Store {
    #[must_use]
    pub fn new(bounds: &Bounds, folder: &StateDir, pty: PtyId, size: Size, now_ms: u64) -> Self {
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let record_bytes = bounds.record.then_some(bounds.record_bytes);
        let mut ring = ByteRing::new(bytes(bounds.ring_bytes));
        ring.note_size(0, size);
        Self {
            ring,
            scrollback: Scrollback::new(
                bounds.scrollback_lines as usize,
                bytes(bounds.scrollback_bytes),
            ),
            screen: None,
            size,
            recording: Recording::start(folder, pty, record_bytes, size, now_ms),
            replies: TokenBucket::new(REPLIES_PER_SECOND, REPLIES_PER_SECOND, now_ms),
        }
    }

    /// Output goes into all stores; the sequence of its first byte comes back.
    pub fn take(&mut self, chunk: &[u8], now_ms: u64) -> u64 {
        let seq = self.ring.push(chunk);
        self.recording.output(chunk, now_ms);
        let size = self.size;
        self.screen.get_or_insert_with(|| Guarded::new(size)).feed(chunk, &mut self.scrollback);
        seq
    }

    pub fn resize(&mut self, size: Size, now_ms: u64) {
        if size == self.size {
            return;
        }
        self.size = size;
        self.ring.note_size(self.ring.end(), size);
        self.recording.size(size, now_ms);
        if let Some(screen) = &mut self.screen {
            screen.resize(size, &mut self.scrollback);
        }
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    #[must_use]
    pub fn seq(&self) -> u64 {
        self.ring.end()
    }

    pub fn snapshot(&mut self) -> Vec<u8> {
        let size = self.size;
        self.screen.get_or_insert_with(|| Guarded::new(size)).snapshot()
    }

    /// Answers that the program waits for and no viewer's terminal gives.
    pub fn take_replies(&mut self, wanted: bool, now_ms: u64) -> Vec<u8> {
        let replies = self.screen.as_mut().map(Guarded::take_replies).unwrap_or_default();
        let allowed = wanted && self.replies.take(replies.len() as u64, now_ms);
        if allowed { replies } else { Vec::new() }
    }

    /// What `logs` shows below the scrollback.
    pub fn screen_lines(&mut self) -> Vec<Vec<u8>> {
        self.screen.as_mut().map(Guarded::rendered_lines).unwrap_or_default()
    }

    /// Those of them that the program has gone on from.
    pub fn settled_lines(&mut self) -> Vec<Vec<u8>> {
        self.screen.as_mut().map(Guarded::settled_lines).unwrap_or_default()
    }

    /// Scrollback and screen as lines with `\n`.
    pub fn rendered(&mut self) -> Vec<u8> {
        let mut text = self.scrollback.to_bytes();
        for line in self.screen_lines() {
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        text
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
        self.recording.deadline_ms()
    }

    pub fn tick(&mut self, now_ms: u64) {
        self.recording.tick(now_ms);
    }

    /// The files that must outlive the broker.
    pub fn finish(&mut self, folder: &StateDir, pty: PtyId, now_ms: u64) {
        self.recording.finish(now_ms);
        drop(folder.write_file(&format!("{pty}.scrollback"), &self.rendered()));
    }

    /// Lines that the terminal ever had.
    pub fn lines(&mut self) -> u64 {
        self.scrollback.lines_total() + self.screen_lines().len() as u64
    }
}
