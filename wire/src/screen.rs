//! What is on a terminal at one moment, and what is known of it after its end.

use crate::Size;
use serde::{Deserialize, Serialize};

/// The screen as a viewer would see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScreenView {
    /// Absent only where nothing was ever printed.
    pub size: Option<Size>,
    /// Bytes of output that it shows the sum of.
    pub seq: u64,
    pub cursor: CursorView,
    pub title: Option<String>,
    /// A full-screen program has switched to the other screen.
    pub alternate: bool,
    pub bracketed_paste: bool,
    /// The text of each row from the top, without blanks at its end.
    pub rows: Vec<String>,
    /// The same rows with their colours as escape sequences, each complete in itself.
    pub ansi: Vec<String>,
}

/// Row and column from 0, top left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CursorView {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}

/// Which line of its output a terminal was at, and when: for `logs --since`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The number of the first line that is kept.
    pub first: u64,
    /// Milliseconds since 1970, and the number of the line that output went on with then; at most one a
    /// second.
    pub marks: Vec<(i64, u64)>,
}

/// Marks stand at least so far apart, in ms.
pub const MARK_MS: i64 = 1000;
/// More become coarser.
const MARKS_MAX: usize = 4096;

impl Times {
    /// Whether output that comes now begins a new mark.
    #[must_use]
    pub fn wants(&self, at_ms: i64) -> bool {
        // A clock that was set back begins anew.
        self.marks.last().is_none_or(|(last, _)| at_ms >= last + MARK_MS || at_ms < *last)
    }

    pub fn mark(&mut self, at_ms: i64, line: u64) {
        if self.marks.len() >= MARKS_MAX {
            let mut index = 0;
            self.marks.retain(|_mark| {
                index += 1;
                index % 2 == 1
            });
        }
        self.marks.push((at_ms, line));
    }

    /// The lines that were printed since, of those that are kept: nothing that was, and up to a second
    /// more.
    #[must_use]
    pub fn cut<'a>(&self, text: &'a [u8], since_ms: i64) -> &'a [u8] {
        let line = self.line_at(since_ms);
        let Some(line) = line else { return &[] };
        let skip = usize::try_from(line.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut rest = text;
        for _ in 0..skip {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return &[] };
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        rest
    }

    /// The mark whose output may have come since.
    fn line_at(&self, since_ms: i64) -> Option<u64> {
        let within = self.marks.iter().position(|(at, _)| at + MARK_MS > since_ms)?;
        let later = |(at, _line): &&(i64, u64)| *at <= since_ms;
        // One that was thinned out stands for what came until the next.
        let before = within.checked_sub(1).and_then(|before| self.marks.get(before));
        let coarse = self.marks.len() > MARKS_MAX / 2;
        let mark = before.filter(later).filter(|_| coarse).or(self.marks.get(within))?;
        Some(mark.1)
    }
}

/// What a terminal, or pipe streams, leave beside their output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Absent for pipe streams.
    pub screen: Option<ScreenView>,
    pub times: Times,
}

/// The file that holds it, as JSON [`Last`].
#[must_use]
pub fn last_name(pty: crate::PtyId) -> String {
    format!("{pty}.last")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_since_are_those_and_a_second_more() {
        let times = Times { first: 2, marks: vec![(1000, 0), (5000, 3), (9000, 5)] };
        let text = b"c\nd\ne\nf";
        for (since, want) in [
            (0, &b"c\nd\ne\nf"[..]),
            (1500, b"c\nd\ne\nf"),
            (2000, b"d\ne\nf"),
            (5000, b"d\ne\nf"),
            (5999, b"d\ne\nf"),
            (6000, b"f"),
            (9500, b"f"),
            (10_000, b""),
        ] {
            assert_eq!(times.cut(text, since), want, "{since}");
        }
        assert_eq!(Times::default().cut(text, 0), b"");
    }

    #[test]
    fn marks_are_bounded_and_nothing_is_missing() {
        let mut times = Times::default();
        let count = i64::try_from(MARKS_MAX).unwrap() * 3;
        for second in 0..count {
            assert!(times.wants(second * 1000));
            times.mark(second * 1000, u64::try_from(second).unwrap());
            assert!(!times.wants(second * 1000 + 999));
        }
        assert!(times.marks.len() <= MARKS_MAX);
        let line = times.line_at((count / 2) * 1000).unwrap();
        assert!(line <= u64::try_from(count / 2).unwrap(), "{line}");
    }
}
