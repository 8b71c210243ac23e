//! Checkpoints, and the workspace layer between them.

use super::Shared;
use super::caller::Caller;
use super::describe::Created;
use super::error::Answer;
use super::extract::{Ids, Large, Small};
use super::sessions::visible;
use crate::access::Verb;
use crate::app::App;
use crate::checkpoints::{self, shown};
use crate::jobs::in_background;
use crate::layers;
use crate::store::checkpoints as rows;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use wire::Changes;
use wire::api::{
    CheckpointView, Checkpoints, LayerDone, LayerPaths, Rollback, RolledBack, TakeCheckpoint,
};
use wire::supervisor::LayerRequest;

pub(super) async fn take(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(body): Small<TakeCheckpoint>,
) -> Answer<Created<CheckpointView>> {
    let (app, session) = (Arc::clone(&app), ids.session()?);
    let work = async move { checkpoints::take(&app, &caller, session, body).await };
    let taken = in_background(work).await?;
    Ok(Created(taken))
}

pub(super) async fn list(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<Checkpoints>> {
    let (who, id) = (caller.operator, ids.session()?);
    let listed = app.store.read(move |db| {
        visible(db, who, Verb::Read, id)?;
        rows::of_session(db, id)
    });
    Ok(Json(Checkpoints { checkpoints: listed.await?.into_iter().map(brief).collect() }))
}

fn brief(row: CheckpointView) -> CheckpointView {
    let mut row = shown(row);
    for cage in &mut row.cages {
        cage.suspension.processes.clear();
        for pty in &mut cage.ptys {
            pty.screen.clear();
        }
    }
    row
}

pub(super) async fn get(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<CheckpointView>> {
    let (who, place) = (caller.operator, (ids.session()?, ids.checkpoint()?));
    let row = app.store.read(move |db| checkpoints::find(db, who, Verb::Read, place));
    Ok(Json(shown(row.await?)))
}

pub(super) async fn preview(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Changes>> {
    let (who, place) = (caller.operator, (ids.session()?, ids.checkpoint()?));
    let row = app.store.read(move |db| checkpoints::find(db, who, Verb::Read, place)).await?;
    if !row.covers_files {
        return Ok(Json(Changes::default()));
    }
    let request = LayerRequest::Preview { checkpoint: row.id };
    Ok(Json(layers::changes(&app, &caller, row.session, &request).await?))
}

pub(super) async fn rollback(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(body): Small<Rollback>,
) -> Answer<Json<RolledBack>> {
    let place = (ids.session()?, ids.checkpoint()?);
    let work = checkpoints::rollback(Arc::clone(&app), caller, place, body);
    Ok(Json(in_background(work).await?))
}

pub(super) async fn diff(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Changes>> {
    let changes = layers::changes(&app, &caller, ids.session()?, &LayerRequest::Diff);
    Ok(Json(changes.await?))
}

pub(super) async fn apply(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(body): Large<LayerPaths>,
) -> Answer<Json<LayerDone>> {
    settle(app, caller, &ids, LayerRequest::Apply { paths: body.paths }).await
}

pub(super) async fn discard(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(body): Large<LayerPaths>,
) -> Answer<Json<LayerDone>> {
    settle(app, caller, &ids, LayerRequest::Discard { paths: body.paths }).await
}

async fn settle(
    app: Arc<App>,
    caller: Caller,
    ids: &Ids,
    request: LayerRequest,
) -> Answer<Json<LayerDone>> {
    let session = ids.session()?;
    let work = async move { layers::settle(&app, &caller, session, request).await };
    Ok(Json(in_background(work).await?))
}
