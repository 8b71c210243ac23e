//! Answers to a program's queries, for when no viewer's terminal is there to answer: without them
//! programs wait for their timeouts. What the model cannot do is not claimed.

use super::model::Model;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{
    Mode, NamedColor, NamedMode, NamedPrivateMode, PrivateMode, Rgb,
};

impl Model {
    /// A VT220 with colour.
    pub(super) fn answer_identity(&mut self, intermediate: Option<char>) {
        match intermediate {
            None => self.reply(b"\x1b[?62;22c"),
            Some('>') => self.reply(b"\x1b[>1;10;0c"),
            Some(_) => {}
        }
    }

    /// 5: am I well; 6: where is the cursor.
    pub(super) fn answer_status(&mut self, report: usize) {
        if report == 5 {
            self.reply(b"\x1b[0n");
        } else if report == 6 {
            let point = self.term.grid().cursor.point;
            let top = if self.mode(TermMode::ORIGIN) { self.shadow.region.start } else { 0 };
            let row = usize::try_from(point.line.0).unwrap_or(0).saturating_sub(top) + 1;
            self.reply(format!("\x1b[{row};{}R", point.column.0 + 1).as_bytes());
        }
    }

    pub(super) fn answer_size(&mut self) {
        let size = self.size();
        self.reply(format!("\x1b[8;{};{}t", size.rows, size.cols).as_bytes());
    }

    pub(super) fn answer_mode(&mut self, mode: Mode) {
        let known = match mode {
            Mode::Named(NamedMode::Insert) => Some(TermMode::INSERT),
            Mode::Named(NamedMode::LineFeedNewLine) => Some(TermMode::LINE_FEED_NEW_LINE),
            Mode::Unknown(_) => None,
        };
        let state = known.map(|mode| self.mode(mode));
        self.reply(format!("\x1b[{};{}$y", mode.raw(), state_code(state)).as_bytes());
    }

    pub(super) fn answer_private_mode(&mut self, mode: PrivateMode) {
        let state = match mode {
            PrivateMode::Named(named) => self.named_mode(named),
            PrivateMode::Unknown(number) => self.shadow.passed_on.contains(&number).then_some(true),
        };
        self.reply(format!("\x1b[?{};{}$y", mode.raw(), state_code(state)).as_bytes());
    }

    /// Colours that the program set itself, and for text and background black on white's opposite.
    pub(super) fn answer_color(&mut self, prefix: &str, index: usize, terminator: &str) {
        let known = if index < alacritty_terminal::term::color::COUNT {
            self.term.colors()[index]
        } else {
            None
        };
        let grey = |level| Rgb { r: level, g: level, b: level };
        let default = match index {
            text if text == NamedColor::Foreground as usize => Some(grey(0xd0)),
            cursor if cursor == NamedColor::Cursor as usize => Some(grey(0xd0)),
            back if back == NamedColor::Background as usize => Some(grey(0)),
            _ => None,
        };
        if let Some(Rgb { r, g, b }) = known.or(default) {
            let value = format!("rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}");
            self.reply(format!("\x1b]{prefix};{value}{terminator}").as_bytes());
        }
    }

    fn named_mode(&self, mode: NamedPrivateMode) -> Option<bool> {
        let known = match mode {
            NamedPrivateMode::CursorKeys => TermMode::APP_CURSOR,
            NamedPrivateMode::Origin => TermMode::ORIGIN,
            NamedPrivateMode::LineWrap => TermMode::LINE_WRAP,
            NamedPrivateMode::ShowCursor => TermMode::SHOW_CURSOR,
            NamedPrivateMode::ReportMouseClicks => TermMode::MOUSE_REPORT_CLICK,
            NamedPrivateMode::ReportCellMouseMotion => TermMode::MOUSE_DRAG,
            NamedPrivateMode::ReportAllMouseMotion => TermMode::MOUSE_MOTION,
            NamedPrivateMode::ReportFocusInOut => TermMode::FOCUS_IN_OUT,
            NamedPrivateMode::Utf8Mouse => TermMode::UTF8_MOUSE,
            NamedPrivateMode::SgrMouse => TermMode::SGR_MOUSE,
            NamedPrivateMode::BracketedPaste => TermMode::BRACKETED_PASTE,
            NamedPrivateMode::SwapScreenAndSetRestoreCursor => TermMode::ALT_SCREEN,
            NamedPrivateMode::AlternateScroll => {
                return Some(self.shadow.alternate_scroll.unwrap_or(false));
            }
            NamedPrivateMode::BlinkingCursor => {
                return Some(self.shadow.style.is_some_and(|style| style.blinking));
            }
            // Nothing is drawn here, so an update is never half done.
            NamedPrivateMode::SyncUpdate => return Some(false),
            NamedPrivateMode::UrgencyHints | NamedPrivateMode::ColumnMode => return None,
        };
        Some(self.mode(known))
    }
}

/// Not known, set, reset.
fn state_code(state: Option<bool>) -> u8 {
    match state {
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    }
}
