//! Attributes of a cell, and the fewest escape sequences from one set to the next.

use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, NamedColor};
use std::io::Write;

/// Flags that say something about the look of a cell; the others are about its place.
const LOOK: Flags = Flags::INVERSE
    .union(Flags::BOLD)
    .union(Flags::ITALIC)
    .union(Flags::ALL_UNDERLINES)
    .union(Flags::DIM)
    .union(Flags::HIDDEN)
    .union(Flags::STRIKEOUT);
/// What makes a cell without a character more than blank: looks that show, and the second half of
/// a wide character.
const MORE_THAN_BLANK: Flags = Flags::INVERSE
    .union(Flags::ALL_UNDERLINES)
    .union(Flags::STRIKEOUT)
    .union(Flags::WIDE_CHAR_SPACER)
    .union(Flags::LEADING_WIDE_CHAR_SPACER);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pen {
    fg: Color,
    bg: Color,
    look: Flags,
    underline: Option<Color>,
}

impl Default for Pen {
    fn default() -> Self {
        Self {
            fg: Color::Named(NamedColor::Foreground),
            bg: Color::Named(NamedColor::Background),
            look: Flags::empty(),
            underline: None,
        }
    }
}

impl Pen {
    pub(super) fn of(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            look: cell.flags & LOOK,
            underline: cell.underline_color(),
        }
    }

    /// Goes from this pen to `next`.
    pub(super) fn change_to(&mut self, next: Self, out: &mut Vec<u8>) {
        if *self == next {
            return;
        }
        if next == Self::default() {
            out.extend_from_slice(b"\x1b[m");
        } else {
            self.write_change(next, out);
        }
        *self = next;
    }

    fn write_change(self, next: Self, out: &mut Vec<u8>) {
        // What must go can only be taken back reliably by a reset: terminals differ on 21 and 22.
        let must_reset = !next.look.contains(self.look)
            || (self.underline.is_some() && next.underline.is_none());
        let from = if must_reset { Self::default() } else { self };
        out.extend_from_slice(b"\x1b[");
        if must_reset {
            out.extend_from_slice(b"0;");
        }
        for (flag, code) in LOOK_CODES {
            if next.look.contains(flag) && !from.look.contains(flag) {
                out.extend_from_slice(code);
                out.push(b';');
            }
        }
        if next.fg != from.fg {
            write_color(next.fg, 0, out);
        }
        if next.bg != from.bg {
            write_color(next.bg, 10, out);
        }
        if let Some(color) = next.underline
            && from.underline != next.underline
        {
            write_underline_color(color, out);
        }
        // The last separator becomes the end of the sequence.
        out.pop();
        out.push(b'm');
    }
}

/// A cell that looks like one which was never written.
pub(super) fn is_blank(cell: &Cell) -> bool {
    matches!(cell.c, ' ' | '\t')
        && cell.bg == Color::Named(NamedColor::Background)
        && !cell.flags.intersects(MORE_THAN_BLANK)
        && cell.extra.is_none()
}

/// An underline of a kind replaces another kind, so at most one of these applies.
const LOOK_CODES: [(Flags, &[u8]); 11] = [
    (Flags::BOLD, b"1"),
    (Flags::DIM, b"2"),
    (Flags::ITALIC, b"3"),
    (Flags::UNDERLINE, b"4"),
    (Flags::DOUBLE_UNDERLINE, b"4:2"),
    (Flags::UNDERCURL, b"4:3"),
    (Flags::DOTTED_UNDERLINE, b"4:4"),
    (Flags::DASHED_UNDERLINE, b"4:5"),
    (Flags::INVERSE, b"7"),
    (Flags::HIDDEN, b"8"),
    (Flags::STRIKEOUT, b"9"),
];

fn write_color(color: Color, offset: u16, out: &mut Vec<u8>) {
    let extended = 38 + offset;
    // Writing to a Vec cannot fail.
    let _infallible = match color {
        Color::Named(name) => write!(out, "{};", named_code(name) + offset),
        Color::Indexed(index) => write!(out, "{extended};5;{index};"),
        Color::Spec(rgb) => write!(out, "{extended};2;{};{};{};", rgb.r, rgb.g, rgb.b),
    };
}

fn write_underline_color(color: Color, out: &mut Vec<u8>) {
    // The colon form: a terminal that does not know 58 would read `;`-parts as attributes.
    let _infallible = match color {
        Color::Named(_) => write!(out, "59;"),
        Color::Indexed(index) => write!(out, "58:5:{index};"),
        Color::Spec(rgb) => write!(out, "58:2::{}:{}:{};", rgb.r, rgb.g, rgb.b),
    };
}

fn named_code(name: NamedColor) -> u16 {
    match name {
        NamedColor::Black | NamedColor::DimBlack => 30,
        NamedColor::Red | NamedColor::DimRed => 31,
        NamedColor::Green | NamedColor::DimGreen => 32,
        NamedColor::Yellow | NamedColor::DimYellow => 33,
        NamedColor::Blue | NamedColor::DimBlue => 34,
        NamedColor::Magenta | NamedColor::DimMagenta => 35,
        NamedColor::Cyan | NamedColor::DimCyan => 36,
        NamedColor::White | NamedColor::DimWhite => 37,
        NamedColor::BrightBlack => 90,
        NamedColor::BrightRed => 91,
        NamedColor::BrightGreen => 92,
        NamedColor::BrightYellow => 93,
        NamedColor::BrightBlue => 94,
        NamedColor::BrightMagenta => 95,
        NamedColor::BrightCyan => 96,
        NamedColor::BrightWhite => 97,
        NamedColor::Foreground
        | NamedColor::Background
        | NamedColor::Cursor
        | NamedColor::BrightForeground
        | NamedColor::DimForeground => 39,
    }
}
