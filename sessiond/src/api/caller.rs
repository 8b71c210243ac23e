//! Who calls: the operator, and a duplicate of the accepted connection that proves it.

use super::error::ApiError;
use super::room::{BYTES_OF_ONE, Room};
use crate::access::{Admission, Operator, Verdict};
use crate::app::App;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use wire::hello::{self, Hello};
use wire::supervisor::{Admitted, SupervisorRequest};
use wire::{ErrorCode, WireError};

/// Carried as an extension of every request of a connection.
#[derive(Clone, Debug)]
pub struct Caller {
    pub operator: Operator,
    connection: Arc<OwnedFd>,
    said: Arc<Mutex<Option<Said>>>,
    /// Of this request alone.
    pub(super) room: Room,
    stranger: Arc<std::sync::Mutex<Option<OwnedSemaphorePermit>>>,
}

/// What the supervisor said of a connection, and after which reading of its rules.
#[derive(Clone, Copy, Debug)]
struct Said {
    rules: u64,
    admitted: Admitted,
}

/// By what the host's rules go: two connections of one uid may have other groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Who {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// What the supervisor said last of those that it lets in, after which reading of its rules.
#[derive(Debug, Default)]
pub struct Known {
    rules: u64,
    admitted: HashMap<Who, Admitted>,
}

impl Known {
    /// What was said under other rules is no longer known.
    fn under(&mut self, rules: u64) -> &mut HashMap<Who, Admitted> {
        if self.rules != rules {
            *self = Self { rules, admitted: HashMap::new() };
        }
        &mut self.admitted
    }
}

impl Caller {
    #[must_use]
    pub fn new(operator: Operator, connection: OwnedFd) -> Self {
        let room = Room::of(Arc::new(Semaphore::new(BYTES_OF_ONE as usize)));
        let (said, stranger) = (Arc::default(), Arc::default());
        Self { operator, connection: Arc::new(connection), said, room, stranger }
    }

    /// One of several connections of a uid that share what it may take.
    #[must_use]
    pub fn sharing(mut self, room: Arc<Semaphore>) -> Self {
        self.room = Room::of(room);
        self
    }

    /// The caller of the next request of this connection.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { room: self.room.another(), ..self.clone() }
    }

    /// Held until this connection is known to be of somebody who is served.
    pub fn as_stranger(&self, turn: OwnedSemaphorePermit) {
        *self.stranger.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }

    fn is_served(&self) {
        drop(self.stranger.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Returns when the supervisor has read its rules again and no longer says of this connection what
    /// it said before: what is under way on it was let in by that.
    pub async fn outdated(&self, app: &App) {
        let mut rules = app.rules.subscribe();
        while rules.changed().await.is_ok() {
            let before = self.said.lock().await.map(|said| said.admitted);
            if let Some(before) = before
                && !ask(app, self).await.is_ok_and(|now| now == before)
            {
                return;
            }
        }
    }

    fn who(&self) -> Option<Who> {
        let gid = link::Peer::of(&*self.connection).ok()?.gid;
        let groups = link::peer::groups_of(&*self.connection).ok()?;
        Some(Who { uid: self.operator.uid, gid, groups })
    }

    /// The descriptor that goes down with a request: the supervisor reads SO_PEERCRED itself.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn authority(&self) -> Result<OwnedFd, WireError> {
        link::peer::duplicate(&*self.connection)
            .map_err(|error| WireError::new(ErrorCode::Internal, format!("dup: {error}")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let nobody = || WireError::new(ErrorCode::Unauthenticated, "Nobody stands behind this.");
        parts.extensions.get::<Self>().cloned().ok_or_else(|| nobody().into())
    }
}

/// What even a client of another build may ask: who we are, and that we make room for another.
const FOR_ALL: [&str; 4] = ["/healthz", "/readyz", "/versions", "/shutdown"];

/// A client that says which versions it speaks, and speaks none of ours, is told so before anything
/// is done.
fn agree(app: &App, request: &Request) -> Result<(), WireError> {
    let path = request.uri().path().strip_prefix(wire::api::BASE).unwrap_or_default();
    let Some(said) = request.headers().get(hello::HEADER) else { return Ok(()) };
    if FOR_ALL.contains(&path) {
        return Ok(());
    }
    let theirs: Hello = serde_json::from_slice(said.as_bytes()).map_err(|error| {
        let words = format!("The header {} is not understood: {error}.", hello::HEADER);
        WireError::new(ErrorCode::BadRequest, words)
    })?;
    if let Err(error) = app.hello.agree(&theirs) {
        let words = format!(
            "This client is {theirs}, the daemons are {}: they have no version of the protocol in \
             common.",
            app.hello
        );
        return Err(WireError { message: words, ..error });
    }
    Ok(())
}

/// Refuses callers that this daemon does not serve.
pub(super) async fn admit(
    State(app): State<Arc<App>>,
    mut caller: Caller,
    mut request: Request,
    next: Next,
) -> Response {
    match app.admission.of(caller.operator) {
        Verdict::Served => {}
        Verdict::Refused => {
            let words =
                "This daemon serves another operator. Unset MEWS_RUN_DIR to start your own.";
            return ApiError(WireError::new(ErrorCode::Forbidden, words)).into_response();
        }
        Verdict::Ask => match ask(&app, &caller).await {
            Ok(admitted) => caller.operator.is_admin = admitted.admin,
            Err(error) => return ApiError(error).into_response(),
        },
    }
    caller.is_served();
    if let Err(error) = agree(&app, &request) {
        return ApiError(error).into_response();
    }
    if caller.operator.is_admin && app.admission == Admission::Asked {
        let (uid, method, path) = (caller.operator.uid, request.method(), request.uri().path());
        tracing::info!(uid, %method, path, "an admin asks");
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// The supervisor's word: once for each connection, as its groups stay what they were, and again when
/// the rules were read again.
async fn ask(app: &App, caller: &Caller) -> Result<Admitted, WireError> {
    let mut said = caller.said.lock().await;
    loop {
        let rules = *app.rules.borrow();
        if let Some(said) = said.filter(|said| said.rules == rules) {
            return Ok(said.admitted);
        }
        let told = admitted(app, caller, rules).await;
        // The answer may be by the rules before.
        if *app.rules.borrow() == rules {
            *said = told.as_ref().ok().map(|admitted| Said { rules, admitted: *admitted });
            return told;
        }
    }
}

/// Where the supervisor is away, its last word about such a caller, so that reading goes on.
async fn admitted(app: &App, caller: &Caller, rules: u64) -> Result<Admitted, WireError> {
    let asked = async {
        let link = app.link.current()?;
        let reply = link.request(&SupervisorRequest::Admit, vec![caller.authority()?]).await;
        reply.map_err(WireError::from)?.typed::<Admitted>()
    };
    let told = asked.await;
    let mut known = app.known.lock().await;
    let (known, who) = (known.under(rules), caller.who());
    match (told, who) {
        (Ok(admitted), who) => {
            known.extend(who.map(|who| (who, admitted)));
            Ok(admitted)
        }
        (Err(error), Some(who)) if error.code == ErrorCode::SupervisorUnavailable => {
            known.get(&who).copied().ok_or(error)
        }
        (Err(error), who) => {
            who.map(|who| known.remove(&who));
            Err(error)
        }
    }
}
