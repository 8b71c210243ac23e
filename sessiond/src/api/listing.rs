//! Which sessions a list is to show: the query of `GET /sessions`, each value refused by its name.

use super::error::ApiError;
use super::extract::Query;
use crate::store::sessions::Filter;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::api::{SESSIONS_PAGE, SessionState};
use wire::{ErrorCode, SessionId, WireError};

/// The query as it is written; `label` and `state` may stand there several times.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes; what is read becomes a filter")]
pub(super) struct ListQuery {
    /// Also archived ones, and all that ended, not only the last ten.
    all: Option<bool>,
    /// One of these states; with it, all that ended count.
    state: Vec<SessionState>,
    /// A label `KEY`, or `KEY=VALUE`; several: all of them.
    label: Vec<String>,
    /// A project's slug.
    project: Option<String>,
    /// A source, or the first parts of one: `ci` is also `ci:github:build`.
    source: Option<String>,
    name: Option<String>,
    /// Sessions in one page, 1 to 200.
    limit: Option<u32>,
    /// `next` of the page before.
    after: Option<String>,
}

/// The query, read.
#[derive(Debug)]
pub(super) struct Listing(pub(super) Filter);

impl<S: Send + Sync> FromRequestParts<S> for Listing {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
        Ok(Self(filter(pairs)?))
    }
}

fn filter(pairs: Vec<(String, String)>) -> Result<Filter, WireError> {
    let mut filter = Filter { limit: SESSIONS_PAGE, ..Filter::default() };
    let mut seen: Vec<String> = Vec::new();
    for (name, value) in pairs {
        if seen.contains(&name) && !matches!(name.as_str(), "state" | "label") {
            return Err(wrong(&name, "it stands there twice; say it once"));
        }
        match name.as_str() {
            "all" => {
                filter.all = word(&value).ok_or_else(|| not("all", &value, "true or false"))?
            }
            "state" => {
                filter.states.push(word(&value).ok_or_else(|| not("state", &value, STATES))?)
            }
            "label" => filter.labels.push(label(&value)?),
            "project" => filter.project = Some(value),
            "source" => filter.source = Some(value),
            "name" => filter.name = Some(value),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=SESSIONS_PAGE).contains(limit));
                filter.limit =
                    limit.ok_or_else(|| not("limit", &value, "a number from 1 to 200"))?;
            }
            "after" => filter.after = Some(cursor(&value)?),
            _other => return Err(wrong(&name, NAMES)),
        }
        seen.push(name);
    }
    Ok(filter)
}

const STATES: &str = "idle, running, queued, paused, ended or failed";
const NAMES: &str =
    "a list takes all, state, label, project, source, name, limit and after, and nothing else";

/// A value that is one word in JSON: a state, true, false.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    let quoted = serde_json::from_value(Value::String(text.to_owned()));
    quoted.or_else(|_no_word| serde_json::from_str(text)).ok()
}

fn label(text: &str) -> Result<(String, Option<String>), WireError> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text, None),
    };
    if key.is_empty() {
        return Err(not("label", text, "KEY or KEY=VALUE"));
    }
    Ok((key.to_owned(), value))
}

fn cursor(text: &str) -> Result<SessionId, WireError> {
    text.parse().map_err(|_no_id| not("after", text, "what the page before said as 'next'"))
}

fn not(name: &str, value: &str, wanted: &str) -> WireError {
    let shown: String = value.chars().take(80).collect();
    wrong(name, &format!("it is {wanted}, not '{}'", shown.escape_default()))
}

fn wrong(name: &str, why: &str) -> WireError {
    let shown: String = name.chars().take(80).collect();
    let words = format!("The query's '{}': {why}.", shown.escape_default());
    WireError::new(ErrorCode::ValidationFailed, words)
}
