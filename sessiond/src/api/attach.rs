//! Attach: the client's own connection becomes the broker's (PROTOCOL.md 8).
//!
//! All that can be refused is refused before the 101. After it, stream and what was already read
//! of it go down together; from then on no daemon is in the path. If that fails, the stream is
//! still ours, and the viewer is told with a `close` frame.

use super::Shared;
use super::caller::Caller;
use super::error::{Answer, ApiError};
use super::extract::{Ids, Query};
use super::ptys::{find, found, open};
use super::resolve;
use crate::access::Verb;
use crate::app::App;
use crate::clock::now_ms;
use crate::store::{cages, ptys, sessions};
use crate::supervisor_link::{self, RequestError};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use wire::api::{PtyView, RESOLVED, Resolved, UPGRADE};
use wire::frame::{Close, CloseReason, Frame};
use wire::supervisor::SupervisorRequest;
use wire::{AttachOptions, CageId, ErrorCode, Exit, WireError};

/// How long the end of a terminal may take to be told when an attach just missed it.
const END_DUE: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AttachQuery {
    options: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AttachAnyQuery {
    id: String,
    options: Option<String>,
}

pub(super) async fn attach(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<AttachQuery>,
    request: Request,
) -> Answer<Response> {
    let options = options(query.options.as_deref())?;
    let pty = found(&app, &caller, Verb::Attach, ids.pty()?).await?;
    let cage = pty.cage;
    app.store.read(move |db| reachable(db, cage)).await?;
    upgrade(app, caller, (pty, options), request)
}

/// By whatever an operator would type; what it meant stands in a header of the answer.
pub(super) async fn attach_any(
    State(app): Shared,
    caller: Caller,
    Query(query): Query<AttachAnyQuery>,
    request: Request,
) -> Answer<Response> {
    let options = options(query.options.as_deref())?;
    let who = caller.operator;
    let read = move |db: &Connection| {
        let resolved = resolve::find(db, who, &query.id)?;
        let id = resolved.pty.ok_or_else(|| nothing_ran(&resolved))?;
        let pty = find(db, who, Verb::Attach, id)?;
        reachable(db, pty.cage)?;
        Ok((pty, resolved))
    };
    let (pty, resolved) = app.store.read(read).await?;
    // Who typed an id may not know the name that `mews logs` takes.
    let named = |ApiError(mut error): ApiError| {
        if let Some(details) = error.details.as_object_mut() {
            details.insert("name".to_owned(), resolved.name.clone().into());
        }
        ApiError(error)
    };
    let mut response = upgrade(app, caller, (pty, options), request).map_err(named)?;
    let resolved = serde_json::to_vec(&resolved).ok();
    if let Some(value) = resolved.and_then(|json| HeaderValue::try_from(json).ok()) {
        response.headers_mut().insert(RESOLVED, value);
    }
    Ok(response)
}

/// Whether the cage's broker can be handed a viewer.
fn reachable(db: &Connection, cage: CageId) -> crate::store::Result<()> {
    let row = cages::bare(db, cage)?;
    match row.and_then(|row| row.unreachable) {
        Some(why) => Err(WireError::new(ErrorCode::Unreachable, why).into()),
        None => Ok(()),
    }
}

fn nothing_ran(resolved: &Resolved) -> WireError {
    let name = &resolved.name;
    let words = format!("Nothing has run in {name} yet; `mews inspect {name}` shows what it is.");
    WireError::new(ErrorCode::NotFound, words)
}

fn upgrade(
    app: Arc<App>,
    caller: Caller,
    what: (PtyView, AttachOptions),
    mut request: Request,
) -> Answer<Response> {
    let (pty, options) = what;
    if !asks_for_upgrade(request.headers()) {
        let words =
            format!("Attach is an upgrade: send 'Connection: upgrade, Upgrade: {UPGRADE}'.");
        return Err(WireError::new(ErrorCode::BadRequest, words).into());
    }
    let pty = open(pty)?;
    let link = app.link.current()?;
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        let words = "This connection cannot be upgraded; use HTTP/1.1.";
        return Err(WireError::new(ErrorCode::BadRequest, words).into());
    };
    tokio::spawn(hand_down(app, caller, link, (pty, options), upgrade));
    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, UPGRADE)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

