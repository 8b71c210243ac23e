//! What was made for a `client_request_id`: a POST that is sent twice makes one thing.

use super::Result;
use super::column::Json;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a client may repeat itself.
const KEEP_MS: i64 = 24 * 60 * 60 * 1000;

/// Whose request, within what (a session, a project), and the client's own id for it.
#[derive(Clone, Debug)]
pub struct RequestKey {
    pub uid: u32,
    pub scope: String,
    pub key: String,
}

/// What an earlier request of this key made.
///
/// # Errors
/// The database.
pub fn made<T: DeserializeOwned>(db: &Connection, key: &RequestKey, now: i64) -> Result<Option<T>> {
    let sql = "SELECT made FROM client_requests
        WHERE uid = ?1 AND scope = ?2 AND key = ?3 AND created_at_ms > ?4";
    let found = db
        .prepare_cached(sql)?
        .query_row(params![key.uid, key.scope, key.key, now - KEEP_MS], |row| {
            row.get::<_, Json<T>>(0)
        })
        .optional()?;
    Ok(found.map(|json| json.0))
}

/// Remembers what was made, and forgets what is too old.
///
/// # Errors
/// The database.
pub fn remember(db: &Connection, key: &RequestKey, made: &impl Serialize, now: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM client_requests WHERE created_at_ms <= ?1")?
        .execute([now - KEEP_MS])?;
    db.prepare_cached(
        "INSERT INTO client_requests (uid, scope, key, created_at_ms, made)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![key.uid, key.scope, key.key, now, Json(made)])?;
    Ok(())
}
