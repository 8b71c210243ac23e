//! Events of a session after a sequence.

use super::Shared;
use super::caller::Caller;
use super::describe::Written;
use super::error::Answer;
use super::extract::{Ids, Query};
use super::sessions::visible;
use crate::access::Verb;
use crate::store::events;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use wire::api::Events;

const LIMIT_DEFAULT: u32 = 1_000;
const LIMIT_MAX: u32 = 10_000;
const WAIT_MAX_MS: u64 = 60 * 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
    /// Where there is nothing new yet: wait this long for it.
    #[serde(default)]
    wait_ms: u64,
}

pub(super) async fn list(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<EventsQuery>,
) -> Answer<Written<Events>> {
    let (who, id) = (caller.operator, ids.session()?);
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let after = query.after;
    let patience = Duration::from_millis(query.wait_ms.min(WAIT_MAX_MS));
    let some = app.within(patience, move |db| {
        visible(db, who, Verb::Read, id)?;
        let found = events::after(db, id, after, limit)?;
        Ok((!found.is_empty()).then_some(found))
    });
    let events: Vec<String> =
        some.await?.unwrap_or_default().into_iter().map(|event| event.json).collect();
    let json = format!("{{\"epoch\":{},\"events\":[{}]}}", app.epoch, events.join(","));
    Ok(Written::new(json))
}
