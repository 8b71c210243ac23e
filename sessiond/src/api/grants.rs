//! Grants: made, listed, revoked by operators; used by whoever has the key.

use super::Shared;
use super::caller::Caller;
use super::describe::Created;
use super::error::Answer;
use super::extract::{Ids, Key, Large};
use crate::jobs::{self, in_background};
use crate::{access, grants};
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use std::sync::Arc;
use wire::api::{GrantMade, GrantView, GrantedJob, Grants, MakeGrant, Started};

pub(super) async fn make(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(body): Large<MakeGrant>,
) -> Answer<Created<GrantMade>> {
    let made = in_background(grants::mint(app, caller, ids.session()?, body)).await?;
    Ok(Created(made))
}

pub(super) async fn list(State(app): Shared, caller: Caller) -> Answer<Json<Grants>> {
    Ok(Json(Grants { grants: grants::list(&app, &caller).await? }))
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
) -> Answer<Created<Started>> {
    if key.id != ids.grant()? {
        return Err(access::not_found("grant").into());
    }
    let opened = jobs::open(&app, &caller, key).await?;
    let Large(body) = Large::<GrantedJob>::from_request(request, &()).await?;
    let started = jobs::start_granted(app, caller, opened, body).await?;
    Ok(Created(started))
}
