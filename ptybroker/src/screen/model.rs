//! The state behind the screen: the library's terminal, and beside it what that keeps to itself.

pub(super) mod links;

use super::render::LineBuilder;
use crate::scrollback::Scrollback;
use alacritty_terminal::Term;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::{Dimensions, Grid};
use alacritty_terminal::index::Line;
use alacritty_terminal::term::cell::Cell;
use alacritty_terminal::term::{Config, Osc52, TermMode};
use alacritty_terminal::vte::ansi::{CharsetIndex, CursorStyle, KeyboardModes, ModifyOtherKeys};
use std::ops::Range;
use wire::Size;

/// Replies that wait for [`super::Screen::take_replies`] at most, in bytes.
const REPLY_BYTES_MAX: usize = 4096;
/// History that a resize may push out of the top, in rows: everything the largest screen can hold,
/// reflowed to the fewest columns.
const RESIZE_ROWS_MAX: usize = Size::MAX.rows as usize * Size::MAX.cols as usize;

pub(super) struct Model {
    pub(super) term: Term<VoidListener>,
    pub(super) shadow: Shadow,
    /// The primary grid while the alternate screen is shown: the library hides it.
    pub(super) hidden: Option<Box<Grid<Cell>>>,
    /// The line whose first rows have left the top.
    pub(super) leaving: LineBuilder,
    pub(super) replies: Vec<u8>,
    pub(super) title_changed: bool,
    pub(super) bell: bool,
    links: links::Links,
}

/// What the library keeps private or does not know, followed by [`super::handler`].
#[derive(Debug)]
pub(super) struct Shadow {
    /// The rows that scroll.
    pub(super) region: Range<usize>,
    pub(super) tabs: Vec<bool>,
    pub(super) charset: CharsetIndex,
    pub(super) style: Option<CursorStyle>,
    pub(super) title: Option<String>,
    pub(super) titles: Vec<Option<String>>,
    /// Keyboard protocol levels: of the screen that is shown, and of the other one.
    pub(super) keyboard: Vec<KeyboardModes>,
    pub(super) other_keyboard: Vec<KeyboardModes>,
    pub(super) modify_keys: Option<ModifyOtherKeys>,
    /// Set private modes that only the viewer's terminal acts on.
    pub(super) passed_on: Vec<u16>,
    /// Mode 1007, if the program chose: the library's default is not every terminal's.
    pub(super) alternate_scroll: Option<bool>,
}

impl Shadow {
    pub(super) fn new(size: Size) -> Self {
        Self {
            region: 0..usize::from(size.rows),
            tabs: default_tabs(usize::from(size.cols)),
            charset: CharsetIndex::G0,
            style: None,
            title: None,
            titles: Vec::new(),
            keyboard: Vec::new(),
            other_keyboard: Vec::new(),
            modify_keys: None,
            passed_on: Vec::new(),
            alternate_scroll: None,
        }
    }
}

/// A stop at every eighth column.
pub(super) fn default_tabs(cols: usize) -> Vec<bool> {
    (0..cols).map(|col| col % 8 == 0).collect()
}

/// The library's own trait for a size.
struct Cells(Size);

impl Dimensions for Cells {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }
    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }
    fn columns(&self) -> usize {
        usize::from(self.0.cols)
    }
}

impl Model {
    pub(super) fn new(size: Size) -> Self {
        // No history: rows are taken at the moment they leave. No keyboard protocol: the library
        // panics when its stack overflows, so the shadow keeps it.
        let config = Config {
            scrolling_history: 0,
            kitty_keyboard: false,
            osc52: Osc52::Disabled,
            ..Config::default()
        };
        Self {
            term: Term::new(config, &Cells(size), VoidListener),
            shadow: Shadow::new(size),
            hidden: None,
            leaving: LineBuilder::default(),
            replies: Vec::new(),
            title_changed: false,
            bell: false,
            links: links::Links::default(),
        }
    }

    pub(super) fn size(&self) -> Size {
        let cells = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        Size { cols: cells(self.term.columns()), rows: cells(self.term.screen_lines()) }
    }

    pub(super) fn mode(&self, mode: TermMode) -> bool {
        self.term.mode().contains(mode)
    }

    pub(super) fn primary(&self) -> &Grid<Cell> {
        self.hidden.as_deref().unwrap_or_else(|| self.term.grid())
    }

    /// What grows or shrinks reflows; rows that no longer fit leave at the top.
    pub(super) fn resize(&mut self, size: Size, scrollback: &mut Scrollback) {
        let old = self.size();
        if old == size {
            return;
        }
        let sink = &mut |line: &[u8]| scrollback.push(line);
        if let Some(hidden) = &mut self.hidden {
            let (rows, cols) = (usize::from(size.rows), usize::from(size.cols));
            hidden.update_history(RESIZE_ROWS_MAX);
            hidden.resize(true, rows, cols);
            take_history(hidden, &mut self.leaving, sink);
            self.term.resize(Cells(size));
        } else {
            self.term.grid_mut().update_history(RESIZE_ROWS_MAX);
            self.term.resize(Cells(size));
            take_history(self.term.grid_mut(), &mut self.leaving, sink);
        }
        self.shadow.region = 0..usize::from(size.rows);
        let cols = usize::from(size.cols);
        let known = self.shadow.tabs.len();
        self.shadow.tabs.truncate(cols);
        self.shadow.tabs.extend((known..cols).map(|col| col % 8 == 0));
    }

    pub(super) fn reply(&mut self, answer: &[u8]) {
        if self.replies.len() + answer.len() <= REPLY_BYTES_MAX {
            self.replies.extend_from_slice(answer);
        }
    }
}

/// Gives the rows above the screen to `sink` and forgets them.
fn take_history(grid: &mut Grid<Cell>, line: &mut LineBuilder, sink: &mut impl FnMut(&[u8])) {
    let rows = i32::try_from(grid.history_size()).unwrap_or(i32::MAX);
    for row in (1..=rows).rev() {
        line.append(&grid[Line(-row)], sink);
    }
    grid.update_history(0);
    grid.truncate();
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("size", &self.size()).finish_non_exhaustive()
    }
}
