//! sessiond's API as functions: `wire::api` has the table of paths and bodies.

use crate::connect;
use crate::escape::escape;
use crate::failure::Failure;
use crate::http::{Connection, Reply, Upgraded, encode};
use crate::{place, similar};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use wire::api::{
    BASE, ErrorBody, Ready, Resolved, RunView, SessionState, SessionView, Sessions, UPGRADE,
};
use wire::dirs::Dirs;
use wire::supervisor::Phase;
use wire::{AttachOptions, CageId, ErrorCode, Exit, GrantKey, PtyId, RunId, SessionId, WireError};

/// How often a request that changes nothing twice is sent again when a daemon dies under it.
const TRIES: u32 = 5;
/// A started supervisor has 20 s to be found by sessiond, as it has for its start.
const BACK_TURN: std::time::Duration = std::time::Duration::from_millis(20);
const BACK_TURNS: u32 = 1000;
/// In the details of "nothing has run yet".
const NOTHING_RAN: &str = "nothing_ran";

/// A client of the daemons of one run folder.
#[derive(Debug)]
pub(crate) struct Api {
    dirs: Dirs,
    starts: Starts,
    /// Root's, and we are not root: whoever runs them brings them back.
    foreign: bool,
    /// What opens a grant.
    key: Option<GrantKey>,
    idle: Mutex<Option<Connection>>,
}

/// When a client starts daemons that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starts {
    Always,
    /// Only where they can have something to tell: mews ran here before.
    IfUsed,
    Never,
}

/// Whether a request may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

impl Api {
    /// For verbs that run something: the daemons are started where nobody answers.
    pub(crate) fn starting() -> Self {
        Self::at(Starts::Always)
    }

    /// For verbs about what ran before: on a machine where nothing ever did, nothing is started.
    pub(crate) fn new() -> Self {
        Self::at(Starts::IfUsed)
    }

    /// For what is started by a grant.
    pub(crate) fn by_key(key: GrantKey) -> Self {
        Self { key: Some(key), ..Self::starting() }
    }

    /// A client that only talks to daemons that are there already.
    pub(crate) fn without_start() -> Self {
        Self::at(Starts::Never)
    }

    /// What root runs for many is not started by one of them.
    fn at(starts: Starts) -> Self {
        let dirs = place::dirs();
        let foreign = place::is_foreign(&dirs);
        let starts = if foreign { Starts::Never } else { starts };
        Self { dirs, starts, foreign, key: None, idle: Mutex::new(None) }
    }

