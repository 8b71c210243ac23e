//! What a living cage uses, and its limits.

use super::Shared;
use super::cages::found;
use super::caller::Caller;
use super::error::Answer;
use super::extract::{Ids, Small};
use crate::access::Verb;
use crate::app::App;
use crate::store::events;
use axum::Json;
use axum::extract::State;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;
use wire::api::CageView;
use wire::limits::{LimitsAsked, LimitsView};
use wire::stats::Stats;
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{ErrorCode, Source, WireError};

/// How long the event may lag behind the supervisor's answer.
const TOLD: Duration = Duration::from_secs(10);

pub(super) async fn stats(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Stats>> {
    let cage = found(&app, &caller, Verb::Read, &ids).await?;
    ask(&app, &caller, &cage, SupervisorRequest::Stats { cage: cage.id }).await
}

pub(super) async fn get(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<LimitsView>> {
    let cage = found(&app, &caller, Verb::Read, &ids).await?;
    ask(&app, &caller, &cage, SupervisorRequest::Limits { cage: cage.id }).await
}

/// Answered when the rows say so.
pub(super) async fn change(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(set): Small<LimitsAsked>,
) -> Answer<Json<LimitsView>> {
    let cage = found(&app, &caller, Verb::Change, &ids).await?;
    let id = cage.id;
    let request = SupervisorRequest::SetLimits { cage: id, set };
    let Json(view): Json<LimitsView> = ask(&app, &caller, &cage, request).await?;
    let seq = view.seq;
    let told = app.within(TOLD, move |db| {
        Ok((events::newest_of(db, id, Source::Supervisor)? >= seq).then_some(()))
    });
    if told.await?.is_none() {
        tracing::warn!(cage = %id, "a change of limits is done, but was not told yet");
    }
    Ok(Json(view))
}

async fn ask<T: DeserializeOwned>(
    app: &App,
    caller: &Caller,
    cage: &CageView,
    request: SupervisorRequest,
) -> Answer<Json<T>> {
    if cage.phase == Phase::Gone {
        let words = "This cage has ended; `mews inspect` says what it used.";
        let gone = WireError::new(ErrorCode::Gone, words).with(json!({ "exit": cage.exit }));
        return Err(gone.into());
    }
    let link = app.link.current()?;
    let reply = link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    Ok(Json(reply.typed()?))
}