fn options(text: Option<&str>) -> Result<AttachOptions, WireError> {
    let Some(text) = text else { return Ok(AttachOptions::default()) };
    serde_json::from_str(text).map_err(|error| {
        WireError::new(ErrorCode::BadRequest, format!("'options' is not understood: {error}."))
    })
}

fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let says = |name: header::HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    says(header::CONNECTION, "upgrade") && says(header::UPGRADE, UPGRADE)
}

async fn hand_down(
    app: Arc<App>,
    caller: Caller,
    link: supervisor_link::Connection,
    what: (PtyView, AttachOptions),
    upgrade: OnUpgrade,
) {
    // The client may have gone between the request and the 101.
    let Ok(upgraded) = upgrade.await else { return };
    let (pty, options) = what;
    let session = pty.session;
    match pass(&caller, &link, (&pty, options), upgraded).await {
        Ok(()) => {
            let used = app.store.write(move |db| sessions::touch(db, session, now_ms())).await;
            if let Err(error) = used {
                tracing::debug!(%error, "an attach is not remembered");
            }
        }
        Err(Missed { stream, error }) => {
            tracing::info!(?error, pty = %pty.id, "attach");
            // Told by the end of the stream where even this cannot be done.
            let close = close(&app, &pty, &error).await;
            if let Some(stream) = stream
                && let Err(error) = say(&stream, &close)
            {
                tracing::debug!(%error, "close frame");
            }
        }
    }
}

/// Why it did not come to an attach, and the stream that is still ours.
struct Missed {
    stream: Option<UnixStream>,
    error: RequestError,
}

async fn pass(
    caller: &Caller,
    link: &supervisor_link::Connection,
    what: (&PtyView, AttachOptions),
    upgraded: Upgraded,
) -> Result<(), Missed> {
    let (pty, options) = what;
    let refused = |why: String| RequestError::Refused(WireError::new(ErrorCode::Internal, why));
    let early = |error| Missed { stream: None, error };
    let parts = upgraded
        .downcast::<TokioIo<tokio::net::UnixStream>>()
        .map_err(|_other| early(refused("the upgraded stream is of another kind".to_owned())))?;
    let read = parts.read_buf;
    let stream = parts.io.into_inner().into_std();
    let stream = stream.map_err(|error| early(refused(error.to_string())))?;
    let fds = || {
        let viewer = OwnedFd::from(stream.try_clone()?);
        let read = link::memfd::sealed("read", &read)?;
        Ok::<_, std::io::Error>((viewer, read))
    };
    let request = SupervisorRequest::Attach { cage: pty.cage, pty: pty.id, options };
    let sent = match (fds(), caller.authority()) {
        (Ok((viewer, read)), Ok(authority)) => {
            link.request(&request, vec![authority, viewer, read]).await
        }
        (Err(error), _) => Err(refused(error.to_string())),
        (_, Err(error)) => Err(RequestError::Refused(error)),
    };
    match sent {
        Ok(_reply) => Ok(()),
        // Sent: it may be the broker's already, and two must not write to it.
        Err(RequestError::Lost) => Err(Missed { stream: None, error: RequestError::Lost }),
        Err(error) => Err(Missed { stream: Some(stream), error }),
    }
}

/// The end of a terminal that was just missed, else that its broker is not to be had.
async fn close(app: &App, pty: &PtyView, error: &RequestError) -> Close {
    let ended = matches!(error, RequestError::Refused(error)
        if matches!(error.code, ErrorCode::Gone | ErrorCode::NotFound));
    let exit = if ended { end_of(app, pty.id).await } else { None };
    match exit {
        Some(exit) => Close { reason: CloseReason::Exited, exit: Some(exit) },
        None => Close { reason: CloseReason::BrokerLost, exit: None },
    }
}

async fn end_of(app: &App, pty: wire::PtyId) -> Option<Exit> {
    let told = app.within(END_DUE, move |db| Ok(ptys::get(db, pty)?.and_then(|row| row.exit)));
    told.await.ok()?
}

fn say(mut stream: &UnixStream, close: &Close) -> std::io::Result<()> {
    // Non-blocking, and smaller than any socket buffer: written at once or not at all.
    stream.write_all(&Frame::Close(close.clone()).to_bytes())
}
