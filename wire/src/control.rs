//! The envelope of the control links: one JSON message a packet, descriptors beside it.
//!
//! `{"hello": …}` first, both ways ([`Hello`] says which version is spoken then); then `{"request": {"id", "body"}}`, answered by
//! `{"answer": {"id", "ok"}}` or `{"answer": {"id", "error"}}`; `{"notify": …}` wants no answer.
//! A body stays raw JSON here, so that an unknown request can be answered with an error.

use crate::{ErrorCode, WireError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::hello::Hello;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub body: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub id: u64,
    #[serde(flatten)]
    pub result: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok(Value),
    Error(WireError),
}

impl From<Result<Value, WireError>> for Outcome {
    fn from(result: Result<Value, WireError>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(error) => Self::Error(error),
        }
    }
}

impl From<Outcome> for Result<Value, WireError> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok(value) => Ok(value),
            Outcome::Error(error) => Err(error),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Hello(Hello),
    Request(Request),
    Answer(Answer),
    Notify(Value),
}

impl Message {
    /// # Errors
    /// Not one of the four frames: the link must be closed.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(bytes)
            .map_err(|e| WireError::new(ErrorCode::BadRequest, format!("not a control frame: {e}")))
    }

    /// # Errors
    /// A request that holds what JSON cannot (none of ours does).
    pub fn request(id: u64, body: &impl Serialize) -> Result<Self, WireError> {
        Ok(Self::Request(Request { id, body: value(body)? }))
    }

    /// # Errors
    /// As for [`Message::request`].
    pub fn notify(body: &impl Serialize) -> Result<Self, WireError> {
        Ok(Self::Notify(value(body)?))
    }

    #[must_use]
    pub fn answer(id: u64, result: Result<Value, WireError>) -> Self {
        Self::Answer(Answer { id, result: result.into() })
    }

    /// The packet's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A typed value as raw JSON.
///
/// # Errors
/// It holds what JSON cannot.
pub fn value(body: &impl Serialize) -> Result<Value, WireError> {
    serde_json::to_value(body).map_err(|e| WireError::new(ErrorCode::Internal, e.to_string()))
}

/// Raw JSON as a typed value: a request body, an answer, a notification.
///
/// # Errors
/// `bad_request`, naming what is wrong.
pub fn typed<T: DeserializeOwned>(body: Value) -> Result<T, WireError> {
    serde_json::from_value(body)
        .map_err(|e| WireError::new(ErrorCode::BadRequest, format!("not understood: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_four_frames_have_these_forms() {
        for (message, text) in [
            (
                Message::Hello(Hello { proto: 2, lowest: Some(1), build: "x".into() }),
                json!({"hello": {"proto": 2, "lowest": 1, "build": "x"}}),
            ),
            (
                Message::Hello(Hello { proto: 1, lowest: None, build: "x".into() }),
                json!({"hello": {"proto": 1, "build": "x"}}),
            ),
            (
                Message::Request(Request { id: 3, body: json!({"verb": "list"}) }),
                json!({"request": {"id": 3, "body": {"verb": "list"}}}),
            ),
            (Message::answer(3, Ok(json!(1))), json!({"answer": {"id": 3, "ok": 1}})),
            (
                Message::answer(3, Err(WireError::new(ErrorCode::Gone, "m"))),
                json!({"answer": {"id": 3, "error": {"code": "gone", "message": "m"}}}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&message).unwrap(), text);
            assert_eq!(Message::parse(text.to_string().as_bytes()).unwrap(), message);
        }
        assert!(Message::parse(b"{\"surprise\":1}").is_err());
    }
}
