//! The short way for a flood of plain text: lines that would only pass through the screen go to
//! the scrollback without ever being written into cells.
//!
//! Taken only where the outcome is the same to the last cell: the primary screen scrolls as a
//! whole, the cursor stands on its blank bottom row, attributes and charset are the default, and
//! so many plain lines follow that none of the rows on the screen stays.

use super::model::{Model, default_tabs};
use super::render::{row_at, row_cells};
use crate::scrollback::{LINE_BYTES_MAX, Scrollback};
use alacritty_terminal::grid::{Cursor, Dimensions};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::StandardCharset;
use std::ops::Range;

/// Shorter output is not worth a look, in bytes.
pub(super) const WORTH_BYTES: usize = 2048;
pub(super) const LINE_END: &[u8] = b"\r\n";
const TAB_COLUMNS: usize = 8;

/// A line of printable ASCII and tabs, as it lies in the output.
#[derive(Debug)]
struct Line {
    text: Range<usize>,
    has_tab: bool,
    /// Of the screen.
    rows: usize,
}

impl Line {
    fn end(&self) -> usize {
        self.text.end + LINE_END.len()
    }
}

/// The end of the first line of `text`, line feed included.
pub(super) fn first_line_end(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\n').map(|at| at + 1)
}

/// The length of the line at the start of `text` if it is plain and prints anything, without its
/// end. If just so many cells are written by it, the parser was in the middle of nothing.
pub(super) fn probe(text: &[u8]) -> Option<usize> {
    let line = line_at(text, 0, usize::MAX, false)?;
    (!line.text.is_empty()).then_some(line.text.len())
}

/// What went the short way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// From the start of the text. If any went, the screen is blank now, as at its beginning.
    pub(super) bytes: usize,
    /// What follows them is plain too, as far as it is there.
    pub(super) goes_on: bool,
}

/// Takes plain lines from the start of `text`. The parser must be in the middle of nothing;
/// `is_blank`: the screen is as an earlier call has left it.
pub(super) fn take(
    model: &mut Model,
    scrollback: &mut Scrollback,
    text: &[u8],
    is_blank: bool,
) -> Passed {
    if !is_blank && !scrolls_plainly(model) {
        return Passed::default();
    }
    let rows = model.term.screen_lines();
    let lines = plain_lines(model, text);
    let Some(passing) = without_staying(&lines, rows) else { return Passed::default() };
    let Some(last) = passing.last() else { return Passed::default() };
    if !is_blank {
        clear(model, scrollback);
    }
    let columns = model.term.columns();
    let mut expanded = Vec::new();
    for line in passing {
        let shown = text.get(line.text.clone()).unwrap_or_default();
        let shown = if line.has_tab { expand(shown, &mut expanded) } else { shown };
        scrollback.push(without_blank_end(shown, (line.rows - 1) * columns));
    }
    let unfinished = lines.last().and_then(|line| text.get(line.end()..)).unwrap_or_default();
    Passed { bytes: last.end(), goes_on: may_become_plain(unfinished) }
}

/// The lines before those that fill the screen.
fn without_staying(lines: &[Line], rows: usize) -> Option<&[Line]> {
    let mut passing = lines;
    let mut staying = 0;
    while staying + 1 < rows {
        let (last, before) = passing.split_last()?;
        staying += last.rows;
        passing = before;
    }
    Some(passing)
}

/// The rows leave. From an empty screen, what stays fills just those that it would have ended in.
fn clear(model: &mut Model, scrollback: &mut Scrollback) {
    for row in 0..model.term.screen_lines() - 1 {
        let row = row_at(model.term.grid(), row);
        model.leaving.append(row, &mut |line| scrollback.push(line));
    }
    let grid = model.term.grid_mut();
    grid.reset_region(..);
    grid.cursor.point = Cursor::<Cell>::default().point;
}

/// The beginning of a plain line.
fn may_become_plain(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    text.len() < LINE_BYTES_MAX && is_plain(text)
}

/// Printable ASCII. Looks at every byte, many at a time.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'))
}

fn scrolls_plainly(model: &Model) -> bool {
    let grid = model.term.grid();
    let rows = grid.screen_lines();
    let cursor = &grid.cursor;
    let bottom = row_cells(row_at(grid, rows - 1));
    let above = row_cells(row_at(grid, rows.saturating_sub(2)));
    let at_bottom = usize::try_from(cursor.point.line.0).is_ok_and(|line| line + 1 == rows);
    rows > 1
        && model.hidden.is_none()
        && model.shadow.region == (0..rows)
        && model.mode(TermMode::LINE_WRAP)
        && !model.mode(TermMode::INSERT)
        && at_bottom
        && cursor.point.column.0 == 0
        && !cursor.input_needs_wrap
        && cursor.template == Cell::default()
        && cursor.charsets[model.shadow.charset] == StandardCharset::Ascii
        && bottom.iter().all(|cell| *cell == Cell::default())
        && above.last().is_some_and(|cell| !cell.flags.contains(Flags::WRAPLINE))
}

fn plain_lines(model: &Model, text: &[u8]) -> Vec<Line> {
    let columns = model.term.columns();
    let tabs = model.shadow.tabs == default_tabs(columns);
    let mut lines: Vec<Line> = Vec::new();
    let mut at = 0;
    while let Some(line) = line_at(text, at, columns, tabs) {
        at = line.end();
        lines.push(line);
    }
    lines
}

/// The line that starts at `start`, if it is plain and whole.
fn line_at(text: &[u8], start: usize, columns: usize, tabs: bool) -> Option<Line> {
    let rest = text.get(start..)?;
    let length = memchr::memchr(b'\n', rest)?.checked_sub(1)?;
    let (shown, end) = rest.split_at_checked(length)?;
    if !end.starts_with(LINE_END) {
        return None;
    }
    if is_plain(shown) {
        let rows = length.div_ceil(columns).max(1);
        let line = Line { text: start..start + length, has_tab: false, rows };
        return (length < LINE_BYTES_MAX).then_some(line);
    }
    if tabs { line_with_tabs(shown, start, columns) } else { None }
}

/// One that fits into a row: the last stop is not like the others.
fn line_with_tabs(shown: &[u8], start: usize, columns: usize) -> Option<Line> {
    let mut column = 0;
    for byte in shown {
        match byte {
            b'\t' => column = next_stop(column),
            b' '..=b'~' => column += 1,
            _ => return None,
        }
        if column >= columns {
            return None;
        }
    }
    Some(Line { text: start..start + shown.len(), has_tab: true, rows: 1 })
}

fn next_stop(column: usize) -> usize {
    (column / TAB_COLUMNS + 1) * TAB_COLUMNS
}

fn expand<'a>(text: &[u8], expanded: &'a mut Vec<u8>) -> &'a [u8] {
    expanded.clear();
    for byte in text {
        match byte {
            b'\t' => expanded.resize(next_stop(expanded.len()), b' '),
            byte => expanded.push(*byte),
        }
    }
    expanded
}

/// Rows that were wrapped keep their blanks: the first `whole` columns.
fn without_blank_end(text: &[u8], whole: usize) -> &[u8] {
    let used = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    text.get(..used.max(whole)).unwrap_or(text)
}
