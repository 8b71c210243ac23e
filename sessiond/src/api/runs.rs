//! Runs: start, list, get, cancel.

use super::Shared;
use super::caller::Caller;
use super::describe::Created;
use super::error::Answer;
use super::extract::{Ids, Large};
use super::sessions::visible;
use crate::access::{self, Verb};
use crate::store::runs;
use crate::supervisor_link::document;
use crate::{endings, jobs};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use wire::api::{JobRequest, PlanRequest, RunView, Runs, Started};

pub(super) async fn start(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(job): Large<JobRequest>,
) -> Answer<Created<Started>> {
    let started = jobs::start(app, caller, ids.session()?, job).await?;
    Ok(Created(started))
}

pub(super) async fn plan(
    State(app): Shared,
    caller: Caller,
    Large(asked): Large<PlanRequest>,
) -> Answer<Response> {
    let reply = jobs::explained(&app, &caller, asked).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, document(reply).await?).into_response())
}

pub(super) async fn list(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Runs>> {
    let (who, id) = (caller.operator, ids.session()?);
    let runs = app.store.read(move |db| {
        visible(db, who, Verb::Read, id)?;
        runs::of_session(db, id)
    });
    Ok(Json(Runs { runs: runs.await? }))
}

pub(super) async fn get(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<RunView>> {
    let (who, session, id) = (caller.operator, ids.session()?, ids.run()?);
    let run = app.store.read(move |db| {
        visible(db, who, Verb::Read, session)?;
        let run = runs::get(db, id)?.filter(|run| run.session == session);
        Ok(run.ok_or_else(|| access::not_found("run"))?)
    });
    Ok(Json(run.await?))
}

pub(super) async fn cancel(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<RunView>> {
    let run = endings::cancel_run(&app, &caller, ids.session()?, ids.run()?).await?;
    Ok(Json(run))
}
