//! Errors as HTTP: `{"error": {"code", "message", "details"?}}`, always JSON.

use crate::store::StoreError;
use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use wire::api::{ErrorBody, http_status};
use wire::{ErrorCode, WireError};

#[derive(Debug)]
pub struct ApiError(pub(crate) WireError);

impl From<WireError> for ApiError {
    fn from(error: WireError) -> Self {
        Self(error)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.0.code == ErrorCode::Internal {
            tracing::error!(error = %self.0, "a request failed");
        }
        let status = StatusCode::from_u16(http_status(self.0.code));
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}

pub(super) type Answer<T> = Result<T, ApiError>;

pub(super) async fn no_route(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError(WireError::new(
        ErrorCode::NotFound,
        format!("There is no {method} {path}. docs/api.md lists what there is."),
    ))
}

/// 405 has no code of its own: the path is right, the request is not.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    let error = WireError::new(
        ErrorCode::BadRequest,
        format!("{path} does not take {method}. docs/api.md lists what it takes."),
    );
    (StatusCode::METHOD_NOT_ALLOWED, Json(ErrorBody { error })).into_response()
}
