//! The time of day, in milliseconds since 1970. For people; order is by sequence.

use std::time::{SystemTime, UNIX_EPOCH};

#[must_use]
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|passed| i64::try_from(passed.as_millis()).ok())
        .unwrap_or(0)
}
