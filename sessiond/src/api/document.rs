//! The API as OpenAPI 3.1 describes it: `docs/openapi.json`, made from the table of routes.

use super::describe::Operation;
use super::repeats::Again;
use super::routes::{Route, Who, table};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use wire::api::{BASE, ErrorBody};

static TEXT: LazyLock<String> = LazyLock::new(text);

pub(super) async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// As it is checked in.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", document())
}

/// `x-mews-who`: whom a route answers.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schemas = settings
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in table() {
        let described = operation(&route, &mut schemas);
        let operations = paths.entry(route.path).or_default();
        operations.insert(route.method.to_ascii_lowercase(), described);
    }
    let error = schemas.subschema_for::<ErrorBody>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mews",
            "version": "1",
            "description": "HTTP/1.1 on a Unix socket; who calls is the kernel's word. See docs/api.md.",
        },
        "servers": [{ "url": BASE }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "responses": {
                "Error": {
                    "description": "What is wrong, in a stable code and in words.",
                    "content": { "application/json": { "schema": error } },
                },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = Operation { parameters: in_path(route.path), ..Operation::default() };
    (route.describe)(&mut operation, schemas);
    for (status, words, kind) in &route.gives {
        operation.answer(*status, words, kind.map(|kind| (kind, json!({}))));
    }
    if matches!(route.again, Again::Same | Again::Once | Again::Bytes) {
        operation.parameters.push(json!({
            "name": "client_request_id", "in": "query", "schema": { "type": "string" },
            "description": "Sent again within 24 hours it is done once, and answered as the first \
                            time. May also stand in a JSON body.",
        }));
    }
    let mut described = Map::new();
    let mut say = |key: &str, value: Value| drop(described.insert(key.to_owned(), value));
    say("operationId", name(route.name).into());
    say("summary", route.summary.into());
    say("responses", operation.answers.into());
    say("x-mews-who", route.who.word().into());
    if !operation.parameters.is_empty() {
        say("parameters", operation.parameters.into());
    }
    if let Some(body) = operation.body {
        say("requestBody", body);
    }
    if route.who == Who::Keyed {
        say("description", "The key is what counts, not who calls.".into());
    }
    described.into()
}

/// `sessions_list` of `sessiond::api::sessions::list`.
fn name(handler: &str) -> String {
    let parts: Vec<&str> = handler.rsplit("::").take(2).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("_")
}

fn in_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let words = match name {
                "p" => "A project's slug.",
                "s" => "A session's id.",
                "r" => "A run's id.",
                "g" => "A cage's id.",
                "t" => "A terminal's id.",
                "c" => "A checkpoint's id.",
                "n" => "A grant's id.",
                _other => "An id.",
            };
            json!({
                "name": name, "in": "path", "required": true, "schema": { "type": "string" },
                "description": words,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
