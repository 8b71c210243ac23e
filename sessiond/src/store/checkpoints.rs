//! Rows of checkpoints.

use super::Result;
use super::column::{Json, Word};
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::api::{CheckpointState, CheckpointView};
use wire::{CageCheckpoint, CheckpointId, SessionId, WireError};

const SELECT: &str = "SELECT id, session, state, note, created_by, created_at_ms, run, cages,
    superseded, error FROM checkpoints";

/// With what started its cages: not for the API.
fn from_row(row: &Row<'_>) -> rusqlite::Result<CheckpointView> {
    let cages: Vec<CageCheckpoint> = row.get::<_, Json<_>>(7)?.0;
    Ok(CheckpointView {
        id: row.get::<_, Word<_>>(0)?.0,
        session: row.get::<_, Word<_>>(1)?.0,
        state: row.get::<_, Word<_>>(2)?.0,
        note: row.get(3)?,
        created_by: row.get(4)?,
        created_at_ms: row.get(5)?,
        run: row.get::<_, Option<Word<_>>>(6)?.map(|word| word.0),
        covers_files: cages.iter().any(|cage| cage.layer.is_some()),
        cages,
        superseded: row.get(8)?,
        error: row.get::<_, Option<Json<_>>>(9)?.map(|json| json.0),
    })
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: CheckpointId) -> Result<Option<CheckpointView>> {
    let sql = format!("{SELECT} WHERE id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// Oldest first: ids are in the order of their making.
///
/// # Errors
/// The database.
pub fn of_session(db: &Connection, session: SessionId) -> Result<Vec<CheckpointView>> {
    let sql = format!("{SELECT} WHERE session = ?1 ORDER BY created_at_ms, id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(session)], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Those that an earlier daemon began, over all sessions.
///
/// # Errors
/// The database.
pub fn taking(db: &Connection) -> Result<Vec<CheckpointView>> {
    let sql = format!("{SELECT} WHERE state = ?1 ORDER BY id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(CheckpointState::Taking)], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, row: &CheckpointView) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO checkpoints (id, session, state, note, created_by, created_at_ms, run)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        Word(row.id),
        Word(row.session),
        Word(row.state),
        row.note,
        row.created_by,
        row.created_at_ms,
        row.run.map(Word)
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_taken(db: &Connection, id: CheckpointId, cages: &[CageCheckpoint]) -> Result<()> {
    db.prepare_cached("UPDATE checkpoints SET state = ?2, cages = ?3 WHERE id = ?1")?
        .execute(params![Word(id), Word(CheckpointState::Taken), Json(cages)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_failed(db: &Connection, id: CheckpointId, error: &WireError) -> Result<()> {
    db.prepare_cached("UPDATE checkpoints SET state = ?2, error = ?3 WHERE id = ?1")?
        .execute(params![Word(id), Word(CheckpointState::Failed), Json(error)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_archived(db: &Connection, id: CheckpointId) -> Result<()> {
    db.prepare_cached("UPDATE checkpoints SET state = ?2 WHERE id = ?1")?
        .execute(params![Word(id), Word(CheckpointState::Archived)])?;
    Ok(())
}

/// The session was rolled back to this one: later ones are superseded, it and earlier ones count.
///
/// # Errors
/// The database.
pub fn supersede_after(db: &Connection, row: &CheckpointView) -> Result<()> {
    db.prepare_cached(
        "UPDATE checkpoints SET superseded = (created_at_ms, id) > (?2, ?3)
         WHERE session = ?1 AND ((created_at_ms, id) > (?2, ?3) OR id = ?3)",
    )?
    .execute(params![Word(row.session), row.created_at_ms, Word(row.id)])?;
    Ok(())
}
