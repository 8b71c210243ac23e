//! The screen model of one terminal: what its viewer sees, and how to say that to another terminal.
//!
//! Lines that leave the top go, rendered, to the [`Scrollback`] at that very moment: the model has
//! no history of its own, so nothing is lost and nothing is there twice. The alternate screen
//! contributes nothing. What counts as leaving: `screen/handler.rs`.
//!
//! Not kept: blinking text, title stacks across a snapshot, images, vertical margins.

mod dump;
mod flood;
mod guarded;
mod handler;
mod model;
mod partial;
mod pen;
mod render;
mod reply;

pub use guarded::Guarded;

use crate::scrollback::Scrollback;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{Processor, Timeout};
use flood::Passed;
use handler::Feed;
use model::Model;
use partial::Partial;
use std::time::Duration;
use wire::Size;
use wire::screen::{CursorView, ScreenView};
use wire::typing::Modes;

/// The parser gets this much at a time, in bytes.
const SLICE_BYTES: usize = 4096;
/// Cells that one slice may write beyond one for each byte.
const SLICE_CELLS: usize = 512 * 1024;
/// The beginning of a command that nobody knows.
const FORGOTTEN: &[u8] = b"\x1b]-;";

/// A model that is fed all output of its terminal.
pub struct Screen {
    model: Model,
    parser: Processor<NoSync>,
    partial: Partial,
    printed: bool,
    /// Nothing is on it, and the parser is in the middle of nothing: a flood passes.
    is_blank: bool,
}

/// Synchronized updates are not held back: nothing is drawn here, and a snapshot is always whole.
#[derive(Debug, Default)]
struct NoSync;

impl Timeout for NoSync {
    fn set_timeout(&mut self, _duration: Duration) {}
    fn clear_timeout(&mut self) {}
    fn pending_timeout(&self) -> bool {
        false
    }
}

