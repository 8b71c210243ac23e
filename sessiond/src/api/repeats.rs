//! Requests that are sent twice and done once, by their `client_request_id`.
//!
//! What makes a session, a run or a grant remembers that in the rows of what it makes. Of everything else
//! that is posted the answer is kept: a row before the effect, the answer after it, both for 24 hours.
//! What failed is not kept, and is tried again.

use super::error::ApiError;
use super::extract::{self, LARGE};
use crate::api::caller::Caller;
use crate::app::App;
use crate::clock::now_ms;
use crate::jobs::in_background;
use crate::store::requests::{self, Known, RequestKey};
use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use wire::api::ErrorBody;
use wire::{ErrorCode, WireError};

/// What another request with the same id does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// It changes nothing, or is itself its repetition: no id is looked at.
    Never,
    /// The handler sees to it, in the transaction that makes the thing.
    Made,
    /// It gets the answer that was given. Twice is the same as once: if that is not known, it is done
    /// again.
    Same,
    /// It gets the answer that was given; if that is not known, it is refused.
    Once,
    /// As `Once`, and its body is somebody's bytes, in which no id is looked for.
    Bytes,
}

/// How long a second request waits for the first one's answer.
const ANSWER_DUE: Duration = Duration::from_secs(60);
/// Of an answer that is kept; a list of 100,000 changes fits.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
const NAME: &str = "client_request_id";

pub(super) async fn once(
    State((app, again)): State<(Arc<App>, Again)>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = extract::read(&caller, body, LARGE).await?;
    let key = key(&caller, again, &parts.uri, &bytes)?;
    let request = Request::from_parts(parts, Body::from(bytes));
    let Some(key) = key else { return Ok(next.run(request).await) };
    if let Some(answer) = earlier(&app, &key, again).await? {
        return Ok(answer);
    }
    // A client that goes away must not leave a request that nobody answers.
    let work = async move { Ok(kept(&app, key, again, next.run(request).await).await) };
    Ok(in_background(work).await?)
}

/// The client's id, from the query or the body; the whole request is what it stands for.
fn key(
    caller: &Caller,
    again: Again,
    uri: &Uri,
    bytes: &Bytes,
) -> Result<Option<RequestKey>, WireError> {
    let is_json = again != Again::Bytes && bytes.starts_with(b"{");
    let body: Option<Value> = if is_json { serde_json::from_slice(bytes).ok() } else { None };
    let id = match (from_query(uri)?, body.as_ref().and_then(|body| body.get(NAME))) {
        (Some(id), _) => id,
        (None, None | Some(Value::Null)) => return Ok(None),
        (None, Some(Value::String(id))) => id.clone(),
        (None, Some(_other)) => {
            let words = format!("'{NAME}' is a text.");
            return Err(WireError::new(ErrorCode::ValidationFailed, words));
        }
    };
    let asked = match body {
        Some(body) => (uri.query(), Some(body), None),
        None => (uri.query(), None, Some(bytes.as_ref())),
    };
    RequestKey::new(caller.operator.uid, format!("POST {}", uri.path()), id, &asked).map(Some)
}

fn from_query(uri: &Uri) -> Result<Option<String>, WireError> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
    let pairs = pairs.map_err(|rejection| {
        let words = format!("The query is not what is wanted: {}.", rejection.body_text());
        WireError::new(ErrorCode::BadRequest, words)
    })?;
    Ok(pairs.0.into_iter().find(|(name, _id)| name == NAME).map(|(_name, id)| id))
}

/// What was answered before; `None`: it is ours to do.
async fn earlier(app: &App, key: &RequestKey, again: Again) -> Result<Option<Response>, WireError> {
    let epoch = app.epoch;
    loop {
        let mine = key.clone();
        match app.store.write(move |db| requests::begin(db, &mine, epoch, now_ms())).await? {
            None => return Ok(None),
            Some(Known::Answered { status, body }) => return Ok(Some(answer(status, body))),
            Some(Known::Lost) if again != Again::Same => return Err(requests::lost()),
            Some(Known::Lost) => {
                let mine = key.clone();
                let taken =
                    app.store.write(move |db| requests::take_up(db, &mine, epoch, now_ms()));
                if taken.await? {
                    return Ok(None);
                }
            }
            Some(Known::Begun(_by_us)) => over(app, key).await?,
        }
    }
}

/// Waits until the first request is answered or has failed.
async fn over(app: &App, key: &RequestKey) -> Result<(), WireError> {
    let (key, epoch) = (key.clone(), app.epoch);
    let over = app.within(ANSWER_DUE, move |db| {
        let known = requests::made::<Known>(db, &key, now_ms())?;
        Ok((known != Some(Known::Begun(epoch))).then_some(()))
    });
    over.await?.ok_or_else(|| {
        let words = "The first request with this client_request_id is still under way; ask again.";
        WireError::new(ErrorCode::Conflict, words)
    })
}

fn answer(status: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    if body.is_null() {
        return status.into_response();
    }
    (status, Json(body)).into_response()
}

/// Keeps an answer and passes it on.
async fn kept(app: &App, key: RequestKey, again: Again, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let bytes = match to_bytes(body, ANSWER_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let words = format!("It is done, and its answer is too large to be kept: {error}.");
            return ApiError(WireError::new(ErrorCode::Internal, words)).into_response();
        }
    };
    let known = if parts.status.is_success() {
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Some(Known::Answered { status: parts.status.as_u16(), body })
    } else {
        // Where the supervisor died under it, it may have been done.
        (again != Again::Same && is_lost(&bytes)).then_some(Known::Lost)
    };
    let written = app.store.write(move |db| match known {
        Some(known) => requests::remember(db, &key, &known, now_ms()),
        None => requests::forget(db, &key),
    });
    if let Err(error) = written.await {
        // It stays begun: until the next start a repetition waits, then it is lost.
        tracing::warn!(%error, "the answer to a client_request_id is not kept");
    }
    Response::from_parts(parts, Body::from(bytes))
}

fn is_lost(bytes: &Bytes) -> bool {
    let body: Option<ErrorBody> = serde_json::from_slice(bytes).ok();
    body.is_some_and(|body| body.error.details.get("lost").is_some_and(|lost| lost == true))
}
