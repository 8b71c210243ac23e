//! The unfinished end of the output: an escape sequence or a character that is only half here.
//!
//! A snapshot ends with it, so that the live bytes which follow finish it in the viewer's terminal
//! too. And it keeps the parser's memory bounded: an operating system command (`ESC ] …`) that
//! never ends would be collected for ever.

/// Longer commands are forgotten, in bytes. Titles, links and colours are far shorter.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
const ESCAPE: u8 = 0x1b;

/// Where the stream is. Only the last ESC matters: it ends whatever went before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    /// After ESC and perhaps intermediates.
    Escape,
    /// After `ESC [`.
    Control,
    /// After `ESC ]`: until BEL or ST.
    Command,
    /// After `ESC P`, `X`, `^` or `_`: until ST.
    Payload,
}

#[derive(Debug, Default)]
pub(super) struct Partial {
    place: Place,
    bytes: Vec<u8>,
}

impl Partial {
    /// What is unfinished.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Follows `slice`; true if an operating system command has become too long to keep.
    pub(super) fn follow(&mut self, slice: &[u8]) -> bool {
        let mut rest = slice;
        if let Some(at) = slice.iter().rposition(|byte| *byte == ESCAPE) {
            self.place = Place::Escape;
            self.bytes.clear();
            self.bytes.push(ESCAPE);
            rest = slice.get(at + 1..).unwrap_or_default();
        }
        while self.place != Place::Text {
            let Some((byte, after)) = rest.split_first() else { break };
            rest = after;
            self.step(*byte);
        }
        if self.place == Place::Text {
            self.follow_text(rest);
        }
        self.too_long()
    }

    /// The parser was put into a new command, whose rest will be passed over.
    pub(super) fn restarted(&mut self, introducer: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(introducer);
    }

    fn step(&mut self, byte: u8) {
        let in_string = matches!(self.place, Place::Command | Place::Payload);
        let next = match (self.place, byte) {
            (_, 0x18 | 0x1a) | (Place::Command, 0x07) => Place::Text,
            (place, _) if in_string => place,
            // Other control characters act at once, in the middle of a sequence.
            (_, 0..0x20 | 0x7f) => return,
            (Place::Escape, b'[') if self.bytes.len() == 1 => Place::Control,
            (Place::Escape, b']') if self.bytes.len() == 1 => Place::Command,
            (Place::Escape, b'P' | b'X' | b'^' | b'_') if self.bytes.len() == 1 => Place::Payload,
            (Place::Escape, 0x20..0x30) => Place::Escape,
            (Place::Control, 0x20..0x40) => Place::Control,
            _ => Place::Text,
        };
        self.place = next;
        if next == Place::Text {
            self.bytes.clear();
        } else {
            self.bytes.push(byte);
        }
    }

    /// Keeps the first bytes of a character that is not whole.
    fn follow_text(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let last = text.get(text.len().saturating_sub(3)..).unwrap_or_default();
        if last.len() < text.len() {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(last);
        let unfinished = unfinished_character(&self.bytes);
        let whole = self.bytes.len() - unfinished;
        self.bytes.drain(..whole);
    }

    fn too_long(&mut self) -> bool {
        if self.bytes.len() <= COMMAND_BYTES_MAX {
            return false;
        }
        match self.place {
            Place::Command => true,
            // The parser collects none of these; who joins in the middle sees none of it.
            Place::Payload => {
                self.bytes.truncate(2);
                false
            }
            // A sequence of that length does nothing any more; its end is all that matters.
            Place::Text | Place::Escape | Place::Control => {
                self.bytes.truncate(COMMAND_BYTES_MAX);
                false
            }
        }
    }
}

/// The length of the half character at the end, if there is one.
fn unfinished_character(bytes: &[u8]) -> usize {
    for (back, byte) in (1..=3).zip(bytes.iter().rev()) {
        let length = match byte {
            0x80..0xc0 => continue,
            0xc2..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf5 => 4,
            _ => 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unfinished_end_is_kept_over_any_split() {
        for (input, expected) in [
            (&b"abc"[..], &b""[..]),
            (b"ab\x1b", b"\x1b"),
            (b"\x1b[3", b"\x1b[3"),
            (b"\x1b[31mtext", b""),
            (b"\x1b[31\n;4", b"\x1b[31;4"),
            (b"\x1b(", b"\x1b("),
            (b"\x1b(B", b""),
            (b"\x1b]0;title", b"\x1b]0;title"),
            (b"\x1b]0;title\x07tail", b""),
            (b"\x1b]0;title\x1b\\tail", b""),
            (b"\x1bPq\x07ab", b"\x1bPq\x07ab"),
            (b"\x1b]0;\x18ab", b""),
            ("ab\u{4e2d}".as_bytes(), b""),
            (b"ab\xe4\xb8", b"\xe4\xb8"),
            (b"\x1b[m\xf0\x9f\x98", b"\xf0\x9f\x98"),
            (b"a\xb8\xb8\xb8\xb8", b""),
        ] {
            for cut in 0..=input.len() {
                let mut partial = Partial::default();
                partial.follow(&input[..cut]);
                assert!(!partial.follow(&input[cut..]));
                assert_eq!(partial.bytes(), expected, "{input:?} at {cut}");
            }
        }
    }

    #[test]
    fn endless_strings_are_bounded() {
        let mut partial = Partial::default();
        partial.follow(b"\x1b]0;");
        assert!((0..20).any(|_| partial.follow(&[b'x'; 4096])));
        let mut partial = Partial::default();
        partial.follow(b"\x1bPq");
        assert!((0..20).all(|_| !partial.follow(&[b'x'; 4096])));
        assert_eq!(partial.bytes().get(..2), Some(&b"\x1bP"[..]));
        assert!(partial.bytes().len() < 65 * 1024);
    }
}
