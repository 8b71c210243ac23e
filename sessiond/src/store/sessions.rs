//! Rows of sessions.

use super::column::{Json, Word};
use super::{Result, cages, runs};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use wire::SessionId;
use wire::api::{SessionState, SessionView};

/// Ended sessions that a plain list still shows.
const ENDED_SHOWN: u32 = 10;

#[derive(Clone, Debug)]
pub struct SessionRow {
    pub id: SessionId,
    pub uid: u32,
    pub project: i64,
    pub slug: String,
    pub folder: String,
    pub name: String,
    pub state: SessionState,
    pub archived: bool,
    pub labels: BTreeMap<String, String>,
    pub source: String,
    pub end_on_exit: bool,
    pub created_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    pub seq: i64,
}

const SELECT: &str = "SELECT s.id, s.uid, s.project, p.slug, p.folder, s.name, s.state, s.archived,
    s.labels, s.source, s.end_on_exit, s.created_at_ms, s.ended_at_ms, s.seq
    FROM sessions s JOIN projects p ON p.id = s.project";

fn from_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get::<_, Word<_>>(0)?.0,
        uid: row.get(1)?,
        project: row.get(2)?,
        slug: row.get(3)?,
        folder: row.get(4)?,
        name: row.get(5)?,
        state: row.get::<_, Word<_>>(6)?.0,
        archived: row.get(7)?,
        labels: row.get::<_, Json<_>>(8)?.0,
        source: row.get(9)?,
        end_on_exit: row.get(10)?,
        created_at_ms: row.get(11)?,
        ended_at_ms: row.get(12)?,
        seq: row.get(13)?,
    })
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: SessionId) -> Result<Option<SessionRow>> {
    let sql = format!("{SELECT} WHERE s.id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn by_name(db: &Connection, uid: u32, name: &str) -> Result<Option<SessionRow>> {
    let sql = format!("{SELECT} WHERE s.uid = ?1 AND s.name = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![uid, name], from_row).optional()?)
}

/// Names of this operator that begin with `prefix`.
///
/// # Errors
/// The database.
pub fn names(db: &Connection, uid: u32, prefix: &str) -> Result<Vec<String>> {
    let sql = "SELECT name FROM sessions WHERE uid = ?1 AND substr(name, 1, length(?2)) = ?2";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params![uid, prefix], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The living and the last ten, or all; newest last. `owner`: only this operator's.
///
/// # Errors
/// The database.
pub fn list(db: &Connection, owner: Option<u32>, all: bool) -> Result<Vec<SessionRow>> {
    let shown = "s.state NOT IN ('ended', 'failed') OR s.id IN (SELECT id FROM sessions
        WHERE state IN ('ended', 'failed') AND (?1 IS NULL OR uid = ?1)
        ORDER BY ended_at_ms DESC LIMIT ?3)";
    let sql = format!(
        "{SELECT} WHERE (?1 IS NULL OR s.uid = ?1) AND (?2 OR {shown})
         ORDER BY s.created_at_ms, s.id"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params![owner, all, ENDED_SHOWN], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, row: &SessionRow) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO sessions (id, project, uid, name, state, labels, source, end_on_exit,
         created_at_ms, used_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)",
    )?
    .execute(params![
        Word(row.id),
        row.project,
        row.uid,
        row.name,
        Word(row.state),
        Json(&row.labels),
        row.source,
        row.end_on_exit,
        row.created_at_ms
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_state(db: &Connection, id: SessionId, state: SessionState, at_ms: i64) -> Result<()> {
    let ended = matches!(state, SessionState::Ended | SessionState::Failed).then_some(at_ms);
    db.prepare_cached("UPDATE sessions SET state = ?2, ended_at_ms = ?3 WHERE id = ?1")?
        .execute(params![Word(id), Word(state), ended])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_end_on_exit(db: &Connection, id: SessionId, end_on_exit: bool) -> Result<()> {
    db.prepare_cached("UPDATE sessions SET end_on_exit = ?2 WHERE id = ?1")?
        .execute(params![Word(id), end_on_exit])?;
    Ok(())
}

/// Remembers that somebody worked with it: `resolve` prefers what was used last.
///
/// # Errors
/// The database.
pub fn touch(db: &Connection, id: SessionId, at_ms: i64) -> Result<()> {
    db.prepare_cached("UPDATE sessions SET used_at_ms = ?2 WHERE id = ?1")?
        .execute(params![Word(id), at_ms])?;
    Ok(())
}

/// Removes it with all that hangs on it.
///
/// # Errors
/// The database.
pub fn delete(db: &Connection, id: SessionId) -> Result<()> {
    db.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([Word(id)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn view(db: &Connection, row: SessionRow) -> Result<SessionView> {
    Ok(SessionView {
        runs: runs::of_session(db, row.id)?,
        cages: cages::of_session(db, row.id)?,
        id: row.id,
        name: row.name,
        project: row.slug,
        folder: row.folder,
        state: row.state,
        archived: row.archived,
        labels: row.labels,
        source: row.source,
        end_on_exit: row.end_on_exit,
        uid: row.uid,
        created_at_ms: row.created_at_ms,
        ended_at_ms: row.ended_at_ms,
        seq: row.seq,
    })
}
