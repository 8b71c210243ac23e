//! Limits of a living cage: shown, changed, and put right after a death on the way.
//!
//! ```text
//! record "meant" → broker's clocks → cgroup, read back → event → record "in effect" → answer
//! ```
//! What is refused on the way is undone, and the cage keeps what it had. A supervisor that dies on
//! the way is followed by one that finds what was meant and brings it to its end.

use crate::cage::Cage;
use crate::supervisor::Supervisor;
use crate::workspace;
use ::cage::cgroup::CgroupError;
use ::cage::plan::{CagePlan, Carried, Limits};
use ::cage::policy::{Bytes, Ceiling};
use link::failpoint;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Duration;
use wire::broker::BrokerRequest;
use wire::limits::{LimitChange, LimitsAsked, LimitsView};
use wire::supervisor::Phase;
use wire::{Enforced, ErrorCode, EventBody, WireError};

/// A broker answers at once; one that does not must hold up no suspend and no end.
const DEADLINE: Duration = Duration::from_secs(10);

/// A change that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Meant {
    pub(crate) limits: Limits,
    pub(crate) changes: Vec<LimitChange>,
}

/// What is in effect, and by what.
pub(crate) fn view(supervisor: &Supervisor, cage: &Cage) -> Result<LimitsView, WireError> {
    let plan = plan(cage)?;
    let limits = cage.limits().unwrap_or_else(|| plan.limits.clone());
    Ok(LimitsView {
        limits: plan.limit_views(&limits, &carried(supervisor, cage), &supervisor.facts),
        changes: Vec::new(),
        seq: cage.state().supervisor_seq,
    })
}

/// Returns when all of it is in effect, as read back; or nothing of it is. `ceiling`: of who asks.
pub(crate) async fn change(
    supervisor: &Supervisor,
    cage: &Cage,
    asked: &LimitsAsked,
    ceiling: &Ceiling,
) -> Result<LimitsView, WireError> {
    let _turn = cage.turn().await;
    if !matches!(cage.phase(), Phase::Running | Phase::Suspended) {
        return Err(WireError::new(ErrorCode::Gone, "the cage is ending"));
    }
    let plan = plan(cage)?;
    let now = cage.limits().unwrap_or_else(|| plan.limits.clone());
    let (limits, changes) = now.changed(asked, &carried(supervisor, cage), plan.workspace.mode)?;
    if changes.is_empty() {
        return view(supervisor, cage);
    }
    ceiling.admits(&changes)?;
    workspace::fits(supervisor, cage, &limits).await?;
    let meant = Meant { limits, changes };
    remember(supervisor, cage, Some(meant.clone()))?;
    failpoint::reach("limits.meant");
    carry_out(supervisor, cage, &plan, &now, &meant).await?;
    Ok(LimitsView { changes: meant.changes, ..view(supervisor, cage)? })
}

/// After the death of a supervisor: what was only meant is brought to its end, or undone.
pub(crate) async fn take_over(supervisor: &Supervisor, cage: &Cage) {
    let Some(meant) = cage.record().limits_meant else { return };
    let done = async {
        let plan = plan(cage)?;
        let now = cage.limits().unwrap_or_else(|| plan.limits.clone());
        carry_out(supervisor, cage, &plan, &now, &meant).await
    };
    if let Err(error) = done.await {
        tracing::error!(cage = %cage.id, %error, "a change of limits is undone");
    }
}

/// What fails before the event is told is undone.
async fn carry_out(
    supervisor: &Supervisor,
    cage: &Cage,
    plan: &CagePlan,
    now: &Limits,
    meant: &Meant,
) -> Result<(), WireError> {
    let enforced = enforced(supervisor, plan, &meant.limits);
    let told = match apply(cage, now, &meant.limits).await {
        Ok(()) => tell(cage, meant, &enforced),
        Err(error) => Err(error),
    };
    if let Err(error) = told {
        put_back(cage, &meant.limits, now).await;
        remember(supervisor, cage, None)?;
        return Err(error);
    }
    failpoint::reach("limits.told");
    cage.update(|record| {
        record.limits = Some(meant.limits.clone());
        record.limits_meant = None;
        record.enforced = enforced;
    });
    cage.limits_are_others();
    supervisor.try_save(cage).map_err(storage)
}

