//! Every call of the parser on its way to the library's terminal: most pass through; some are
//! noted in the shadow, some are answered, and rows are taken before they scroll away.
//!
//! What clears the screen and what scrolls it decides what the scrollback gets:
//! - lines that scroll out of the top of the primary screen, also by `CSI S`; not by `CSI M`;
//! - the whole used screen before `ED 2` (and `ED 0` from the top left corner) and `ESC c`, as
//!   tmux does it, so that `clear` loses nothing;
//! - `ED 3` (forget the scrollback) is not obeyed: a program in a cage does not erase its log.

use super::model::{Model, Shadow, default_tabs};
use super::render::{row_at, used_rows};
use crate::scrollback::Scrollback;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Point};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::vte::ansi::{
    Attr, CharsetIndex, ClearMode, CursorShape, CursorStyle, Handler, Hyperlink, KeyboardModes,
    KeyboardModesApplyBehavior, LineClearMode, Mode, ModifyOtherKeys, NamedPrivateMode,
    PrivateMode, Rgb, StandardCharset, TabulationClearMode,
};
use unicode_width::UnicodeWidthChar;

/// Titles longer than this are ignored, in bytes.
const TITLE_BYTES_MAX: usize = 1024;
/// Entries on the title and keyboard stacks.
const STACK_MAX: usize = 16;
/// Combining characters in one cell.
const COMBINING_MAX: usize = 8;
/// Private modes that the library does not know and the viewer's terminal acts on: kinds of mouse
/// and keyboard reports, and notices of colour scheme and size.
const PASSED_ON: [u16; 10] = [9, 66, 67, 1001, 1015, 1016, 1035, 1036, 2031, 2048];
/// Older ways to the alternate screen, and the cursor's saving by itself.
const ALTERNATE_OLD: u16 = 47;
const ALTERNATE_CLEARING: u16 = 1047;
const SAVE_CURSOR: u16 = 1048;

/// The model while it is fed one slice.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    pub(super) model: &'a mut Model,
    pub(super) scrollback: &'a mut Scrollback,
    /// Cells that this slice may still write: `CSI 65535 b` is 65,535 characters in eight bytes.
    pub(super) cells_left: usize,
}

