//! Which modes of the operator's terminal a program has switched on, so that exactly those are
//! undone. Reads the output as it passes; keeps no screen.

use std::collections::BTreeMap;

/// Longest parameter part of a sequence that is looked at; nothing we track is longer.
const CSI_BYTES_MAX: usize = 64;

/// What means something outside of sequences: ESC, and the shifts to G1 and back.
const STARTERS: [u8; 3] = [0x1b, 0x0e, 0x0f];

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the terminal")]
pub(crate) struct Modes {
    at: At,
    /// Private modes (`CSI ? n h`) that are not as a terminal has them by default.
    private: BTreeMap<u16, bool>,
    insert: bool,
    keypad: bool,
    /// The scroll region is not the whole screen.
    region: bool,
    /// The line-drawing set, or G1 shifted in.
    charset: bool,
    shifted: bool,
    cursor_shape: bool,
    other_keys: bool,
    /// Pushed kitty keyboard flags of the main and of the alternate screen.
    kitty_main: u32,
    kitty_alternate: u32,
    /// Anything was written at all.
    touched: bool,
}

/// Where the reader stands in a sequence.
#[derive(Debug, Default)]
enum At {
    #[default]
    Ground,
    Escape,
    /// After `ESC (` and the like: one byte names the set.
    Charset,
    /// Other intermediate bytes: until a final one.
    Intermediate(u8),
    Csi(Vec<u8>),
    /// OSC, DCS, APC, PM, SOS: until BEL or ST.
    Text,
    TextEscape,
}

/// Modes that are on unless switched off: autowrap and the cursor.
fn default_of(mode: u16) -> bool {
    matches!(mode, 7 | 25)
}

fn is_alternate(mode: u16) -> bool {
    matches!(mode, 47 | 1047 | 1049)
}

/// Modes that a program leaves behind to its user's annoyance.
fn is_tracked(mode: u16) -> bool {
    matches!(mode, 1 | 5 | 6 | 7 | 9 | 25 | 45 | 47 | 66 | 69 | 1047 | 1049 | 2004 | 2026 | 2031)
        || matches!(mode, 1000..=1007 | 1015 | 1016)
}

impl Modes {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.touched |= !bytes.is_empty();
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if matches!(self.at, At::Ground) && !STARTERS.contains(&byte) {
                // Plain text, the bulk of everything: on to what may change a mode.
                let [escape, out, into] = STARTERS;
                let next = memchr::memchr3(escape, out, into, rest).unwrap_or(rest.len());
                rest = rest.get(next..).unwrap_or_default();
                continue;
            }
            self.step(byte);
            rest = after;
        }
    }

    /// The alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        self.private.iter().any(|(&mode, &on)| is_alternate(mode) && on)
    }

    /// The sequences that undo what is on, in the order in which they must come.
    pub(crate) fn undo(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.touched {
            return out;
        }
        self.finish_sequence(&mut out);
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        if self.private.get(&2026) == Some(&true) {
            put("\x1b[?2026l");
        }
        if self.kitty_alternate > 0 && self.is_alternate() {
            put(&format!("\x1b[<{}u", self.kitty_alternate));
        }
        for (&mode, _) in self.private.iter().filter(|(mode, _)| **mode != 2026) {
            let letter = if default_of(mode) { 'h' } else { 'l' };
            put(&format!("\x1b[?{mode}{letter}"));
        }
        if self.kitty_main > 0 {
            put(&format!("\x1b[<{}u", self.kitty_main));
        }
        for (on, text) in [
            (self.other_keys, "\x1b[>4m"),
            (self.insert, "\x1b[4l"),
            (self.keypad, "\x1b>"),
            // Setting the region moves the cursor.
            (self.region, "\x1b7\x1b[r\x1b8"),
            (self.charset, "\x1b(B"),
            (self.shifted, "\x0f"),
            (self.cursor_shape, "\x1b[0 q"),
        ] {
            if on {
                put(text);
            }
        }
        put("\x1b[0m");
        out
    }

    /// A sequence that the stream broke off would swallow the first bytes of ours.
    fn finish_sequence(&self, out: &mut Vec<u8>) {
        match self.at {
            At::Ground => {}
            At::Text | At::TextEscape => out.extend_from_slice(b"\x1b\\"),
            // CAN ends every other sequence without an effect.
            At::Escape | At::Charset | At::Intermediate(_) | At::Csi(_) => out.push(0x18),
        }
    }

    fn step(&mut self, byte: u8) {
        let at = std::mem::take(&mut self.at);
        self.at = match (at, byte) {
            (At::Text, 0x07) | (_, 0x18 | 0x1a) => At::Ground,
            (At::Text, 0x1b) => At::TextEscape,
            (At::Text, _) => At::Text,
            (At::TextEscape, b'\\') => At::Ground,
            (_, 0x1b) => At::Escape,
            (At::Escape | At::TextEscape, _) => self.escape(byte),
            (At::Charset, _) => {
                self.charset = byte != b'B';
                At::Ground
            }
            (At::Intermediate(first), 0x20..=0x2f) => At::Intermediate(first),
            (At::Intermediate(_), _) => At::Ground,
            (At::Csi(mut text), 0x20..=0x3f) => {
                if text.len() < CSI_BYTES_MAX {
                    text.push(byte);
                }
                At::Csi(text)
            }
            (At::Csi(text), 0x40..=0x7e) => {
                self.csi(&text, byte);
                At::Ground
            }
            // Other control characters act within a sequence, too.
            (At::Csi(text), _) => At::Csi(text),
            (At::Ground, 0x0e | 0x0f) => {
                self.shifted = byte == 0x0e;
                At::Ground
            }
            (At::Ground, _) => At::Ground,
        };
    }

    fn escape(&mut self, byte: u8) -> At {
        match byte {
            b'[' => At::Csi(Vec::new()),
            b']' | b'P' | b'X' | b'^' | b'_' => At::Text,
            b'(' => At::Charset,
            0x20..=0x2f => At::Intermediate(byte),
            b'=' | b'>' => {
                self.keypad = byte == b'=';
                At::Ground
            }
            b'c' => {
                *self = Self { touched: true, ..Self::default() };
                At::Ground
            }
            _ => At::Ground,
        }
    }

    fn csi(&mut self, text: &[u8], last: u8) {
        match (text.split_first(), last) {
            (Some((b'?', modes)), b'h' | b'l') => {
                numbers(modes).for_each(|mode| self.private_mode(mode, last == b'h'));
            }
            (Some((b'>', rest)), b'm') => {
                self.other_keys = rest.starts_with(b"4;") && !rest.starts_with(b"4;0");
            }
            (Some((b'>', _)), b'u') => *self.kitty() += 1,
            (Some((b'<', count)), b'u') => {
                let count = numbers(count).next().unwrap_or(1).max(1);
                let depth = self.kitty();
                *depth = depth.saturating_sub(count.into());
            }
            (_, b'h' | b'l') if numbers(text).any(|mode| mode == 4) => self.insert = last == b'h',
            (_, b'r') if text.first().is_none_or(u8::is_ascii_digit) => {
                self.region = !text.is_empty();
            }
            (_, b'q') if text.ends_with(b" ") => self.cursor_shape = !text.starts_with(b"0"),
            (Some((b'!', [])), b'p') => {
                let (kitty_main, kitty_alternate) = (self.kitty_main, self.kitty_alternate);
                let private = std::mem::take(&mut self.private);
                let kept = private.into_iter().filter(|(mode, _)| *mode >= 1000 || *mode == 47);
                let private = kept.collect();
                *self =
                    Self { private, kitty_main, kitty_alternate, touched: true, ..Self::default() };
            }
            _other => {}
        }
    }

    fn kitty(&mut self) -> &mut u32 {
        if self.is_alternate() { &mut self.kitty_alternate } else { &mut self.kitty_main }
    }

    fn private_mode(&mut self, mode: u16, on: bool) {
        if !is_tracked(mode) {
            return;
        }
        if is_alternate(mode) && !on {
            self.kitty_alternate = 0;
        }
        if on == default_of(mode) {
            self.private.remove(&mode);
        } else {
            self.private.insert(mode, on);
        }
    }
}

