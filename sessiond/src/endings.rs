//! Ending things: cages, runs, sessions. Answered when nothing is left.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::clock::now_ms;
use crate::ledger::Told;
use crate::store::sessions;
use crate::store::{Result, cages, runs};
use crate::supervisor_link::RequestError;
use crate::{audit, grants, keeper, layers, ledger};
use link::failpoint;
use rusqlite::Connection as Database;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use wire::api::{RunState, RunView, SessionState, SessionView};
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{CageId, Cause, ErrorCode, RunId, SessionId, WireError};

/// How long the events of an end may lag behind the supervisor's answer.
const TOLD: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// SIGTERM, 5 s, SIGKILL.
    Gentle,
    Kill,
}

/// Ends one cage and waits until the rows say so.
///
/// # Errors
/// The supervisor is away or refuses.
pub async fn end_cage(
    app: &App,
    caller: &Caller,
    cage: CageId,
    force: Force,
) -> Result<(), WireError> {
    let phase = app.store.read(move |db| Ok(cages::bare(db, cage)?.map(|row| row.phase))).await?;
    if matches!(phase, None | Some(Phase::Gone)) {
        return Ok(());
    }
    let cause = Cause::Cancelled;
    let request = match force {
        Force::Gentle => SupervisorRequest::End { cage, cause },
        Force::Kill => SupervisorRequest::Kill { cage, cause },
    };
    let link = app.link.current()?;
    failpoint::reach("cancel.asked");
    let answer = link.request(&request, vec![caller.authority()?]).await;
    failpoint::reach("cancel.answered");
    match answer {
        Ok(_gone) => {}
        // It went by itself between the look and the request.
        Err(RequestError::Refused(error))
            if matches!(error.code, ErrorCode::NotFound | ErrorCode::Gone) => {}
        Err(error) => return Err(error.into()),
    }
    let told = app.within(TOLD, move |db| {
        let over =
            cages::bare(db, cage)?.is_none_or(|row| row.phase == Phase::Gone && row.exit.is_some());
        Ok(over.then_some(()))
    });
    let mut healthy = app.store.healthy();
    let told = tokio::select! {
        told = told => told?,
        // The supervisor has said that it is gone; the rows say so when they can be written.
        _full = healthy.wait_for(|healthy| !*healthy) => Some(()),
    };
    told.ok_or_else(|| {
        let words = "The cage is being started or its end was not told yet; try again.";
        WireError::new(ErrorCode::Conflict, words)
    })
}

/// Cancels a run: all its cages end.
///
/// # Errors
/// It has ended before (`conflict`), or as for [`end_cage`].
pub async fn cancel_run(
    app: &App,
    caller: &Caller,
    session: SessionId,
    run: RunId,
) -> Result<RunView, WireError> {
    let operator = caller.operator;
    let living = app.store.read(move |db| {
        let owner = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
        access::may(operator, Verb::Change, owner.uid, "session")?;
        let row = runs::get(db, run)?.filter(|row| row.session == session);
        let row = row.ok_or_else(|| access::not_found("run"))?;
        if matches!(row.state, RunState::Done | RunState::Failed | RunState::Cancelled) {
            let over = WireError::new(ErrorCode::Conflict, "This run has ended already.");
            return Err(over.into());
        }
        cages::living_of_run(db, run)
    });
    for cage in living.await? {
        end_cage(app, caller, cage, Force::Gentle).await?;
    }
    let row = app.store.read(move |db| runs::get(db, run)).await?;
    row.ok_or_else(|| access::not_found("run"))
}

/// Ends a session when its cages are gone.
///
/// # Errors
/// It has ended before (`gone`), or as for [`end_cage`].
pub async fn end_session(
    app: &Arc<App>,
    caller: &Caller,
    session: SessionId,
) -> Result<SessionView, WireError> {
    loop {
        let operator = caller.operator;
        let living = app.store.read(move |db| living_of(db, operator, session)).await?;
        for cage in &living {
            end_cage(app, caller, *cage, Force::Gentle).await?;
        }
        failpoint::reach("cancel.told");
        // A run may have begun since; a session does not end over a living cage.
        let ended = app.store.write(move |db| end_now(db, operator, session)).await?;
        if let Some(view) = ended {
            let_go(app);
            return Ok(view);
        }
    }
}

fn living_of(db: &Database, who: access::Operator, id: SessionId) -> Result<Vec<CageId>> {
    let session = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, Verb::Change, session.uid, "session")?;
    if session.state == SessionState::Ended {
        return Err(WireError::new(
            ErrorCode::Gone,
            format!("Session {} has ended already; `mews rm {0}` removes it.", session.name),
        )
        .into());
    }
    cages::living_of_session(db, id)
}

fn end_now(db: &Database, who: access::Operator, id: SessionId) -> Result<Option<SessionView>> {
    if !cages::living_of_session(db, id)?.is_empty() {
        return Ok(None);
    }
    let session = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
    if session.uid != who.uid {
        let data = json!({ "uid": who.uid, "verb": "end" });
        let told = Told { kind: "session.admin", data, at_ms: now_ms() };
        ledger::note(db, id, None, told)?;
    }
    audit::done(db, who, "end_session", &session)?;
    // Made for one run: it ended by itself with its last cage.
    if session.state != SessionState::Ended {
        ledger::end_session(db, id, now_ms())?;
    }
    let session = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
    sessions::view(db, session).map(Some)
}

/// Removes an ended session and lets the files of its cages go.
///
/// # Errors
/// It is living (`conflict`).
pub async fn purge(app: &Arc<App>, caller: &Caller, session: SessionId) -> Result<(), WireError> {
    let operator = caller.operator;
    let removed = app.store.write(move |db| {
        let row = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
        access::may(operator, Verb::Change, row.uid, "session")?;
        let over = matches!(row.state, SessionState::Ended | SessionState::Failed)
            && cages::living_of_session(db, session)?.is_empty();
        if !over {
            return Err(WireError::new(
                ErrorCode::Conflict,
                format!("Session {} is living; type `mews end {0}` first.", row.name),
            )
            .into());
        }
        let cages = cages::of_session(db, session)?;
        audit::done(db, operator, "rm", &row)?;
        sessions::delete(db, session)?;
        Ok(cages.into_iter().map(|cage| cage.id).collect::<Vec<_>>())
    });
    let cages = removed.await?;
    failpoint::reach("remove.rows");
    // Where the supervisor is away, its next snapshot shows cages without rows: forgotten then.
    if let Some(link) = app.link.peek() {
        for cage in cages {
            keeper::forget(&link, cage).await;
        }
        layers::forget(&link, session, None).await;
    }
    let_go(app);
    Ok(())
}

/// Grants of a session that is over; where the supervisor is away, the next link says it.
fn let_go(app: &Arc<App>) {
    if let Some(link) = app.link.peek() {
        tokio::spawn(grants::tidy(Arc::clone(app), link));
    }
}