impl Feed<'_> {
    /// The first `rows` rows are about to scroll away.
    fn rows_leave(&mut self, rows: usize) {
        let Self { model, scrollback, .. } = self;
        for row in 0..rows {
            let row = row_at(model.term.grid(), row);
            model.leaving.append(row, &mut |line| scrollback.push(line));
        }
    }

    /// The primary screen is about to be cleared.
    fn screen_leaves(&mut self) {
        let Self { model, scrollback, .. } = self;
        let sink = &mut |line: &[u8]| scrollback.push(line);
        let grid = model.hidden.as_deref().unwrap_or_else(|| model.term.grid());
        for row in 0..used_rows(grid) {
            model.leaving.append(row_at(grid, row), sink);
        }
        model.leaving.close(sink);
    }

    /// The top row is not the rest of the line that is leaving any more.
    fn top_row_restarts(&mut self) {
        let Self { model, scrollback, .. } = self;
        model.leaving.close(&mut |line| scrollback.push(line));
    }

    fn scrolls_into_history(&self) -> bool {
        self.model.shadow.region.start == 0 && self.model.hidden.is_none()
    }

    fn cursor(&self) -> Point {
        self.model.term.grid().cursor.point
    }

    /// A line feed follows.
    fn before_linefeed(&mut self) {
        let next = usize::try_from(self.cursor().line.0 + 1).unwrap_or(0);
        if next == self.model.shadow.region.end && self.scrolls_into_history() {
            self.rows_leave(1);
        }
    }

    /// The next character, or tab, goes to the next line.
    fn before_wrap(&mut self) {
        if self.model.mode(TermMode::LINE_WRAP) {
            self.before_linefeed();
        }
    }

    /// A character beyond ASCII that may take no cell, or two.
    fn before_wide_input(&mut self, width: usize) -> bool {
        let point = self.cursor();
        if width == 0 {
            return self.combining_fits(point);
        }
        let last = self.model.term.columns() - 1;
        let needs_wrap = self.model.term.grid().cursor.input_needs_wrap;
        if needs_wrap || (width == 2 && point.column.0 == last) {
            self.before_wrap();
        }
        true
    }

    fn combining_fits(&self, point: Point) -> bool {
        let grid = self.model.term.grid();
        let back = if grid.cursor.input_needs_wrap { 0 } else { 1 };
        let mut column = Column(point.column.0.saturating_sub(back));
        if grid[point.line][column].flags.contains(Flags::WIDE_CHAR_SPACER) {
            column.0 = column.0.saturating_sub(1);
        }
        grid[point.line][column].zerowidth().is_none_or(|all| all.len() < COMBINING_MAX)
    }

    fn enter_alternate(&mut self) {
        if self.model.hidden.is_some() {
            return;
        }
        let mut hidden = self.model.term.grid().clone();
        hidden.saved_cursor = hidden.cursor.clone();
        self.model.hidden = Some(Box::new(hidden));
        self.swap_keyboards();
        self.model.term.set_private_mode(NamedPrivateMode::SwapScreenAndSetRestoreCursor.into());
    }

    fn leave_alternate(&mut self) {
        if self.model.hidden.take().is_none() {
            return;
        }
        self.swap_keyboards();
        self.model.term.unset_private_mode(NamedPrivateMode::SwapScreenAndSetRestoreCursor.into());
    }

    fn swap_keyboards(&mut self) {
        let shadow = &mut self.model.shadow;
        std::mem::swap(&mut shadow.keyboard, &mut shadow.other_keyboard);
    }

    fn unknown_private_mode(&mut self, mode: u16, set: bool) {
        let passed_on = &mut self.model.shadow.passed_on;
        match mode {
            ALTERNATE_OLD | ALTERNATE_CLEARING if set => self.enter_alternate(),
            ALTERNATE_OLD | ALTERNATE_CLEARING => self.leave_alternate(),
            SAVE_CURSOR if set => self.model.term.save_cursor_position(),
            SAVE_CURSOR => self.model.term.restore_cursor_position(),
            mode if PASSED_ON.contains(&mode) => {
                passed_on.retain(|known| *known != mode);
                if set {
                    passed_on.push(mode);
                }
            }
            _ => {}
        }
    }

    fn blink(&mut self, blinking: bool) {
        self.model.shadow.style.get_or_insert_default().blinking = blinking;
    }
}

/// Methods that only pass through.
macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(#[inline]
        fn $name(&mut self, $($arg: $kind),*) {
            self.model.term.$name($($arg),*);
        })*
    };
}

