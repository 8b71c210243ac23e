//! Rows of runs.

use super::Result;
use super::column::{Json, Word};
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::api::{RunState, RunView};
use wire::{Exit, RunId, SessionId, WireError};

const SELECT: &str = "SELECT id, session, kind, state, argv, policy, created_at_ms, started_at_ms,
    ended_at_ms, exit, error FROM runs";

fn from_row(row: &Row<'_>) -> rusqlite::Result<RunView> {
    Ok(RunView {
        id: row.get::<_, Word<_>>(0)?.0,
        session: row.get::<_, Word<_>>(1)?.0,
        kind: row.get::<_, Word<_>>(2)?.0,
        state: row.get::<_, Word<_>>(3)?.0,
        argv: row.get::<_, Json<_>>(4)?.0,
        policy: row.get(5)?,
        created_at_ms: row.get(6)?,
        started_at_ms: row.get(7)?,
        ended_at_ms: row.get(8)?,
        exit: row.get::<_, Option<Json<_>>>(9)?.map(|json| json.0),
        error: row.get::<_, Option<Json<_>>>(10)?.map(|json| json.0),
    })
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: RunId) -> Result<Option<RunView>> {
    let sql = format!("{SELECT} WHERE id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn of_session(db: &Connection, session: SessionId) -> Result<Vec<RunView>> {
    let sql = format!("{SELECT} WHERE session = ?1 ORDER BY created_at_ms, id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(session)], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Those without an outcome, over all sessions.
///
/// # Errors
/// The database.
pub fn living(db: &Connection) -> Result<Vec<RunView>> {
    let sql = format!("{SELECT} WHERE state IN ('pending', 'running', 'suspended') ORDER BY id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, run: &RunView) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO runs (id, session, kind, state, argv, policy, created_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        Word(run.id),
        Word(run.session),
        Word(run.kind),
        Word(run.state),
        Json(&run.argv),
        run.policy,
        run.created_at_ms
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_started(db: &Connection, id: RunId, state: RunState, at_ms: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE runs SET state = ?2, started_at_ms = coalesce(started_at_ms, ?3) WHERE id = ?1",
    )?
    .execute(params![Word(id), Word(state), at_ms])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_state(db: &Connection, id: RunId, state: RunState) -> Result<()> {
    db.prepare_cached("UPDATE runs SET state = ?2 WHERE id = ?1")?
        .execute(params![Word(id), Word(state)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_ended(
    db: &Connection,
    id: RunId,
    state: RunState,
    outcome: (&Exit, Option<&WireError>),
    at_ms: i64,
) -> Result<()> {
    let (exit, error) = outcome;
    db.prepare_cached(
        "UPDATE runs SET state = ?2, exit = ?3, error = ?4, ended_at_ms = ?5 WHERE id = ?1",
    )?
    .execute(params![Word(id), Word(state), Json(exit), error.map(Json), at_ms])?;
    Ok(())
}
