//! What an ID argument means (PROTOCOL.md 3): a name, else a unique prefix or suffix of an id.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::Query;
use crate::access::{self, Operator};
use crate::store::Result;
use crate::store::column::Word;
use crate::store::sessions;
use axum::Json;
use axum::extract::State;
use rusqlite::{Connection, OptionalExtension, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wire::api::{Resolved, SessionState};
use wire::{CageId, ErrorCode, PtyId, RunId, SessionId, WireError};

/// Shorter ones mean too much.
const PART_MIN: usize = 4;
const CANDIDATES_MAX: u32 = 20;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ResolveQuery {
    #[serde(default)]
    id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Candidate {
    kind: String,
    id: String,
    session: SessionId,
    name: String,
}

pub(super) async fn resolve(
    State(app): Shared,
    caller: Caller,
    Query(query): Query<ResolveQuery>,
) -> Answer<Json<Resolved>> {
    let who = caller.operator;
    Ok(Json(app.store.read(move |db| find(db, who, &query.id)).await?))
}

pub(super) fn find(db: &Connection, who: Operator, id: &str) -> Result<Resolved> {
    let owner = access::scope(who);
    let named = by_name(db, who.uid, owner, id)?;
    let candidates = if named.is_empty() { by_part(db, owner, id)? } else { named };
    match decide(&candidates) {
        Some(one) => newest(db, one),
        None if candidates.is_empty() => Err(none(id).into()),
        None => Err(ambiguous(id, &candidates).into()),
    }
}

fn none(id: &str) -> WireError {
    let shown: String = id.chars().take(80).collect();
    WireError::new(
        ErrorCode::NotFound,
        format!(
            "Nothing is called '{}'. `mews ls -a` lists what there is.",
            shown.escape_default()
        ),
    )
}

fn ambiguous(id: &str, candidates: &[Candidate]) -> WireError {
    let lines: Vec<String> =
        candidates.iter().map(|one| format!("{} ({} of {})", one.id, one.kind, one.name)).collect();
    WireError::new(
        ErrorCode::Conflict,
        format!("'{id}' means more than one: {}. Type more of it.", lines.join(", ")),
    )
    .with(json!({ "candidates": candidates }))
}

/// One candidate; or the one session to which all the others belong, as ids that were made at
/// the same time begin alike.
fn decide(candidates: &[Candidate]) -> Option<&Candidate> {
    if let [one] = candidates {
        return Some(one);
    }
    let mut sessions = candidates.iter().filter(|one| one.kind == "session");
    let (Some(session), None) = (sessions.next(), sessions.next()) else { return None };
    candidates.iter().all(|one| one.session == session.session).then_some(session)
}

/// An own session of that name; for root, else those of others.
fn by_name(db: &Connection, own: u32, owner: Option<u32>, name: &str) -> Result<Vec<Candidate>> {
    let sql = "SELECT 'session', id, id, name, uid FROM sessions
        WHERE name = ?1 AND (?2 IS NULL OR uid = ?2) ORDER BY uid = ?3 DESC, used_at_ms DESC";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![name, owner, own], |row| Ok((candidate(row)?, row.get::<_, u32>(4)?)))?;
    let found: Vec<(Candidate, u32)> = rows.collect::<rusqlite::Result<_>>()?;
    if let Some((candidate, _uid)) = found.iter().find(|(_candidate, uid)| *uid == own) {
        return Ok(vec![candidate.clone()]);
    }
    Ok(found.into_iter().map(|(candidate, _uid)| candidate).collect())
}

fn candidate(row: &rusqlite::Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        kind: row.get(0)?,
        id: row.get(1)?,
        session: row.get::<_, Word<_>>(2)?.0,
        name: row.get(3)?,
    })
}

/// Sessions that were used last stand first.
fn by_part(db: &Connection, owner: Option<u32>, part: &str) -> Result<Vec<Candidate>> {
    if part.len() < PART_MIN || !part.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Ok(Vec::new());
    }
    let part = part.to_ascii_uppercase();
    // Letters and digits only, so nothing in it is special to LIKE; prefixes use the key.
    let sql = "SELECT kind, o.id, o.session, s.name FROM (
            SELECT 'session' AS kind, id, id AS session FROM sessions
            UNION ALL SELECT 'run', id, session FROM runs
            UNION ALL SELECT 'cage', id, session FROM cages
            UNION ALL SELECT 'terminal', id, session FROM ptys
        ) o JOIN sessions s ON s.id = o.session
        WHERE (o.id LIKE ?1 || '%' OR o.id LIKE '%' || ?1) AND (?2 IS NULL OR s.uid = ?2)
        ORDER BY s.used_at_ms DESC, o.id LIMIT ?3";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params![part, owner, CANDIDATES_MAX], candidate)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The object, and the newest of what is below it; of terminals the run's own one.
fn newest(db: &Connection, one: &Candidate) -> Result<Resolved> {
    let session = sessions::get(db, one.session)?.ok_or_else(|| access::not_found("session"))?;
    let (mut run, mut cage, mut pty) = (None, None, None);
    match one.kind.as_str() {
        "terminal" => {
            let found: (Word<PtyId>, Word<CageId>, Word<RunId>) = db.query_row(
                "SELECT p.id, c.id, c.run FROM ptys p JOIN cages c ON c.id = p.cage
                 WHERE p.id = ?1",
                [&one.id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )?;
            (pty, cage, run) = (Some(found.0.0), Some(found.1.0), Some(found.2.0));
        }
        "cage" => cage = one.id.parse().ok(),
        "run" => run = one.id.parse().ok(),
        _session => {
            run = last(db, "SELECT id FROM runs WHERE session = ?1 ORDER BY id DESC", &one.id)?;
        }
    }
    if let (None, Some(id)) = (cage, run) {
        let id: RunId = id;
        cage = last(db, "SELECT id FROM cages WHERE run = ?1 ORDER BY id DESC", &id.to_string())?;
    }
    if let (None, Some(id)) = (run, cage) {
        let id: CageId = id;
        run = last(db, "SELECT run FROM cages WHERE id = ?1", &id.to_string())?;
    }
    if let (None, Some(id)) = (pty, cage) {
        let sql = "SELECT id FROM ptys WHERE cage = ?1 ORDER BY main DESC, id DESC";
        pty = last(db, sql, &id.to_string())?;
    }
    let paused = session.state == SessionState::Paused;
    Ok(Resolved { session: session.id, name: session.name, run, cage, pty, paused })
}

fn last<T: serde::de::DeserializeOwned>(db: &Connection, sql: &str, id: &str) -> Result<Option<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_row([id], |row| row.get::<_, Word<T>>(0)).optional()?;
    Ok(found.map(|word| word.0))
}
