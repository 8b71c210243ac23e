//! Checkpoints of a session: intent row, effect, outcome row; and the way back.
//!
//! All cages of the session or none. What a daemon that died has left half done is settled by the
//! next one ([`settle`]): a checkpoint that was being taken has failed, its files go, and what stood
//! still stays so until somebody resumes it, which the event says.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::audit;
use crate::clock::now_ms;
use crate::endings::{self, Force};
use crate::jobs;
use crate::layers;
use crate::ledger::{self, Told};
use crate::pausing::{self, Motion};
use crate::store::{Result as StoreResult, cages, checkpoints, runs, sessions};
use crate::supervisor_link::{Connection, document};
use link::failpoint;
use rusqlite::Connection as Database;
use serde_json::json;
use std::sync::Arc;
use wire::api::{
    CHECKPOINTS_MAX, CheckpointState, CheckpointView, JobRequest, Rollback, RolledBack, RunKind,
    SessionState, Started, TakeCheckpoint,
};
use wire::supervisor::{LayerRequest, Phase, SupervisorRequest};
use wire::{CageCheckpoint, CageId, CheckpointId, ErrorCode, ExecSpec, SessionId, WireError};

const NOTE_BYTES_MAX: usize = 1024;

/// What is about to be taken.
struct Meant {
    id: CheckpointId,
    /// And whether each stood still before.
    cages: Vec<(CageId, bool)>,
}

/// # Errors
/// Nothing runs (`conflict`), or what the supervisor says; then nothing is kept and what ran goes on.
pub async fn take(
    app: &App,
    caller: &Caller,
    session: SessionId,
    asked: TakeCheckpoint,
) -> Result<CheckpointView, WireError> {
    let too_long = asked.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX);
    if too_long {
        let words = format!("'note' has at most {NOTE_BYTES_MAX} bytes.");
        return Err(WireError::new(ErrorCode::ValidationFailed, words));
    }
    let link = app.link.current()?;
    let (who, note) = (caller.operator, asked.note);
    let meant = app.store.write(move |db| begin(db, who, session, note)).await?;
    let id = meant.id;
    failpoint::reach("checkpoint.meant");
    match keep(app, caller, &link, &meant).await {
        Ok(kept) => {
            failpoint::reach("checkpoint.answered");
            let archived = app.store.write(move |db| taken(db, session, id, &kept)).await?;
            for old in archived {
                layers::forget(&link, session, Some(old)).await;
            }
        }
        Err(error) => {
            undo(app, caller, &meant).await;
            layers::forget(&link, session, Some(id)).await;
            let told = error.clone();
            app.store.write(move |db| failed(db, session, id, &told)).await?;
            return Err(error);
        }
    }
    if asked.resume {
        for (cage, _stood) in &meant.cages {
            pausing::move_cage(app, caller, *cage, Motion::Resume).await?;
        }
    }
    let row = app.store.read(move |db| checkpoints::get(db, id)).await?;
    row.map(shown).ok_or_else(|| access::not_found("checkpoint"))
}

/// As the API shows it: what started a cage holds the operator's environment.
#[must_use]
pub fn shown(mut row: CheckpointView) -> CheckpointView {
    for cage in &mut row.cages {
        cage.spec = None;
    }
    row
}

fn begin(
    db: &Database,
    who: access::Operator,
    session: SessionId,
    note: Option<String>,
) -> StoreResult<Meant> {
    let row = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, Verb::Change, row.uid, "session")?;
    if row.state == SessionState::Ended {
        return Err(WireError::new(ErrorCode::Gone, "This session has ended.").into());
    }
    let mut living = Vec::new();
    for id in cages::living_of_session(db, session)? {
        let phase = cages::bare(db, id)?.map(|cage| cage.phase);
        living.push((id, phase == Some(Phase::Suspended)));
    }
    if living.is_empty() {
        let words = "Nothing runs in this session, so there is nothing to take a checkpoint of.";
        return Err(WireError::new(ErrorCode::Conflict, words).into());
    }
    let checkpoint = CheckpointView {
        id: CheckpointId::new(),
        session,
        state: CheckpointState::Taking,
        note,
        created_by: who.uid,
        created_at_ms: now_ms(),
        run: runs::of_session(db, session)?.last().map(|run| run.id),
        cages: Vec::new(),
        covers_files: false,
        superseded: false,
        error: None,
    };
    checkpoints::insert(db, &checkpoint)?;
    Ok(Meant { id: checkpoint.id, cages: living })
}

