//! Suspend and resume of one cage (CAGE.md 6).
//!
//! ```text
//! record "meant" → broker: input held, clocks stopped, signals by pid 1 → freeze, read back
//!   → event → record "stands" → answer
//! ```
//! Whatever fails on the way is undone, and the cage runs. A supervisor that dies on the way is
//! followed by one that finds the record: what is only meant is undone (`reconcile.rs`).

use crate::cage::Cage;
use crate::cage::phase::Moment;
use crate::cage::record::Suspended;
use crate::caps;
use crate::clock::now_ms;
use crate::supervisor::Supervisor;
use ::cage::cgroup::Freezer;
use ::cage::policy::OnRefuse;
use link::nonblocking::watch_change;
use link::{failpoint, memfd};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use wire::broker::BrokerRequest;
use wire::supervisor::Phase;
use wire::{ErrorCode, EventBody, How, Stilled, Suspension, WireError};

/// Beyond the grace, for the signals and the freezer of a cage of thousands of processes.
const DEADLINE: Duration = Duration::from_secs(10);
/// What holds a cage where this host has no freezer for us.
const SIGNALS: &str = "signals";
/// Paused cages of one operator: each keeps its memory, and nothing ends it.
const PAUSED_MAX: u32 = 32;
/// JSON of the processes of a cage at its largest.
const STILLED_BYTES_MAX: usize = 64 << 20;

/// Returns when every process of the cage stands, as read back from the kernel.
pub(crate) async fn suspend(supervisor: &Supervisor, cage: &Cage) -> Result<Suspension, WireError> {
    let _turn = cage.turn().await;
    if let Some(Suspended { suspension: Some(suspension), .. }) = cage.record().suspended {
        return Ok(suspension);
    }
    must_run(cage)?;
    must_have_place(supervisor, cage)?;
    remember(supervisor, cage, Some(Suspended { at_ms: now_ms(), suspension: None }))?;
    failpoint::reach("suspend.meant");
    let done = complete(supervisor, cage).await;
    if done.is_err() {
        let undone = undo(supervisor, cage).await;
        undone.unwrap_or_else(|error| tracing::warn!(cage = %cage.id, %error, "undoing"));
    }
    done
}

async fn complete(supervisor: &Supervisor, cage: &Cage) -> Result<Suspension, WireError> {
    let suspension = make_still(cage).await?;
    failpoint::reach("suspend.frozen");
    let at_ms = now_ms();
    cage.tell(&EventBody::CageSuspended(suspension.clone())).map_err(internal)?;
    failpoint::reach("suspend.told");
    let suspended = Suspended { at_ms, suspension: Some(suspension.clone()) };
    remember(supervisor, cage, Some(suspended))?;
    cage.step(Moment::Suspended);
    failpoint::reach("suspend.recorded");
    Ok(suspension)
}

/// Returns when the cage goes on. Of one that is not suspended: at once.
pub(crate) async fn resume(supervisor: &Supervisor, cage: &Cage) -> Result<(), WireError> {
    let _turn = cage.turn().await;
    undo(supervisor, cage).await
}

async fn undo(supervisor: &Supervisor, cage: &Cage) -> Result<(), WireError> {
    if cage.record().suspended.is_none() {
        return Ok(());
    }
    failpoint::reach("resume.asked");
    go_on(cage).await?;
    failpoint::reach("resume.thawed");
    remember(supervisor, cage, None)?;
    failpoint::reach("resume.recorded");
    cage.step(Moment::Resumed);
    tell_resumed(cage);
    Ok(())
}

/// To those who were told that it stands.
pub(crate) fn tell_resumed(cage: &Cage) {
    if let Some(at_ms) = cage.told_suspended_at_ms() {
        let suspended_ms = u64::try_from(now_ms() - at_ms).unwrap_or(0);
        cage.tell_end(&EventBody::CageResumed { suspended_ms });
    }
}

/// Whether a cage that was suspended stands as it should.
pub(crate) fn stands_still(cage: &Cage, broker_holds: bool) -> bool {
    let frozen = freezer(cage).and_then(|freezer| match freezer {
        Some(freezer) => freezer.is_frozen().map_err(internal),
        None => Ok(true),
    });
    broker_holds && frozen.unwrap_or(false)
}