    pub(crate) fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        typed(&self.call("GET", path, Bytes::new(), Repeat::Safe).await?)
    }

    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes, Failure> {
        Ok(self.call("GET", path, Bytes::new(), Repeat::Safe).await?.body)
    }

    /// `repeat`: safe where the body has a `client_request_id`, or twice is the same as once.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        repeat: Repeat,
    ) -> Result<T, Failure> {
        typed(&self.post_reply(path, body, repeat).await?)
    }

    pub(crate) async fn post_reply(
        &self,
        path: &str,
        body: &impl Serialize,
        repeat: Repeat,
    ) -> Result<Reply, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(error.to_string()))?;
        self.call("POST", path, body.into(), repeat).await
    }

    /// Twice is the same as once.
    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(error.to_string()))?;
        typed(&self.call("PATCH", path, body.into(), Repeat::Safe).await?)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Reply, Failure> {
        self.call("DELETE", path, Bytes::new(), Repeat::Safe).await
    }

    pub(crate) async fn resolve(&self, id: &str) -> Result<Resolved, Failure> {
        match self.get(&format!("/resolve?id={}", encode(id))).await {
            Ok(found) => Ok(found),
            Err(failure) => Err(self.unknown(id, failure).await),
        }
    }

    /// Names that were meant, perhaps. Where nothing ever ran, the daemons were not even asked.
    async fn unknown(&self, id: &str, mut failure: Failure) -> Failure {
        if failure.error.details.get(NOTHING_RAN).is_some() {
            failure.error.message =
                format!("nothing is called '{}': {}", escape(id), failure.error.message);
        } else if failure.is(ErrorCode::NotFound) {
            let similar = self.similar(id).await;
            if !similar.is_empty() {
                failure.error = failure.error.with(serde_json::json!({ similar::DETAIL: similar }));
            }
        }
        failure
    }

    /// Of the living and the last ones, else of all that are kept.
    async fn similar(&self, id: &str) -> Vec<String> {
        for path in ["/sessions", "/sessions?all=true"] {
            let Ok(found) = self.get::<Sessions>(path).await else { return Vec::new() };
            // Any letter is in some id: what is much shorter was meant as a name.
            let is_meant = |short: &String| id.len() + 1 >= short.len();
            let short = found.sessions.iter().map(|one| one.id.short()).filter(is_meant);
            let short: Vec<String> = short.collect();
            let names = found.sessions.iter().map(|one| one.name.as_str());
            let near = similar::nearest(id, names.chain(short.iter().map(String::as_str)));
            if !near.is_empty() {
                return near.into_iter().map(str::to_owned).collect();
            }
        }
        Vec::new()
    }

    /// To one command, or to all of a cage.
    pub(crate) async fn signal(
        &self,
        session: SessionId,
        cage: CageId,
        pty: Option<PtyId>,
        signal: i32,
    ) -> Result<(), Failure> {
        let path = format!("/sessions/{session}/cages/{cage}/signal");
        let body = wire::api::SignalRequest { signal, pty };
        self.post_reply(&path, &body, Repeat::Never).await.map(drop)
    }

    pub(crate) async fn kill(&self, session: SessionId, cage: CageId) -> Result<(), Failure> {
        let path = format!("/sessions/{session}/cages/{cage}/kill");
        self.post_reply(&path, &serde_json::json!({}), Repeat::Safe).await.map(drop)
    }

    pub(crate) async fn pause(&self, session: SessionId) -> Result<SessionView, Failure> {
        let path = format!("/sessions/{session}/pause");
        self.post(&path, &serde_json::json!({}), Repeat::Safe).await
    }

    pub(crate) async fn resume(&self, session: SessionId) -> Result<SessionView, Failure> {
        let path = format!("/sessions/{session}/resume");
        match self.post(&path, &serde_json::json!({}), Repeat::Never).await {
            // It may have been done: a session that runs goes on.
            Err(failure) if failure.is_lost() => {
                let view: SessionView = self.get(&format!("/sessions/{session}")).await?;
                let stands = view.cages.iter().any(|cage| cage.phase == Phase::Suspended);
                if view.state == SessionState::Running && !stands {
                    return Ok(view);
                }
                self.post(&path, &serde_json::json!({}), Repeat::Never).await
            }
            other => other,
        }
    }

    /// TERM to all of a run, KILL after five seconds; when nothing of it is left.
    pub(crate) async fn cancel(&self, session: SessionId, run: RunId) -> Result<RunView, Failure> {
        let path = format!("/sessions/{session}/runs/{run}");
        let cancel = format!("{path}/cancel");
        match self.post(&cancel, &serde_json::json!({}), Repeat::Never).await {
            // It may have been done: one that has ended is what was wanted.
            Err(failure) if failure.is_lost() => {
                let view: RunView = self.get(&path).await?;
                if view.ended_at_ms.is_some() {
                    return Ok(view);
                }
                self.post(&cancel, &serde_json::json!({}), Repeat::Never).await
            }
            other => other,
        }
    }

    /// The exit of a terminal's command, once it is known; `None` when the time is over.
    pub(crate) async fn wait(&self, pty: PtyId, timeout_ms: u64) -> Result<Option<Exit>, Failure> {
        #[derive(serde::Deserialize)]
        struct Answer {
            exit: Option<Exit>,
        }
        let path = format!("/ptys/{pty}/wait?timeout_ms={timeout_ms}");
        let answer: Answer = self.post(&path, &serde_json::json!({}), Repeat::Safe).await?;
        Ok(answer.exit)
    }

    pub(crate) async fn attach(
        &self,
        pty: PtyId,
        options: &AttachOptions,
    ) -> Result<Upgraded, Failure> {
        self.upgrade(&format!("{BASE}/ptys/{pty}/attach?options={}", query(options)?)).await
    }

    /// To whatever an operator's word means: one round trip, and what it meant.
    pub(crate) async fn attach_any(
        &self,
        id: &str,
        options: &AttachOptions,
    ) -> Result<(Resolved, Upgraded), Failure> {
        let path = format!("{BASE}/attach?id={}&options={}", encode(id), query(options)?);
        let mut upgraded = match self.upgrade(&path).await {
            Ok(upgraded) => upgraded,
            Err(failure) => return Err(self.unknown(id, failure).await),
        };
        let resolved = upgraded.resolved.take();
        let silent = || Failure::new("sessiond did not say what it attached to".to_owned());
        Ok((resolved.ok_or_else(silent)?, upgraded))
    }

    async fn upgrade(&self, path: &str) -> Result<Upgraded, Failure> {
        let mut tries = 0;
        loop {
            let connection = self.connection().await?;
            let error = match connection.upgrade(path, UPGRADE).await {
                Ok(Ok(upgraded)) => return Ok(upgraded),
                Ok(Err(reply)) => refused(&reply),
                Err(error) => lost(&error),
            };
            tries += 1;
            self.mend(error, Repeat::Safe, tries).await?;
        }
    }

    /// Both daemons are there; a supervisor that is missing is started.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        if self.readiness().await?.supervisor { Ok(()) } else { self.start_supervisor().await }
    }

    /// A sessiond without a supervisor is told of no end, so one is started. Costs one system call
    /// where there is one; for verbs that wait long, each turn.
    pub(crate) async fn ensure_supervisor(&self) -> Result<(), Failure> {
        if self.starts == Starts::Never || connect::supervisor_is_there(&self.dirs) {
            return Ok(());
        }
        self.start_supervisor().await
    }

    /// What sessiond says of itself; "not ready" is an answer, too.
    pub(crate) async fn readiness(&self) -> Result<Ready, Failure> {
        let mut tries = 0;
        loop {
            let failure = match self.ask_readiness().await {
                Ok(ready) => return Ok(ready),
                Err(failure) => failure,
            };
            tries += 1;
            // Of one that was dying; the next one is found, or started.
            if !failure.is_lost() || tries >= TRIES || self.starts == Starts::Never {
                return Err(failure);
            }
        }
    }

    async fn ask_readiness(&self) -> Result<Ready, Failure> {
        let mut connection = self.dial().await?;
        let path = full("/readyz");
        let reply = connection
            .request("GET", &path, None, Bytes::new())
            .await
            .map_err(|error| lost(&error))?;
        typed(&reply).map_err(|_no_answer| refused(&reply))
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
        repeat: Repeat,
    ) -> Result<Reply, Failure> {
        let path = full(path);
        let mut tries = 0;
        loop {
            let mut connection = self.connection().await?;
            let answer = connection.request(method, &path, self.key.as_ref(), body.clone()).await;
            let failure = match answer {
                Ok(reply) if reply.status < 400 => {
                    *self.idle.lock().await = Some(connection);
                    return Ok(reply);
                }
                Ok(reply) => refused(&reply),
                Err(error) => lost(&error),
            };
            tries += 1;
            self.mend(failure, repeat, tries).await?;
        }
    }

    /// Makes a second try possible, or gives the failure back.
    async fn mend(&self, failure: Failure, repeat: Repeat, tries: u32) -> Result<(), Failure> {
        if tries >= TRIES || (self.starts == Starts::Never && !self.foreign) {
            return Err(failure);
        }
        // 503 is said before anything is done, so that even what must not be repeated may be.
        if failure.is(ErrorCode::SupervisorUnavailable) && !failure.is_lost() {
            return self.start_supervisor().await;
        }
        match repeat {
            Repeat::Safe if failure.is_lost() => Ok(()),
            Repeat::Safe | Repeat::Never => Err(failure),
        }
    }

    /// A connection to a sessiond that has a supervisor.
    async fn connection(&self) -> Result<Connection, Failure> {
        if let Some(idle) = self.idle.lock().await.take() {
            return Ok(idle);
        }
        let connection = self.dial().await?;
        self.ensure_supervisor().await?;
        Ok(connection)
    }

    async fn dial(&self) -> Result<Connection, Failure> {
        let stream = match (connect::connect(&self.dirs)?, self.starts) {
            (Some(stream), _) => stream,
            (None, Starts::Never) => return Err(not_running(&self.dirs)),
            (None, Starts::IfUsed) if !connect::was_used(&self.dirs) => {
                return Err(nothing_ran(&self.dirs));
            }
            (None, Starts::Always | Starts::IfUsed) => {
                let there = || matches!(connect::connect(&self.dirs), Ok(Some(_)));
                connect::start(&self.dirs, there)?;
                connect::connect(&self.dirs)?.ok_or_else(|| not_running(&self.dirs))?
            }
        };
        Connection::new(stream).await.map_err(|error| lost(&error))
    }

    /// sessiond is there and says that the supervisor is not. One that listens needs only be found.
    async fn start_supervisor(&self) -> Result<(), Failure> {
        self.start_if_gone().await?;
        self.supervisor_is_back().await
    }

    async fn start_if_gone(&self) -> Result<(), Failure> {
        // Somebody else sees to it.
        if self.foreign || connect::is_activated(&self.dirs) {
            return Ok(());
        }
        let dirs = self.dirs.clone();
        tokio::task::spawn_blocking(move || {
            connect::start(&dirs, || connect::supervisor_is_there(&dirs))
        })
        .await
        .map_err(|error| Failure::new(error.to_string()))?
    }

    /// sessiond finds the new supervisor by itself; this waits until it says so.
    async fn supervisor_is_back(&self) -> Result<(), Failure> {
        let mut turn = tokio::time::interval(BACK_TURN);
        for number in 1..=BACK_TURNS {
            turn.tick().await;
            if self.readiness().await.is_ok_and(|ready| ready.supervisor) {
                return Ok(());
            }
            // One that was dying when it was looked for still listened; it is gone now.
            if number % 10 == 0 {
                self.start_if_gone().await?;
            }
        }
        if self.foreign {
            let failure = Failure::unreachable("the system's supervisor is away");
            return Err(failure
                .next("ask the admin of this host to look: systemctl status mews-supervisor"));
        }
        Err(Failure::unreachable("the supervisor was started, but sessiond has not found it"))
    }
}

