//! Cages: list, get, exec, signal, kill, plan.

use super::Shared;
use super::caller::Caller;
use super::describe::{Created, Done};
use super::error::Answer;
use super::extract::{Ids, Large, Small};
use super::sessions::visible;
use crate::access::{self, Operator, Verb};
use crate::app::App;
use crate::endings::{self, Force};
use crate::jobs;
use crate::pausing::{self, Motion};
use crate::store::{Result, cages, ptys};
use crate::supervisor_link::document;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use rusqlite::Connection;
use serde_json::json;
use wire::api::{CageView, Cages, ExecRequest, SignalRequest, Started};
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{CageId, ErrorCode, SessionId, WireError};

pub(super) async fn list(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Cages>> {
    let (who, id) = (caller.operator, ids.session()?);
    let cages = app.store.read(move |db| {
        visible(db, who, Verb::Read, id)?;
        cages::of_session(db, id)
    });
    Ok(Json(Cages { cages: cages.await? }))
}

fn find(
    db: &Connection,
    who: Operator,
    verb: Verb,
    place: (SessionId, CageId),
) -> Result<CageView> {
    let (session, id) = place;
    visible(db, who, verb, session)?;
    let cage = cages::get(db, id)?.filter(|cage| cage.session == session);
    Ok(cage.ok_or_else(|| access::not_found("cage"))?)
}

pub(super) async fn found(app: &App, caller: &Caller, verb: Verb, ids: &Ids) -> Answer<CageView> {
    let (who, place) = (caller.operator, (ids.session()?, ids.cage()?));
    Ok(app.store.read(move |db| find(db, who, verb, place)).await?)
}

pub(super) async fn get(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<CageView>> {
    Ok(Json(found(&app, &caller, Verb::Read, &ids).await?))
}

pub(super) async fn exec(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(request): Large<ExecRequest>,
) -> Answer<Created<Started>> {
    let place = (ids.session()?, ids.cage()?);
    let started = jobs::exec(app, caller, place, request).await?;
    Ok(Created(started))
}

pub(super) async fn signal(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(body): Small<SignalRequest>,
) -> Answer<Done> {
    if !(1..=64).contains(&body.signal) {
        let words = "'signal' is a number from 1 to 64.";
        return Err(WireError::new(ErrorCode::ValidationFailed, words).into());
    }
    let cage = found(&app, &caller, Verb::Change, &ids).await?;
    if let Some(pty) = body.pty {
        let row = app.store.read(move |db| ptys::get(db, pty)).await?;
        row.filter(|row| row.cage == cage.id).ok_or_else(|| access::not_found("terminal"))?;
    }
    if cage.phase == Phase::Gone {
        let gone = WireError::new(ErrorCode::Gone, "This cage has ended.");
        return Err(gone.with(json!({ "exit": cage.exit })).into());
    }
    let request = SupervisorRequest::Signal { cage: cage.id, pty: body.pty, signal: body.signal };
    let link = app.link.current()?;
    link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    Ok(Done)
}

pub(super) async fn suspend(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<CageView>> {
    moved(&app, &caller, &ids, Motion::Suspend).await
}

pub(super) async fn resume(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<CageView>> {
    moved(&app, &caller, &ids, Motion::Resume).await
}

async fn moved(app: &App, caller: &Caller, ids: &Ids, motion: Motion) -> Answer<Json<CageView>> {
    let cage = found(app, caller, Verb::Change, ids).await?;
    pausing::move_cage(app, caller, cage.id, motion).await?;
    Ok(Json(found(app, caller, Verb::Change, ids).await?))
}

pub(super) async fn kill(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Done> {
    let cage = found(&app, &caller, Verb::Change, &ids).await?;
    endings::end_cage(&app, &caller, cage.id, Force::Kill).await?;
    Ok(Done)
}

pub(super) async fn plan(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Response> {
    let cage = found(&app, &caller, Verb::Read, &ids).await?;
    let request = SupervisorRequest::Plan { cage: cage.id };
    let link = app.link.current()?;
    let reply = link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, document(reply).await?).into_response())
}