/// An event that an earlier supervisor told is not told again.
fn tell(cage: &Cage, meant: &Meant, enforced: &Enforced) -> Result<(), WireError> {
    failpoint::reach("limits.applied");
    let changes = meant.changes.clone();
    let body = EventBody::CageLimits { changes, enforced: enforced.clone() };
    if cage.has_told_last(&body) { Ok(()) } else { cage.tell(&body).map_err(storage) }
}

fn enforced(supervisor: &Supervisor, plan: &CagePlan, limits: &Limits) -> Enforced {
    let mut plan = plan.clone();
    plan.limits = limits.clone();
    plan.enforced(&supervisor.facts)
}

/// The broker knows what has run and was printed, so it refuses what is past already; the kernel
/// what it cannot take back.
async fn apply(cage: &Cage, from: &Limits, to: &Limits) -> Result<(), WireError> {
    let clocks = to.clocks();
    if clocks != from.clocks() {
        let (broker, request) = (cage.broker()?, BrokerRequest::Clocks(clocks));
        let asked = broker.call(&request, &[]);
        tokio::time::timeout(DEADLINE, asked).await.map_err(|_late| {
            WireError::new(ErrorCode::Internal, "the cage's broker does not answer")
        })??;
    }
    let (from, to) = (from.of_cgroup(), to.of_cgroup());
    let cgroup = cage.handles().cgroup.clone();
    match cgroup {
        Some(cgroup) if from != to => cgroup.change(&from, &to).map_err(refused),
        Some(_) | None => Ok(()),
    }
}

async fn put_back(cage: &Cage, from: &Limits, to: &Limits) {
    if let Err(error) = apply(cage, from, to).await {
        tracing::error!(cage = %cage.id, %error, "limits cannot be put back");
    }
}

fn refused(error: CgroupError) -> WireError {
    match error {
        CgroupError::InUse { used, wanted } => {
            let words = format!(
                "the cage uses {} of memory, and a limit of {} would kill it; nothing is changed. \
                 Let it free memory first, or end it with `mews kill`",
                mib(used),
                Bytes(wanted)
            );
            WireError::new(ErrorCode::Conflict, words)
                .with(serde_json::json!({ "limit": "memory", "used_bytes": used }))
        }
        error @ (CgroupError::Create { .. }
        | CgroupError::NoUnit { .. }
        | CgroupError::Limit { .. }
        | CgroupError::Mismatch { .. }
        | CgroupError::Absent { .. }
        | CgroupError::File { .. }
        | CgroupError::StillAlive { .. }
        | CgroupError::Remove { .. }
        | CgroupError::BadParent(_)) => WireError::new(
            ErrorCode::Conflict,
            format!("the limit could not be set, and nothing is changed: {error}"),
        ),
    }
}

/// Rounded up: what is in use is never said to be less.
fn mib(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

fn carried(supervisor: &Supervisor, cage: &Cage) -> Carried {
    let cgroup = cage.handles().cgroup.clone();
    cgroup.map(|cgroup| Carried::of(&cgroup, &supervisor.facts)).unwrap_or_default()
}

fn plan(cage: &Cage) -> Result<Rc<CagePlan>, WireError> {
    cage.plan().ok_or_else(|| {
        WireError::new(ErrorCode::Conflict, "the cage's plan is lost; its limits cannot be told")
    })
}

fn remember(supervisor: &Supervisor, cage: &Cage, meant: Option<Meant>) -> Result<(), WireError> {
    let before = cage.record().limits_meant;
    cage.update(|record| record.limits_meant = meant);
    supervisor.try_save(cage).map_err(|error| {
        cage.update(|record| record.limits_meant = before);
        storage(error)
    })
}

fn storage(error: std::io::Error) -> WireError {
    let words = format!("the cage's record cannot be written: {error}");
    WireError::new(ErrorCode::StorageUnavailable, words)
}
