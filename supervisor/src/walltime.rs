//! The walltime of a cage, a second time.
//!
//! Its broker keeps it, but runs under the operator's uid: one that the operator stops ends nothing. So it
//! is kept here too, more coarsely, and who has it by more than a grace is killed. Whether that is so is
//! first asked of the broker, whose clock is the better one: it stands exactly while the cage does, and
//! no clock that is set moves it.

use crate::cage::Cage;
use crate::clock;
use crate::ending::{self, Over};
use crate::stats;
use crate::supervisor::Supervisor;
use ::cage::policy::Millis;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Cause;
use wire::supervisor::Phase;

/// Beyond the walltime: a broker rings at once, and kills.
const GRACE: Duration = Duration::from_secs(10);
/// The same where nobody can be asked: our own clock may be off by some pauses.
const GRACE_UNASKED: Duration = Duration::from_secs(60);
/// A broker that runs answers at once.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks; limits change while a cage lives.
const PAUSE: Duration = Duration::from_secs(2);

/// Looks until the cage is gone.
pub(crate) async fn watch(supervisor: Rc<Supervisor>, cage: Rc<Cage>) {
    let mut ran = ran_before(&cage);
    loop {
        let (began, runs) = (Instant::now(), cage.phase() == Phase::Running);
        tokio::select! {
            () = cage.gone() => return,
            () = cage.phase_moves() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
        if runs {
            ran += began.elapsed();
        }
        let limit = cage.limits().and_then(|limits| limits.walltime_ms);
        let Some(limit) = limit.map(Duration::from_millis) else { continue };
        let grace = if cage.unreachable().is_some() { GRACE_UNASKED } else { GRACE };
        let late = |ran: Duration| ran >= limit.saturating_add(grace);
        if cage.phase() != Phase::Running || !late(ran) {
            continue;
        }
        match stats::ran(&cage, ANSWER).await {
            Some(told) if !late(told) => ran = told,
            // It was paused meanwhile.
            Some(_) | None if cage.phase() != Phase::Running => {}
            Some(_) | None => {
                let words = format!("it ran for {}", Millis(millis(limit)));
                let over = Over { cause: Cause::Walltime, limit: "walltime", words };
                ending::enforce(&supervisor, &cage, over).await;
            }
        }
    }
}

/// Of one that an earlier supervisor started: by the clock on the wall.
fn ran_before(cage: &Cage) -> Duration {
    let record = cage.record();
    let since = |at_ms: i64| u64::try_from(clock::now_ms() - at_ms).unwrap_or(0);
    let stands = record.suspended.map_or(0, |suspended| since(suspended.at_ms));
    let stood = stands.saturating_add(record.stood_ms);
    Duration::from_millis(since(record.started_at_ms).saturating_sub(stood))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
