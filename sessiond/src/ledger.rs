//! What happened, written into the rows: machines stepped, events appended, in one transaction.
//!
//! Called with the same facts from three sides (an answer to a request, an event from below, a
//! snapshot after a reconnect), in any order and more than once: each step is harmless when told
//! again, and the first outcome counts.

use crate::access;
use crate::session::run_state::{self, Outcome};
use crate::session::state;
use crate::store::events::{self, NewEvent};
use crate::store::{Result, StoreError, cages, grants, ptys, runs, sessions};
use rusqlite::Connection;
use serde_json::{Value, json};
use wire::api::{CageView, PtyView, RunView, SessionState};
use wire::supervisor::Phase;
use wire::{CageId, Cause, Event, EventBody, Exit, RunId, SessionId, Usage, WireError};

/// What an event from below asks for beyond its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Stored,
    /// Stored before.
    Known,
    /// Its cage has no row: the session was removed.
    Orphan,
    /// Stored; nothing is left of the cage, so what it leaves can be filed.
    Gone(CageId),
}

/// An event of our own.
///
/// # Errors
/// The database.
pub fn note(db: &Connection, session: SessionId, run: Option<RunId>, told: Told<'_>) -> Result<()> {
    let event = NewEvent {
        session,
        at_ms: told.at_ms,
        kind: told.kind,
        data: &told.data,
        run,
        cage: None,
        source: None,
    };
    events::append(db, &event).map(|_seq| ())
}

#[derive(Clone, Debug)]
pub struct Told<'a> {
    pub kind: &'a str,
    pub data: Value,
    pub at_ms: i64,
}

/// An event from below: stored once, then its meaning for the rows.
///
/// # Errors
/// The database.
pub fn apply(db: &Connection, event: &Event) -> Result<Applied> {
    let Some(cage) = cages::bare(db, event.cage)? else { return Ok(Applied::Orphan) };
    if events::is_known(db, event.cage, event.source, event.seq)? {
        return Ok(Applied::Known);
    }
    let stored = NewEvent {
        session: cage.session,
        at_ms: event.at_ms,
        kind: &event.kind,
        data: &event.data,
        run: Some(cage.run),
        cage: Some(event.cage),
        source: Some((event.source, event.seq)),
    };
    events::append(db, &stored)?;
    match event.body() {
        Some(body) => mean(db, &cage, body, event.at_ms),
        None => Ok(Applied::Stored),
    }
}

fn mean(db: &Connection, cage: &CageView, body: EventBody, at_ms: i64) -> Result<Applied> {
    match body {
        EventBody::CagePlanned { plan_hash, .. } => cages::set_plan(db, cage.id, &plan_hash)?,
        EventBody::CageAttested { enforced } => cages::set_enforced(db, cage.id, &enforced)?,
        EventBody::CageStarted { pid } => {
            cages::set_started(db, cage.id, Some(pid), at_ms)?;
            run_started(db, cage.run, at_ms)?;
        }
        EventBody::CageFailed { wall, message } => {
            cage_failed(db, cage.id, &WireError::wall(&wall, message), at_ms)?;
        }
        EventBody::CageLimits { enforced, .. } => cages::set_enforced(db, cage.id, &enforced)?,
        EventBody::CageSuspended(_) => cage_suspended(db, cage.id, at_ms)?,
        EventBody::CageResumed { .. } => cage_resumed(db, cage.id, at_ms)?,
        EventBody::CageUnreachable { build, message } => {
            cages::set_broker(db, cage.id, build.as_deref(), Some(&message))?;
        }
        EventBody::CageAdopted {} => cages::set_broker(db, cage.id, None, None)?,
        EventBody::CageExited { exit } => {
            // The supervisor's word that it began may come behind the broker's that it is over.
            if ptys::has_begun(db, cage.id)? {
                cages::set_started(db, cage.id, None, at_ms)?;
                run_started(db, cage.run, at_ms)?;
            }
            cage_exited(db, cage.id, &exit, at_ms)?;
        }
        EventBody::CageGone {} => {
            cage_gone(db, cage.id, at_ms)?;
            return Ok(Applied::Gone(cage.id));
        }
        EventBody::PtyAllocated { pty, argv, tty, size } => {
            let row = new_pty(cage, pty, argv, (tty, size));
            ptys::insert(db, &row)?;
            ptys::set_size(db, pty, size)?;
        }
        EventBody::PtyStarted { pty, .. } => ptys::set_started(db, pty, at_ms)?,
        EventBody::PtyAttached { pty, .. } => ptys::add_viewer(db, pty, 1)?,
        EventBody::PtyDetached { pty, .. } => ptys::add_viewer(db, pty, -1)?,
        EventBody::PtyClosed { pty, exit, bytes, .. } => {
            ptys::set_closed(db, pty, &exit, Some(bytes), at_ms)?;
        }
        EventBody::CageOom { .. }
        | EventBody::CageLimit { .. }
        | EventBody::CageStats { .. }
        | EventBody::CageAdmin { .. }
        | EventBody::CageGranted { .. }
        | EventBody::CageZygoteReplaced {}
        | EventBody::PtyRole { .. }
        | EventBody::PtyOutputThrottled { .. }
        | EventBody::PtyIdle { .. } => {}
    }
    Ok(Applied::Stored)
}

