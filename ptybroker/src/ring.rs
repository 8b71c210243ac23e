//! The byte ring: the newest raw output of one terminal by absolute sequence, with its size changes.
//!
//! Flat on purpose: one copy in, and its memory is what it holds, never a shared buffer that is
//! kept alive by one echoed byte.

use std::collections::VecDeque;
use wire::Size;

/// What is kept from a sequence on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// Everything from there to the end, in two pieces (either may be empty).
    Bytes([&'a [u8]; 2]),
    /// That byte is gone; `oldest` is the first one that is still here.
    Gap { oldest: u64 },
}

/// Output by sequence: `oldest() <= seq < end()` can be read.
#[derive(Debug)]
pub struct ByteRing {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// The sequence after the newest byte: all output so far.
    end: u64,
    sizes: VecDeque<(u64, Size)>,
}

/// Size changes that are remembered at most; a program can change its size without printing.
const SIZES_MAX: usize = 1024;

impl ByteRing {
    /// Takes no memory before the first byte.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), bytes_max, end: 0, sizes: VecDeque::new() }
    }

    /// Appends output and returns the sequence of its first byte.
    pub fn push(&mut self, chunk: &[u8]) -> u64 {
        let start = self.end;
        self.end += chunk.len() as u64;
        let kept = chunk.get(chunk.len().saturating_sub(self.bytes_max)..).unwrap_or_default();
        let excess = (self.bytes.len() + kept.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.grow_for(self.bytes.len() + kept.len());
        self.bytes.extend(kept);
        self.forget_old_sizes();
        start
    }

    #[must_use]
    pub fn read(&self, from: u64) -> Read<'_> {
        let oldest = self.oldest();
        if from < oldest {
            return Read::Gap { oldest };
        }
        let skip = usize::try_from(from - oldest).unwrap_or(usize::MAX);
        let (first, second) = self.bytes.as_slices();
        let in_second = skip.saturating_sub(first.len());
        Read::Bytes([
            first.get(skip..).unwrap_or_default(),
            second.get(in_second..).unwrap_or_default(),
        ])
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The terminal has this size from `seq` on.
    pub fn note_size(&mut self, seq: u64, size: Size) {
        if self.sizes.back().is_some_and(|(_, last)| *last == size) {
            return;
        }
        if self.sizes.back().is_some_and(|(at, _)| *at == seq) {
            self.sizes.pop_back();
        }
        if self.sizes.len() == SIZES_MAX {
            self.sizes.pop_front();
        }
        self.sizes.push_back((seq, size));
    }

    /// The size in force at the oldest byte, and each change since, in order.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, Size)> {
        self.sizes.iter().copied()
    }

    /// Doubles, but never beyond the bound.
    fn grow_for(&mut self, needed: usize) {
        let capacity = self.bytes.capacity();
        if needed > capacity {
            let target = needed.max(capacity * 2).min(self.bytes_max);
            self.bytes.reserve_exact(target.saturating_sub(self.bytes.len()));
        }
    }

    /// One size that began at or before the oldest byte is kept: the one in force there.
    fn forget_old_sizes(&mut self) {
        let oldest = self.oldest();
        while self.sizes.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.sizes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(ring: &ByteRing, from: u64) -> Result<Vec<u8>, u64> {
        match ring.read(from) {
            Read::Bytes(pieces) => Ok(pieces.concat()),
            Read::Gap { oldest } => Err(oldest),
        }
    }

    proptest! {
        #[test]
        fn it_is_the_tail_of_a_vec(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..30),
            bytes_max in 1_usize..64, from in 0_u64..700,
        ) {
            let mut ring = ByteRing::new(bytes_max);
            let mut model = Vec::new();
            for chunk in &chunks {
                prop_assert_eq!(ring.push(chunk), model.len() as u64);
                model.extend_from_slice(chunk);
                let oldest = model.len().saturating_sub(bytes_max);
                prop_assert_eq!(ring.oldest(), oldest as u64);
                prop_assert_eq!(ring.end(), model.len() as u64);
                let at = usize::try_from(from).unwrap();
                let expected = if at < oldest {
                    Err(oldest as u64)
                } else {
                    Ok(model.get(at..).unwrap_or_default().to_vec())
                };
                prop_assert_eq!(joined(&ring, from), expected);
            }
        }
    }

    #[test]
    fn the_size_at_the_oldest_byte_stays_known() {
        let size = |cols| Size { cols, rows: 24 };
        let mut ring = ByteRing::new(4);
        ring.note_size(0, size(80));
        ring.push(b"abcd");
        ring.note_size(4, size(90));
        ring.note_size(4, size(100));
        ring.push(b"ef");
        assert_eq!(ring.sizes().collect::<Vec<_>>(), [(0, size(80)), (4, size(100))]);
        ring.push(b"gh");
        assert_eq!(ring.sizes().collect::<Vec<_>>(), [(4, size(100))]);
    }

    #[test]
    fn memory_comes_as_it_fills() {
        let mut ring = ByteRing::new(1 << 20);
        assert_eq!(ring.bytes.capacity(), 0);
        ring.push(&[0; 1000]);
        assert!(ring.bytes.capacity() < 8192);
        for _ in 0..2000 {
            ring.push(&[0; 1000]);
        }
        assert!(ring.bytes.capacity() <= 1 << 20, "{}", ring.bytes.capacity());
    }
}
