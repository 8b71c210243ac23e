//! How patient the tests are: on an emulated machine everything takes many times as long.

use std::sync::OnceLock;
use std::time::Duration;

/// `MEWS_TEST_PATIENCE=10` waits ten times as long before something counts as not come about. It
/// makes no test slower that passes.
const VARIABLE: &str = "MEWS_TEST_PATIENCE";

/// A limit of the tests' own, as long as this machine needs it to be. Never for a time that the
/// product promises.
#[must_use]
pub fn stretched(limit: Duration) -> Duration {
    limit * own_factor()
}

/// Is this a machine on which even an idle viewer may be slower than mews waits for one?
#[must_use]
pub fn is_slow() -> bool {
    own_factor() > 1
}

fn own_factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| factor(std::env::var(VARIABLE).ok().as_deref()))
}

fn factor(text: Option<&str>) -> u32 {
    text.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_changes_nothing() {
        for (text, want) in [
            (None, 1),
            (Some(""), 1),
            (Some("x"), 1),
            (Some("0"), 1),
            (Some("12"), 12),
            (Some("-3"), 1),
        ] {
            assert_eq!(factor(text), want, "{text:?}");
        }
    }
}
