//! The snapshot: the model's state as escape sequences for another terminal.
//!
//! In this order, because each step may disturb the ones before it: take back everything; paint
//! the primary screen; its saved cursor; its cursor; if it is hidden, the alternate screen in the
//! same way; tab stops; scroll region and origin; the cursor; attributes; modes; colours; title.

use super::model::links::LINKS_BYTES_MAX;
use super::model::{Model, default_tabs};
use super::pen::Pen;
use super::render::{push_char, row_at, row_cells, without_blank_end};
use alacritty_terminal::grid::{Cursor, Dimensions, Grid};
use alacritty_terminal::index::Column;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags, Hyperlink};
use alacritty_terminal::term::color::COUNT;
use alacritty_terminal::vte::ansi::{
    CharsetIndex, CursorShape, KeyboardModes, ModifyOtherKeys, NamedColor, Rgb, StandardCharset,
};
use std::io::Write;

/// Ends whatever sequence the terminal is in the middle of (it may have lost the rest), takes back
/// every mode, and clears the screen. Colours of the palette are left alone: they may be the user's.
pub(super) const HEAD: &[u8] = concat!(
    "\x18\x1b\\\x1b[?2026l\x1b[?1049l",
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1004l\x1b[?2004l",
    "\x1b[?9l\x1b[?1001l\x1b[?1015l\x1b[?1016l\x1b[?2031l\x1b[?2048l",
    "\x1b[<64u\x1b[>4m\x1b[?1l\x1b>\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l",
    "\x1b[r\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b]8;;\x1b\\\x1b[?5W\x1b[?25h\x1b[0 q\x1b[m\x1b[H\x1b7\x1b[2J"
)
.as_bytes();

/// For a viewer's terminal on the way out. It need not be in the alternate screen: the cursor is
/// saved first, because some terminals restore it in any case.
pub(super) const RESET: &[u8] = concat!(
    "\x18\x1b\\\x1b[?2026l",
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1004l\x1b[?2004l",
    "\x1b[?9l\x1b[?1001l\x1b[?1015l\x1b[?1016l\x1b[?2031l\x1b[?2048l",
    "\x1b[<64u\x1b[>4m\x1b[?1l\x1b>\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l",
    "\x1b7\x1b[r\x1b8\x1b7\x1b[?1049l\x1b[<64u",
    "\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b]8;;\x1b\\\x1b[?25h\x1b[0 q\x1b[m"
)
.as_bytes();

/// Modes of the library that the viewer's terminal must have too, in the order they are set.
const MODES: [(TermMode, &[u8]); 11] = [
    (TermMode::INSERT, b"\x1b[4h"),
    (TermMode::LINE_FEED_NEW_LINE, b"\x1b[20h"),
    (TermMode::APP_CURSOR, b"\x1b[?1h"),
    (TermMode::APP_KEYPAD, b"\x1b="),
    (TermMode::BRACKETED_PASTE, b"\x1b[?2004h"),
    (TermMode::FOCUS_IN_OUT, b"\x1b[?1004h"),
    (TermMode::MOUSE_REPORT_CLICK, b"\x1b[?1000h"),
    (TermMode::MOUSE_DRAG, b"\x1b[?1002h"),
    (TermMode::MOUSE_MOTION, b"\x1b[?1003h"),
    (TermMode::UTF8_MOUSE, b"\x1b[?1005h"),
    (TermMode::SGR_MOUSE, b"\x1b[?1006h"),
];

const CHARSETS: [(CharsetIndex, u8); 4] = [
    (CharsetIndex::G0, b'('),
    (CharsetIndex::G1, b')'),
    (CharsetIndex::G2, b'*'),
    (CharsetIndex::G3, b'+'),
];

pub(super) fn snapshot(model: &Model) -> Vec<u8> {
    let mut dump = Dump::default();
    dump.out.extend_from_slice(HEAD);
    let shadow = &model.shadow;
    if let Some(primary) = &model.hidden {
        dump.keyboard(&shadow.other_keyboard);
        dump.paint(primary);
        dump.place(primary, &primary.cursor, 0);
        // Saves the cursor, as the program's own switch did.
        dump.text("\x1b[?1049h");
        dump.plain();
        dump.text("\x1b[H\x1b7");
    }
    let grid = model.term.grid();
    dump.keyboard(&shadow.keyboard);
    dump.paint(grid);
    dump.saved_cursor(grid);
    dump.tabs(&shadow.tabs);
    dump.region(model);
    let origin = model.mode(TermMode::ORIGIN);
    dump.place(grid, &grid.cursor, if origin { shadow.region.start } else { 0 });
    dump.active_charset(shadow.charset);
    dump.modes(model);
    dump.colors(model);
    if let Some(title) = &shadow.title {
        dump.text(&format!("\x1b]2;{title}\x1b\\"));
    }
    dump.out
}

/// What has been said so far, and the state that this left the other terminal in.
#[derive(Debug, Default)]
struct Dump {
    out: Vec<u8>,
    pen: Pen,
    link: Option<Hyperlink>,
    /// Said of links. Two that take turns from cell to cell are small in memory and large here.
    link_bytes: usize,
    charsets: [StandardCharset; 4],
}

impl Dump {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn pen(&mut self, next: Pen) {
        self.pen.change_to(next, &mut self.out);
    }

    fn goto(&mut self, row: usize, column: usize) {
        // Writing to a Vec cannot fail.
        let _infallible = write!(self.out, "\x1b[{};{}H", row + 1, column + 1);
    }

    fn plain(&mut self) {
        self.pen(Pen::default());
        self.link(None);
        self.charsets_of(&Cursor::default());
    }

    fn link(&mut self, next: Option<Hyperlink>) {
        if self.link == next {
            return;
        }
        let next = next.filter(|link| {
            self.link_bytes += link.id().len() + link.uri().len();
            self.link_bytes <= LINKS_BYTES_MAX
        });
        if self.link.is_none() && next.is_none() {
            return;
        }
        match &next {
            Some(link) => self.text(&format!("\x1b]8;id={};{}\x1b\\", link.id(), link.uri())),
            None => self.text("\x1b]8;;\x1b\\"),
        }
        self.link = next;
    }

    /// Paints onto a clear screen. Wrapped rows are written through the edge, so that the other
    /// terminal knows they belong together too.
    fn paint(&mut self, grid: &Grid<Cell>) {
        let mut follows = false;
        let mut at_row = Some(0);
        for row in 0..grid.screen_lines() {
            let cells = row_cells(row_at(grid, row));
            let wraps = row + 1 < grid.screen_lines()
                && cells.last().is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE));
            let shown = if wraps { cells } else { without_blank_end(cells) };
            // A row that was wrapped into has something in its first cell, if only a blank.
            let shown = if follows && shown.is_empty() {
                cells.get(..1).unwrap_or_default()
            } else {
                shown
            };
            if !shown.is_empty() {
                if !follows {
                    self.start_row(row, at_row);
                }
                self.paint_cells(shown);
                at_row = Some(row);
            }
            follows = wraps;
        }
        self.pen(Pen::default());
        self.link(None);
    }

    fn start_row(&mut self, row: usize, at_row: Option<usize>) {
        match at_row {
            Some(at) if at == row && row == 0 => {}
            Some(at) if at + 1 == row => self.text("\r\n"),
            Some(_) | None => self.goto(row, 0),
        }
    }

    fn paint_cells(&mut self, cells: &[Cell]) {
        let mut cells = cells.iter().peekable();
        while let Some(cell) = cells.next() {
            let is_last = cells.peek().is_none();
            let next_is_spacer =
                cells.peek().is_some_and(|next| next.flags.contains(Flags::WIDE_CHAR_SPACER));
            if cell.flags.contains(Flags::WIDE_CHAR) && next_is_spacer {
                self.cell(cell, cell.c);
                cells.next();
            } else if cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) && is_last {
                // The wide character that did not fit makes it again.
            } else if cell.flags.contains(Flags::WIDE_CHAR) {
                // Half of it was overwritten.
                self.cell(cell, ' ');
            } else {
                self.cell(cell, cell.c);
            }
        }
    }

    fn cell(&mut self, cell: &Cell, c: char) {
        self.pen(Pen::of(cell));
        self.link(cell.hyperlink());
        push_char(c, &mut self.out);
        for c in cell.zerowidth().unwrap_or_default() {
            push_char(*c, &mut self.out);
        }
    }

    /// The cursor's place, whether the next character wraps, its attributes and charsets.
    /// `top`: the row that counts as the first.
    fn place(&mut self, grid: &Grid<Cell>, cursor: &Cursor<Cell>, top: usize) {
        let row = usize::try_from(cursor.point.line.0).unwrap_or(0);
        let shown_row = row.saturating_sub(top);
        let column = cursor.point.column.0;
        if cursor.input_needs_wrap && column + 1 == grid.columns() {
            self.write_last_cell_again(grid, row, shown_row);
        } else {
            self.goto(shown_row, column);
        }
        self.pen(Pen::of(&cursor.template));
        self.link(cursor.template.hyperlink());
        self.charsets_of(cursor);
    }

    /// Only a character in the last column makes the next one wrap.
    fn write_last_cell_again(&mut self, grid: &Grid<Cell>, row: usize, shown_row: usize) {
        self.charsets_of(&Cursor::default());
        let row = row_at(grid, row);
        let last = grid.columns() - 1;
        let is_spacer = row[Column(last)].flags.contains(Flags::WIDE_CHAR_SPACER);
        let from = if is_spacer { last.saturating_sub(1) } else { last };
        self.goto(shown_row, from);
        self.paint_cells(&row[Column(from)..]);
    }

    fn saved_cursor(&mut self, grid: &Grid<Cell>) {
        if grid.saved_cursor != Cursor::default() {
            self.place(grid, &grid.saved_cursor, 0);
            self.text("\x1b7");
            self.plain();
        }
    }

    fn charsets_of(&mut self, cursor: &Cursor<Cell>) {
        for ((index, designator), known) in CHARSETS.into_iter().zip(&mut self.charsets) {
            let wanted = cursor.charsets[index];
            if wanted != *known {
                let name = match wanted {
                    StandardCharset::Ascii => b'B',
                    StandardCharset::SpecialCharacterAndLineDrawing => b'0',
                };
                self.out.extend_from_slice(&[0x1b, designator, name]);
                *known = wanted;
            }
        }
    }

    fn active_charset(&mut self, index: CharsetIndex) {
        match index {
            CharsetIndex::G0 => {}
            CharsetIndex::G1 => self.text("\x0e"),
            CharsetIndex::G2 => self.text("\x1bn"),
            CharsetIndex::G3 => self.text("\x1bo"),
        }
    }

    fn tabs(&mut self, tabs: &[bool]) {
        if tabs == default_tabs(tabs.len()) {
            return;
        }
        self.text("\x1b[3g");
        for (column, _) in tabs.iter().enumerate().filter(|(_, stop)| **stop) {
            self.goto(0, column);
            self.text("\x1bH");
        }
    }

    fn region(&mut self, model: &Model) {
        let region = &model.shadow.region;
        if *region != (0..model.term.screen_lines()) {
            self.text(&format!("\x1b[{};{}r", region.start + 1, region.end));
        }
        if model.mode(TermMode::ORIGIN) {
            self.text("\x1b[?6h");
        }
    }

    fn modes(&mut self, model: &Model) {
        for (mode, sequence) in MODES {
            if model.mode(mode) {
                self.out.extend_from_slice(sequence);
            }
        }
        if !model.mode(TermMode::LINE_WRAP) {
            self.text("\x1b[?7l");
        }
        for mode in &model.shadow.passed_on {
            self.text(&format!("\x1b[?{mode}h"));
        }
        match model.shadow.alternate_scroll {
            Some(true) => self.text("\x1b[?1007h"),
            Some(false) => self.text("\x1b[?1007l"),
            None => {}
        }
        match model.shadow.modify_keys {
            Some(ModifyOtherKeys::EnableExceptWellDefined) => self.text("\x1b[>4;1m"),
            Some(ModifyOtherKeys::EnableAll) => self.text("\x1b[>4;2m"),
            Some(ModifyOtherKeys::Reset) | None => {}
        }
        self.cursor_style(model);
        if !model.mode(TermMode::SHOW_CURSOR) {
            self.text("\x1b[?25l");
        }
    }

    fn cursor_style(&mut self, model: &Model) {
        let Some(style) = model.shadow.style else { return };
        let steady = match style.shape {
            CursorShape::Block | CursorShape::HollowBlock | CursorShape::Hidden => 2,
            CursorShape::Underline => 4,
            CursorShape::Beam => 6,
        };
        self.text(&format!("\x1b[{} q", steady - u8::from(style.blinking)));
    }

    fn keyboard(&mut self, stack: &[KeyboardModes]) {
        for level in stack {
            self.text(&format!("\x1b[>{}u", level.bits()));
        }
    }

    fn colors(&mut self, model: &Model) {
        for index in 0..COUNT {
            let Some(Rgb { r, g, b }) = model.term.colors()[index] else { continue };
            let number = match index {
                0..256 => format!("4;{index}"),
                text if text == NamedColor::Foreground as usize => "10".into(),
                back if back == NamedColor::Background as usize => "11".into(),
                cursor if cursor == NamedColor::Cursor as usize => "12".into(),
                _ => continue,
            };
            self.text(&format!("\x1b]{number};rgb:{r:02x}/{g:02x}/{b:02x}\x1b\\"));
        }
    }
}
