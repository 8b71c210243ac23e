//! Terminals and pipe streams: list, get, input, resize, scrollback, wait.

use super::Shared;
use super::caller::Caller;
use super::describe::Done;
use super::error::Answer;
use super::extract::{Ids, Query, Raw, Small};
use super::screens;
use super::sessions::visible;
use crate::access::{self, Operator, Verb};
use crate::app::App;
use crate::filing::{self, Kept};
use crate::store::{Result, cages, ptys};
use crate::supervisor_link::{RequestError, document};
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
use wire::watch::Watch;
use wire::{ErrorCode, PtyId, ScrollbackForm, Size, WireError};

/// A client that wants to wait longer asks again.
const WAIT_MAX_MS: u64 = 10 * 60 * 1000;
const WAIT_DEFAULT_MS: u64 = 60 * 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ScrollbackQuery {
    #[serde(default)]
    form: Store,
    since_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Store {
    #[default]
    Rendered,
    Raw,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WaitQuery {
    timeout_ms: Option<u64>,
    #[serde(rename = "for")]
    pattern: Option<String>,
    idle_ms: Option<u64>,
    after: Option<u64>,
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
    let (pty, filed) =
        app.store.read(move |db| Ok((find(db, who, Verb::Read, id)?, ptys::kept(db, id)?))).await?;
    let form = match (query.form, query.since_ms) {
        (Store::Raw, None) => ScrollbackForm::Raw,
        (Store::Rendered, None) => ScrollbackForm::Rendered,
        (Store::Rendered, Some(since_ms)) => ScrollbackForm::Since(since_ms),
        (Store::Raw, Some(_)) => {
            let words = "Bytes have no times: 'since_ms' goes with 'form=rendered' only.";
            return Err(WireError::new(ErrorCode::BadRequest, words).into());
        }
    };
    if let (Store::Rendered, Some(filed)) = (query.form, filed) {
        return Ok(octets(Body::from(cut(filed, query.since_ms))));
    }
    let request = SupervisorRequest::Scrollback { cage: pty.cage, pty: id, form };
    let link = app.link.current()?;
    let reply = match link.request(&request, vec![caller.authority()?]).await {
        Err(RequestError::Refused(error)) if error.code == ErrorCode::Gone => {
            let kept = kept(&app, &caller, &pty).await?;
            return Ok(octets(Body::from(cut(kept, query.since_ms))));
        }
        other => other.map_err(WireError::from)?,
    };
    match query.form {
        Store::Rendered => Ok(octets(Body::from(document(reply).await?))),
        Store::Raw => Ok(octets(file(reply.descriptor()?))),
    }
}

fn cut(kept: Kept, since_ms: Option<i64>) -> Vec<u8> {
    match (since_ms, kept.last) {
        (Some(since_ms), Some(last)) => last.times.cut(&kept.rendered, since_ms).to_vec(),
        // Without times it is all that there is.
        _all => kept.rendered,
    }
}

/// What is kept of a terminal that has closed; where its cage is gone it is in the database then.
pub(super) async fn kept(app: &App, caller: &Caller, pty: &PtyView) -> Answer<Kept> {
    let (id, cage) = (pty.id, pty.cage);
    let (filed, phase) = app
        .store
        .read(move |db| Ok((ptys::kept(db, id)?, cages::bare(db, cage)?.map(|cage| cage.phase))))
        .await?;
    if let Some(filed) = filed {
        return Ok(filed);
    }
    let link = app.link.current()?;
    let kept = filing::fetch(&link, cage, id, || Ok(vec![caller.authority()?])).await?;
    if phase == Some(Phase::Gone) {
        let copy = kept.clone();
        app.store.write(move |db| ptys::keep(db, id, &copy)).await?;
    }
    Ok(kept)
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
    let watch = Watch { pattern: query.pattern, idle_ms: query.idle_ms, after: query.after };
    if watch.pattern.is_some() || watch.idle_ms.is_some() {
        let pty = found(&app, &caller, Verb::Read, id).await?;
        let patience = Duration::from_millis(patience);
        return screens::watch(&app, &caller, pty, watch, patience).await;
    }
    if watch.after.is_some() {
        let words = "'after' says what counts for 'for' or 'idle_ms'; an exit needs none.";
        return Err(WireError::new(ErrorCode::BadRequest, words).into());
    }
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
    Ok(Json(Waited { exit: ended.await?, ..Waited::default() }))
}
