//! Rows of the grid as rendered logical lines: wrapped rows joined, blanks at the end left out.

use super::pen::{Pen, is_blank};
use crate::scrollback::{CUT_MARK, LINE_BYTES_MAX};
use alacritty_terminal::grid::{Dimensions, Grid, Row};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};

/// A cell that only holds the place of a neighbour's wide character.
const SPACERS: Flags = Flags::WIDE_CHAR_SPACER.union(Flags::LEADING_WIDE_CHAR_SPACER);

/// A logical line whose rows come one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct LineBuilder {
    text: Vec<u8>,
    pen: Pen,
    open: bool,
}

impl LineBuilder {
    /// Appends a row; gives each line that is complete to `sink`.
    pub(super) fn append(&mut self, row: &Row<Cell>, sink: &mut impl FnMut(&[u8])) {
        let cells = row_cells(row);
        let wraps = cells.last().is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE));
        let shown = if wraps { cells } else { without_blank_end(cells) };
        for cell in shown {
            self.append_cell(cell);
        }
        self.open = true;
        if !wraps {
            self.close(sink);
        } else if self.text.len() >= LINE_BYTES_MAX {
            self.text.extend_from_slice(CUT_MARK);
            self.pen = Pen::default();
            self.close(sink);
        }
    }

    /// Ends the line that is open, if one is.
    pub(super) fn close(&mut self, sink: &mut impl FnMut(&[u8])) {
        if self.open {
            self.pen.change_to(Pen::default(), &mut self.text);
            sink(&self.text);
        }
        self.open = false;
        self.text.clear();
    }

    fn append_cell(&mut self, cell: &Cell) {
        if cell.flags.intersects(SPACERS) {
            return;
        }
        self.pen.change_to(Pen::of(cell), &mut self.text);
        push_char(cell.c, &mut self.text);
        for c in cell.zerowidth().unwrap_or_default() {
            push_char(*c, &mut self.text);
        }
    }
}

/// The same with its colours, complete in itself.
pub(super) fn row_ansi(row: &Row<Cell>) -> String {
    let mut line = LineBuilder::default();
    for cell in without_blank_end(row_cells(row)) {
        line.append_cell(cell);
    }
    line.pen.change_to(Pen::default(), &mut line.text);
    String::from_utf8(line.text).unwrap_or_default()
}

/// The text of a row, without blanks at its end.
pub(super) fn row_text(row: &Row<Cell>) -> String {
    let mut text = Vec::new();
    for cell in row_cells(row).iter().filter(|cell| !cell.flags.intersects(SPACERS)) {
        push_char(cell.c, &mut text);
        cell.zerowidth().unwrap_or_default().iter().for_each(|c| push_char(*c, &mut text));
    }
    let mut text = String::from_utf8(text).unwrap_or_default();
    text.truncate(text.trim_end_matches(' ').len());
    text
}

/// Rows from the top to the last one that is not blank.
pub(super) fn used_rows(grid: &Grid<Cell>) -> usize {
    (0..grid.screen_lines()).rev().find(|row| !row_is_blank(grid, *row)).map_or(0, |row| row + 1)
}

pub(super) fn row_at(grid: &Grid<Cell>, row: usize) -> &Row<Cell> {
    &grid[Line(i32::try_from(row).unwrap_or(0))]
}

pub(super) fn row_cells(row: &Row<Cell>) -> &[Cell] {
    &row[Column(0)..]
}

pub(super) fn without_blank_end(cells: &[Cell]) -> &[Cell] {
    let used = cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
    cells.get(..used).unwrap_or_default()
}

/// A tab that moved over blank cells stands in the first of them.
pub(super) fn push_char(c: char, out: &mut Vec<u8>) {
    match c {
        '\t' => out.push(b' '),
        c if c.is_ascii() => out.extend_from_slice(&[c as u8]),
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn row_is_blank(grid: &Grid<Cell>, row: usize) -> bool {
    row_cells(row_at(grid, row)).iter().all(is_blank)
}
