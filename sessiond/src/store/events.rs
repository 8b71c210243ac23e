//! Rows of events: per session from 1, without holes; each event of a source once.

use super::Result;
use super::column::{Json, Word};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wire::{CageId, PtyId, RunId, SessionId, Source};

/// What happened, before it has its place.
#[derive(Clone, Debug)]
pub struct NewEvent<'a> {
    pub session: SessionId,
    pub at_ms: i64,
    pub kind: &'a str,
    pub data: &'a Value,
    pub run: Option<RunId>,
    pub cage: Option<CageId>,
    /// Where it came from below: the key that makes a second arrival harmless.
    pub source: Option<(Source, u64)>,
}

/// Appends it and gives its sequence.
///
/// # Errors
/// The database; no such session.
pub fn append(db: &Connection, event: &NewEvent<'_>) -> Result<i64> {
    let seq: i64 = db
        .prepare_cached("UPDATE sessions SET seq = seq + 1 WHERE id = ?1 RETURNING seq")?
        .query_row([Word(event.session)], |row| row.get(0))?;
    let source = event.source.map(|(source, _seq)| source.as_str());
    let source_seq = event.source.map(|(_source, seq)| i64::try_from(seq).unwrap_or(i64::MAX));
    db.prepare_cached(
        "INSERT INTO events (session, seq, at_ms, kind, data, run, cage, source, source_seq)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        Word(event.session),
        seq,
        event.at_ms,
        event.kind,
        Json(event.data),
        event.run.map(Word),
        event.cage.map(Word),
        source,
        source_seq
    ])?;
    Ok(seq)
}

/// # Errors
/// The database.
pub fn is_known(db: &Connection, cage: CageId, source: Source, seq: u64) -> Result<bool> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let sql = "SELECT 1 FROM events WHERE cage = ?1 AND source = ?2 AND source_seq = ?3
        AND source IS NOT NULL";
    let found = db
        .prepare_cached(sql)?
        .query_row(params![Word(cage), source.as_str(), seq], |_row| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// Whether an event of this kind names this terminal.
///
/// # Errors
/// The database.
pub fn names_pty(db: &Connection, session: SessionId, kind: &str, pty: PtyId) -> Result<bool> {
    let sql = "SELECT 1 FROM events
        WHERE session = ?1 AND kind = ?2 AND json_extract(data, '$.pty') = ?3 LIMIT 1";
    let found = db
        .prepare_cached(sql)?
        .query_row(params![Word(session), kind, Word(pty)], |_row| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// The newest event of a source that is stored; 0 for none.
///
/// # Errors
/// The database.
pub fn newest_of(db: &Connection, cage: CageId, source: Source) -> Result<u64> {
    let sql = "SELECT max(source_seq) FROM events
        WHERE cage = ?1 AND source = ?2 AND source IS NOT NULL";
    let newest: Option<i64> = db
        .prepare_cached(sql)?
        .query_row(params![Word(cage), source.as_str()], |row| row.get(0))?;
    Ok(newest.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0))
}

/// An event as clients get it: a [`wire::api::SessionEvent`] on one line.
#[derive(Clone, Debug)]
pub struct EventText {
    pub seq: i64,
    pub json: String,
}

/// The same, with data that is not taken apart to be put together again.
#[derive(Serialize)]
struct Untouched<'a> {
    seq: i64,
    at_ms: i64,
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a RawValue,
    run: Option<&'a str>,
    cage: Option<&'a str>,
}

/// Those after `after`, at most `limit`, in order.
///
/// # Errors
/// The database.
pub fn after(
    db: &Connection,
    session: SessionId,
    after: i64,
    limit: u32,
) -> Result<Vec<EventText>> {
    let sql = "SELECT seq, at_ms, kind, data, run, cage FROM events
        WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params![Word(session), after, limit], |row| {
        let no_json =
            |error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, Box::new(error));
        let seq = row.get(0)?;
        let event = Untouched {
            seq,
            at_ms: row.get(1)?,
            kind: row.get_ref(2)?.as_str()?,
            data: serde_json::from_str(row.get_ref(3)?.as_str()?).map_err(no_json)?,
            run: row.get_ref(4)?.as_str_or_null()?,
            cage: row.get_ref(5)?.as_str_or_null()?,
        };
        let json = serde_json::to_string(&event).map_err(no_json)?;
        Ok(EventText { seq, json })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