fn numbers(text: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let parts = text.split(|&byte| byte == b';');
    parts.filter_map(|part| std::str::from_utf8(part).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(output: &[u8]) -> String {
        // Every split gives the same.
        let mut whole = Modes::default();
        whole.feed(output);
        let mut single = Modes::default();
        output.iter().for_each(|byte| single.feed(&[*byte]));
        assert_eq!(whole.undo(), single.undo());
        String::from_utf8(whole.undo()).unwrap()
    }

    #[test]
    fn only_what_is_on_is_undone() {
        for (output, want) in [
            ("", ""),
            ("plain\r\n", "\x1b[0m"),
            ("\x1b[?1049h\x1b[?1049l", "\x1b[0m"),
            ("\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l\x1b[0m"),
            (
                "\x1b[?1000;1006h\x1b[?2004h\x1b[?1004h",
                "\x1b[?1000l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[0m",
            ),
            ("\x1b[?1h\x1b=", "\x1b[?1l\x1b>\x1b[0m"),
            ("\x1b[3;10r", "\x1b7\x1b[r\x1b8\x1b[0m"),
            ("\x1b[3;10r\x1b[r", "\x1b[0m"),
            ("\x1b(0", "\x1b(B\x1b[0m"),
            ("\x0e", "\x0f\x1b[0m"),
            ("\x1b[5 q", "\x1b[0 q\x1b[0m"),
            ("\x1b[>1u\x1b[>1u\x1b[<u", "\x1b[<1u\x1b[0m"),
            ("\x1b[?1049h\x1b[>5u", "\x1b[<1u\x1b[?1049l\x1b[0m"),
            ("\x1b[?1049h\x1b[>5u\x1b[?1049l", "\x1b[0m"),
            ("\x1b[>4;2m", "\x1b[>4m\x1b[0m"),
            ("\x1b[?1000h\x1bc", "\x1b[0m"),
            ("\x1b[?2026h", "\x1b[?2026l\x1b[0m"),
        ] {
            assert_eq!(after(output.as_bytes()), want, "{output:?}");
        }
    }

    #[test]
    fn text_of_strings_is_not_read_and_a_broken_sequence_is_ended() {
        assert_eq!(after(b"\x1b]0;[?1000h\x07"), "\x1b[0m");
        assert_eq!(after(b"\x1b]52;c;abc"), "\x1b\\\x1b[0m");
        assert_eq!(after(b"\x1b[?10"), "\x18\x1b[0m");
    }
}
