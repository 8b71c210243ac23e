//! The scrollback ring: rendered logical lines, written once, when a line leaves the screen's top.
//!
//! Lines lie one after the other in blocks, each with `\r\n` behind it, so that history goes to a
//! viewer without a copy: a full block is frozen and shared. Both bounds drop the oldest lines.

use bytes::Bytes;
use std::collections::VecDeque;

/// A block is frozen when it holds about this much, in bytes.
const BLOCK_BYTES: usize = 32 * 1024;
/// A longer line is cut here, in bytes.
pub const LINE_BYTES_MAX: usize = 16 * 1024;
/// What stands at the end of a line that was cut; the rest follows on the next line.
pub const CUT_MARK: &[u8] = "\x1b[m\u{21b5}".as_bytes();
const LINE_END: &[u8] = b"\r\n";

/// Lines that left the screen, oldest first.
#[derive(Debug)]
pub struct Scrollback {
    frozen: VecDeque<Block<Bytes>>,
    open: Block<Vec<u8>>,
    lines_max: usize,
    bytes_max: usize,
    lines: usize,
    bytes: usize,
    lines_total: u64,
}

/// `ends` are where its lines end, line end included; `first` lines of it are dropped already.
#[derive(Debug, Default)]
struct Block<T> {
    text: T,
    ends: Vec<u32>,
    first: usize,
}

impl Scrollback {
    /// Takes no memory before the first line.
    #[must_use]
    pub fn new(lines_max: usize, bytes_max: usize) -> Self {
        Self {
            frozen: VecDeque::new(),
            open: Block::default(),
            lines_max,
            bytes_max,
            lines: 0,
            bytes: 0,
            lines_total: 0,
        }
    }

    /// Appends one rendered line, without its line end.
    pub fn push(&mut self, line: &[u8]) {
        let text = &mut self.open.text;
        text.extend_from_slice(line);
        text.extend_from_slice(LINE_END);
        self.open.ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.lines += 1;
        self.bytes += line.len() + LINE_END.len();
        self.lines_total += 1;
        if self.open.text.len() >= BLOCK_BYTES {
            self.freeze();
        }
        while self.lines > self.lines_max || self.bytes > self.bytes_max {
            self.drop_oldest();
        }
    }

    /// The newest `lines` lines (or all there are), oldest first, without line ends.
    pub fn last(&self, lines: usize) -> impl Iterator<Item = &[u8]> {
        let skip = self.lines.saturating_sub(lines);
        self.iter().skip(skip)
    }

    /// The newest `lines` lines for a viewer's terminal: shared pieces, each line with `\r\n`.
    #[must_use]
    pub fn history(&self, lines: usize) -> Vec<Bytes> {
        let mut skip = self.lines.saturating_sub(lines);
        let mut pieces = Vec::new();
        for block in &self.frozen {
            let start = block.start_of(skip);
            skip = skip.saturating_sub(block.lines());
            if start < block.text.len() {
                pieces.push(block.text.slice(start..));
            }
        }
        let start = self.open.start_of(skip);
        match self.open.text.get(start..) {
            None | Some([]) => {}
            Some(rest) => pieces.push(Bytes::copy_from_slice(rest)),
        }
        pieces
    }

    /// Lines that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Lines that ever came, kept or not.
    #[must_use]
    pub fn lines_total(&self) -> u64 {
        self.lines_total
    }

    /// Every kept line with `\n` behind it, as the file for `logs` has it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        for line in self.iter() {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.frozen.iter().flat_map(Block::iter).chain(self.open.iter())
    }

    fn freeze(&mut self) {
        let Block { mut text, mut ends, first } = std::mem::take(&mut self.open);
        // There may be many more: the next block does not grow step by step.
        self.open.text.reserve_exact(text.len());
        self.open.ends.reserve_exact(ends.len());
        text.shrink_to_fit();
        ends.shrink_to_fit();
        self.frozen.push_back(Block { text: text.into(), ends, first });
    }

    fn drop_oldest(&mut self) {
        let dropped = match self.frozen.front_mut() {
            Some(block) => block.drop_first(),
            None => self.open.drop_first(),
        };
        self.lines -= usize::from(dropped > 0);
        self.bytes -= dropped;
        if self.frozen.front().is_some_and(|block| block.lines() == 0) {
            self.frozen.pop_front();
        }
    }
}

impl<T: AsRef<[u8]>> Block<T> {
    fn lines(&self) -> usize {
        self.ends.len() - self.first
    }

    fn end_of(&self, line: usize) -> usize {
        self.ends.get(line).map_or(self.text.as_ref().len(), |end| *end as usize)
    }

    /// Where the kept line number `skip` starts; the end of the text if there are fewer.
    fn start_of(&self, skip: usize) -> usize {
        match self.first.saturating_add(skip) {
            0 => 0,
            line if line > self.ends.len() => self.text.as_ref().len(),
            line => self.end_of(line - 1),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.lines()).map(|line| {
            let end = self.end_of(self.first + line) - LINE_END.len();
            self.text.as_ref().get(self.start_of(line)..end).unwrap_or_default()
        })
    }

    /// Returns the bytes that the line took.
    fn drop_first(&mut self) -> usize {
        if self.lines() == 0 {
            return 0;
        }
        let bytes = self.start_of(1) - self.start_of(0);
        self.first += 1;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_tail_of_a_list(
            lines in proptest::collection::vec(("[a-z]{0,30}", 1_usize..2000), 0..60),
            lines_max in 1_usize..30, bytes_max in 0_usize..200_000, last in 0_usize..40,
        ) {
            let mut scrollback = Scrollback::new(lines_max, bytes_max);
            let mut model: Vec<Vec<u8>> = Vec::new();
            for (word, times) in &lines {
                let line = word.repeat(*times).into_bytes();
                scrollback.push(&line);
                model.push(line);
                while model.len() > lines_max
                    || model.iter().map(|line| line.len() + 2).sum::<usize>() > bytes_max
                {
                    model.remove(0);
                }
                prop_assert_eq!(scrollback.len(), model.len());
            }
            let tail = &model[model.len().saturating_sub(last)..];
            prop_assert_eq!(scrollback.last(last).collect::<Vec<_>>(), tail);
            let sent: Vec<u8> = tail.iter().flat_map(|l| [l.as_slice(), b"\r\n"].concat()).collect();
            prop_assert_eq!(scrollback.history(last).concat(), sent);
            prop_assert_eq!(scrollback.lines_total(), lines.len() as u64);
        }
    }

    #[test]
    fn ten_thousand_lines_of_200_columns_take_less_than_3_mb() {
        let mut scrollback = Scrollback::new(10_000, 8 << 20);
        for _ in 0..20_000 {
            scrollback.push(&[b'x'; 200]);
        }
        let block = |text: usize, ends: &Vec<u32>| text + 4 * ends.capacity();
        let taken = scrollback.frozen.iter().map(|b| block(b.text.len(), &b.ends)).sum::<usize>()
            + block(scrollback.open.text.capacity(), &scrollback.open.ends);
        assert_eq!(scrollback.len(), 10_000);
        assert!(taken < 3_000_000, "{taken}");
    }
}
