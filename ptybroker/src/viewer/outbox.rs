//! What waits to be written to one viewer.
//!
//! A viewer of the live screen is *pushed* to, and may be made to miss bytes ([`ViewerQueue`]).
//! Everybody else *pulls*: more is fetched from the stores when there is room, so that a slow one
//! costs no memory and finds a `gap` only where the store itself is over.

use crate::queue::{Episode, Limits, ViewerQueue};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;
use wire::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES};

/// Below this, a viewer that pulls is given more, in bytes.
const PULL_BYTES: usize = 128 * 1024;
/// Pieces of one vectored write.
const SLICES_MAX: usize = 64;

#[derive(Debug)]
pub enum Outbox {
    Live(Box<ViewerQueue>),
    Pull(PullQueue),
}

impl Outbox {
    #[must_use]
    pub fn live(now_ms: u64) -> Self {
        Self::Live(Box::new(ViewerQueue::new(Limits::default(), now_ms)))
    }

    #[must_use]
    pub fn pull() -> Self {
        Self::Pull(PullQueue::default())
    }

    /// Rows of the viewer's own terminal.
    pub fn set_viewer_rows(&mut self, rows: u16) {
        match self {
            Self::Live(queue) => queue.set_viewer_rows(rows),
            Self::Pull(_) => {}
        }
    }

    /// The time of lagging that has not ended, for when the viewer goes.
    #[must_use]
    pub fn open_episode(&self, now_ms: u64) -> Option<Episode> {
        match self {
            Self::Live(queue) => queue.open_episode(now_ms),
            Self::Pull(_) => None,
        }
    }

    /// `false`: the viewer takes nothing and is to be dropped.
    pub fn control(&mut self, frame: &Frame, now_ms: u64) -> bool {
        match self {
            Self::Live(queue) => queue.push_control(frame, now_ms),
            Self::Pull(queue) => queue.push(frame),
        }
    }

    /// Behind everything else; nothing after it.
    pub fn last(&mut self, frame: &Frame, now_ms: u64) {
        match self {
            Self::Live(queue) => queue.push_last(frame, now_ms),
            Self::Pull(queue) => queue.push_last(frame),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Live(queue) => queue.is_empty(),
            Self::Pull(queue) => queue.pieces.is_empty(),
        }
    }

    /// Whether the last frame is written.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Live(queue) => queue.is_done(),
            Self::Pull(queue) => queue.last && queue.pieces.is_empty(),
        }
    }

    pub fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        match self {
            Self::Live(queue) => queue.slices(out),
            Self::Pull(queue) => {
                let pieces = queue.pieces.iter().take(SLICES_MAX);
                out.extend(pieces.map(|piece| IoSlice::new(piece)));
            }
        }
        out.truncate(SLICES_MAX);
    }

    pub fn written(&mut self, bytes: usize, now_ms: u64) {
        match self {
            Self::Live(queue) => queue.written(bytes, now_ms),
            Self::Pull(queue) => queue.written(bytes),
        }
    }
}

/// Frames in order, shared pieces.
#[derive(Debug, Default)]
pub struct PullQueue {
    pieces: VecDeque<Bytes>,
    pending: usize,
    last: bool,
}

impl PullQueue {
    /// Whether more may be fetched from the store.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending < PULL_BYTES && !self.last
    }

    /// `false` when this viewer sends requests without ever reading.
    pub fn push(&mut self, frame: &Frame) -> bool {
        if !self.last {
            self.append(frame.to_bytes().into());
        }
        self.pending < 2 * (PULL_BYTES + FRAME_BYTES_MAX)
    }

    /// A frame of this type whose payload is shared, not copied.
    pub fn push_shared(&mut self, kind: u8, payload: Bytes) {
        if self.last {
            return;
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.push(kind);
        header.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.append(header.into());
        self.append(payload);
    }

    fn push_last(&mut self, frame: &Frame) {
        self.push(frame);
        self.last = true;
    }

    fn append(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pending += piece.len();
            self.pieces.push_back(piece);
        }
    }

    fn written(&mut self, mut bytes: usize) {
        self.pending = self.pending.saturating_sub(bytes);
        while let Some(front) = self.pieces.front_mut() {
            if bytes < front.len() {
                drop(front.split_to(bytes));
                return;
            }
            bytes -= front.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::Decoder;

    #[test]
    fn shared_frames_survive_any_partial_write() {
        for step in [1, 3, 5, 7, 1000] {
            let mut outbox = Outbox::pull();
            let Outbox::Pull(queue) = &mut outbox else { unreachable!() };
            queue.push_shared(12, Bytes::from_static(b"hello"));
            queue.push_shared(13, Bytes::new());
            outbox.control(&Frame::Pong, 0);
            outbox.last(&Frame::StdinEof, 0);
            outbox.control(&Frame::Ping, 0);
            let mut decoder = Decoder::default();
            while !outbox.is_done() {
                let mut slices = Vec::new();
                outbox.slices(&mut slices);
                let all: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
                let take = step.min(all.len());
                decoder.feed(&all[..take]);
                outbox.written(take, 0);
            }
            let frames: Vec<Frame> = std::iter::from_fn(|| decoder.next_frame().unwrap()).collect();
            let expected = [
                Frame::Out(b"hello".to_vec()),
                Frame::Err(Vec::new()),
                Frame::Pong,
                Frame::StdinEof,
            ];
            assert_eq!(frames, expected);
        }
    }
}
