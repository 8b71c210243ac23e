//! The recording of one terminal: a pure policy ([`Recorder`]) and a thin [`Writer`].
//!
//! The first half of the budget is the head, `<pty>.rec`. Then come two tail files in turn, a
//! quarter each: when one is full, the older is emptied and used again. At the end the tail is
//! appended to the head, with the cut marked. Format and names: [`wire::recording`].

mod writer;

pub use writer::Writer;

use wire::Size;
use wire::recording::{HEADER_BYTES, Record};

/// A chunk is written when it is this old or this long.
const CHUNK_MS: u64 = 100;
const CHUNK_BYTES: usize = 64 * 1024;

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
    /// Create the file, or empty it.
    Truncate(Part),
    /// Append `record` and then the tail files, in this order, to the head, and remove them.
    Join {
        record: Vec<u8>,
        tails: Vec<Part>,
    },
}

/// How much is in a tail file.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    bytes: u64,
    /// Output alone, without headers and sizes.
    output: u64,
}

/// Chunks of about 100 ms or 64 KiB, within `record_bytes` altogether.
#[derive(Debug)]
pub struct Recorder {
    record_bytes: u64,
    start_ms: u64,
    size: Size,
    chunk: Vec<u8>,
    /// When the first byte of the chunk came.
    chunk_ms: u64,
    part: Part,
    head_bytes: u64,
    /// Of the tail file in use, and of the other one.
    tail: Fill,
    other_tail: Option<Fill>,
    missing: u64,
}

impl Recorder {
    /// `start_ms`: what times in the file count from. A budget of nothing records nothing.
    #[must_use]
    pub fn new(record_bytes: u64, size: Size, start_ms: u64) -> Self {
        Self {
            record_bytes,
            start_ms,
            size,
            chunk: Vec::new(),
            chunk_ms: start_ms,
            part: Part::Head,
            head_bytes: 0,
            tail: Fill::default(),
            other_tail: None,
            missing: 0,
        }
    }

    #[must_use]
    pub fn output(&mut self, bytes: &[u8], now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for piece in bytes.chunks(CHUNK_BYTES) {
            if self.chunk.len() + piece.len() > CHUNK_BYTES {
                self.write_chunk(&mut actions);
            }
            if self.chunk.is_empty() {
                self.chunk_ms = now_ms;
            }
            self.chunk.extend_from_slice(piece);
        }
        actions.extend(self.tick(now_ms));
        actions
    }

    #[must_use]
    pub fn size(&mut self, size: Size, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if size != self.size {
            self.write_chunk(&mut actions);
            self.begin(&mut actions);
            self.size = size;
            let record = self.encode_size(now_ms);
            self.append(record, 0, now_ms, &mut actions);
        }
        actions
    }

    /// When [`Self::tick`] must be called next, if at all.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        (!self.chunk.is_empty()).then(|| self.chunk_ms.saturating_add(CHUNK_MS))
    }

    #[must_use]
    pub fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.deadline_ms().is_some_and(|deadline| now_ms >= deadline) {
            self.write_chunk(&mut actions);
            // Nothing hurries: an idle terminal is small.
            self.chunk = Vec::new();
        }
        actions
    }

    /// The terminal is closed: writes what waits and joins the files.
    #[must_use]
    pub fn finish(mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.write_chunk(&mut actions);
        let other = match self.part {
            Part::Head => return actions,
            Part::TailA => Part::TailB,
            Part::TailB => Part::TailA,
        };
        let mut record = Vec::new();
        if self.missing > 0 {
            let ms = now_ms.saturating_sub(self.start_ms);
            Record::Cut { ms, missing: self.missing }.encode(&mut record);
        }
        let mut tails = vec![self.part];
        if self.other_tail.is_some() {
            tails.insert(0, other);
        }
        actions.push(Action::Join { record, tails });
        actions
    }

    fn write_chunk(&mut self, actions: &mut Vec<Action>) {
        if self.chunk.is_empty() {
            return;
        }
        let mut record = Vec::with_capacity(self.chunk.len() + HEADER_BYTES);
        let ms = self.chunk_ms.saturating_sub(self.start_ms);
        Record::Data { ms, bytes: &self.chunk }.encode(&mut record);
        self.append(record, self.chunk.len() as u64, self.chunk_ms, actions);
        self.chunk.clear();
    }

    fn append(&mut self, record: Vec<u8>, output: u64, now_ms: u64, actions: &mut Vec<Action>) {
        if self.record_bytes == 0 {
            return;
        }
        self.begin(actions);
        let length = record.len() as u64;
        self.make_room(length, now_ms, actions);
        match self.part {
            Part::Head => {
                self.head_bytes += length;
                actions.push(Action::Append(Part::Head, record));
            }
            Part::TailA | Part::TailB => {
                self.tail.bytes += length;
                self.tail.output += output;
                actions.push(Action::Append(self.part, record));
            }
        }
    }

    /// The head begins with the first size.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        if self.head_bytes == 0 && self.record_bytes > 0 {
            let size = self.encode_size(self.start_ms);
            self.head_bytes = size.len() as u64;
            actions.push(Action::Append(Part::Head, size));
        }
    }

    /// Goes on to the next file if this one is full.
    fn make_room(&mut self, length: u64, now_ms: u64, actions: &mut Vec<Action>) {
        let (full, next) = match self.part {
            Part::Head => (self.head_bytes + length > self.record_bytes / 2, Part::TailA),
            Part::TailA => (self.tail.bytes + length > self.record_bytes / 4, Part::TailB),
            Part::TailB => (self.tail.bytes + length > self.record_bytes / 4, Part::TailA),
        };
        if !full {
            return;
        }
        if self.part != Part::Head {
            let emptied = self.other_tail.replace(self.tail);
            self.missing += emptied.map_or(0, |fill| fill.output);
        }
        self.part = next;
        actions.push(Action::Truncate(next));
        // Each file begins with the size in force, so that it can be played after a cut.
        let size = self.encode_size(now_ms);
        self.tail = Fill { bytes: size.len() as u64, output: 0 };
        actions.push(Action::Append(next, size));
    }

    fn encode_size(&self, now_ms: u64) -> Vec<u8> {
        let mut record = Vec::new();
        let ms = now_ms.saturating_sub(self.start_ms);
        Record::Size { ms, size: self.size }.encode(&mut record);
        record
    }
}

#[cfg(test)]
mod tests;
