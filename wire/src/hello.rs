//! What each side of a link says first, and the version that both then speak.
//!
//! A side speaks a range of versions, its newest and at least the one before. Spoken is the newest
//! that both know: so either may be the older one. Where there is none, each knows from the other's
//! hello who that is, and says so by name.

use crate::{ErrorCode, PROTO, PROTO_LOWEST, WireError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;

/// Where a debug build is told to be an older or newer one, for tests: see [`Hello::speaking`].
pub const SPEAKS: &str = "MEWS_SPEAKS";
/// The header that carries a client's hello to the API.
pub const HEADER: &str = "mews-hello";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest version that it speaks.
    pub proto: u32,
    /// The oldest; one that does not say speaks the one before its newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<u32>,
    /// Version of the program, for people.
    pub build: String,
}

impl Hello {
    /// Of this build.
    #[must_use]
    pub fn ours() -> Self {
        let build = env!("CARGO_PKG_VERSION").to_owned();
        Self { proto: PROTO, lowest: Some(PROTO_LOWEST), build }
    }

    /// Of this build, or of what `text` makes of it: words of the form `[PROGRAM=]LOWEST..NEWEST:BUILD`,
    /// of which the last one that is about this program counts. What is no such word is passed over.
    #[must_use]
    pub fn speaking(program: &str, text: Option<&str>) -> Self {
        let words = text.unwrap_or_default().split_whitespace();
        let ours = words.filter_map(|word| match word.split_once('=') {
            Some((name, said)) => (name == program).then_some(said),
            None => Some(word),
        });
        ours.filter_map(parse).next_back().unwrap_or_else(Self::ours)
    }

    fn lowest(&self) -> u32 {
        self.lowest.unwrap_or(self.proto.saturating_sub(1)).min(self.proto)
    }

    /// The version that both speak from now on.
    ///
    /// # Errors
    /// There is none: `version_mismatch`, which names both.
    pub fn agree(&self, theirs: &Self) -> Result<u32, WireError> {
        let newest = self.proto.min(theirs.proto);
        if newest >= self.lowest().max(theirs.lowest()) {
            return Ok(newest);
        }
        let words = format!("it is {theirs}, and this is {self}: they have none in common");
        let details = json!({ "ours": self, "theirs": theirs });
        Err(WireError::new(ErrorCode::VersionMismatch, words).with(details))
    }

    /// Whether it knows versions that we do not.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.proto > other.proto
    }
}

/// `mews 0.1.0 (protocol 1)`, `mews 0.3.0 (protocol 2 to 3)`.
impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lowest, newest) = (self.lowest(), self.proto);
        // Said by another process: nothing of it may reach a terminal as it is.
        write!(f, "mews {} (protocol ", self.build.escape_debug())?;
        if lowest < newest { write!(f, "{lowest} to {newest})") } else { write!(f, "{newest})") }
    }
}

fn parse(said: &str) -> Option<Hello> {
    let (range, build) = said.split_once(':')?;
    let (lowest, newest) = range.split_once("..")?;
    let (lowest, proto) = (lowest.parse().ok()?, newest.parse().ok()?);
    Some(Hello { proto, lowest: Some(lowest), build: build.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(lowest: impl Into<Option<u32>>, proto: u32) -> Hello {
        Hello { proto, lowest: lowest.into(), build: format!("0.{proto}.0") }
    }

    #[test]
    fn spoken_is_the_newest_that_both_know_whoever_is_older() {
        for (ours, theirs, want) in [
            (hello(1, 2), hello(1, 2), Some(2)),
            (hello(1, 2), hello(2, 3), Some(2)),
            (hello(1, 2), hello(3, 4), None),
            (hello(1, 1), hello(1, 2), Some(1)),
            (hello(1, 5), hello(2, 3), Some(3)),
            // One that does not say its lowest.
            (hello(None, 2), hello(1, 1), Some(1)),
            (hello(None, 3), hello(1, 1), None),
            (hello(None, 0), hello(0, 1), Some(0)),
            // Nonsense is no range, and no panic.
            (hello(9, 1), hello(1, 1), Some(1)),
        ] {
            assert_eq!(ours.agree(&theirs).ok(), want, "{ours} {theirs}");
            assert_eq!(theirs.agree(&ours).ok(), want, "{theirs} {ours}");
        }
    }

    #[test]
    fn a_mismatch_names_both_sides() {
        let error = hello(3, 4).agree(&hello(1, 1)).unwrap_err();
        assert_eq!(error.code, ErrorCode::VersionMismatch);
        assert!(error.message.contains("mews 0.1.0 (protocol 1)"), "{error}");
        assert!(error.message.contains("mews 0.4.0 (protocol 3 to 4)"), "{error}");
        let evil = Hello { build: "\u{1b}[2J".into(), ..hello(1, 1) };
        assert!(!evil.to_string().contains('\u{1b}'));
    }

    #[test]
    fn this_build_speaks_to_itself() {
        assert_eq!(Hello::ours().agree(&Hello::ours()), Ok(PROTO));
    }

    #[test]
    fn a_test_makes_another_build_of_it() {
        let text = Some("0..1:all mews-sessiond=2..3:new x=broken");
        assert_eq!(Hello::speaking("mews-sessiond", text).build, "new");
        assert_eq!(Hello::speaking("mews-sessiond", text).lowest, Some(2));
        assert_eq!(Hello::speaking("mews", text).build, "all");
        assert_eq!(Hello::speaking("x", text).build, "all");
        assert_eq!(Hello::speaking("mews", None), Hello::ours());
    }
}
