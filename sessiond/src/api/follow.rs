//! Events of a session as they come: server-sent events, which any browser reads by itself.
//!
//! The sequence of an event is its id, so a client that comes back says where it was
//! (`Last-Event-ID`) and misses nothing. What a slow client has not read stays in the database.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::{Ids, LastEventId, Query};
use super::sessions::visible;
use crate::access::{Operator, Verb};
use crate::app::App;
use crate::store::events::{self, EventText};
use crate::stream;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use wire::SessionId;

/// Events in one piece.
const PAGE: u32 = 100;
/// Pieces in memory for one slow client.
const AHEAD: usize = 1;
/// A comment, so that whoever stands between does not take a quiet stream for a dead one.
const BEAT: Duration = Duration::from_secs(15);
/// When a client that lost us comes back.
const RETRY: &str = "retry: 1000\n\n";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StreamQuery {
    /// Only events behind this one.
    #[serde(default)]
    after: i64,
}

pub(super) async fn stream(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Query(query): Query<StreamQuery>,
    LastEventId(last): LastEventId,
) -> Answer<Response> {
    let (who, id) = (caller.operator, ids.session()?);
    app.store.read(move |db| visible(db, who, Verb::Read, id)).await?;
    let (out, body) = stream::sent(AHEAD);
    let after = last.unwrap_or(query.after);
    tokio::spawn(async move {
        let (mut stopping, mut rules) = (app.stopping.subscribe(), app.rules.subscribe());
        rules.mark_unchanged();
        tokio::select! {
            // Who may read may be another now: whoever comes back is asked for again.
            _changed = rules.changed() => {}
            _told = stopping.wait_for(|stopping| *stopping) => {}
            () = follow(&app, who, (id, after), &out, BEAT) => {}
        }
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, body).into_response())
}

/// Until the client has gone, or the session: what is removed has no events.
async fn follow(
    app: &Arc<App>,
    who: Operator,
    (id, mut after): (SessionId, i64),
    out: &mpsc::Sender<io::Result<Bytes>>,
    beat: Duration,
) {
    let mut changes = app.store.changes();
    let mut beat = interval_at(Instant::now() + beat, beat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut piece = RETRY.to_owned();
    loop {
        if !piece.is_empty() && out.send(Ok(std::mem::take(&mut piece).into())).await.is_err() {
            return;
        }
        changes.mark_unchanged();
        let new = app.store.read(move |db| {
            visible(db, who, Verb::Read, id)?;
            events::after(db, id, after, PAGE)
        });
        let Ok(new) = new.await else { return };
        if let Some(last) = new.last() {
            after = last.seq;
            piece = lines(&new);
            beat.reset();
            continue;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            _ = beat.tick() => piece = ":\n\n".to_owned(),
            () = out.closed() => return,
        }
    }
}

fn lines(events: &[EventText]) -> String {
    let mut lines = String::new();
    for event in events {
        // JSON has no bare newline, so an event is one line of data.
        let EventText { seq, json } = event;
        write!(lines, "id: {seq}\ndata: {json}\n\n").unwrap_or_default();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Admission;
    use crate::ledger::{self, Told};
    use crate::store::{Store, projects, sessions};
    use crate::supervisor_link::SupervisorLink;
    use serde_json::json;
    use wire::api::{Project, SessionState};

    /// Without it, whoever stands between would cut a stream that is only quiet.
    #[tokio::test]
    async fn a_quiet_stream_says_that_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("mews.db")).unwrap();
        let (_current, link) = tokio::sync::watch::channel(None);
        let app = App::new(store, SupervisorLink::new(link), 1, Admission::Everyone);
        let (app, id) = (Arc::new(app), SessionId::new());
        let made = app.store.write(move |db| {
            let project = Project { slug: "w0".into(), folder: "/w".into(), created_at_ms: 0 };
            projects::insert(db, 7, &project)?;
            let project = projects::by_slug(db, 7, "w0")?.unwrap();
            let row = sessions::SessionRow {
                id,
                uid: 7,
                project: project.id,
                slug: project.project.slug,
                folder: project.project.folder,
                name: "quiet".into(),
                state: SessionState::Idle,
                archived: false,
                labels: Default::default(),
                source: "api".into(),
                end_on_exit: false,
                created_at_ms: 0,
                ended_at_ms: None,
                seq: 0,
            };
            sessions::insert(db, &row)
        });
        made.await.unwrap();
        let (out, mut read) = mpsc::channel(AHEAD);
        let (followed, who) = (Arc::clone(&app), Operator::new(7));
        let beat = Duration::from_millis(5);
        tokio::spawn(async move { follow(&followed, who, (id, 0), &out, beat).await });
        for want in [RETRY, ":\n\n", ":\n\n"] {
            assert_eq!(read.recv().await.unwrap().unwrap(), want);
        }
        let told = app.store.write(move |db| {
            ledger::note(db, id, None, Told { kind: "test.event", data: json!({}), at_ms: 1 })
        });
        told.await.unwrap();
        loop {
            let piece = read.recv().await.unwrap().unwrap();
            if piece != ":\n\n" {
                assert!(piece.starts_with(b"id: 1\ndata: {"), "{piece:?}");
                break;
            }
        }
    }
}
