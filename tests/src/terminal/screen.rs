//! What a person would see: a terminal emulator fed with the bytes.

use alacritty_terminal::Term;
use alacritty_terminal::event::{Event, EventListener};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::{Config, TermMode};
use alacritty_terminal::vte::ansi::{Processor, StdSyncHandler};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy)]
struct Extent {
    cols: usize,
    rows: usize,
}

impl Dimensions for Extent {
    fn total_lines(&self) -> usize {
        self.rows
    }

    fn screen_lines(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.cols
    }
}

/// Collects what the emulator wants to answer.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl EventListener for Answers {
    fn send_event(&self, event: Event) {
        if let Event::PtyWrite(text) = event {
            let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            answers.extend_from_slice(text.as_bytes());
        }
    }
}

/// Whether the bytes are drawn as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawing {
    On,
    Off,
}

pub(super) struct Shown {
    drawing: Drawing,
    term: Term<Answers>,
    parser: Processor<StdSyncHandler>,
    answers: Answers,
    raw: Vec<u8>,
    ended: bool,
}

impl Shown {
    pub(super) fn new(cols: u16, rows: u16, drawing: Drawing) -> Self {
        let answers = Answers::default();
        let extent = Extent { cols: cols.into(), rows: rows.into() };
        Self {
            drawing,
            term: Term::new(Config::default(), &extent, answers.clone()),
            parser: Processor::new(),
            answers,
            raw: Vec::new(),
            ended: false,
        }
    }

    /// Empty: the end. Returns what the terminal answers.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.ended = bytes.is_empty();
        self.raw.extend_from_slice(bytes);
        if self.drawing == Drawing::On {
            self.parser.advance(&mut self.term, bytes);
        }
        std::mem::take(&mut self.answers.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn resize(&mut self, cols: u16, rows: u16) {
        self.term.resize(Extent { cols: cols.into(), rows: rows.into() });
    }

    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.rows_from(0)
    }

    pub(super) fn history_and_lines(&self) -> Vec<String> {
        let above = i32::try_from(self.term.grid().history_size()).unwrap_or(0);
        self.rows_from(-above)
    }

    fn rows_from(&self, first: i32) -> Vec<String> {
        let grid = self.term.grid();
        let rows = i32::try_from(grid.screen_lines()).unwrap_or(0);
        (first..rows)
            .map(|row| {
                let cells = (0..grid.columns()).map(|column| grid[Line(row)][Column(column)].c);
                cells.collect::<String>().trim_end().to_owned()
            })
            .collect()
    }

    pub(super) fn modes_left_on(&self) -> Vec<&'static str> {
        let mode = self.term.mode();
        let bad_if_on = [
            (TermMode::ALT_SCREEN, "alt-screen"),
            (TermMode::MOUSE_MODE, "mouse"),
            (TermMode::BRACKETED_PASTE, "paste"),
            (TermMode::FOCUS_IN_OUT, "focus"),
            (TermMode::APP_CURSOR, "cursor-keys"),
            (TermMode::APP_KEYPAD, "keypad"),
        ];
        let mut left: Vec<&'static str> = bad_if_on
            .into_iter()
            .filter(|(flag, _)| mode.intersects(*flag))
            .map(|(_, name)| name)
            .collect();
        if !mode.contains(TermMode::SHOW_CURSOR) {
            left.push("hidden-cursor");
        }
        if !mode.contains(TermMode::LINE_WRAP) {
            left.push("no-wrap");
        }
        left
    }
}
