//! The last resort: looking again at something that tells nobody when it changes.

use crate::pace::stretched;
use std::time::{Duration, Instant};

/// Calls `look` until it gives something, at most `limit` long, [`stretched`].
///
/// # Errors
/// `what` did not come about.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let limit = stretched(limit);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "{what}: not within {limit:?}");
        briefly();
    }
}

/// A few milliseconds, for a look at `/proc` or a cgroup.
pub fn briefly() {
    nix::poll::poll(&mut [], 5_u8).ok();
}
