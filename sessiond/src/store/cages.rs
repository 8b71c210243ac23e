//! Rows of cages.

use super::column::{Json, Word};
use super::{Result, ptys};
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::api::{CageBuild, CageView};
use wire::supervisor::Phase;
use wire::{CageId, Enforced, Exit, RunId, SessionId};

const SELECT: &str = "SELECT id, run, session, phase, pid, plan_hash, enforced, exit,
    started_at_ms, ended_at_ms, build, unreachable FROM cages";

fn from_row(row: &Row<'_>) -> rusqlite::Result<CageView> {
    Ok(CageView {
        id: row.get::<_, Word<_>>(0)?.0,
        run: row.get::<_, Word<_>>(1)?.0,
        session: row.get::<_, Word<_>>(2)?.0,
        phase: row.get::<_, Word<_>>(3)?.0,
        pid: row.get(4)?,
        plan_hash: row.get(5)?,
        enforced: row.get::<_, Json<_>>(6)?.0,
        exit: row.get::<_, Option<Json<_>>>(7)?.map(|json| json.0),
        started_at_ms: row.get(8)?,
        ended_at_ms: row.get(9)?,
        ptys: Vec::new(),
        build: row.get(10)?,
        unreachable: row.get(11)?,
    })
}

/// Without its terminals: what the machines need.
///
/// # Errors
/// The database.
pub fn bare(db: &Connection, id: CageId) -> Result<Option<CageView>> {
    let sql = format!("{SELECT} WHERE id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: CageId) -> Result<Option<CageView>> {
    let Some(mut cage) = bare(db, id)? else { return Ok(None) };
    cage.ptys = ptys::of_cage(db, id)?;
    Ok(Some(cage))
}

/// # Errors
/// The database.
pub fn of_session(db: &Connection, session: SessionId) -> Result<Vec<CageView>> {
    let sql = format!("{SELECT} WHERE session = ?1 ORDER BY id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([Word(session)], from_row)?;
    let mut cages: Vec<CageView> = rows.collect::<rusqlite::Result<_>>()?;
    for cage in &mut cages {
        cage.ptys = ptys::of_cage(db, cage.id)?;
    }
    Ok(cages)
}

/// Those that are not gone, over all sessions, without their terminals.
///
/// # Errors
/// The database.
pub fn living(db: &Connection) -> Result<Vec<CageView>> {
    let sql = format!("{SELECT} WHERE phase <> 'gone' ORDER BY id");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn living_of_run(db: &Connection, run: RunId) -> Result<Vec<CageId>> {
    let sql = "SELECT id FROM cages WHERE run = ?1 AND phase <> 'gone' ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([Word(run)], |row| Ok(row.get::<_, Word<_>>(0)?.0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn living_of_session(db: &Connection, session: SessionId) -> Result<Vec<CageId>> {
    let sql = "SELECT id FROM cages WHERE session = ?1 AND phase <> 'gone' ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([Word(session)], |row| Ok(row.get::<_, Word<_>>(0)?.0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Whether all living cages of a session stand still; false if none lives.
///
/// # Errors
/// The database.
pub fn all_suspended(db: &Connection, session: SessionId) -> Result<bool> {
    let sql = "SELECT count(*) > 0 AND count(*) = sum(phase = 'suspended')
               FROM cages WHERE session = ?1 AND phase <> 'gone'";
    let all: Option<bool> = db.prepare_cached(sql)?.query_row([Word(session)], |row| row.get(0))?;
    Ok(all.unwrap_or(false))
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, id: CageId, session: SessionId, run: RunId) -> Result<()> {
    db.prepare_cached("INSERT INTO cages (id, session, run, phase) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![Word(id), Word(session), Word(run), Word(Phase::Starting)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_phase(db: &Connection, id: CageId, phase: Phase) -> Result<()> {
    db.prepare_cached("UPDATE cages SET phase = ?2 WHERE id = ?1")?
        .execute(params![Word(id), Word(phase)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_started(db: &Connection, id: CageId, pid: Option<i32>, at_ms: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE cages SET phase = CASE phase WHEN 'starting' THEN 'running' ELSE phase END,
         pid = coalesce(?2, pid), started_at_ms = coalesce(started_at_ms, ?3) WHERE id = ?1",
    )?
    .execute(params![Word(id), pid, at_ms])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_plan(db: &Connection, id: CageId, plan_hash: &str) -> Result<()> {
    db.prepare_cached("UPDATE cages SET plan_hash = ?2 WHERE id = ?1")?
        .execute(params![Word(id), plan_hash])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_enforced(db: &Connection, id: CageId, enforced: &Enforced) -> Result<()> {
    db.prepare_cached("UPDATE cages SET enforced = ?2 WHERE id = ?1")?
        .execute(params![Word(id), Json(enforced)])?;
    Ok(())
}

/// Who serves it; `build`: none where that has not been said, and then what was known stays.
///
/// # Errors
/// The database.
pub fn set_broker(
    db: &Connection,
    id: CageId,
    build: Option<&str>,
    unreachable: Option<&str>,
) -> Result<()> {
    db.prepare_cached(
        "UPDATE cages SET build = coalesce(?2, build), unreachable = ?3
         WHERE id = ?1 AND phase <> 'gone'",
    )?
    .execute(params![Word(id), build, unreachable])?;
    Ok(())
}

/// Who serves the living ones of one operator, or of all.
///
/// # Errors
/// The database.
pub fn of_builds(db: &Connection, uid: Option<u32>) -> Result<Vec<CageBuild>> {
    let sql = "SELECT cages.id, session, sessions.name, build, unreachable FROM cages
        JOIN sessions ON sessions.id = session
        WHERE phase <> 'gone' AND uid = coalesce(?1, uid) ORDER BY cages.id";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([uid], |row| {
        Ok(CageBuild {
            cage: row.get::<_, Word<_>>(0)?.0,
            session: row.get::<_, Word<_>>(1)?.0,
            name: row.get(2)?,
            build: row.get(3)?,
            unreachable: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn set_exit(db: &Connection, id: CageId, exit: &Exit) -> Result<()> {
    db.prepare_cached(
        "UPDATE cages SET exit = ?2, phase = CASE phase WHEN 'gone' THEN 'gone' ELSE 'ending' END
         WHERE id = ?1",
    )?
    .execute(params![Word(id), Json(exit)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_gone(db: &Connection, id: CageId, at_ms: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE cages SET phase = 'gone', pid = NULL, unreachable = NULL,
         ended_at_ms = coalesce(ended_at_ms, ?2) WHERE id = ?1",
    )?
    .execute(params![Word(id), at_ms])?;
    Ok(())
}
