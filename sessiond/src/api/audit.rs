//! The audit trail: an operator's own, an admin's all.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::Query;
use super::sessions::visible;
use crate::access::{self, Verb};
use crate::store::audit::{self, Wanted};
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::SessionId;
use wire::api::AuditEntries;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 10_000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AuditQuery {
    session: Option<SessionId>,
    #[serde(default)]
    since_ms: i64,
    limit: Option<u32>,
}

pub(super) async fn list(
    State(app): Shared,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Answer<Json<AuditEntries>> {
    let who = caller.operator;
    let wanted = Wanted {
        of: access::scope(who),
        session: query.session,
        since_ms: query.since_ms,
        limit: query.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX),
    };
    let entries = app.store.read(move |db| {
        if let Some(session) = wanted.session {
            visible(db, who, Verb::Read, session)?;
        }
        audit::list(db, wanted)
    });
    Ok(Json(AuditEntries { entries: entries.await? }))
}
