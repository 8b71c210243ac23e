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

/// Until the cage is gone.
pub(crate) async fn watch(supervisor: Rc<Supervisor>, cage: Rc<Cage>) {
    let mut changes = cage.changes();
    let mut ran = ran_before(&cage);
    loop {
        let (began, runs) = (Instant::now(), cage.phase() == Phase::Running);
        let left = left(&cage, ran).filter(|_| runs);
        let over = tokio::select! {
            () = cage.gone() => return,
            () = changes.next() => false,
            () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => true,
        };
        if runs {
            ran += began.elapsed();
        }
        if !over {
            continue;
        }
        match stats::ran(&cage, ANSWER).await {
            Some(told) if !is_over(&cage, told) => ran = told,
            // It was paused meanwhile, or has another limit.
            Some(_) | None if cage.phase() != Phase::Running || !is_over(&cage, ran) => {}
            Some(_) | None => {
                let limit = cage.limits().and_then(|limits| limits.walltime_ms).unwrap_or_default();
                let words = format!("it ran for {}", Millis(limit));
                let over = Over { cause: Cause::Walltime, limit: "walltime", words };
                ending::enforce(&supervisor, &cage, over).await;
                return cage.gone().await;
            }
        }
    }
}

/// Until walltime and grace are over. Absent: no limit.
fn left(cage: &Cage, ran: Duration) -> Option<Duration> {
    let limit = Duration::from_millis(cage.limits()?.walltime_ms?);
    let grace = if cage.unreachable().is_some() { GRACE_UNASKED } else { GRACE };
    Some(limit.saturating_add(grace).saturating_sub(ran))
}

fn is_over(cage: &Cage, ran: Duration) -> bool {
    left(cage, ran).is_some_and(|left| left.is_zero())
}

/// Of one that an earlier supervisor started: by the clock on the wall.
fn ran_before(cage: &Cage) -> Duration {
    let record = cage.record();
    let since = |at_ms: i64| u64::try_from(clock::now_ms() - at_ms).unwrap_or(0);
    let stands = record.suspended.map_or(0, |suspended| since(suspended.at_ms));
    let stood = stands.saturating_add(record.stood_ms);
    Duration::from_millis(since(record.started_at_ms).saturating_sub(stood))
}
