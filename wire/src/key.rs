//! Keys by name, and the bytes that a terminal sends for them.
//!
//! One way to write them wherever keys are named: `enter`, `ctrl-c`, `alt-x`, `shift-f5`, `x`; as tmux
//! has them, `C-c`, `M-x`, `S-F5`; `^C`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A key that is no character, and how a terminal of the kind `xterm` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One byte.
    Byte(u8),
    /// `CSI X`, or `SS3 X` while the program has switched the cursor keys.
    Cursor(u8),
    /// `SS3 X`.
    Function(u8),
    /// `CSI N ~`.
    Number(u8),
}

/// The first name of each is how it is written.
const NAMED: &[(&[&str], Form)] = &[
    (&["enter", "return", "cr"], Form::Byte(b'\r')),
    (&["tab"], Form::Byte(b'\t')),
    (&["escape", "esc"], Form::Byte(0x1b)),
    (&["space"], Form::Byte(b' ')),
    (&["backspace", "bspace"], Form::Byte(0x7f)),
    (&["up"], Form::Cursor(b'A')),
    (&["down"], Form::Cursor(b'B')),
    (&["right"], Form::Cursor(b'C')),
    (&["left"], Form::Cursor(b'D')),
    (&["end"], Form::Cursor(b'F')),
    (&["home"], Form::Cursor(b'H')),
    (&["insert", "ic"], Form::Number(2)),
    (&["delete", "dc", "del"], Form::Number(3)),
    (&["pageup", "ppage", "pgup"], Form::Number(5)),
    (&["pagedown", "npage", "pgdn"], Form::Number(6)),
    (&["f1"], Form::Function(b'P')),
    (&["f2"], Form::Function(b'Q')),
    (&["f3"], Form::Function(b'R')),
    (&["f4"], Form::Function(b'S')),
    (&["f5"], Form::Number(15)),
    (&["f6"], Form::Number(17)),
    (&["f7"], Form::Number(18)),
    (&["f8"], Form::Number(19)),
    (&["f9"], Form::Number(20)),
    (&["f10"], Form::Number(21)),
    (&["f11"], Form::Number(23)),
    (&["f12"], Form::Number(24)),
];

const MODIFIERS: [(&str, &str, u8); 3] =
    [("shift-", "S-", 1), ("alt-", "M-", 2), ("ctrl-", "C-", 4)];
const SHIFT: u8 = 1;
const ALT: u8 = 2;
const CTRL: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Char(char),
    /// A row of [`NAMED`].
    Named(usize),
}

/// One key with what is held down beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    base: Base,
    held: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is no key; write one character, or a name as enter, tab, escape, space, backspace, up, \
     pageup, home, delete, f5, with ctrl-, alt- or shift- before it",
    .0.escape_default()
)]
pub struct NoKey(String);

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let no_key = || NoKey(text.chars().take(40).collect());
        let (mut rest, mut held) = (text, 0);
        while let Some((bit, after)) = modifier(rest) {
            (rest, held) = (after, held | bit);
        }
        let mut chars = rest.chars();
        let base = match (chars.next(), chars.next()) {
            (Some(c), None) if !c.is_control() => Base::Char(c),
            _other => Base::Named(named(rest).ok_or_else(no_key)?),
        };
        let key = Self { base, held };
        if key.can_be_sent() { Ok(key) } else { Err(no_key()) }
    }
}

/// A modifier that something follows: `C-` alone would be a `C` and a `-`.
fn modifier(text: &str) -> Option<(u8, &str)> {
    let caret = text.strip_prefix('^').map(|rest| (CTRL, rest));
    let words = MODIFIERS.iter().find_map(|(long, short, bit)| {
        let start = text.get(..long.len()).filter(|start| start.eq_ignore_ascii_case(long));
        let long = start.and_then(|start| text.get(start.len()..));
        long.or_else(|| text.strip_prefix(short)).map(|rest| (*bit, rest))
    });
    words.or(caret).filter(|(_bit, rest)| !rest.is_empty())
}

fn named(name: &str) -> Option<usize> {
    NAMED.iter().position(|(names, _)| names.iter().any(|one| name.eq_ignore_ascii_case(one)))
}

impl Key {
    fn has(self, bit: u8) -> bool {
        self.held & bit != 0
    }

    /// Terminals have no bytes for ctrl with most characters, nor for shift with any but a letter.
    fn can_be_sent(self) -> bool {
        match self.base {
            Base::Char(c) => {
                let ctrl = !self.has(CTRL) || control(c).is_some();
                ctrl && (!self.has(SHIFT) || c.is_ascii_alphabetic() && !self.has(CTRL))
            }
            Base::Named(_) => true,
        }
    }

    /// The one byte of a key that is one, for keys that are looked for in what is typed.
    #[must_use]
    pub fn byte(self) -> Option<u8> {
        match self.bytes(false).as_slice() {
            [byte] => Some(*byte),
            _more => None,
        }
    }

