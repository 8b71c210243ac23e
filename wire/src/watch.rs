//! Waiting for something on a terminal.

use serde::{Deserialize, Serialize};

/// What to wait for: of two, whichever comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// A regular expression that a line matches, of those kept or on the screen. Rows that were wrapped
    /// are one line.
    #[serde(default, rename = "for")]
    pub pattern: Option<String>,
    /// No output and no key for so long.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// Only what is printed after so many bytes of output counts.
    #[serde(default)]
    pub after: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Met {
    For,
    Idle,
    /// Its program has ended, and no line matches.
    Ended,
}

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    pub met: Met,
    /// The line that matches, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Bytes of output when it was seen.
    pub seq: u64,
}

/// Of a pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1000;
/// Of a line in an answer, in characters.
#[cfg(feature = "pattern")]
const LINE_CHARS_MAX: usize = 1000;

#[cfg(feature = "pattern")]
pub use pattern::Pattern;

#[cfg(feature = "pattern")]
mod pattern {
    use super::{LINE_CHARS_MAX, PATTERN_BYTES_MAX};
    use crate::{ErrorCode, WireError};
    use regex::{Regex, RegexBuilder};

    /// Of a compiled pattern, and of what it keeps while it is used, in bytes.
    const COMPILED_BYTES_MAX: usize = 1 << 20;

    /// A regular expression of bounded size. It takes time in proportion to the text.
    #[derive(Clone, Debug)]
    pub struct Pattern(Regex);

    impl Pattern {
        /// # Errors
        /// `bad_request`: what is wrong with it.
        pub fn new(text: &str) -> Result<Self, WireError> {
            let bad = |why: String| WireError::new(ErrorCode::BadRequest, why);
            if text.is_empty() {
                return Err(bad("The pattern is empty: every line would match.".to_owned()));
            }
            if text.len() > PATTERN_BYTES_MAX {
                let words = format!("The pattern is longer than {PATTERN_BYTES_MAX} bytes.");
                return Err(bad(words));
            }
            let built = RegexBuilder::new(text)
                .size_limit(COMPILED_BYTES_MAX)
                .dfa_size_limit(COMPILED_BYTES_MAX)
                .build();
            built.map(Self).map_err(|error| {
                let why = if matches!(error, regex::Error::CompiledTooBig(_)) {
                    "it is too large when compiled".to_owned()
                } else {
                    error.to_string()
                };
                bad(format!("The pattern is no regular expression: {why}"))
            })
        }

        /// The line, if it matches: `line` is rendered, with colours.
        #[must_use]
        pub fn find(&self, line: &[u8]) -> Option<String> {
            let text = plain(line);
            self.0.is_match(&text).then(|| text.chars().take(LINE_CHARS_MAX).collect())
        }
    }

    /// The text of a rendered line, whose only escape sequences are colours.
    fn plain(line: &[u8]) -> String {
        let mut text = Vec::with_capacity(line.len());
        let mut rest = line;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte == 0x1b && after.first() == Some(&b'[') {
                let end = after.iter().skip(1).position(|byte| (0x40..=0x7e).contains(byte));
                rest = end.and_then(|end| after.get(end + 2..)).unwrap_or_default();
            } else if byte != b'\r' {
                text.push(byte);
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn colours_do_not_stand_in_the_way() {
            let pattern = Pattern::new("^ok: 3 passed$").unwrap();
            let line = b"\x1b[32mok\x1b[m: \x1b[1;38;5;9m3\x1b[m passed\r";
            assert_eq!(pattern.find(line).as_deref(), Some("ok: 3 passed"));
            assert_eq!(pattern.find(b"nok: 3 passed"), None);
        }

        #[test]
        fn patterns_are_bounded() {
            for (text, says) in [
                ("", "empty"),
                ("(", "regular expression"),
                (&"x".repeat(1001), "longer"),
                ("(a{1000}){1000}", "too large"),
            ] {
                let error = Pattern::new(text).unwrap_err();
                assert!(error.message.contains(says), "{}", error.message);
            }
        }
    }
}
