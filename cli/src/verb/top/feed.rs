//! What the daemons say: all living sessions with their use, each second and whenever something
//! happens to the chosen one, whose events are followed.

use super::super::{ls, stats};
use super::named;
use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use wire::api::{Events, SessionEvent, SessionView};
use wire::stats::Stats;
use wire::supervisor::Phase;
use wire::{CageId, ErrorCode, SessionId};

/// Full: the feed waits, as the drawing does not keep up.
pub(super) const NEWS_MAX: usize = 16;
const TURN: Duration = Duration::from_secs(1);
/// Two looks have at least this between them, whatever happens.
const PAUSE: Duration = Duration::from_millis(200);
/// Events before now that are shown.
const EVENTS_BEFORE: i64 = 20;
const WAIT_MS: u32 = 10_000;

/// One living session, as it was just seen.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) session: SessionView,
    /// Its newest living cage.
    pub(super) cage: Option<CageId>,
    pub(super) stats: Option<Stats>,
}

#[derive(Debug)]
pub(super) enum News {
    Seen(Vec<Found>),
    Events(SessionId, Vec<SessionEvent>),
    /// A look failed; the next one is tried all the same.
    Failed(String),
    /// What a key asked for.
    Done(String),
}

pub(super) struct Feed {
    news: mpsc::Sender<News>,
    hurry: Arc<Notify>,
    looking: AbortHandle,
    following: Option<(SessionId, AbortHandle)>,
}

impl Feed {
    pub(super) fn start(api: Arc<Api>, news: mpsc::Sender<News>) -> Self {
        let hurry = Arc::new(Notify::new());
        let looking = tokio::spawn(look_on(api, news.clone(), Arc::clone(&hurry))).abort_handle();
        Self { news, hurry, looking, following: None }
    }

    /// Look again now.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Tells the events of this session from now on, and some before.
    pub(super) fn follow(&mut self, chosen: Option<(SessionId, i64)>) {
        let is_same = |following: &(SessionId, AbortHandle)| {
            chosen.is_some_and(|(session, _seq)| session == following.0)
        };
        if self.following.as_ref().is_some_and(is_same) {
            return;
        }
        if let Some((_session, task)) = self.following.take() {
            task.abort();
        }
        let Some((session, seq)) = chosen else { return };
        let after = seq.saturating_sub(EVENTS_BEFORE).max(0);
        let task = tokio::spawn(follow_on(session, after, self.news.clone(), self.hurry.clone()));
        self.following = Some((session, task.abort_handle()));
    }

    pub(super) fn pause(&self, api: &Arc<Api>, id: SessionId, name: String) {
        let api = Arc::clone(api);
        self.act(
            format!("paused {}", named(&name, id)),
            async move { api.pause(id).await.map(drop) },
        );
    }

    pub(super) fn resume(&self, api: &Arc<Api>, id: SessionId, name: String) {
        let api = Arc::clone(api);
        self.act(
            format!("resumed {}", named(&name, id)),
            async move { api.resume(id).await.map(drop) },
        );
    }

    pub(super) fn kill(&self, api: &Arc<Api>, id: SessionId, cage: CageId, name: String) {
        let api = Arc::clone(api);
        self.act(format!("killed {}", named(&name, id)), async move { api.kill(id, cage).await });
    }

    /// Beside the looking: a pause may take its time.
    fn act(&self, done: String, work: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        let news = self.news.clone();
        tokio::spawn(async move {
            let words = match work.await {
                Ok(()) => done,
                Err(failure) => words(&failure),
            };
            // Nobody is left to tell if top has ended.
            news.send(News::Done(words)).await.ok();
        });
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.looking.abort();
        if let Some((_session, task)) = self.following.take() {
            task.abort();
        }
    }
}

fn words(failure: &Failure) -> String {
    let first = failure.error.message.lines().next().unwrap_or_default();
    escape(first)
}

async fn look_on(api: Arc<Api>, news: mpsc::Sender<News>, hurry: Arc<Notify>) {
    loop {
        let hurried = hurry.notified();
        tokio::select! {
            () = tokio::time::sleep(TURN) => {}
            () = hurried => tokio::time::sleep(PAUSE).await,
        }
        let told = match look(&api).await {
            Ok(found) => News::Seen(found),
            Err(failure) => News::Failed(words(&failure)),
        };
        if news.send(told).await.is_err() {
            return;
        }
    }
}

/// All that lives.
pub(super) async fn look(api: &Api) -> Result<Vec<Found>, Failure> {
    let mut all = Vec::new();
    for session in ls::living(api).await? {
        let cage = session.cages.iter().rev().find(|cage| cage.phase != Phase::Gone);
        let cage = cage.map(|cage| cage.id);
        let stats = match cage {
            Some(cage) => use_of(api, session.id, cage).await?,
            None => None,
        };
        all.push(Found { session, cage, stats });
    }
    Ok(all)
}

/// None: it is just being built, ends, or cannot be talked to.
async fn use_of(api: &Api, session: SessionId, cage: CageId) -> Result<Option<Stats>, Failure> {
    match stats::asked(api, session, cage).await {
        Ok(stats) => Ok(Some(stats)),
        Err(failure) if failure.status == 69 => Err(failure),
        Err(failure) if failure.is(ErrorCode::VersionMismatch) => Err(failure),
        Err(_nothing_to_tell) => Ok(None),
    }
}

/// On a connection of its own, since it waits.
async fn follow_on(
    session: SessionId,
    mut after: i64,
    news: mpsc::Sender<News>,
    hurry: Arc<Notify>,
) {
    let api = Api::without_start();
    loop {
        let path = format!("/sessions/{session}/events?after={after}&wait_ms={WAIT_MS}");
        let page: Events = match api.get(&path).await {
            Ok(page) => page,
            // It was removed; there is nothing more to tell.
            Err(failure) if failure.is(ErrorCode::NotFound) => return,
            Err(_daemon_away) => {
                tokio::time::sleep(TURN).await;
                continue;
            }
        };
        let Some(last) = page.events.last() else {
            // One that has ended is not waited for; it will be off the list with the next look.
            tokio::time::sleep(TURN).await;
            continue;
        };
        after = last.seq.max(after + 1);
        hurry.notify_one();
        if news.send(News::Events(session, page.events)).await.is_err() {
            return;
        }
    }
}
