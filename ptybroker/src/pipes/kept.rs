//! Output of pipe streams that is kept: which stream, which bytes, in the order they were read.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Small writes are gathered up to this, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// What a piece costs beside its bytes.
const PIECE_COST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Stream {
    /// The type of its frames.
    #[must_use]
    pub fn frame_type(self) -> u8 {
        match self {
            Self::Out => 12,
            Self::Err => 13,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub seq: u64,
    pub stream: Stream,
    pub bytes: Bytes,
}

/// The newest output, `bytes_max` of it, and whatever a runner still needs.
#[derive(Debug)]
pub struct Kept {
    pieces: VecDeque<Piece>,
    open: Option<(Stream, BytesMut)>,
    cost: usize,
    bytes_max: usize,
    end: u64,
}

impl Kept {
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), open: None, cost: 0, bytes_max, end: 0 }
    }

    /// Appends. Nothing from `needed_from` on is dropped for it.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], needed_from: u64) {
        let fits = |open: &(Stream, BytesMut)| {
            open.0 == stream && open.1.len() + bytes.len() <= PIECE_BYTES
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.freeze();
            self.cost += PIECE_COST;
        }
        let open = self.open.get_or_insert_with(|| (stream, BytesMut::new()));
        open.1.extend_from_slice(bytes);
        self.cost += bytes.len();
        self.end += bytes.len() as u64;
        self.forget(needed_from);
    }

    /// All output so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The sequence of the first byte that is still here.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        self.pieces.front().map_or(self.end - open, |piece| piece.seq)
    }

    /// The piece with the byte `from`, from there on. `None` at the end, or if it is gone.
    pub fn read(&mut self, from: u64) -> Option<Piece> {
        let index =
            self.pieces.partition_point(|piece| piece.seq + piece.bytes.len() as u64 <= from);
        if index == self.pieces.len() {
            self.freeze();
        }
        let piece = self.pieces.get(index)?;
        let skip = usize::try_from(from.checked_sub(piece.seq)?).ok()?;
        let bytes = piece.bytes.slice(skip..);
        (!bytes.is_empty()).then_some(Piece { seq: from, stream: piece.stream, bytes })
    }

    /// Both streams as they came.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.pieces {
            all.extend_from_slice(&piece.bytes);
        }
        if let Some((_, bytes)) = &self.open {
            all.extend_from_slice(bytes);
        }
        all
    }

    /// Both from this byte on, as far as it is here.
    #[must_use]
    pub fn from(&self, seq: u64) -> Vec<u8> {
        let all = self.to_bytes();
        let skip = seq.saturating_sub(self.end - all.len() as u64);
        all.get(usize::try_from(skip).unwrap_or(usize::MAX)..).unwrap_or_default().to_vec()
    }

    fn freeze(&mut self) {
        if let Some((stream, bytes)) = self.open.take() {
            let seq = self.end - bytes.len() as u64;
            self.pieces.push_back(Piece { seq, stream, bytes: bytes.freeze() });
        }
    }

    fn forget(&mut self, needed_from: u64) {
        while self.cost > self.bytes_max
            && let Some(front) = self.pieces.front()
            && front.seq + front.bytes.len() as u64 <= needed_from
        {
            self.cost -= front.bytes.len() + PIECE_COST;
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_needed_byte_is_read_once_and_in_order(
            writes in proptest::collection::vec((any::<bool>(), 1_usize..9000), 1..60),
            every in 1_usize..9,
        ) {
            let mut kept = Kept::new(4096);
            let (mut cursor, mut sent, mut got) = (0, Vec::new(), Vec::new());
            for (count, (is_out, length)) in writes.into_iter().enumerate() {
                let stream = if is_out { Stream::Out } else { Stream::Err };
                let bytes: Vec<u8> = (0..length).map(|i| u8::try_from((i + count) % 251).unwrap()).collect();
                kept.push(stream, &bytes, cursor);
                sent.extend(bytes.iter().map(|byte| (stream, *byte)));
                if count % every == 0 {
                    while let Some(piece) = kept.read(cursor) {
                        cursor += piece.bytes.len() as u64;
                        got.extend(piece.bytes.iter().map(|byte| (piece.stream, *byte)));
                    }
                }
            }
            while let Some(piece) = kept.read(cursor) {
                cursor += piece.bytes.len() as u64;
                got.extend(piece.bytes.iter().map(|byte| (piece.stream, *byte)));
            }
            prop_assert!(got == sent);
            prop_assert_eq!(kept.end(), sent.len() as u64);
        }
    }

    #[test]
    fn without_a_reader_it_is_bounded_and_says_where_it_begins() {
        let mut kept = Kept::new(4096);
        for _ in 0..1000 {
            kept.push(Stream::Out, &[b'x'; 100], u64::MAX);
            kept.push(Stream::Err, b"y", u64::MAX);
        }
        assert!(kept.cost <= 4096 + PIECE_BYTES);
        assert_eq!(kept.end(), 101_000);
        assert_eq!(kept.read(0), None);
        let oldest = kept.oldest();
        assert!(oldest > 90_000 && kept.read(oldest).is_some());
        assert_eq!(kept.to_bytes().len() as u64, kept.end() - oldest);
    }
}
