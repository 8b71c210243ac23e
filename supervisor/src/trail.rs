//! What the journal is told of a request that goes through the permit table.

use crate::permit::{Call, Permit, Trail};
use crate::supervisor::Supervisor;
use wire::audit::Act;
use wire::supervisor::SupervisorRequest;
use wire::{CageId, ErrorCode, GrantId, SessionId, WireError};

/// An act that was written down, with the number of its line.
pub(crate) type Written = Option<(Act, Option<u64>)>;

/// Before it is done.
///
/// # Errors
/// It cannot be written, and it is not the operator's own doing: then it is not done.
pub(crate) fn asked(
    supervisor: &Supervisor,
    permit: &Permit,
    call: &Call,
) -> Result<Written, WireError> {
    let Some(act) = act_of(supervisor, permit, call) else { return Ok(None) };
    match supervisor.audit.asked(&act) {
        Ok(seq) => Ok(Some((act, Some(seq)))),
        Err(error) if act.admin || call.by.is_some() => {
            let words = format!("this could not be recorded, so it is not done: {error}");
            Err(WireError::new(ErrorCode::StorageUnavailable, words))
        }
        Err(error) => {
            tracing::error!(%error, verb = act.verb, uid = act.uid, "not in the journal");
            Ok(Some((act, None)))
        }
    }
}

/// After it. What it was about may be known only now.
pub(crate) fn outcome(supervisor: &Supervisor, written: Written, told: Option<&WireError>) {
    let Some((mut act, seq)) = written else { return };
    if let Some(cage) = act.cage.and_then(|id| supervisor.find(id)) {
        act.session = Some(cage.record().session);
    }
    if act.owner.is_some()
        && let Some((session, _uid)) = act.grant.and_then(|id| supervisor.grants.about(id))
    {
        act.session = Some(session);
    }
    supervisor.audit.outcome(seq, act, told);
}

/// What the table does not let through. Who asks is known, but for what is no connection at all.
pub(crate) fn refused(
    supervisor: &Supervisor,
    permit: &Permit,
    (asker, cage): (Option<u32>, Option<CageId>),
    error: &WireError,
) {
    let Some(uid) = asker else { return };
    if permit.trail == Trail::No
        || !matches!(error.code, ErrorCode::Forbidden | ErrorCode::NotFound)
    {
        return;
    }
    let verb = permit.verb.to_owned();
    // Whose it is would tell an operator that somebody else's cage is there.
    let act = Act { uid, admin: false, grant: None, verb, session: None, cage, owner: None };
    supervisor.audit.refused(act, error);
}

fn act_of(supervisor: &Supervisor, permit: &Permit, call: &Call) -> Option<Act> {
    let operator = call.operator.as_ref()?;
    let made = grant_of(&call.request);
    let about = about(supervisor, call, made);
    // What is another's is not there for who is no admin: the handler will say so.
    let may = |owner: u32| owner == operator.uid || operator.is_admin;
    let (about, is_foreign) = match about {
        Some((_session, owner)) if !may(owner) => (None, true),
        about => (about, false),
    };
    let owner = about.map_or(operator.uid, |(_session, owner)| owner);
    let uid = call.by.map_or(operator.uid, |by| by.asker);
    let admin = call.by.is_none() && owner != operator.uid;
    match permit.trail {
        Trail::Act => {}
        Trail::Look if admin => {}
        Trail::Look | Trail::No => return None,
    }
    Some(Act {
        uid,
        admin,
        grant: call.by.map(|by| by.grant).or(made),
        verb: permit.verb.to_owned(),
        session: about.map(|(session, _owner)| session),
        cage: cage_of(&call.request),
        owner: (!is_foreign).then_some(owner),
    })
}

/// The session that it is about, and whose that is, as far as the supervisor knows.
fn about(supervisor: &Supervisor, call: &Call, made: Option<GrantId>) -> Option<(SessionId, u32)> {
    if let Some(cage) = &call.cage {
        return Some((cage.record().session, cage.operator()));
    }
    if let SupervisorRequest::Layer { session } = &call.request {
        return crate::layers::owner(supervisor, *session).map(|owner| (*session, owner));
    }
    made.and_then(|id| supervisor.grants.about(id))
}

/// The grant that is made or revoked.
fn grant_of(request: &SupervisorRequest) -> Option<GrantId> {
    if let SupervisorRequest::Mint { grant, .. } | SupervisorRequest::Revoke { grant } = request {
        return Some(*grant);
    }
    None
}

fn cage_of(request: &SupervisorRequest) -> Option<CageId> {
    let value = serde_json::to_value(request).ok()?;
    serde_json::from_value(value.get("cage")?.clone()).ok()
}
