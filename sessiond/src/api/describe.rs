//! What a handler takes and gives, read off its own signature, as OpenAPI has it.

use super::error::ApiError;
use super::extract::{Ids, Key, Large, LastEventId, Query, Raw, Small};
use super::listing::{ListQuery, Listing};
use super::{Shared, caller::Caller};
use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::marker::PhantomData;

/// An operation as it comes together.
#[derive(Debug, Default)]
pub(super) struct Operation {
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    /// By status.
    pub(super) answers: Map<String, Value>,
}

impl Operation {
    pub(super) fn answer(&mut self, status: u16, words: &str, content: Option<(&str, Value)>) {
        let answer = match content {
            Some((kind, schema)) => {
                json!({ "description": words, "content": { kind: { "schema": schema } } })
            }
            None => json!({ "description": words }),
        };
        self.answers.insert(status.to_string(), answer);
    }
}

/// A part of a request.
pub(super) trait Takes {
    fn describe(_operation: &mut Operation, _schemas: &mut SchemaGenerator) {}
}

/// An answer.
pub(super) trait Gives {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator);
}

/// A handler, by its arguments.
pub(super) trait Described<Arguments> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator);
}

macro_rules! described {
    ($($part:ident)*) => {
        impl<F, Answer, $($part),*> Described<($($part,)*)> for F
        where
            F: Fn($($part),*) -> Answer,
            Answer: Future<Output: Gives>,
            $($part: Takes,)*
        {
            fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
                $($part::describe(operation, schemas);)*
                <Answer::Output as Gives>::describe(operation, schemas);
            }
        }
    };
}
described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
described!(A B C D E);

/// 201: it was made.
#[derive(Debug)]
pub(super) struct Created<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

/// 200, with JSON that is there already: one of these.
#[derive(Debug)]
pub(super) struct Written<T> {
    json: String,
    of: PhantomData<fn() -> T>,
}

impl<T> Written<T> {
    pub(super) fn new(json: String) -> Self {
        Self { json, of: PhantomData }
    }
}

impl<T> IntoResponse for Written<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.json).into_response()
    }
}

/// 204: it is done, and there is nothing to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done;

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl Takes for Shared {}
impl Takes for Caller {}
impl Takes for Request {}
/// Described by the path.
impl Takes for Ids {}

impl<T: JsonSchema> Takes for Query<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        query::<T>(operation, schemas);
    }
}

impl Takes for Listing {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        query::<ListQuery>(operation, schemas);
    }
}

impl Takes for LastEventId {
    fn describe(operation: &mut Operation, _schemas: &mut SchemaGenerator) {
        operation.parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "schema": { "type": "integer" },
            "description": "The last event that was read; counts more than `after`.",
        }));
    }
}

/// Its body is read behind the key alone.
impl Takes for Key {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        operation.parameters.push(json!({
            "name": "Authorization", "in": "header", "required": true,
            "schema": { "type": "string" }, "description": "`Bearer KEY`.",
        }));
        Small::<wire::api::GrantedJob>::describe(operation, schemas);
    }
}

impl<T: JsonSchema> Takes for Small<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        operation.body = Some(body("application/json", &schemas.subschema_for::<T>().to_value()));
    }
}

impl<T: JsonSchema> Takes for Large<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        Small::<T>::describe(operation, schemas);
    }
}

impl Takes for Raw {
    fn describe(operation: &mut Operation, _schemas: &mut SchemaGenerator) {
        operation.body = Some(body("application/octet-stream", &json!({})));
    }
}

impl<T: JsonSchema> Gives for Json<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        let schema = schemas.subschema_for::<T>().to_value();
        operation.answer(200, "What was asked for.", Some(("application/json", schema)));
    }
}

impl<T: JsonSchema> Gives for Written<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        Json::<T>::describe(operation, schemas);
    }
}

impl<T: JsonSchema> Gives for Created<T> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        let schema = schemas.subschema_for::<T>().to_value();
        operation.answer(201, "What was made.", Some(("application/json", schema)));
    }
}

impl Gives for Done {
    fn describe(operation: &mut Operation, _schemas: &mut SchemaGenerator) {
        operation.answer(204, "It is done.", None);
    }
}

/// By the route's own words.
impl Gives for Response {
    fn describe(_operation: &mut Operation, _schemas: &mut SchemaGenerator) {}
}

/// The same body with another status.
impl<T: Gives> Gives for (StatusCode, T) {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        T::describe(operation, schemas);
    }
}

/// Errors are the same everywhere.
impl<T: Gives> Gives for Result<T, ApiError> {
    fn describe(operation: &mut Operation, schemas: &mut SchemaGenerator) {
        T::describe(operation, schemas);
        let error = json!({ "$ref": "#/components/responses/Error" });
        operation.answers.insert("default".to_owned(), error);
    }
}

fn body(kind: &str, schema: &Value) -> Value {
    json!({ "required": true, "content": { kind: { "schema": schema } } })
}

/// Each field of the query's type is a parameter.
fn query<T: JsonSchema>(operation: &mut Operation, schemas: &mut SchemaGenerator) {
    let schema = T::json_schema(schemas);
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        let Some(mut field) = field.as_object().cloned() else { continue };
        let words = field.remove("description");
        // What is not there is not null.
        if let Some(Value::Array(kinds)) = field.get("type") {
            let kind = kinds.iter().find(|kind| **kind != "null").cloned();
            field.extend(kind.map(|kind| ("type".to_owned(), kind)));
        }
        // A list is a parameter that may stand there several times; none of them must.
        let is_list = field.get("type").is_some_and(|kind| kind == "array");
        let mut parameter = Map::new();
        parameter.insert("name".to_owned(), name.clone().into());
        parameter.insert("in".to_owned(), "query".into());
        parameter.insert("schema".to_owned(), field.into());
        if required.iter().any(|one| one == name) && !is_list {
            parameter.insert("required".to_owned(), true.into());
        }
        parameter.extend(words.map(|words| ("description".to_owned(), words)));
        operation.parameters.push(parameter.into());
    }
}
