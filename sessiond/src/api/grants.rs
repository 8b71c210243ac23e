//! Grants: made, listed, revoked by operators; used by whoever has the key.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::{Ids, Key, Large};
use crate::jobs::{self, in_background};
use crate::{access, grants};
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::api::{GrantMade, GrantView, GrantedJob, MakeGrant, Started};

pub(super) async fn make(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(body): Large<MakeGrant>,
) -> Answer<(StatusCode, Json<GrantMade>)> {
    let made = in_background(grants::mint(app, caller, ids.session()?, body)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

pub(super) async fn list(State(app): Shared, caller: Caller) -> Answer<Json<Value>> {
    Ok(Json(json!({ "grants": grants::list(&app, &caller).await? })))
}

pub(super) async fn revoke(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<GrantView>> {
    let (app, id) = (Arc::clone(&app), ids.grant()?);
    let work = async move { grants::revoke(&app, &caller, id).await };
    Ok(Json(in_background(work).await?))
}

/// Who calls is not asked for but by the supervisor: the key is what counts. Until it is known to open
/// the grant nothing is read of the body.
pub(super) async fn start(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Key(key): Key,
    request: Request,
) -> Answer<(StatusCode, Json<Started>)> {
    if key.id != ids.grant()? {
        return Err(access::not_found("grant").into());
    }
    let opened = jobs::open(&app, &caller, key).await?;
    let Large(body) = Large::<GrantedJob>::from_request(request, &()).await?;
    let started = jobs::start_granted(app, caller, opened, body).await?;
    Ok((StatusCode::CREATED, Json(started)))
}