fn new_pty(
    cage: &CageView,
    id: wire::PtyId,
    argv: Vec<String>,
    form: (bool, Option<wire::Size>),
) -> PtyView {
    let (tty, size) = form;
    PtyView {
        id,
        cage: cage.id,
        session: cage.session,
        argv,
        tty,
        main: false,
        size,
        viewers: 0,
        started_at_ms: None,
        ended_at_ms: None,
        exit: None,
        bytes: None,
    }
}

/// The run's cage was told to go.
///
/// # Errors
/// The database.
pub fn run_started(db: &Connection, id: RunId, at_ms: i64) -> Result<()> {
    let run = known_run(db, id)?;
    let Ok(next) = run_state::step(run.state, run_state::Event::Started) else { return Ok(()) };
    if next != run.state {
        runs::set_started(db, id, next, at_ms)?;
        let data = json!({ "kind": run.kind, "argv": run.argv, "policy": run.policy });
        note(db, run.session, Some(id), Told { kind: "run.started", data, at_ms })?;
    }
    Ok(())
}

/// The run has its outcome; its session is free again.
///
/// # Errors
/// The database.
pub fn run_ended(
    db: &Connection,
    id: RunId,
    exit: &Exit,
    error: Option<&WireError>,
    at_ms: i64,
) -> Result<()> {
    let run = known_run(db, id)?;
    let outcome = Outcome::of(exit.cause);
    let Ok(next) = run_state::step(run.state, run_state::Event::Ended(outcome)) else {
        return status_found(db, &run, exit);
    };
    runs::set_ended(db, id, next, (exit, error), at_ms)?;
    let kind = if error.is_some() { "run.failed" } else { "run.ended" };
    let data = json!({ "state": next, "exit": exit, "error": error });
    note(db, run.session, Some(id), Told { kind, data, at_ms })?;
    // A session that was ended over its run stays ended.
    unless_denied(move_session(db, run.session, state::Event::RunEnded, at_ms))
}

/// An exit that was given up for lost and then came.
fn status_found(db: &Connection, run: &RunView, exit: &Exit) -> Result<()> {
    let lost = run.exit.as_ref().is_some_and(|known| known.cause == Cause::StatusLost);
    if lost && exit.cause != Cause::StatusLost {
        let ended = run.ended_at_ms.unwrap_or_default();
        runs::set_ended(db, run.id, run.state, (exit, run.error.as_ref()), ended)?;
    }
    Ok(())
}

/// Every process of the cage stands still; with its last living cage its session is paused.
///
/// # Errors
/// The database.
pub fn cage_suspended(db: &Connection, id: CageId, at_ms: i64) -> Result<()> {
    let Some(cage) = cages::bare(db, id)? else { return Ok(()) };
    if cage.phase == Phase::Gone {
        return Ok(());
    }
    cages::set_phase(db, id, Phase::Suspended)?;
    step_run(db, cage.run, run_state::Event::Suspended)?;
    if cages::all_suspended(db, cage.session)? {
        let pause = state::Event::Pause(state::PauseReason::Operator);
        unless_denied(move_session(db, cage.session, pause, at_ms))?;
    }
    Ok(())
}

/// # Errors
/// The database.
pub fn cage_resumed(db: &Connection, id: CageId, at_ms: i64) -> Result<()> {
    let Some(cage) = cages::bare(db, id)? else { return Ok(()) };
    if cage.phase != Phase::Suspended {
        return Ok(());
    }
    cages::set_phase(db, id, Phase::Running)?;
    step_run(db, cage.run, run_state::Event::Resumed)?;
    let resume = state::Event::Resume(state::Room::Free);
    unless_denied(move_session(db, cage.session, resume, at_ms))
}

