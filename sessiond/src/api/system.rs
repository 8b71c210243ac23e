//! The daemon itself.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::Small;
use crate::access;
use crate::store::cages;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use wire::WireError;
use wire::api::{CageBuild, Health, Ready, Shutdown, Versions};
use wire::supervisor::{ShutdownAnswer, SupervisorRequest};

pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok".to_owned() })
}

pub(super) async fn readyz(State(app): Shared) -> (StatusCode, Json<Ready>) {
    let storage = *app.store.healthy().borrow();
    let supervisor = app.link.peek().is_some();
    let ready = storage && supervisor;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, storage, supervisor }))
}

pub(super) async fn versions(State(app): Shared, caller: Caller) -> Json<Versions> {
    let link = app.link.peek();
    let supervisor = link.as_ref().map(|link| link.build.to_string());
    let of = (!caller.operator.is_admin).then_some(caller.operator.uid);
    // They are for people; who only wants to know whom to talk to is answered all the same.
    let cages = app.store.read(move |db| cages::of_builds(db, of)).await.unwrap_or_default();
    let differs = |cage: &CageBuild| {
        cage.unreachable.is_some() || (cage.build.is_some() && cage.build != supervisor)
    };
    Json(Versions {
        cages: cages.into_iter().filter(differs).collect(),
        build: app.hello.build.clone(),
        proto: app.hello.proto,
        supervisor,
        pid: std::process::id().try_into().unwrap_or(0),
        supervisor_pid: link.map(|link| link.pid),
        epoch: app.epoch,
    })
}

pub(super) async fn shutdown(
    State(app): Shared,
    caller: Caller,
    Small(body): Small<Shutdown>,
) -> Answer<Json<ShutdownAnswer>> {
    access::may_stop(app.admission, caller.operator)?;
    let link = app.link.current()?;
    let request = SupervisorRequest::Shutdown { cages: body.cages };
    let reply = link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    Ok(Json(reply.typed()?))
}
