//! Keys of a terminal in raw mode, as far as `top` knows them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    /// ctrl-c, ctrl-d
    Quit,
    Up,
    Down,
    Home,
    End,
    PageUp,
    PageDown,
}

/// All that a read brought. A sequence is never cut in two by a terminal; one that we do not know is
/// no key.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.as_ref();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (key, length) = match rest.strip_prefix('\x1b') {
            Some(after) => escape(after),
            None => (plain(first), first.len_utf8()),
        };
        found.extend(key);
        rest = rest.get(length..).unwrap_or_default();
    }
    found
}

fn plain(c: char) -> Option<Key> {
    match c {
        '\r' | '\n' => Some(Key::Enter),
        '\x08' | '\x7f' => Some(Key::Backspace),
        '\x03' | '\x04' => Some(Key::Quit),
        // As in a shell and in emacs.
        '\x0e' => Some(Key::Down),
        '\x10' => Some(Key::Up),
        control if control.is_control() => None,
        other => Some(Key::Char(other)),
    }
}

/// What stands behind an ESC; the length with it.
fn escape(after: &str) -> (Option<Key>, usize) {
    let Some(body) = after.strip_prefix('[').or_else(|| after.strip_prefix('O')) else {
        return (Some(Key::Escape), 1);
    };
    let Some(end) = body.find(|c: char| ('\x40'..='\x7e').contains(&c)) else {
        return (None, after.len() + 1);
    };
    let key = match body.get(..=end).unwrap_or_default() {
        "A" => Some(Key::Up),
        "B" => Some(Key::Down),
        "H" | "1~" | "7~" => Some(Key::Home),
        "F" | "4~" | "8~" => Some(Key::End),
        "5~" => Some(Key::PageUp),
        "6~" => Some(Key::PageDown),
        _unknown => None,
    };
    (key, end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_sequences() {
        use Key::{Backspace, Char, Down, Enter, Escape, PageDown, Quit, Up};
        for (bytes, want) in [
            (&b"\x1b[A\x1bOB\x1b[6~"[..], &[Up, Down, PageDown][..]),
            (b"p\r\x7f\x03", &[Char('p'), Enter, Backspace, Quit]),
            (b"\x1b", &[Escape]),
            (b"\x1b[99;5uq", &[Char('q')]),
            ("é/".as_bytes(), &[Char('é'), Char('/')]),
            (b"\x1b[", &[]),
            (b"\x01", &[]),
        ] {
            assert_eq!(keys(bytes), want, "{bytes:?}");
        }
    }
}
