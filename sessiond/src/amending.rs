//! Another name, other labels, out of the way: what an operator changes about a session itself.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::clock::now_ms;
use crate::ledger::{self, Told};
use crate::store::sessions::{self, SessionRow};
use crate::store::{Result, StoreError};
use crate::{audit, names};
use rusqlite::Connection;
use serde_json::{Value, json};
use wire::api::{PatchSession, SessionState, SessionView};
use wire::{ErrorCode, SessionId, WireError};

/// All of it or nothing; what is so already is no change and no event.
///
/// # Errors
/// A name or label that is none, a name that is taken (`conflict`), or a living session that would be
/// hidden (`conflict`).
pub async fn amend(
    app: &App,
    caller: &Caller,
    id: SessionId,
    asked: PatchSession,
) -> Result<SessionView, WireError> {
    if asked == PatchSession::default() {
        let words = "There is nothing to change: say 'name', 'labels' or 'archived'.";
        return Err(WireError::new(ErrorCode::ValidationFailed, words));
    }
    if let Some(name) = &asked.name {
        names::check(name)?;
    }
    let who = caller.operator;
    let view = app.store.write(move |db| {
        let row = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
        access::may(who, Verb::Change, row.uid, "session")?;
        let new = amended(db, &row, asked)?;
        let mut told = Vec::new();
        if new.name != row.name {
            told.push(("session.renamed", json!({ "from": row.name, "to": new.name })));
        }
        if let Some(data) = difference(&row, &new) {
            told.push(("session.updated", data));
        }
        if told.is_empty() {
            return sessions::view(db, row);
        }
        sessions::amend(db, &new)?;
        if row.uid != who.uid {
            told.push(("session.admin", json!({ "uid": who.uid, "verb": "amend" })));
        }
        for (kind, data) in told {
            ledger::note(db, id, None, Told { kind, data, at_ms: now_ms() })?;
        }
        audit::done(db, who, "amend", &row)?;
        let row = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
        sessions::view(db, row)
    });
    Ok(view.await?)
}

fn amended(db: &Connection, row: &SessionRow, asked: PatchSession) -> Result<SessionRow> {
    let mut new = row.clone();
    if let Some(name) = asked.name
        && name != row.name
    {
        // Names are its operator's, whoever renames.
        if let Some(taken) = sessions::by_name(db, row.uid, &name)? {
            return Err(names::taken(&taken).into());
        }
        new.name = name;
    }
    for (key, value) in asked.labels {
        match value {
            Some(value) => drop(new.labels.insert(key, value)),
            None => drop(new.labels.remove(&key)),
        }
    }
    names::check_labels(&new.labels)?;
    if let Some(archived) = asked.archived {
        let over = matches!(row.state, SessionState::Ended | SessionState::Failed);
        if archived && !over {
            return Err(living(row));
        }
        new.archived = archived;
    }
    Ok(new)
}

/// What lives must not go unseen.
fn living(row: &SessionRow) -> StoreError {
    let words = format!(
        "Session {} is living, and what is archived is not listed; type `mews end {0}` first.",
        row.name
    );
    WireError::new(ErrorCode::Conflict, words).into()
}

/// Labels that are other than before, null where one is gone; and the archive.
fn difference(old: &SessionRow, new: &SessionRow) -> Option<Value> {
    let mut labels = serde_json::Map::new();
    for (key, value) in &new.labels {
        if old.labels.get(key) != Some(value) {
            labels.insert(key.clone(), json!(value));
        }
    }
    for key in old.labels.keys().filter(|key| !new.labels.contains_key(*key)) {
        labels.insert(key.clone(), Value::Null);
    }
    let mut data = serde_json::Map::new();
    if !labels.is_empty() {
        data.insert("labels".to_owned(), labels.into());
    }
    if old.archived != new.archived {
        data.insert("archived".to_owned(), new.archived.into());
    }
    (!data.is_empty()).then(|| data.into())
}
