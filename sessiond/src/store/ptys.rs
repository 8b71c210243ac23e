//! Rows of terminals and pipe streams, and what was on them.

use super::Result;
use super::column::{Json, Word};
use crate::filing::Kept;
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::api::PtyView;
use wire::{CageId, Exit, PtyId, SessionId, Size};

const SELECT: &str = "SELECT id, cage, session, argv, tty, main, size, viewers, started_at_ms,
    ended_at_ms, exit, bytes FROM ptys";

fn from_row(row: &Row<'_>) -> rusqlite::Result<PtyView> {
    Ok(PtyView {
        id: row.get::<_, Word<_>>(0)?.0,
        cage: row.get::<_, Word<_>>(1)?.0,
        session: row.get::<_, Word<_>>(2)?.0,
        argv: row.get::<_, Json<_>>(3)?.0,
        tty: row.get(4)?,
        main: row.get(5)?,
        size: row.get::<_, Option<Json<_>>>(6)?.map(|json| json.0),
        viewers: row.get(7)?,
        started_at_ms: row.get(8)?,
        ended_at_ms: row.get(9)?,
        exit: row.get::<_, Option<Json<_>>>(10)?.map(|json| json.0),
        bytes: row.get::<_, Option<i64>>(11)?.and_then(|count| u64::try_from(count).ok()),
    })
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: PtyId) -> Result<Option<PtyView>> {
    let sql = format!("{SELECT} WHERE id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn of_cage(db: &Connection, cage: CageId) -> Result<Vec<PtyView>> {
    let sql = format!("{SELECT} WHERE cage = ?1 ORDER BY main DESC, id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(cage)], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn of_session(db: &Connection, session: SessionId) -> Result<Vec<PtyView>> {
    let sql = format!("{SELECT} WHERE session = ?1 ORDER BY cage, main DESC, id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(session)], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Adds it unless it is there.
///
/// # Errors
/// The database.
pub fn insert(db: &Connection, pty: &PtyView) -> Result<()> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO ptys (id, session, cage, argv, tty, main, size)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        Word(pty.id),
        Word(pty.session),
        Word(pty.cage),
        Json(&pty.argv),
        pty.tty,
        pty.main,
        pty.size.map(Json)
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn delete(db: &Connection, id: PtyId) -> Result<()> {
    db.prepare_cached("DELETE FROM ptys WHERE id = ?1")?.execute([Word(id)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_started(db: &Connection, id: PtyId, at_ms: i64) -> Result<()> {
    db.prepare_cached("UPDATE ptys SET started_at_ms = coalesce(started_at_ms, ?2) WHERE id = ?1")?
        .execute(params![Word(id), at_ms])?;
    Ok(())
}

/// Whether the broker has told of the cage's first command, that it runs or how it ended.
///
/// # Errors
/// The database.
pub fn has_begun(db: &Connection, cage: CageId) -> Result<bool> {
    let sql = "SELECT 1 FROM ptys WHERE cage = ?1 AND main = 1
        AND (started_at_ms IS NOT NULL OR exit IS NOT NULL)";
    Ok(db.prepare_cached(sql)?.exists([Word(cage)])?)
}

/// # Errors
/// The database.
pub fn set_size(db: &Connection, id: PtyId, size: Option<Size>) -> Result<()> {
    db.prepare_cached("UPDATE ptys SET size = coalesce(?2, size) WHERE id = ?1")?
        .execute(params![Word(id), size.map(Json)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_viewers(db: &Connection, id: PtyId, viewers: u32) -> Result<()> {
    db.prepare_cached("UPDATE ptys SET viewers = ?2 WHERE id = ?1")?
        .execute(params![Word(id), viewers])?;
    Ok(())
}

/// One more viewer, or one less.
///
/// # Errors
/// The database.
pub fn add_viewer(db: &Connection, id: PtyId, by: i64) -> Result<()> {
    db.prepare_cached("UPDATE ptys SET viewers = max(0, viewers + ?2) WHERE id = ?1")?
        .execute(params![Word(id), by])?;
    Ok(())
}

/// Execs in a living cage of which nothing was ever told, beside those in `listed`.
///
/// # Errors
/// The database.
pub fn unheard_of(db: &Connection, cage: CageId, listed: &[PtyId]) -> Result<Vec<PtyId>> {
    let sql = "SELECT p.id FROM ptys p WHERE p.cage = ?1 AND p.main = 0
        AND p.started_at_ms IS NULL AND p.exit IS NULL";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([Word(cage)], |row| Ok(row.get::<_, Word<PtyId>>(0)?.0))?;
    let mut found: Vec<PtyId> = rows.collect::<rusqlite::Result<_>>()?;
    found.retain(|pty| !listed.contains(pty));
    Ok(found)
}

/// The first end that is told counts, but for one that was only guessed.
///
/// # Errors
/// The database.
pub fn set_closed(
    db: &Connection,
    id: PtyId,
    exit: &Exit,
    bytes: Option<u64>,
    at_ms: i64,
) -> Result<()> {
    let bytes = bytes.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    db.prepare_cached(
        "UPDATE ptys SET exit = ?2, bytes = coalesce(?3, bytes), ended_at_ms = ?4, viewers = 0
         WHERE id = ?1
         AND (exit IS NULL OR json_extract(exit, '$.cause') = 'daemon_crash')",
    )?
    .execute(params![Word(id), Json(exit), bytes, at_ms])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn kept(db: &Connection, id: PtyId) -> Result<Option<Kept>> {
    let sql = "SELECT rendered, last FROM scrollbacks WHERE pty = ?1";
    let read = |row: &Row<'_>| {
        let last = row.get::<_, Option<Json<_>>>(1)?.map(|json| json.0);
        Ok(Kept { rendered: row.get(0)?, last })
    };
    Ok(db.prepare_cached(sql)?.query_row([Word(id)], read).optional()?)
}

/// Keeps it; nothing happens where the terminal was removed meanwhile.
///
/// # Errors
/// The database.
pub fn keep(db: &Connection, id: PtyId, kept: &Kept) -> Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO scrollbacks (pty, rendered, last)
         SELECT id, ?2, ?3 FROM ptys WHERE id = ?1",
    )?
    .execute(params![Word(id), kept.rendered, kept.last.as_ref().map(Json)])?;
    Ok(())
}

/// Terminals of cages that are gone whose scrollback is not filed yet.
///
/// # Errors
/// The database.
pub fn unfiled(db: &Connection) -> Result<Vec<(CageId, PtyId)>> {
    let sql = "SELECT p.cage, p.id FROM ptys p JOIN cages c ON c.id = p.cage
        WHERE c.phase = 'gone' AND c.started_at_ms IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM scrollbacks s WHERE s.pty = p.id)";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, Word<_>>(0)?.0, row.get::<_, Word<_>>(1)?.0)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
