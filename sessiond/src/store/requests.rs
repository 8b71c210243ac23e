//! What was made for a `client_request_id`: a POST that is sent twice makes one thing.

use super::Result;
use super::column::Json;
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wire::{ErrorCode, WireError};

/// How long a client may repeat itself.
const KEEP_MS: i64 = 24 * 60 * 60 * 1000;
const KEY_BYTES_MAX: usize = 256;

/// Whose request, within what (a session, a project), the client's own id for it, and what it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    uid: u32,
    scope: String,
    key: String,
    /// A hash of the request.
    asked: String,
}

impl RequestKey {
    /// # Errors
    /// `validation_failed`: the id is empty or too long.
    pub fn new(
        uid: u32,
        scope: String,
        key: String,
        asked: &impl Serialize,
    ) -> Result<Self, WireError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let words = format!("'client_request_id' has 1 to {KEY_BYTES_MAX} bytes.");
            return Err(WireError::new(ErrorCode::ValidationFailed, words));
        }
        let asked = serde_json::to_vec(asked)
            .map_err(|error| WireError::new(ErrorCode::Internal, error.to_string()))?;
        let asked: String =
            Sha256::digest(asked).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { uid, scope, key, asked })
    }
}

/// What an earlier request of this key made.
///
/// # Errors
/// It asked for something else (`conflict`), or the database.
pub fn made<T: DeserializeOwned>(db: &Connection, key: &RequestKey, now: i64) -> Result<Option<T>> {
    let sql = "SELECT made, asked FROM client_requests
        WHERE uid = ?1 AND scope = ?2 AND key = ?3 AND created_at_ms > ?4";
    let found: Option<(Json<T>, Option<String>)> = db
        .prepare_cached(sql)?
        .query_row(params![key.uid, key.scope, key.key, now - KEEP_MS], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((Json(made), asked)) = found else { return Ok(None) };
    if asked.is_some_and(|asked| asked != key.asked) {
        let words = "This client_request_id was used for another request within the last 24 hours; \
                     give each request its own.";
        return Err(WireError::new(ErrorCode::Conflict, words).into());
    }
    Ok(Some(made))
}

/// Remembers what was made, and forgets what is too old.
///
/// # Errors
/// The database.
pub fn remember(db: &Connection, key: &RequestKey, made: &impl Serialize, now: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM client_requests WHERE created_at_ms <= ?1")?
        .execute([now - KEEP_MS])?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO client_requests (uid, scope, key, created_at_ms, made, asked)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![key.uid, key.scope, key.key, now, Json(made), key.asked])?;
    Ok(())
}

/// Nothing was made: the same may be asked again.
///
/// # Errors
/// The database.
pub fn forget(db: &Connection, key: &RequestKey) -> Result<()> {
    db.prepare_cached("DELETE FROM client_requests WHERE uid = ?1 AND scope = ?2 AND key = ?3")?
        .execute(params![key.uid, key.scope, key.key])?;
    Ok(())
}

/// A request that is known by its answer alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Being done, by the daemon of this epoch.
    Begun(i64),
    /// Whoever did it died under way: it may have been done.
    Lost,
    Answered {
        status: u16,
        body: Value,
    },
}

/// Where a request stands, and, where it is new, that it is begun.
///
/// # Errors
/// As for [`made`].
pub fn begin(db: &Connection, key: &RequestKey, epoch: i64, now: i64) -> Result<Option<Known>> {
    let known = match made::<Known>(db, key, now)? {
        Some(Known::Begun(by)) if by != epoch => Some(Known::Lost),
        known => known,
    };
    if known.is_none() {
        remember(db, key, &Known::Begun(epoch), now)?;
    }
    Ok(known)
}

/// The first one that says so takes a lost request up again.
///
/// # Errors
/// As for [`made`].
pub fn take_up(db: &Connection, key: &RequestKey, epoch: i64, now: i64) -> Result<bool> {
    let lost = match made::<Known>(db, key, now)? {
        None | Some(Known::Lost) => true,
        Some(Known::Begun(by)) => by != epoch,
        Some(Known::Answered { .. }) => false,
    };
    if lost {
        remember(db, key, &Known::Begun(epoch), now)?;
    }
    Ok(lost)
}

/// The words for one whose daemon died.
#[must_use]
pub fn lost() -> WireError {
    let words = "The daemon died while it did this, so it may have been done or not. Look, and ask \
                 again with another client_request_id if it was not.";
    WireError::new(ErrorCode::Conflict, words).with(json!({ "lost": true }))
}