fn step_run(db: &Connection, id: RunId, event: run_state::Event) -> Result<()> {
    let run = known_run(db, id)?;
    match run_state::step(run.state, event) {
        Ok(next) if next != run.state => runs::set_state(db, id, next),
        // Told again, or late: the run has ended.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What comes late changes nothing.
fn unless_denied(moved: Result<()>) -> Result<()> {
    match moved {
        Ok(()) | Err(StoreError::Denied(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A wall could not be put up, or the spawn was refused: nothing ran, nothing is left.
///
/// # Errors
/// The database.
pub fn cage_failed(db: &Connection, id: CageId, error: &WireError, at_ms: i64) -> Result<()> {
    let Some(cage) = cages::bare(db, id)? else { return Ok(()) };
    let exit = Exit::not_started(125, Cause::CageSetup, error.message.clone());
    cages::set_exit(db, id, &exit)?;
    cages::set_gone(db, id, at_ms)?;
    close_ptys(db, id, &exit, at_ms)?;
    run_ended(db, cage.run, &exit, Some(error), at_ms)?;
    settle(db, cage.session, at_ms)
}

/// The first payload has ended.
///
/// # Errors
/// The database.
pub fn cage_exited(db: &Connection, id: CageId, exit: &Exit, at_ms: i64) -> Result<()> {
    let Some(cage) = cages::bare(db, id)? else { return Ok(()) };
    if cage.exit.as_ref().is_none_or(|known| known.cause == Cause::StatusLost) {
        cages::set_exit(db, id, exit)?;
    }
    run_ended(db, cage.run, exit, None, at_ms)?;
    if cage.phase == Phase::Gone {
        close_ptys(db, id, exit, at_ms)?;
        settle(db, cage.session, at_ms)?;
    }
    Ok(())
}

/// Nothing of the cage is left. Its exit may be still under way from its other source.
///
/// # Errors
/// The database.
pub fn cage_gone(db: &Connection, id: CageId, at_ms: i64) -> Result<()> {
    let Some(cage) = cages::bare(db, id)? else { return Ok(()) };
    cages::set_gone(db, id, at_ms)?;
    if let Some(exit) = &cage.exit {
        close_ptys(db, id, exit, at_ms)?;
        settle(db, cage.session, at_ms)?;
    }
    Ok(())
}

/// A cage without anybody who could tell its end: this is it.
///
/// # Errors
/// The database.
pub fn cage_lost(db: &Connection, id: CageId, exit: &Exit, at_ms: i64) -> Result<()> {
    cage_exited(db, id, exit, at_ms)?;
    cage_gone(db, id, at_ms)
}

/// Terminals that nobody closed end with their cage; who waits for them must not wait for ever.
fn close_ptys(db: &Connection, cage: CageId, exit: &Exit, at_ms: i64) -> Result<()> {
    for pty in ptys::of_cage(db, cage)? {
        if pty.exit.is_none() {
            let told = if pty.main { exit.clone() } else { lost(Cause::StatusLost) };
            ptys::set_closed(db, pty.id, &told, None, at_ms)?;
        }
    }
    Ok(())
}

/// The exit of what nobody kept a status of.
#[must_use]
pub fn lost(cause: Cause) -> Exit {
    Exit { code: None, signal: None, core: false, cause, message: None, usage: Usage::default() }
}

/// A session that was made for one run ends when that and its cages are over.
///
/// # Errors
/// The database.
pub fn settle(db: &Connection, id: SessionId, at_ms: i64) -> Result<()> {
    let Some(session) = sessions::get(db, id)? else { return Ok(()) };
    let over = session.end_on_exit
        && session.state == SessionState::Idle
        && cages::living_of_session(db, id)?.is_empty()
        && !runs::of_session(db, id)?.is_empty();
    if over { end_session(db, id, at_ms) } else { Ok(()) }
}

/// # Errors
/// It has ended before (`gone`), or the database.
pub fn end_session(db: &Connection, id: SessionId, at_ms: i64) -> Result<()> {
    move_session(db, id, state::Event::End, at_ms)?;
    grants::delete_of(db, id)?;
    note(db, id, None, Told { kind: "session.ended", data: json!({}), at_ms })
}

/// Steps the session's machine and writes the new state.
///
/// # Errors
/// The machine says no (then nothing changes), or the database.
pub fn move_session(db: &Connection, id: SessionId, event: state::Event, at_ms: i64) -> Result<()> {
    let session = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
    let step = state::step(session.state.into(), event).map_err(WireError::from)?;
    sessions::set_state(db, id, step.next.shown(), at_ms)
}

fn known_run(db: &Connection, id: RunId) -> Result<RunView> {
    Ok(runs::get(db, id)?.ok_or_else(|| access::not_found("run"))?)
}
