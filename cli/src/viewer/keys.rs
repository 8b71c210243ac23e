//! The keys that leave a terminal: found in the input as it is typed, in any split.
//!
//! Programs may switch the operator's keyboard to the kitty or the xterm protocol, where a control
//! key comes as a sequence: those forms count, too.

use std::time::Duration;
use wire::key::Key;

/// How long a first key waits for the next one before the program gets it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const DEFAULT: &str = "ctrl-\\ ctrl-d";
/// ctrl-t
const KEYBOARD_LAST: u8 = 0x14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetachKeys {
    keys: Vec<u8>,
    name: String,
}

impl DetachKeys {
    /// `ctrl-\ ctrl-d`, `ctrl-p,ctrl-q`, `^A d`; `none`: there is no way out by keys.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        if text == "none" {
            return Ok(None);
        }
        let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let keys: Result<Vec<u8>, String> = words.iter().map(|word| key(word)).collect();
        let keys = keys?;
        if keys.is_empty() {
            return Err("no key is named; write for example 'ctrl-p ctrl-q', or 'none'".to_owned());
        }
        Ok(Some(Self { keys, name: words.join(" ") }))
    }

    /// Those that take the keyboard, or let go of it: ctrl-t in place of the last one.
    pub(crate) fn keyboard(&self) -> Option<Vec<u8>> {
        let (last, first) = self.keys.split_last()?;
        let keys = [first, &[KEYBOARD_LAST]].concat();
        // Alone it would be a key of the program's.
        (!first.is_empty() && *last != KEYBOARD_LAST).then_some(keys)
    }

    /// The same as people type it.
    pub(crate) fn keyboard_name(&self) -> Option<String> {
        self.keyboard()?;
        let words: Vec<&str> = self.name.split(' ').collect();
        let (_last, first) = words.split_last()?;
        Some(first.iter().copied().chain(["ctrl-t"]).collect::<Vec<_>>().join(" "))
    }

    /// As people type it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn key(word: &str) -> Result<u8, String> {
    let key: Key = word.parse().map_err(|error: wire::key::NoKey| error.to_string())?;
    let byte = key.byte().ok_or_else(|| {
        format!("'{word}' comes as several bytes; write 'ctrl-X' or one character")
    })?;
    Ok(byte)
}

/// What was typed for us and not for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Detach,
    /// Takes the keyboard; whoever has it lets go of it.
    Keyboard,
}

/// What came of some input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// For the program.
    pub(crate) bytes: Vec<u8>,
    pub(crate) wish: Option<Wish>,
    /// Typed after the wish.
    pub(crate) rest: Vec<u8>,
}

/// Watches the input; holds back what may become a wish.
#[derive(Debug)]
pub(crate) struct Matcher {
    wishes: Vec<(Vec<u8>, Wish)>,
    /// The keys that are held back, and their bytes.
    matched: Vec<u8>,
    held: Vec<u8>,
}

impl Matcher {
    pub(crate) fn new(keys: Option<&DetachKeys>) -> Self {
        let wishes = keys.map_or_else(Vec::new, |keys| {
            let keyboard = keys.keyboard().map(|keys| (keys, Wish::Keyboard));
            std::iter::once((keys.keys.clone(), Wish::Detach)).chain(keyboard).collect()
        });
        Self { wishes, matched: Vec::new(), held: Vec::new() }
    }

    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The wait for the next key is over.
    pub(crate) fn release(&mut self) -> Vec<u8> {
        self.matched.clear();
        std::mem::take(&mut self.held)
    }

    pub(crate) fn feed(&mut self, input: &[u8]) -> Typed {
        let mut bytes = Vec::with_capacity(input.len());
        if self.wishes.is_empty() {
            return Typed { bytes: input.to_vec(), wish: None, rest: Vec::new() };
        }
        let mut rest = input;
        while !rest.is_empty() {
            let (token, after, key) = next_token(rest);
            rest = after;
            if matches!(key, Typing::Release) && self.holds() {
                // Letting go of a key between the two is not a key.
                self.held.extend_from_slice(token);
                continue;
            }
            if !self.goes_on(&key) {
                bytes.append(&mut self.held);
                self.matched.clear();
            }
            let Typing::Is(byte) = key else {
                bytes.extend_from_slice(token);
                continue;
            };
            if !self.goes_on(&key) {
                bytes.extend_from_slice(token);
                continue;
            }
            self.held.extend_from_slice(token);
            self.matched.push(byte);
            let wish = self.wishes.iter().find(|(keys, _)| *keys == self.matched);
            if let Some((_, wish)) = wish {
                let wish = Some(*wish);
                self.held.clear();
                self.matched.clear();
                return Typed { bytes, wish, rest: rest.to_vec() };
            }
        }
        Typed { bytes, wish: None, rest: Vec::new() }
    }

    fn goes_on(&self, key: &Typing) -> bool {
        let Typing::Is(byte) = key else { return false };
        let next = |keys: &[u8]| keys.strip_prefix(self.matched.as_slice())?.first().copied();
        self.wishes.iter().any(|(keys, _)| next(keys) == Some(*byte))
    }
}

enum Typing {
    Is(u8),
    /// A key that is let go of, in the kitty protocol.
    Release,
    Other,
}