impl Screen {
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self {
            model: Model::new(size.clamped()),
            parser: Processor::new(),
            partial: Partial::default(),
            printed: false,
            is_blank: true,
        }
    }

    /// Takes output, split anywhere; lines that leave the top go to `scrollback`.
    pub fn feed(&mut self, bytes: &[u8], scrollback: &mut Scrollback) {
        let taken = self.feed_most(bytes, scrollback);
        self.feed_slices(bytes.get(taken..).unwrap_or_default(), scrollback);
    }

    /// The same, but in the middle of a flood its last lines may stay, to come again with what
    /// follows: then they need not be written into cells. How many bytes were taken.
    pub fn feed_most(&mut self, bytes: &[u8], scrollback: &mut Scrollback) -> usize {
        self.printed |= !bytes.is_empty();
        let mut rest = bytes;
        while rest.len() >= flood::WORTH_BYTES {
            let (taken, passed) = self.feed_flood(rest, scrollback);
            rest = rest.get(taken..).unwrap_or_default();
            if passed.goes_on {
                return bytes.len() - rest.len();
            }
            if passed.bytes == 0 {
                let (slice, after) = rest.split_at(rest.len().min(SLICE_BYTES));
                self.feed_slice(slice, scrollback);
                rest = after;
            }
        }
        self.feed_slices(rest, scrollback);
        bytes.len()
    }

    /// Takes the first lines, and what follows the short way, if that is open: how many bytes, and
    /// which of them went so.
    fn feed_flood(&mut self, bytes: &[u8], scrollback: &mut Scrollback) -> (usize, Passed) {
        let (fed, in_ground) =
            if self.is_blank { (0, true) } else { self.feed_probe(bytes, scrollback) };
        if !in_ground {
            return (fed, Passed::default());
        }
        let rest = bytes.get(fed..).unwrap_or_default();
        let passed = flood::take(&mut self.model, scrollback, rest, self.is_blank);
        self.is_blank |= passed.bytes > 0;
        (fed + passed.bytes, passed)
    }

    /// Takes the end of a line and another one, if they look like a flood: how many bytes, and
    /// whether the parser was in the middle of nothing.
    fn feed_probe(&mut self, bytes: &[u8], scrollback: &mut Scrollback) -> (usize, bool) {
        let near = bytes.get(..SLICE_BYTES.min(bytes.len())).unwrap_or_default();
        let Some(start) = flood::first_line_end(near) else { return (0, false) };
        let Some(printed) = near.get(start..).and_then(flood::probe) else { return (0, false) };
        let (first, rest) = bytes.split_at(start);
        let (second, rest) = rest.split_at(printed);
        let end = rest.get(..flood::LINE_END.len()).unwrap_or_default();
        self.feed_slice(first, scrollback);
        let in_ground = self.feed_slice(second, scrollback) == printed;
        self.feed_slice(end, scrollback);
        (start + printed + end.len(), in_ground)
    }

    fn feed_slices(&mut self, bytes: &[u8], scrollback: &mut Scrollback) {
        for slice in bytes.chunks(SLICE_BYTES) {
            self.feed_slice(slice, scrollback);
        }
    }

    /// How many cells were written.
    fn feed_slice(&mut self, slice: &[u8], scrollback: &mut Scrollback) -> usize {
        self.is_blank &= slice.is_empty();
        let allowed = slice.len() + SLICE_CELLS;
        let mut feed = Feed { model: &mut self.model, scrollback, cells_left: allowed };
        self.parser.advance(&mut feed, slice);
        let written = allowed - feed.cells_left;
        if self.partial.follow(slice) {
            self.forget_command(scrollback);
        }
        written
    }

    /// What grows or shrinks reflows; rows that no longer fit leave at the top.
    pub fn resize(&mut self, size: Size, scrollback: &mut Scrollback) {
        self.is_blank = false;
        self.model.resize(size.clamped(), scrollback);
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.model.size()
    }

    /// The bytes that bring any xterm-like terminal of this size into exactly this state. Empty if
    /// nothing was ever printed: a terminal that is given a new program need not be cleared.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        if !self.printed {
            return Vec::new();
        }
        let mut bytes = dump::snapshot(&self.model);
        bytes.extend_from_slice(self.partial.bytes());
        bytes
    }

    /// The text of each visible row, without attributes and trailing blanks.
    #[must_use]
    pub fn visible_lines(&self) -> Vec<String> {
        let grid = self.model.term.grid();
        (0..grid.screen_lines()).map(|row| render::row_text(render::row_at(grid, row))).collect()
    }

    /// All that is to be seen of it.
    #[must_use]
    pub fn view(&self, seq: u64) -> ScreenView {
        let grid = self.model.term.grid();
        let rows = || (0..grid.screen_lines()).map(|row| render::row_at(grid, row));
        let point = grid.cursor.point;
        let number = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        ScreenView {
            size: Some(self.size()),
            seq,
            cursor: CursorView {
                row: number(usize::try_from(point.line.0).unwrap_or(0)),
                col: number(point.column.0),
                visible: self.model.mode(TermMode::SHOW_CURSOR),
            },
            title: self.model.shadow.title.clone(),
            alternate: self.alternate(),
            bracketed_paste: self.bracketed_paste(),
            rows: rows().map(render::row_text).collect(),
            ansi: rows().map(render::row_ansi).collect(),
        }
    }

    /// The logical lines that are to be seen, rendered: of the screen that is shown, whichever that is.
    #[must_use]
    pub fn shown_lines(&self) -> Vec<Vec<u8>> {
        if !self.alternate() {
            return self.rendered_lines();
        }
        let mut lines = Vec::new();
        let mut line = render::LineBuilder::default();
        let sink = &mut |line: &[u8]| lines.push(line.to_vec());
        let grid = self.model.term.grid();
        for row in 0..render::used_rows(grid) {
            line.append(render::row_at(grid, row), sink);
        }
        line.close(sink);
        lines
    }

    /// What `logs` shows below the scrollback: the logical lines still on the primary screen,
    /// rendered, without the blank ones at the end.
    #[must_use]
    pub fn rendered_lines(&self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut line = self.model.leaving.clone();
        let sink = &mut |line: &[u8]| lines.push(line.to_vec());
        let grid = self.model.primary();
        for row in 0..render::used_rows(grid) {
            line.append(render::row_at(grid, row), sink);
        }
        line.close(sink);
        lines
    }

    /// The lines that `logs -f` may tell: the logical lines of the primary screen that end above
    /// the cursor. Blank ones wait until something stands below them: a cursor alone is no line.
    #[must_use]
    pub fn settled_lines(&self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut line = self.model.leaving.clone();
        let grid = self.model.primary();
        let above = usize::try_from(grid.cursor.point.line.0).unwrap_or(0);
        for row in 0..above.min(render::used_rows(grid)) {
            line.append(render::row_at(grid, row), &mut |line| lines.push(line.to_vec()));
        }
        lines
    }

    /// Answers to the program's queries since the last call (at most 4 KiB; the caller limits the
    /// rate, and throws them away while a viewer's own terminal answers).
    pub fn take_replies(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.model.replies)
    }

    /// The title, if it changed since the last call; empty if it was taken away. Without control
    /// characters.
    pub fn take_title(&mut self) -> Option<String> {
        let changed = std::mem::take(&mut self.model.title_changed);
        changed.then(|| self.model.shadow.title.clone().unwrap_or_default())
    }

    /// Whether the bell rang since the last call.
    pub fn take_bell(&mut self) -> bool {
        std::mem::take(&mut self.model.bell)
    }

    /// Whether the program wants pastes bracketed.
    #[must_use]
    pub fn bracketed_paste(&self) -> bool {
        self.model.mode(TermMode::BRACKETED_PASTE)
    }

    /// Modes that change what a key is.
    #[must_use]
    pub fn typing_modes(&self) -> Modes {
        Modes {
            bracketed_paste: self.bracketed_paste(),
            application_cursor: self.model.mode(TermMode::APP_CURSOR),
        }
    }

    /// Whether the alternate screen is shown.
    #[must_use]
    pub fn alternate(&self) -> bool {
        self.model.hidden.is_some()
    }

    /// A new parser that is in the middle of a command without a name: the rest of the long one
    /// is passed over, and where it ends, parsing goes on.
    fn forget_command(&mut self, scrollback: &mut Scrollback) {
        self.parser = Processor::new();
        let mut feed = Feed { model: &mut self.model, scrollback, cells_left: 0 };
        self.parser.advance(&mut feed, FORGOTTEN);
        self.partial.restarted(FORGOTTEN);
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Undoes every mode that a program may have switched on: for a viewer's terminal on the way out.
#[must_use]
pub fn reset_sequence() -> &'static [u8] {
    dump::RESET
}
