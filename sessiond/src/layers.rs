//! Workspace layers: asked of the supervisor, and let go when nobody has them any more.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::clock::now_ms;
use crate::ledger::{self, Told};
use crate::store::{Result as StoreResult, checkpoints, sessions};
use crate::supervisor_link::{Connection, document};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::sync::Arc;
use wire::api::{CheckpointState, LayerDone};
use wire::supervisor::{LayerAnswer, LayerRequest, LayerState, SupervisorRequest};
use wire::{Arg, Changes, CheckpointId, ErrorCode, SessionId, WireError};

/// # Errors
/// The session is not the caller's, or what the supervisor says.
pub async fn ask(
    app: &App,
    caller: &Caller,
    session: SessionId,
    request: &LayerRequest,
) -> Result<LayerAnswer, WireError> {
    let who = caller.operator;
    let verb = match request {
        LayerRequest::Diff | LayerRequest::Preview { .. } => Verb::Read,
        LayerRequest::Apply { .. }
        | LayerRequest::Discard { .. }
        | LayerRequest::Restore { .. } => Verb::Change,
    };
    let may = app.store.read(move |db| {
        let row = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
        Ok(access::may(who, verb, row.uid, "session")?)
    });
    may.await?;
    let link = app.link.current()?;
    let order = serde_json::to_vec(request)
        .and_then(|bytes| link::memfd::sealed("layer", &bytes).map_err(serde_json::Error::io))
        .map_err(|error| WireError::new(ErrorCode::Internal, error.to_string()))?;
    let fds = vec![caller.authority()?, order];
    let reply = link.request(&SupervisorRequest::Layer { session }, fds).await?;
    parsed(&document(reply).await?)
}

/// # Errors
/// As for [`ask`].
pub async fn changes(
    app: &App,
    caller: &Caller,
    session: SessionId,
    request: &LayerRequest,
) -> Result<Changes, WireError> {
    match ask(app, caller, session, request).await? {
        LayerAnswer::Changes(changes) => Ok(changes),
        LayerAnswer::Done | LayerAnswer::Applied { .. } => Err(mixed_up()),
    }
}

/// Changes go to the operator's folder, or are taken back.
///
/// # Errors
/// As for [`ask`].
pub async fn settle(
    app: &App,
    caller: &Caller,
    session: SessionId,
    request: LayerRequest,
) -> Result<LayerDone, WireError> {
    let kind = match request {
        LayerRequest::Apply { .. } => "layer.applied",
        LayerRequest::Discard { .. } => "layer.discarded",
        LayerRequest::Diff | LayerRequest::Preview { .. } | LayerRequest::Restore { .. } => {
            return Err(mixed_up());
        }
    };
    let LayerAnswer::Applied { done, left } = ask(app, caller, session, &request).await? else {
        return Err(mixed_up());
    };
    let paths: Vec<&Arg> = done.changes.iter().map(|change| &change.path).take(100).collect();
    let data = json!({
        "done": done.changes.len(), "left": left.changes.len(), "paths": paths,
        "uid": caller.operator.uid,
    });
    let told = move |db: &rusqlite::Connection| {
        ledger::note(db, session, None, Told { kind, data, at_ms: now_ms() })
    };
    app.store.write(told).await?;
    Ok(LayerDone { done, left })
}

/// A document that is one value.
///
/// # Errors
/// It is not.
pub fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(bytes).map_err(|error| {
        WireError::new(ErrorCode::Internal, format!("the supervisor's answer: {error}"))
    })
}

fn mixed_up() -> WireError {
    WireError::new(ErrorCode::Internal, "the supervisor answered something else")
}

/// The files of a checkpoint, or of a whole layer, may go; if that is not heard, the next link says
/// it again.
pub async fn forget(link: &Connection, session: SessionId, checkpoint: Option<CheckpointId>) {
    let request = SupervisorRequest::ForgetLayer { session, checkpoint };
    if let Err(error) = link.request(&request, Vec::new()).await {
        tracing::debug!(?error, %session, "forgetting a layer");
    }
}

/// Lets go what the supervisor keeps and no row has.
pub async fn tidy(app: Arc<App>, link: Connection) {
    let listed = match link.request(&SupervisorRequest::Layers, Vec::new()).await {
        Ok(reply) => document(reply).await.and_then(|bytes| parsed::<Vec<LayerState>>(&bytes)),
        Err(error) => return tracing::debug!(?error, "listing layers"),
    };
    let states = match listed {
        Ok(states) => states,
        Err(error) => return tracing::warn!(%error, "the list of layers"),
    };
    match app.store.read(move |db| strangers(db, states)).await {
        Ok(strangers) => {
            for (session, checkpoint) in strangers {
                forget(&link, session, checkpoint).await;
            }
        }
        Err(error) => tracing::warn!(%error, "layers"),
    }
}

fn strangers(
    db: &rusqlite::Connection,
    states: Vec<LayerState>,
) -> StoreResult<Vec<(SessionId, Option<CheckpointId>)>> {
    let mut strangers = Vec::new();
    for LayerState { session, checkpoints: saved } in states {
        if sessions::get(db, session)?.is_none() {
            strangers.push((session, None));
            continue;
        }
        for id in saved {
            let kept = checkpoints::get(db, id)?.is_some_and(|row| match row.state {
                CheckpointState::Taking | CheckpointState::Taken => true,
                CheckpointState::Failed | CheckpointState::Archived => false,
            });
            if !kept {
                strangers.push((session, Some(id)));
            }
        }
    }
    Ok(strangers)
}
