//! Who calls: the operator, and a duplicate of the accepted connection that proves it.

use super::error::ApiError;
use crate::access::{Admission, Operator, Verdict};
use crate::app::App;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::OnceCell;
use wire::hello::{self, Hello};
use wire::supervisor::{Admitted, SupervisorRequest};
use wire::{ErrorCode, WireError};

/// Carried as an extension of every request of a connection.
#[derive(Clone, Debug)]
pub struct Caller {
    pub operator: Operator,
    connection: Arc<OwnedFd>,
    /// What the supervisor said of it: once for each connection, as its groups stay what they were.
    admitted: Arc<OnceCell<Admitted>>,
}

impl Caller {
    #[must_use]
    pub fn new(operator: Operator, connection: OwnedFd) -> Self {
        Self { operator, connection: Arc::new(connection), admitted: Arc::default() }
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

/// The supervisor's word; where it is away, its last one about this uid, so that reading goes on.
async fn ask(app: &App, caller: &Caller) -> Result<Admitted, WireError> {
    let uid = caller.operator.uid;
    let asked = caller.admitted.get_or_try_init(async || {
        let link = app.link.current()?;
        let reply = link.request(&SupervisorRequest::Admit, vec![caller.authority()?]).await;
        reply.map_err(WireError::from)?.typed::<Admitted>()
    });
    match asked.await {
        Ok(admitted) => {
            app.known.lock().await.insert(uid, *admitted);
            Ok(*admitted)
        }
        Err(error) if error.code == ErrorCode::SupervisorUnavailable => {
            app.known.lock().await.get(&uid).copied().ok_or(error)
        }
        Err(error) => {
            app.known.lock().await.remove(&uid);
            Err(error)
        }
    }
}