/// One byte, or one whole key sequence if its bytes came together (terminals write them so).
fn next_token(input: &[u8]) -> (&[u8], &[u8], Typing) {
    if let Some(text) = input.strip_prefix(b"\x1b[")
        && let Some(end) = text.iter().position(|byte| (0x40..=0x7e).contains(byte))
    {
        let (token, rest) = input.split_at((end + 3).min(input.len()));
        let parameters = text.get(..end).unwrap_or_default();
        let key = match text.get(end) {
            Some(b'u') => kitty(parameters),
            Some(b'~') => xterm(parameters),
            _other => Typing::Other,
        };
        return (token, rest, key);
    }
    let (token, rest) = input.split_at(1.min(input.len()));
    let key = token.first().map_or(Typing::Other, |byte| Typing::Is(*byte));
    (token, rest, key)
}

/// `CSI code[:…] ; modifiers[:event] u`
fn kitty(parameters: &[u8]) -> Typing {
    let mut fields = parameters.split(|&byte| byte == b';');
    let code = fields.next().and_then(first_number);
    let modifiers = fields.next().unwrap_or(b"1");
    let event = modifiers.split(|&byte| byte == b':').nth(1).and_then(first_number);
    if event == Some(3) {
        return Typing::Release;
    }
    with_modifiers(code, first_number(modifiers))
}

/// `CSI 27 ; modifiers ; code ~`
fn xterm(parameters: &[u8]) -> Typing {
    let mut fields = parameters.split(|&byte| byte == b';');
    if fields.next() != Some(b"27") {
        return Typing::Other;
    }
    let modifiers = fields.next().and_then(first_number);
    with_modifiers(fields.next().and_then(first_number), modifiers)
}

/// Modifiers are one more than their bits; caps lock (64) and num lock (128) do not count.
fn with_modifiers(code: Option<u32>, modifiers: Option<u32>) -> Typing {
    let bits = modifiers.unwrap_or(1).saturating_sub(1) & !(64 | 128);
    match (code.and_then(|code| u8::try_from(code).ok()), bits) {
        (Some(byte @ 0x20..=0x7e), 0) => Typing::Is(byte),
        (Some(byte @ 0x40..=0x7e), 4) => Typing::Is(byte.to_ascii_uppercase() & 0x1f),
        _other => Typing::Other,
    }
}

fn first_number(field: &[u8]) -> Option<u32> {
    let digits = field.split(|&byte| byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher() -> Matcher {
        Matcher::new(DetachKeys::parse(DEFAULT).unwrap().as_ref())
    }

    /// Feeds in pieces; what the program got, and whether it ended in a detach.
    fn typed(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut matcher = matcher();
        let mut got = Vec::new();
        for piece in pieces {
            let typed = matcher.feed(piece);
            got.extend(typed.bytes);
            if typed.wish == Some(Wish::Detach) {
                return (got, true);
            }
        }
        got.extend(matcher.release());
        (got, false)
    }

    #[test]
    fn found_in_any_split_and_nothing_is_lost() {
        for (pieces, bytes, detach) in [
            (vec![&b"ab\x1c\x04cd"[..]], &b"ab"[..], true),
            (vec![b"ab\x1c", b"\x04"], b"ab", true),
            (vec![b"\x1c", b"x"], b"\x1cx", false),
            (vec![b"\x1c\x1c\x04"], b"\x1c", true),
            (vec![b"\x1c\x1c", b"\x1c"], b"\x1c\x1c\x1c", false),
            (vec![b"\x04\x1c"], b"\x04\x1c", false),
            (vec![b"\x1b", b"\x1b[A"], b"\x1b\x1b[A", false),
            (vec![b"\x1b[92;5u", b"\x1b[92;5:3u", b"\x1b[100;5u"], b"", true),
            (vec![b"\x1b[92;133u\x1b[100;133:1u"], b"", true),
            (vec![b"\x1b[27;5;92~", b"\x04"], b"", true),
            (vec![b"\x1b[92;5u", b"a"], b"\x1b[92;5ua", false),
            (vec![b"\x1b[92;6u\x04"], b"\x1b[92;6u\x04", false),
        ] {
            assert_eq!(typed(&pieces), (bytes.to_vec(), detach), "{pieces:?}");
        }
    }

    #[test]
    fn the_keyboard_is_taken_by_keys_and_what_follows_is_typed() {
        let mut matcher = matcher();
        let typed = matcher.feed(b"ab\x1c\x14cd");
        assert_eq!(
            (typed.bytes, typed.wish, typed.rest),
            (b"ab".to_vec(), Some(Wish::Keyboard), b"cd".to_vec())
        );
        assert!(!matcher.holds());
        assert_eq!(matcher.feed(b"\x14").bytes, b"\x14");
        for (text, name) in [
            (DEFAULT, Some("ctrl-\\ ctrl-t")),
            ("ctrl-p,ctrl-q", Some("ctrl-p ctrl-t")),
            ("ctrl-a", None),
            ("ctrl-a ctrl-t", None),
        ] {
            let keys = DetachKeys::parse(text).unwrap().unwrap();
            assert_eq!(keys.keyboard_name().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn keys_are_named_in_the_usual_ways() {
        for (text, keys) in [
            ("ctrl-\\ ctrl-d", vec![0x1c, 0x04]),
            ("ctrl-p,ctrl-q", vec![0x10, 0x11]),
            ("^A d", vec![0x01, b'd']),
            ("C-]", vec![0x1d]),
        ] {
            assert_eq!(DetachKeys::parse(text).unwrap().unwrap().keys, keys, "{text}");
        }
        assert_eq!(DetachKeys::parse("none"), Ok(None));
        assert!(DetachKeys::parse("").is_err());
        assert!(DetachKeys::parse("f1").is_err());
        assert!(DetachKeys::parse("ctrl-1").is_err());
    }
}
