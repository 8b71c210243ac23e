//! Sessions: create, list, get, end, remove.

use super::Shared;
use super::caller::Caller;
use super::describe::Created;
use super::error::Answer;
use super::extract::{Ids, Query, Small};
use super::listing::Listing;
use crate::access::{self, Operator, Verb};
use crate::clock::now_ms;
use crate::ledger::{self, Told};
use crate::store::requests::{self, RequestKey};
use crate::store::sessions::SessionRow;
use crate::store::{Result, projects, sessions};
use crate::{amending, endings, names, pausing};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wire::api::{
    CreateSession, LABEL_BYTES_MAX, PatchSession, SessionState, SessionView, Sessions,
};
use wire::{ErrorCode, SessionId, WireError};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DeleteQuery {
    #[serde(default)]
    confirm: bool,
    #[serde(default)]
    purge: bool,
}

/// Reads a session's row for this operator, or says that there is none.
pub(super) fn visible(
    db: &Connection,
    who: Operator,
    verb: Verb,
    id: SessionId,
) -> Result<SessionRow> {
    let row = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, verb, row.uid, "session")?;
    Ok(row)
}

pub(super) async fn list(
    State(app): Shared,
    caller: Caller,
    Listing(filter): Listing,
) -> Answer<Json<Sessions>> {
    let filter = sessions::Filter { owner: access::scope(caller.operator), ..filter };
    let page = app.store.read(move |db| {
        let (rows, is_more) = sessions::page(db, &filter)?;
        let next = rows.last().filter(|_row| is_more).map(|row| row.id.to_string());
        let views = rows.into_iter().map(|row| sessions::view(db, row)).collect::<Result<_>>()?;
        Ok(Sessions { sessions: views, next })
    });
    Ok(Json(page.await?))
}

pub(super) async fn get(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<SessionView>> {
    let (who, id) = (caller.operator, ids.session()?);
    let view = app.store.read(move |db| sessions::view(db, visible(db, who, Verb::Read, id)?));
    Ok(Json(view.await?))
}

pub(super) async fn create(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(body): Small<CreateSession>,
) -> Answer<Created<SessionView>> {
    check(&body)?;
    let (who, slug) = (caller.operator, ids.project().to_owned());
    let view = app.store.write(move |db| make(db, who, &slug, body)).await?;
    Ok(Created(view))
}

fn check(body: &CreateSession) -> Result<(), WireError> {
    if let Some(name) = &body.name {
        names::check(name)?;
    }
    names::check_labels(&body.labels)?;
    if body.source.as_ref().is_some_and(|source| source.len() > LABEL_BYTES_MAX) {
        let words = format!("'source' has at most {LABEL_BYTES_MAX} bytes.");
        return Err(WireError::new(ErrorCode::ValidationFailed, words));
    }
    Ok(())
}

fn make(db: &Connection, who: Operator, slug: &str, body: CreateSession) -> Result<SessionView> {
    let now = now_ms();
    let project = projects::by_slug(db, who.uid, slug)?;
    let project = project.ok_or_else(|| access::not_found("project"))?;
    let key = body.client_request_id.clone();
    let key = key.map(|key| RequestKey::new(who.uid, format!("sessions:{slug}"), key, &body));
    let key = key.transpose()?;
    if let Some(key) = &key
        && let Some(earlier) = requests::made::<SessionId>(db, key, now)?
        && let Some(row) = sessions::get(db, earlier)?
    {
        return sessions::view(db, row);
    }
    let row = SessionRow {
        id: SessionId::new(),
        uid: who.uid,
        project: project.id,
        slug: project.project.slug,
        folder: project.project.folder,
        name: name(db, who, &body)?,
        state: SessionState::Idle,
        archived: false,
        labels: body.labels,
        source: body.source.unwrap_or_else(|| "api".to_owned()),
        end_on_exit: body.end_on_exit,
        created_at_ms: now,
        ended_at_ms: None,
        seq: 0,
    };
    sessions::insert(db, &row)?;
    if let Some(key) = &key {
        requests::remember(db, key, &row.id, now)?;
    }
    let data = json!({ "name": row.name, "project": row.slug, "source": row.source });
    ledger::note(db, row.id, None, Told { kind: "session.created", data, at_ms: now })?;
    let row = sessions::get(db, row.id)?.ok_or_else(|| access::not_found("session"))?;
    sessions::view(db, row)
}

fn name(db: &Connection, who: Operator, body: &CreateSession) -> Result<String> {
    let Some(name) = body.name.clone() else {
        let stem = names::stem(body.name_hint.as_deref().unwrap_or_default());
        let taken = sessions::names(db, who.uid, &format!("{stem}-"))?;
        return Ok(names::next_free(&stem, &taken));
    };
    match sessions::by_name(db, who.uid, &name)? {
        None => Ok(name),
        Some(taken) => Err(names::taken(&taken).into()),
    }
}

pub(super) async fn amend(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(body): Small<PatchSession>,
) -> Answer<Json<SessionView>> {
    Ok(Json(amending::amend(&app, &caller, ids.session()?, body).await?))
}

pub(super) async fn pause(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<SessionView>> {
    Ok(Json(pausing::pause_session(&app, &caller, ids.session()?).await?))
}

pub(super) async fn resume(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<SessionView>> {
    Ok(Json(pausing::resume_session(&app, &caller, ids.session()?).await?))
}

pub(super) async fn delete(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<DeleteQuery>,
) -> Answer<Response> {
    let id = ids.session()?;
    if !query.confirm {
        let words = "This ends the session and all its programs: say ?confirm=true.";
        return Err(WireError::new(ErrorCode::BadRequest, words).into());
    }
    if query.purge {
        endings::purge(&app, &caller, id).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(endings::end_session(&app, &caller, id).await?).into_response())
}