    /// What a terminal sends for it. `application`: the program has switched the cursor keys.
    #[must_use]
    pub fn bytes(self, application: bool) -> Vec<u8> {
        let form = match self.base {
            Base::Char(c) => return self.of_char(c),
            Base::Named(row) => NAMED.get(row).map_or(Form::Byte(0), |(_, form)| *form),
        };
        let held = self.held + 1;
        match (form, self.held) {
            (Form::Byte(b'\t'), SHIFT) => b"\x1b[Z".to_vec(),
            (Form::Byte(byte), _) => self.of_byte(byte),
            (Form::Cursor(letter), 0) if application => vec![0x1b, b'O', letter],
            (Form::Cursor(letter), 0) => vec![0x1b, b'[', letter],
            (Form::Function(letter), 0) => vec![0x1b, b'O', letter],
            (Form::Cursor(letter) | Form::Function(letter), _) => {
                format!("\x1b[1;{held}{}", char::from(letter)).into_bytes()
            }
            (Form::Number(number), 0) => format!("\x1b[{number}~").into_bytes(),
            (Form::Number(number), _) => format!("\x1b[{number};{held}~").into_bytes(),
        }
    }

    fn of_char(self, c: char) -> Vec<u8> {
        let mut bytes = if self.has(ALT) { vec![0x1b] } else { Vec::new() };
        let control = control(c).filter(|_| self.has(CTRL));
        let c = if self.has(SHIFT) { c.to_ascii_uppercase() } else { c };
        match control {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        bytes
    }

    fn of_byte(self, byte: u8) -> Vec<u8> {
        let byte = match byte {
            b' ' if self.has(CTRL) => 0,
            0x7f if self.has(CTRL) => 0x08,
            byte => byte,
        };
        if self.has(ALT) { vec![0x1b, byte] } else { vec![byte] }
    }
}

fn control(c: char) -> Option<u8> {
    let byte = u8::try_from(c).ok()?.to_ascii_uppercase();
    match byte {
        b'?' => Some(0x7f),
        0x40..=0x5f => Some(byte & 0x1f),
        _other => None,
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (long, _short, bit) in MODIFIERS.iter().rev() {
            if self.has(*bit) {
                f.write_str(long)?;
            }
        }
        match self.base {
            Base::Char(c) => write!(f, "{c}"),
            Base::Named(row) => {
                f.write_str(NAMED.get(row).and_then(|(names, _)| names.first()).unwrap_or(&""))
            }
        }
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_bytes_of_a_terminal() {
        for (text, bytes, name) in [
            ("a", &b"a"[..], "a"),
            ("-", b"-", "-"),
            ("^", b"^", "^"),
            ("\u{e9}", "\u{e9}".as_bytes(), "\u{e9}"),
            ("Enter", b"\r", "enter"),
            ("ctrl-c", b"\x03", "ctrl-c"),
            ("C-c", b"\x03", "ctrl-c"),
            ("^C", b"\x03", "ctrl-C"),
            ("ctrl-\\", b"\x1c", "ctrl-\\"),
            ("ctrl-?", b"\x7f", "ctrl-?"),
            ("ctrl-space", b"\0", "ctrl-space"),
            ("M-x", b"\x1bx", "alt-x"),
            ("alt-enter", b"\x1b\r", "alt-enter"),
            ("shift-a", b"A", "shift-a"),
            ("shift-tab", b"\x1b[Z", "shift-tab"),
            ("up", b"\x1b[A", "up"),
            ("C-Left", b"\x1b[1;5D", "ctrl-left"),
            ("ctrl-alt-shift-f1", b"\x1b[1;8P", "ctrl-alt-shift-f1"),
            ("f5", b"\x1b[15~", "f5"),
            ("S-F12", b"\x1b[24;2~", "shift-f12"),
            ("PageDown", b"\x1b[6~", "pagedown"),
            ("NPage", b"\x1b[6~", "pagedown"),
        ] {
            let key: Key = text.parse().unwrap();
            assert_eq!((key.bytes(false), key.to_string()), (bytes.to_vec(), name.to_owned()));
            assert_eq!(key.to_string().parse(), Ok(key), "{text}");
        }
        assert_eq!("home".parse::<Key>().unwrap().bytes(true), b"\x1bOH");
        assert_eq!("ctrl-home".parse::<Key>().unwrap().bytes(true), b"\x1b[1;5H");
    }

    #[test]
    fn what_no_terminal_can_send_is_no_key() {
        for text in
            ["", "f13", "entr", "ctrl-1", "ctrl-", "C-", "ctrl-\u{e9}", "shift-1", "\x03", "ab"]
        {
            assert!(text.parse::<Key>().is_err(), "{text:?}");
        }
    }
}
