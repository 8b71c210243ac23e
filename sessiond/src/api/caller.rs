//! Who calls: the operator, and a duplicate of the accepted connection that proves it.

use super::error::ApiError;
use crate::access::Operator;
use crate::app::App;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::{ErrorCode, WireError};

/// Carried as an extension of every request of a connection.
#[derive(Clone, Debug)]
pub struct Caller {
    pub operator: Operator,
    connection: Arc<OwnedFd>,
}

impl Caller {
    #[must_use]
    pub fn new(operator: Operator, connection: OwnedFd) -> Self {
        Self { operator, connection: Arc::new(connection) }
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

/// Refuses callers that this daemon does not serve.
pub(super) async fn admit(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    if app.admission.admits(caller.operator) {
        return next.run(request).await;
    }
    let words = "This daemon serves another operator. Unset MEWS_RUN_DIR to start your own.";
    ApiError(WireError::new(ErrorCode::Forbidden, words)).into_response()
}