async fn make_still(cage: &Cage) -> Result<Suspension, WireError> {
    let freezer = freezer(cage)?;
    let policy = cage.plan().map(|plan| plan.suspend.clone()).unwrap_or_default();
    let request = BrokerRequest::Suspend { grace_ms: policy.grace_ms, all: freezer.is_none() };
    let broker = cage.broker()?;
    let asked = broker.call(&request, &[]);
    let time = Duration::from_millis(policy.grace_ms) + DEADLINE;
    let (_null, fds) = tokio::time::timeout(time, asked)
        .await
        .map_err(|_late| internal("the cage's pid 1 does not answer"))??;
    failpoint::reach("suspend.signalled");
    let processes = stilled(fds)?;
    let by = freezer.as_ref().map_or(SIGNALS, Freezer::how);
    if let Some(freezer) = &freezer {
        set(freezer, true).await?;
    }
    let suspension = Suspension::new(by, processes);
    // Without a freezer whoever still runs does not stand still.
    if by == SIGNALS && suspension.frozen > 0 {
        let words = format!("{} processes do not stop on signals", suspension.frozen);
        return Err(refused(&words, &suspension, |process| process.how == How::Frozen));
    }
    if policy.on_refuse == OnRefuse::Fail && suspension.refused > 0 {
        let words = format!(
            "{} processes did not stop within {} ms, and the policy says on_refuse = \"fail\"",
            suspension.refused, policy.grace_ms
        );
        return Err(refused(&words, &suspension, |process| process.refused));
    }
    Ok(suspension)
}

fn refused(words: &str, suspension: &Suspension, by: fn(&&Stilled) -> bool) -> WireError {
    let who: Vec<String> = suspension
        .processes
        .iter()
        .filter(by)
        .take(5)
        .map(|process| format!("{} ({})", process.name, process.pid))
        .collect();
    let words = format!("{words}, and the cage runs on: {}", who.join(", "));
    WireError::new(ErrorCode::Conflict, words).with(serde_json::json!({ "suspension": suspension }))
}

fn stilled(fds: Vec<OwnedFd>) -> Result<Vec<Stilled>, WireError> {
    let fd = fds.into_iter().next();
    let fd = fd.ok_or_else(|| internal("the broker does not say what stands"))?;
    let bytes = memfd::read(fd, STILLED_BYTES_MAX).map_err(internal)?;
    serde_json::from_slice(&bytes).map_err(internal)
}

/// Thaws, then lets the broker undo what it did.
async fn go_on(cage: &Cage) -> Result<(), WireError> {
    if let Some(freezer) = freezer(cage)? {
        set(&freezer, false).await?;
    }
    let broker = cage.broker()?;
    let asked = broker.call(&BrokerRequest::Resume, &[]);
    let answer = tokio::time::timeout(DEADLINE, asked)
        .await
        .map_err(|_late| internal("the cage's pid 1 does not answer"))?;
    answer.map(|_null| ())
}

fn freezer(cage: &Cage) -> Result<Option<Freezer>, WireError> {
    let cgroup = cage.handles().cgroup.clone();
    cgroup.map_or(Ok(None), |cgroup| cgroup.freezer()).map_err(internal)
}

/// Asks, and waits until the kernel says that it is so.
async fn set(freezer: &Freezer, frozen: bool) -> Result<(), WireError> {
    let changes = freezer.as_fd().try_clone_to_owned().and_then(watch_change).map_err(internal)?;
    freezer.ask(frozen).map_err(internal)?;
    let read_back = async {
        while freezer.is_frozen().map_err(internal)? != frozen {
            changes.ready(Interest::PRIORITY).await.map_err(internal)?.clear_ready();
        }
        Ok(())
    };
    tokio::time::timeout(DEADLINE, read_back).await.map_err(|_late| {
        let words = if frozen { "does not freeze" } else { "does not thaw" };
        internal(format!("the cage's cgroup {words}"))
    })?
}

fn internal(error: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, error.to_string())
}

fn must_run(cage: &Cage) -> Result<(), WireError> {
    match cage.phase() {
        Phase::Running => Ok(()),
        Phase::Starting | Phase::Suspended | Phase::Ending | Phase::Gone => {
            Err(WireError::new(ErrorCode::Conflict, "the cage is not running"))
        }
    }
}

/// Whoever asks: it counts for the cage's operator.
fn must_have_place(supervisor: &Supervisor, cage: &Cage) -> Result<(), WireError> {
    let mut living = supervisor.living();
    living.retain(|other| other.operator() == cage.operator());
    living.retain(|other| other.record().suspended.is_some());
    caps::check("paused cages of one operator", Some(PAUSED_MAX), living.len(), "resume or end one")
}

fn remember(
    supervisor: &Supervisor,
    cage: &Cage,
    suspended: Option<Suspended>,
) -> Result<(), WireError> {
    let (before, stood_ms) = (cage.record().suspended, cage.record().stood_ms);
    let over = before.as_ref().filter(|_| suspended.is_none());
    let more_ms = over.map_or(0, |before| u64::try_from(now_ms() - before.at_ms).unwrap_or(0));
    cage.update(|record| {
        record.suspended = suspended;
        record.stood_ms = stood_ms.saturating_add(more_ms);
    });
    supervisor.try_save(cage).map_err(|error| {
        cage.update(|record| {
            record.suspended = before;
            record.stood_ms = stood_ms;
        });
        let words = format!("the cage's record cannot be written: {error}");
        WireError::new(ErrorCode::StorageUnavailable, words)
    })
}