impl Handler for Feed<'_> {
    pass! {
        goto(line: i32, col: usize);
        goto_line(line: i32);
        goto_col(col: usize);
        insert_blank(count: usize);
        move_up(rows: usize);
        move_down(rows: usize);
        move_forward(cols: usize);
        move_backward(cols: usize);
        move_down_and_cr(rows: usize);
        move_up_and_cr(rows: usize);
        backspace();
        carriage_return();
        substitute();
        scroll_down(rows: usize);
        insert_blank_lines(rows: usize);
        delete_lines(rows: usize);
        erase_chars(count: usize);
        delete_chars(count: usize);
        move_backward_tabs(count: u16);
        move_forward_tabs(count: u16);
        save_cursor_position();
        restore_cursor_position();
        reverse_index();
        terminal_attribute(attr: Attr);
        set_mode(mode: Mode);
        unset_mode(mode: Mode);
        set_keypad_application_mode();
        unset_keypad_application_mode();
        configure_charset(index: CharsetIndex, charset: StandardCharset);
        set_color(index: usize, color: Rgb);
        reset_color(index: usize);
    }

    #[inline]
    fn input(&mut self, c: char) {
        let Some(left) = self.cells_left.checked_sub(1) else { return };
        self.cells_left = left;
        if c.is_ascii() {
            if self.model.term.grid().cursor.input_needs_wrap {
                self.before_wrap();
            }
        } else if !self.before_wide_input(c.width().unwrap_or(1)) {
            return;
        }
        self.model.term.input(c);
    }

    fn put_tab(&mut self, count: u16) {
        if self.model.term.grid().cursor.input_needs_wrap {
            self.before_wrap();
        }
        self.model.term.put_tab(count);
    }

    #[inline]
    fn linefeed(&mut self) {
        self.before_linefeed();
        self.model.term.linefeed();
    }

    #[inline]
    fn newline(&mut self) {
        self.before_linefeed();
        self.model.term.newline();
    }

    fn scroll_up(&mut self, rows: usize) {
        if self.scrolls_into_history() {
            let used = used_rows(self.model.term.grid());
            self.rows_leave(rows.min(self.model.shadow.region.end).min(used));
        }
        self.model.term.scroll_up(rows);
    }

    fn clear_screen(&mut self, mode: ClearMode) {
        let primary = self.model.hidden.is_none();
        match mode {
            ClearMode::All if primary => self.screen_leaves(),
            ClearMode::Below if primary && self.cursor() == Point::default() => {
                self.screen_leaves()
            }
            ClearMode::Above if primary => self.top_row_restarts(),
            ClearMode::Saved => return,
            ClearMode::All | ClearMode::Below | ClearMode::Above => {}
        }
        self.model.term.clear_screen(mode);
    }

    fn clear_line(&mut self, mode: LineClearMode) {
        let whole = !matches!(mode, LineClearMode::Right) || self.cursor().column.0 == 0;
        if self.model.hidden.is_none() && self.cursor().line.0 == 0 && whole {
            self.top_row_restarts();
        }
        self.model.term.clear_line(mode);
    }

    fn decaln(&mut self) {
        let cells = self.model.term.columns() * self.model.term.screen_lines();
        let Some(left) = self.cells_left.checked_sub(cells) else { return };
        self.cells_left = left;
        self.model.term.decaln();
    }

    fn reset_state(&mut self) {
        self.screen_leaves();
        self.model.hidden = None;
        self.model.term.reset_state();
        let had_title = self.model.shadow.title.is_some();
        self.model.title_changed |= had_title;
        self.model.shadow = Shadow::new(self.model.size());
    }

    fn set_horizontal_tabstop(&mut self) {
        let column = self.cursor().column.0;
        if let Some(stop) = self.model.shadow.tabs.get_mut(column) {
            *stop = true;
        }
        self.model.term.set_horizontal_tabstop();
    }

    fn clear_tabs(&mut self, mode: TabulationClearMode) {
        let column = self.cursor().column.0;
        let tabs = &mut self.model.shadow.tabs;
        match mode {
            TabulationClearMode::Current => {
                if let Some(stop) = tabs.get_mut(column) {
                    *stop = false;
                }
            }
            TabulationClearMode::All => tabs.fill(false),
        }
        self.model.term.clear_tabs(mode);
    }

    /// Only ever with 8; the library does not know it.
    fn set_tabs(&mut self, _interval: u16) {
        let term = &mut self.model.term;
        let cursor = term.grid().cursor.point;
        term.clear_tabs(TabulationClearMode::All);
        self.model.shadow.tabs = default_tabs(term.columns());
        for column in (0..term.columns()).step_by(8) {
            term.grid_mut().cursor.point.column = Column(column);
            term.set_horizontal_tabstop();
        }
        term.grid_mut().cursor.point = cursor;
    }

    fn set_scrolling_region(&mut self, top: usize, bottom: Option<usize>) {
        let rows = self.model.term.screen_lines();
        let end = bottom.unwrap_or(rows);
        // The same rule as the library's.
        if top < end {
            self.model.shadow.region = (top - 1).min(rows)..end.min(rows);
        }
        self.model.term.set_scrolling_region(top, bottom);
    }

    fn set_active_charset(&mut self, index: CharsetIndex) {
        self.model.shadow.charset = index;
        self.model.term.set_active_charset(index);
    }

    fn set_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Unknown(mode) => self.unknown_private_mode(mode, true),
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor) => {
                self.enter_alternate();
            }
            // As xterm does unless told otherwise.
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {}
            PrivateMode::Named(NamedPrivateMode::AlternateScroll) => {
                self.model.shadow.alternate_scroll = Some(true);
            }
            PrivateMode::Named(NamedPrivateMode::BlinkingCursor) => self.blink(true),
            PrivateMode::Named(_) => self.model.term.set_private_mode(mode),
        }
    }

    fn unset_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Unknown(mode) => self.unknown_private_mode(mode, false),
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor) => {
                self.leave_alternate();
            }
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {}
            PrivateMode::Named(NamedPrivateMode::AlternateScroll) => {
                self.model.shadow.alternate_scroll = Some(false);
            }
            PrivateMode::Named(NamedPrivateMode::BlinkingCursor) => self.blink(false),
            PrivateMode::Named(_) => self.model.term.unset_private_mode(mode),
        }
    }

    fn set_cursor_style(&mut self, style: Option<CursorStyle>) {
        self.model.shadow.style = style;
    }

    fn set_cursor_shape(&mut self, shape: CursorShape) {
        self.model.shadow.style.get_or_insert_default().shape = shape;
    }

    fn set_title(&mut self, title: Option<String>) {
        if title.as_ref().is_some_and(|title| title.len() > TITLE_BYTES_MAX) {
            return;
        }
        let title = title.map(|title| title.chars().filter(|c| !c.is_control()).collect());
        self.model.title_changed |= self.model.shadow.title != title;
        self.model.shadow.title = title;
    }

    fn push_title(&mut self) {
        let shadow = &mut self.model.shadow;
        if shadow.titles.len() == STACK_MAX {
            shadow.titles.remove(0);
        }
        shadow.titles.push(shadow.title.clone());
    }

    fn pop_title(&mut self) {
        if let Some(title) = self.model.shadow.titles.pop() {
            self.set_title(title);
        }
    }

    fn set_hyperlink(&mut self, link: Option<Hyperlink>) {
        self.model.open_link(link);
    }

    fn bell(&mut self) {
        self.model.bell = true;
    }

    fn push_keyboard_mode(&mut self, mode: KeyboardModes) {
        let keyboard = &mut self.model.shadow.keyboard;
        if keyboard.len() == STACK_MAX {
            keyboard.remove(0);
        }
        keyboard.push(mode);
    }

    fn pop_keyboard_modes(&mut self, count: u16) {
        let keyboard = &mut self.model.shadow.keyboard;
        keyboard.truncate(keyboard.len().saturating_sub(usize::from(count)));
    }

    fn set_keyboard_mode(&mut self, mode: KeyboardModes, apply: KeyboardModesApplyBehavior) {
        let keyboard = &mut self.model.shadow.keyboard;
        if keyboard.is_empty() {
            keyboard.push(KeyboardModes::NO_MODE);
        }
        let Some(top) = keyboard.last_mut() else { return };
        *top = match apply {
            KeyboardModesApplyBehavior::Replace => mode,
            KeyboardModesApplyBehavior::Union => *top | mode,
            KeyboardModesApplyBehavior::Difference => *top - mode,
        };
    }

    fn set_modify_other_keys(&mut self, mode: ModifyOtherKeys) {
        self.model.shadow.modify_keys = match mode {
            ModifyOtherKeys::Reset => None,
            ModifyOtherKeys::EnableExceptWellDefined | ModifyOtherKeys::EnableAll => Some(mode),
        };
    }

    fn identify_terminal(&mut self, intermediate: Option<char>) {
        self.model.answer_identity(intermediate);
    }

    fn device_status(&mut self, report: usize) {
        self.model.answer_status(report);
    }

    fn report_mode(&mut self, mode: Mode) {
        self.model.answer_mode(mode);
    }

    fn report_private_mode(&mut self, mode: PrivateMode) {
        self.model.answer_private_mode(mode);
    }

    fn text_area_size_chars(&mut self) {
        self.model.answer_size();
    }

    fn dynamic_color_sequence(&mut self, prefix: String, index: usize, terminator: &str) {
        self.model.answer_color(&prefix, index, terminator);
    }
}