async fn keep(
    app: &App,
    caller: &Caller,
    link: &Connection,
    meant: &Meant,
) -> Result<Vec<CageCheckpoint>, WireError> {
    let mut kept = Vec::new();
    for (cage, _stood) in &meant.cages {
        let request = SupervisorRequest::Checkpoint { cage: *cage, checkpoint: meant.id };
        failpoint::reach("checkpoint.asked");
        let reply = link.request(&request, vec![caller.authority()?]).await?;
        kept.push(layers::parsed(&document(reply).await?)?);
        pausing::told(app, *cage, Motion::Suspend).await?;
    }
    Ok(kept)
}

/// What ran before goes on.
async fn undo(app: &App, caller: &Caller, meant: &Meant) {
    for (cage, _stood) in meant.cages.iter().filter(|(_cage, stood)| !stood) {
        match pausing::move_cage(app, caller, *cage, Motion::Resume).await {
            Ok(()) => {}
            Err(error) if matches!(error.code, ErrorCode::Gone | ErrorCode::NotFound) => {}
            Err(error) => tracing::error!(%cage, %error, "undoing a checkpoint"),
        }
    }
}

/// The outcome; and which old ones are let go.
fn taken(
    db: &Database,
    session: SessionId,
    id: CheckpointId,
    kept: &[CageCheckpoint],
) -> StoreResult<Vec<CheckpointId>> {
    checkpoints::set_taken(db, id, kept)?;
    let covers = kept.iter().any(|cage| cage.layer.is_some());
    note(db, session, "checkpoint.created", json!({ "checkpoint": id, "covers_files": covers }))?;
    let rows = checkpoints::of_session(db, session)?.into_iter();
    let whole: Vec<CheckpointId> =
        rows.filter(|row| row.state == CheckpointState::Taken).map(|row| row.id).collect();
    let over = whole.len().saturating_sub(CHECKPOINTS_MAX);
    let old: Vec<CheckpointId> = whole.into_iter().take(over).collect();
    for id in &old {
        checkpoints::set_archived(db, *id)?;
        note(db, session, "checkpoint.archived", json!({ "checkpoint": id }))?;
    }
    Ok(old)
}

fn failed(
    db: &Database,
    session: SessionId,
    id: CheckpointId,
    error: &WireError,
) -> StoreResult<()> {
    checkpoints::set_failed(db, id, error)?;
    note(db, session, "checkpoint.failed", json!({ "checkpoint": id, "error": error }))
}

fn note(db: &Database, session: SessionId, kind: &str, data: serde_json::Value) -> StoreResult<()> {
    ledger::note(db, session, None, Told { kind, data, at_ms: now_ms() })
}

/// What an earlier daemon was taking when it died: failed, and said. Its files go with the next link.
///
/// # Errors
/// The database.
pub fn settle(db: &Database) -> StoreResult<()> {
    let words = "mews-sessiond was restarted while it was taken; nothing is kept of it. Its programs \
                 stand still if they had come to; `mews resume` lets them go on.";
    let error = WireError::new(ErrorCode::Internal, words);
    for row in checkpoints::taking(db)? {
        failed(db, row.session, row.id, &error)?;
    }
    Ok(())
}

/// A checkpoint of a session of the caller's.
///
/// # Errors
/// `not_found`.
pub fn find(
    db: &Database,
    who: access::Operator,
    verb: Verb,
    place: (SessionId, CheckpointId),
) -> StoreResult<CheckpointView> {
    let (session, id) = place;
    let row = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, verb, row.uid, "session")?;
    let found = checkpoints::get(db, id)?.filter(|found| found.session == session);
    Ok(found.ok_or_else(|| access::not_found("checkpoint"))?)
}

