//! What comes in with a request, parsed once: bodies under a limit and a deadline, ids, queries.

use super::caller::Caller;
use super::error::ApiError;
use crate::access;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use bytes::Bytes;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;
use wire::grant::BadKey;
use wire::{
    CageId, CheckpointId, ErrorCode, GrantId, GrantKey, PtyId, RunId, SessionId, WireError,
};

/// Bodies that describe things.
const SMALL: usize = 64 * 1024;
/// Command line and environment: JSON may spend six characters on a byte (`\u0000`).
pub(super) const LARGE: usize = 6 * (wire::ARGV_BYTES_MAX + wire::ENV_BYTES_MAX) + SMALL;
const INPUT: usize = 1024 * 1024;
/// A body that is not here by then does not come.
const BODY_DUE: Duration = Duration::from_secs(30);

/// A small JSON body.
#[derive(Debug)]
pub(super) struct Small<T>(pub(super) T);

/// A JSON body that holds a command.
#[derive(Debug)]
pub(super) struct Large<T>(pub(super) T);

/// Raw bytes for a terminal.
#[derive(Debug)]
pub(super) struct Raw(pub(super) Bytes);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Small<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        json(request, SMALL).await.map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Large<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        json(request, LARGE).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = ApiError;
    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (caller, body) = split(request).await?;
        read(&caller, body, INPUT).await.map(Self)
    }
}

async fn json<T: DeserializeOwned>(request: Request, max: usize) -> Result<T, ApiError> {
    let (caller, body) = split(request).await?;
    let bytes = read(&caller, body, max).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        WireError::new(ErrorCode::BadRequest, format!("The body is not what is wanted: {error}."))
            .into()
    })
}

async fn split(request: Request) -> Result<(Caller, Body), ApiError> {
    let (mut parts, body) = request.into_parts();
    Ok((Caller::from_request_parts(&mut parts, &()).await?, body))
}

pub(super) async fn read(caller: &Caller, body: Body, max: usize) -> Result<Bytes, ApiError> {
    let due = Instant::now() + BODY_DUE;
    let longest = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    let longest = longest.unwrap_or(max).min(max);
    // Small ones are bounded by the number of connections, and wait for nobody.
    if longest > SMALL {
        let crowded = "Your other requests are large and not done: 30 seconds were not enough.";
        let crowded = |_elapsed| WireError::new(ErrorCode::RateLimited, crowded);
        tokio::time::timeout_at(due, caller.room.take(longest)).await.map_err(crowded)?;
    }
    let late = || WireError::new(ErrorCode::BadRequest, "The body did not come within 30 seconds.");
    let read = tokio::time::timeout_at(due, to_bytes(body, max));
    let bytes = read.await.map_err(|_elapsed| late())?.map_err(|error| {
        let source = std::error::Error::source(&error);
        let error = if source.is_some_and(|s| s.is::<http_body_util::LengthLimitError>()) {
            let words = format!("The body is larger than {max} bytes.");
            WireError::new(ErrorCode::PayloadTooLarge, words)
        } else {
            WireError::new(ErrorCode::BadRequest, format!("The body broke off: {error}."))
        };
        ApiError(error)
    })?;
    caller.room.shrink(bytes.len());
    Ok(bytes)
}

/// The key of a grant: `Authorization: Bearer KEY`. In the head, so that no body is read for whoever has none.
#[derive(Debug)]
pub(super) struct Key(pub(super) GrantKey);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let said = parts.headers.get(AUTHORIZATION).and_then(|said| said.to_str().ok());
        let key = said.and_then(|said| said.strip_prefix("Bearer ")).map(str::parse);
        let none = |why: &str| ApiError(WireError::new(ErrorCode::Unauthenticated, why));
        key.ok_or_else(|| none("The key of the grant is wanted: 'Authorization: Bearer KEY'."))?
            .map(Self)
            .map_err(|error: BadKey| none(&error.to_string()))
    }
}

/// The query string as typed values.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|axum::extract::Query(value)| Self(value)).map_err(|rejection| {
            let words = format!("The query is not what is wanted: {}.", rejection.body_text());
            ApiError(WireError::new(ErrorCode::BadRequest, words))
        })
    }
}

/// Where a client that reads server-sent events was when it lost us.
#[derive(Debug)]
pub(super) struct LastEventId(pub(super) Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let said = parts.headers.get("last-event-id").filter(|said| !said.is_empty());
        let Some(said) = said else { return Ok(Self(None)) };
        let number = said.to_str().ok().and_then(|text| text.parse().ok());
        let words = "The header Last-Event-ID is the number of the last event that was read.";
        let wrong = || WireError::new(ErrorCode::ValidationFailed, words);
        Ok(Self(Some(number.ok_or_else(wrong)?)))
    }
}

/// The ids in the path. What is no id is no object either: `not_found`.
#[derive(Debug)]
pub(super) struct Ids(HashMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Ids {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        path.map(|Path(ids)| Self(ids)).map_err(|_not_utf8| access::not_found("path").into())
    }
}

impl Ids {
    pub(super) fn session(&self) -> Result<SessionId, ApiError> {
        self.parse("s", "session")
    }

    pub(super) fn run(&self) -> Result<RunId, ApiError> {
        self.parse("r", "run")
    }

    pub(super) fn cage(&self) -> Result<CageId, ApiError> {
        self.parse("g", "cage")
    }

    pub(super) fn checkpoint(&self) -> Result<CheckpointId, ApiError> {
        self.parse("c", "checkpoint")
    }

    pub(super) fn grant(&self) -> Result<GrantId, ApiError> {
        self.parse("n", "grant")
    }

    pub(super) fn pty(&self) -> Result<PtyId, ApiError> {
        self.parse("t", "terminal")
    }

    pub(super) fn project(&self) -> &str {
        self.0.get("p").map_or("", String::as_str)
    }

    fn parse<T: FromStr>(&self, key: &str, what: &str) -> Result<T, ApiError> {
        let text = self.0.get(key).map_or("", String::as_str);
        text.parse().map_err(|_no_id| access::not_found(what).into())
    }
}
