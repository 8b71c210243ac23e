//! The limits on what a session's layer takes on the disk.
//!
//! No kernel counts that for one cage on every file system, so it is measured, again and again, by
//! `mews-layer`: what is written between two looks is over the limit for so long. One that cannot be
//! measured ends too: a wall that cannot be looked at does not stand.

use crate::cage::Cage;
use crate::ending::{self, Over};
use crate::layers;
use crate::supervisor::Supervisor;
use ::cage::plan::Limits;
use ::cage::policy::Bytes;
use ::layer::Measured;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::broker::BrokerRequest;
use wire::supervisor::Phase;
use wire::{Cause, ErrorCode, WireError, WorkspaceMode};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// A long look is followed by so much longer a pause: a large layer costs no more of the machine.
const PAUSE_PER_LOOK: u32 = 20;
/// Failed looks in a row: a file that is in the way may go.
const FAILED_MAX: u32 = 3;
/// A look that was held up is not followed by hours without one.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A broker kills at once.
const DEADLINE: Duration = Duration::from_secs(10);

/// Looks until the cage is gone.
pub(crate) async fn watch(supervisor: Rc<Supervisor>, cage: Rc<Cage>) {
    if cage.plan().is_none_or(|plan| plan.workspace.mode == WorkspaceMode::Direct) {
        return;
    }
    let mut changes = cage.changes();
    // Whoever changes limits all the time puts no look off.
    let (mut next, mut failed) = (Instant::now() + PAUSE, 0);
    loop {
        let limits = limits(&cage).filter(is_limited);
        let limits = limits.filter(|_| cage.phase() == Phase::Running);
        tokio::select! {
            () = cage.gone() => return,
            () = changes.next() => continue,
            () = tokio::time::sleep_until(next.into()), if limits.is_some() => {}
        }
        let Some(limits) = limits else { continue };
        let began = Instant::now();
        let over = match layers::measure(&supervisor, cage.record().session).await {
            Ok(measured) => {
                failed = 0;
                measured.and_then(|measured| passed(&limits, measured))
            }
            Err(error) => {
                failed += 1;
                tracing::warn!(cage = %cage.id, %error, "its workspace could not be measured");
                let words = format!("its files cannot be measured: {}", error.message);
                (failed >= FAILED_MAX).then_some(("workspace_bytes", words))
            }
        };
        if let Some((limit, message)) = over {
            end(&supervisor, &cage, limit, message).await;
        }
        // One that failed says nothing of how long a look takes.
        let look = if failed == 0 { began.elapsed() } else { Duration::ZERO };
        next = Instant::now() + (look * PAUSE_PER_LOOK).clamp(PAUSE, PAUSE_MAX);
    }
}

/// A limit that is passed already would end the cage at once.
///
/// # Errors
/// `conflict`.
pub(crate) async fn fits(
    supervisor: &Supervisor,
    cage: &Cage,
    limits: &Limits,
) -> Result<(), WireError> {
    if !is_limited(limits) {
        return Ok(());
    }
    let measured = layers::measure(supervisor, cage.record().session).await?;
    match measured.and_then(|measured| passed(limits, measured)) {
        None => Ok(()),
        Some((limit, message)) => {
            let words = format!("{limit}: {message}; a higher limit would let it live");
            Err(WireError::new(ErrorCode::Conflict, words)
                .with(serde_json::json!({ "limit": limit })))
        }
    }
}

fn limits(cage: &Cage) -> Option<Limits> {
    cage.limits().or_else(|| cage.plan().map(|plan| plan.limits.clone()))
}

fn is_limited(limits: &Limits) -> bool {
    limits.workspace_bytes.is_some() || limits.workspace_inodes.is_some()
}

/// Which limit, and in words.
fn passed(limits: &Limits, measured: Measured) -> Option<(&'static str, String)> {
    let Measured { bytes, inodes } = measured;
    if let Some(limit) = limits.workspace_bytes.filter(|limit| bytes > *limit) {
        let words = format!("what it keeps takes {}, and may take {}", size(bytes), size(limit));
        return Some(("workspace_bytes", words));
    }
    let limit = limits.workspace_inodes.filter(|limit| inodes > *limit)?;
    Some(("workspace_inodes", format!("it keeps {inodes} files, and may keep {limit}")))
}

fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// The broker kills, so that the exit has the cause and the words whoever lives then. One that is
/// stopped, or cannot be told, does not: then we do.
async fn end(supervisor: &Supervisor, cage: &Cage, limit: &'static str, message: String) {
    let request = BrokerRequest::OverLimit { limit: limit.to_owned(), message: message.clone() };
    let ended = async {
        cage.broker()?.call(&request, &[]).await?;
        cage.gone().await;
        Ok::<_, WireError>(())
    };
    if !matches!(tokio::time::timeout(DEADLINE, ended).await, Ok(Ok(()))) {
        let over = Over { cause: Cause::Limit, limit, words: message };
        ending::enforce(supervisor, cage, over).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_that_is_passed_is_named() {
        for (bytes, inodes, want) in [
            (None, None, None),
            (Some(100), Some(3), None),
            (Some(99), Some(2), Some("workspace_bytes")),
            (Some(100), Some(2), Some("workspace_inodes")),
        ] {
            let off = serde_json::json!({ "value": null, "by": "off" });
            let limits: Limits = serde_json::from_value(serde_json::json!({
                "memory": off, "swap": off, "pids": off, "cpu_milli": off, "oom_group": false,
                "walltime_ms": null, "ptys": 1, "workspace_bytes": bytes,
                "workspace_inodes": inodes,
            }))
            .unwrap();
            let over = passed(&limits, Measured { bytes: 100, inodes: 3 });
            assert_eq!(over.map(|(limit, _words)| limit), want, "{bytes:?} {inodes:?}");
        }
    }
}