/// # Errors
/// Not confirmed, it is not whole, or what the supervisor says.
pub async fn rollback(
    app: Arc<App>,
    caller: Caller,
    place: (SessionId, CheckpointId),
    asked: Rollback,
) -> Result<RolledBack, WireError> {
    let (session, who) = (place.0, caller.operator);
    let row = app.store.read(move |db| find(db, who, Verb::Change, place)).await?;
    check(&row, &asked)?;
    let owner = app.store.read(move |db| sessions::get(db, session)).await?;
    let owner = owner.ok_or_else(|| access::not_found("session"))?;
    let job = match asked.restart {
        true => {
            access::may(who, Verb::Start, owner.uid, "session")?;
            Some(restarted(&app, &row, owner.state).await?)
        }
        false => None,
    };
    if let Some(job) = &job {
        // What cannot be started again now is not ended first.
        jobs::would_start(&app, &caller, &owner, job).await?;
    }
    if owner.state != SessionState::Ended {
        // Made for one run, it would end with the cages that are killed now.
        app.store.write(move |db| sessions::set_end_on_exit(db, session, false)).await?;
    }
    failpoint::reach("rollback.meant");
    for cage in app.store.read(move |db| cages::living_of_session(db, session)).await? {
        endings::end_cage(&app, &caller, cage, Force::Kill).await?;
    }
    failpoint::reach("rollback.killed");
    if row.covers_files {
        let back = LayerRequest::Restore { checkpoint: row.id };
        layers::ask(&app, &caller, session, &back).await?;
    }
    failpoint::reach("rollback.restored");
    app.store.write(move |db| rolled_back(db, who, &row)).await?;
    failpoint::reach("rollback.told");
    let started: Option<Started> = match job {
        Some(job) => Some(jobs::start(Arc::clone(&app), caller, session, job).await?),
        None => None,
    };
    if started.is_some() {
        app.store
            .write(move |db| sessions::set_end_on_exit(db, session, owner.end_on_exit))
            .await?;
    }
    Ok(RolledBack { session: pausing::view(&app, session).await?, started })
}

fn rolled_back(db: &Database, who: access::Operator, row: &CheckpointView) -> StoreResult<()> {
    if let Some(session) = sessions::get(db, row.session)? {
        audit::done(db, who, "rollback", &session)?;
    }
    checkpoints::supersede_after(db, row)?;
    let data = json!({ "checkpoint": row.id, "files": row.covers_files });
    note(db, row.session, "checkpoint.rolled_back", data)
}

fn check(row: &CheckpointView, asked: &Rollback) -> Result<(), WireError> {
    if !asked.confirm {
        let words =
            "This kills the session's programs and takes its files back: say \"confirm\": true.";
        return Err(WireError::new(ErrorCode::BadRequest, words));
    }
    let why = match row.state {
        CheckpointState::Taken if row.covers_files || asked.restart => return Ok(()),
        CheckpointState::Taken => {
            "Its programs work in the folder itself, so no files are part of this checkpoint; there is \
             nothing to go back to. Start sessions with --overlay or --copy, or say --restart."
        }
        CheckpointState::Taking => "This checkpoint is still being taken.",
        CheckpointState::Failed => "This checkpoint failed; nothing is kept of it.",
        CheckpointState::Archived => "The files of this checkpoint are not kept any more.",
    };
    Err(WireError::new(ErrorCode::Conflict, why))
}

/// The job that started what ran at the checkpoint.
async fn restarted(
    app: &App,
    row: &CheckpointView,
    state: SessionState,
) -> Result<JobRequest, WireError> {
    if matches!(state, SessionState::Ended | SessionState::Failed) {
        let words = "This session has ended, so nothing can be started in it. Without restart its \
                     files still come back; `mews diff` and `mews apply` reach them.";
        return Err(WireError::new(ErrorCode::Gone, words));
    }
    let spec = row.cages.iter().find_map(|cage| cage.spec.clone()).ok_or_else(|| {
        WireError::new(ErrorCode::Conflict, "What started its command was not kept.")
    })?;
    let run = row.run;
    let kind = app.store.read(move |db| match run {
        Some(run) => Ok(runs::get(db, run)?.map(|run| run.kind)),
        None => Ok(None),
    });
    Ok(JobRequest {
        kind: kind.await?.unwrap_or(RunKind::Job),
        policy: spec.policy,
        overrides: spec.overrides,
        // Nobody is there to wait for, and nobody to send its input.
        exec: ExecSpec { hold: false, stdin: false, ..spec.exec },
        client_request_id: None,
    })
}
