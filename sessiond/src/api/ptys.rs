//! Terminals and pipe streams: list, get, input, resize, scrollback, wait.

use super::Shared;
use super::caller::Caller;
use super::describe::Done;
use super::error::Answer;
use super::extract::{Ids, Query, Raw, Small};
use super::sessions::visible;
use crate::access::{self, Operator, Verb};
use crate::app::App;
use crate::store::{Result, cages, ptys};
use crate::supervisor_link::document;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::os::fd::OwnedFd;
use std::time::Duration;
use wire::api::{PtyView, Ptys, Waited};
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{ErrorCode, PtyId, ScrollbackForm, Size, WireError};

/// A client that wants to wait longer asks again.
const WAIT_MAX_MS: u64 = 10 * 60 * 1000;
const WAIT_DEFAULT_MS: u64 = 60 * 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ScrollbackQuery {
    #[serde(default)]
    form: ScrollbackForm,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WaitQuery {
    timeout_ms: Option<u64>,
}

pub(super) async fn list(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<Ptys>> {
    let (who, id) = (caller.operator, ids.session()?);
    let ptys = app.store.read(move |db| {
        visible(db, who, Verb::Read, id)?;
        ptys::of_session(db, id)
    });
    Ok(Json(Ptys { ptys: ptys.await? }))
}

pub(super) fn find(db: &Connection, who: Operator, verb: Verb, id: PtyId) -> Result<PtyView> {
    let pty = ptys::get(db, id)?.ok_or_else(|| access::not_found("terminal"))?;
    // The session's own words would tell that the terminal exists.
    visible(db, who, verb, pty.session).map_err(|_hidden| access::not_found("terminal"))?;
    Ok(pty)
}

pub(super) async fn found(app: &App, caller: &Caller, verb: Verb, id: PtyId) -> Answer<PtyView> {
    let who = caller.operator;
    Ok(app.store.read(move |db| find(db, who, verb, id)).await?)
}

/// `gone`, with the exit, for a terminal that has closed.
pub(super) fn open(pty: PtyView) -> Result<PtyView, WireError> {
    match &pty.exit {
        None => Ok(pty),
        Some(exit) => Err(WireError::new(
            ErrorCode::Gone,
            "This command has ended; `mews logs` shows its output.",
        )
        .with(json!({ "exit": exit }))),
    }
}

pub(super) async fn get(State(app): Shared, caller: Caller, ids: Ids) -> Answer<Json<PtyView>> {
    Ok(Json(found(&app, &caller, Verb::Read, ids.pty()?).await?))
}

pub(super) async fn input(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Raw(bytes): Raw,
) -> Answer<Done> {
    let pty = open(found(&app, &caller, Verb::Attach, ids.pty()?).await?)?;
    let memfd = link::memfd::sealed("input", &bytes)
        .map_err(|error| WireError::new(ErrorCode::Internal, format!("memfd: {error}")))?;
    let request = SupervisorRequest::Input { cage: pty.cage, pty: pty.id };
    let link = app.link.current()?;
    link.request(&request, vec![caller.authority()?, memfd]).await.map_err(WireError::from)?;
    Ok(Done)
}

pub(super) async fn resize(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Small(size): Small<Size>,
) -> Answer<Done> {
    let pty = open(found(&app, &caller, Verb::Attach, ids.pty()?).await?)?;
    let size = size.clamped();
    let request = SupervisorRequest::Resize { cage: pty.cage, pty: pty.id, size };
    let link = app.link.current()?;
    link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    let id = pty.id;
    app.store.write(move |db| ptys::set_size(db, id, Some(size))).await?;
    Ok(Done)
}

pub(super) async fn scrollback(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<ScrollbackQuery>,
) -> Answer<Response> {
    let (who, id) = (caller.operator, ids.pty()?);
    let (pty, phase, kept) = app
        .store
        .read(move |db| {
            let pty = find(db, who, Verb::Read, id)?;
            let phase = cages::bare(db, pty.cage)?.map(|cage| cage.phase);
            Ok((pty, phase, ptys::rendered(db, id)?))
        })
        .await?;
    let rendered = query.form == ScrollbackForm::Rendered;
    if rendered && let Some(kept) = kept {
        return Ok(octets(Body::from(kept)));
    }
    let form = query.form;
    let request = SupervisorRequest::Scrollback { cage: pty.cage, pty: id, form };
    let link = app.link.current()?;
    let reply = link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    if rendered {
        let bytes = document(reply).await?;
        if phase == Some(Phase::Gone) {
            let copy = bytes.clone();
            app.store.write(move |db| ptys::keep_rendered(db, id, &copy)).await?;
        }
        return Ok(octets(Body::from(bytes)));
    }
    Ok(octets(file(reply.descriptor()?)))
}

fn octets(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

/// A recording may be large: it goes through in pieces, read outside of the runtime's thread.
fn file(fd: OwnedFd) -> Body {
    crate::stream::body(std::fs::File::from(fd))
}

pub(super) async fn wait(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<WaitQuery>,
) -> Answer<Json<Waited>> {
    let (who, id) = (caller.operator, ids.pty()?);
    let patience = query.timeout_ms.unwrap_or(WAIT_DEFAULT_MS).min(WAIT_MAX_MS);
    // A run's own command has ended only when its run has: whoever waited then sees both.
    let ended = app.within(Duration::from_millis(patience), move |db| {
        let pty = find(db, who, Verb::Read, id)?;
        if !pty.main {
            return Ok(pty.exit);
        }
        let cage = cages::bare(db, pty.cage)?;
        let told = cage.is_none_or(|cage| cage.phase == Phase::Gone || cage.exit.is_some());
        Ok(pty.exit.filter(|_exit| told))
    });
    Ok(Json(Waited { exit: ended.await? }))
}