impl Failure {
    /// The connection broke before an answer came.
    fn is_lost(&self) -> bool {
        self.error.details.get("lost").is_some()
    }
}

fn full(path: &str) -> String {
    format!("{BASE}{path}")
}

fn not_running(dirs: &Dirs) -> Failure {
    let what = format!("no daemon is running ({})", dirs.api_socket().display());
    let next = if place::is_foreign(dirs) {
        "ask the admin of this host to start it, or use your own: mews --user run"
    } else {
        "mews daemon start"
    };
    Failure::unreachable(what).next(next)
}

fn nothing_ran(dirs: &Dirs) -> Failure {
    let words = format!("nothing has run yet ({} has no sessions)", dirs.state.display());
    let error = WireError::new(ErrorCode::NotFound, words);
    Failure::from(error.with(serde_json::json!({ NOTHING_RAN: true }))).next("mews run -- CMD")
}

fn query(options: &AttachOptions) -> Result<String, Failure> {
    let options =
        serde_json::to_string(options).map_err(|error| Failure::new(error.to_string()))?;
    Ok(encode(&options))
}

fn lost(error: &std::io::Error) -> Failure {
    let error = WireError::new(
        ErrorCode::SupervisorUnavailable,
        format!("the connection to mews-sessiond broke: {error}"),
    );
    Failure::from(error.with(serde_json::json!({ "lost": true }))).next("mews daemon status")
}

fn refused(reply: &Reply) -> Failure {
    match serde_json::from_slice::<ErrorBody>(&reply.body) {
        Ok(body) => body.error.into(),
        Err(_other) => Failure::new(format!("mews-sessiond answered {}", reply.status)),
    }
}

fn typed<T: DeserializeOwned>(reply: &Reply) -> Result<T, Failure> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        Failure::new(format!("the answer of mews-sessiond is not understood: {error}"))
    })
}
