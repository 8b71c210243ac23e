//! Every route as its owner, as another operator, as an admin, and as somebody who is not let in.

use crate::client::{Daemon, job_body};
use crate::run;
use axum::body::{Body, to_bytes};
use serde_json::{Value, json};
use sessiond::access::{Admission, Operator};
use sessiond::api::caller::Caller;
use sessiond::api::document;
use sessiond::app::App;
use std::collections::BTreeSet;
use std::sync::Arc;
use tower::ServiceExt;

const OWNER: u32 = 1000;
const OTHER: u32 = 1001;

/// What a request needs beyond its path: a query, a body. A route that is not named here needs nothing;
/// one that should be is refused for that, and fails below.
fn needs(method: &str, path: &str) -> (&'static str, Value) {
    match (method, path) {
        ("DELETE", "/sessions/{s}") => ("?confirm=true", Value::Null),
        ("GET", "/attach" | "/resolve") => ("?id={t}", Value::Null),
        ("PATCH", "/sessions/{s}") => ("", json!({ "labels": { "a": "b" } })),
        ("PATCH", _limits) => ("", json!({ "memory": "1G" })),
        ("POST", "/projects") => ("", json!({ "folder": "/w" })),
        ("POST", "/plan") => (
            "",
            json!({ "folder": "/w", "policy": { "name": "shell" }, "exec": { "argv": ["true"] } }),
        ),
        ("POST", "/shutdown") => ("", json!({ "cages": "leave" })),
        ("POST", "/sessions/{s}/jobs") => ("", job_body()),
        ("POST", "/sessions/{s}/grants") => {
            ("", json!({ "cages": 1, "for_ms": 60_000, "policy": { "name": "shell" } }))
        }
        ("POST", "/grants/{n}/jobs") => ("", json!({ "exec": { "argv": ["true"] } })),
        ("POST", "/sessions/{s}/cages/{g}/exec") => ("", json!({ "argv": ["true"] })),
        ("POST", "/sessions/{s}/cages/{g}/signal") => ("", json!({ "signal": 10 })),
        ("POST", "/ptys/{t}/resize") => ("", json!({ "cols": 80, "rows": 24 })),
        ("POST", "/ptys/{t}/type") => ("", json!({ "pieces": [] })),
        ("POST", "/ptys/{t}/wait") => ("?timeout_ms=0", Value::Null),
        _nothing => ("", json!({})),
    }
}

async fn ask(
    app: &Arc<App>,
    who: Operator,
    (method, path): (&str, &str),
    body: &Value,
) -> (u16, Value) {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("{}{path}", wire::api::BASE))
        .body(Body::from(body.to_string()))
        .unwrap();
    request.extensions_mut().insert(Caller::new(who, ours.into()));
    let answer = sessiond::api::router(Arc::clone(app)).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    // A stream has no end.
    let is_json =
        answer.headers().get("content-type").is_some_and(|kind| kind == "application/json");
    let bytes =
        if is_json { to_bytes(answer.into_body(), 1 << 20).await.unwrap() } else { "".into() };
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// A project, a session with a command in it, a checkpoint of it: all the owner's.
async fn objects(daemon: &Daemon) -> Vec<(&'static str, String)> {
    let owner = Operator::new(OWNER);
    let folder = json!({ "folder": "/own" });
    let (_, project) = ask(&daemon.app, owner, ("POST", "/projects"), &folder).await;
    let slug = project["slug"].as_str().unwrap().to_owned();
    let path = format!("/projects/{slug}/sessions");
    let (_, session) = ask(&daemon.app, owner, ("POST", &path), &json!({})).await;
    let session = session["id"].as_str().unwrap().to_owned();
    let jobs = format!("/sessions/{session}/jobs");
    let (status, started) = ask(&daemon.app, owner, ("POST", &jobs), &job_body()).await;
    assert_eq!(status, 201, "{started}");
    let path = format!("/sessions/{session}/checkpoints");
    let body = json!({ "resume": true });
    let (status, taken) = ask(&daemon.app, owner, ("POST", &path), &body).await;
    assert_eq!(status, 201, "{taken}");
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    vec![
        ("{p}", slug),
        ("{s}", session),
        ("{r}", id(&started["run"])),
        ("{g}", id(&started["cage"])),
        ("{t}", id(&started["pty"])),
        ("{c}", id(&taken["id"])),
        ("{n}", wire::GrantId::new().to_string()),
    ]
}

/// A daemon that serves somebody else alone.
fn closed(folder: &std::path::Path) -> Arc<App> {
    let store = sessiond::store::Store::open(&folder.join("db")).unwrap();
    let (_current, link) = tokio::sync::watch::channel(None);
    let link = sessiond::supervisor_link::SupervisorLink::new(link);
    Arc::new(App::new(store, link, 1, Admission::Only(OWNER)))
}

#[test]
fn who_may_what_on_every_route() {
    run(async {
        let daemon = Daemon::start().await;
        let folder = tempfile::tempdir().unwrap();
        let closed = closed(folder.path());
        let admin = Operator { uid: OTHER, is_admin: true };
        let described = document::document();
        let mut kinds = BTreeSet::new();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let method = method.to_uppercase();
                let who = operation["x-mews-who"].as_str().unwrap();
                let (query, body) = needs(&method, path);
                kinds.insert(who.to_owned());
                for (person, want) in [
                    (Operator::new(OTHER), if who == "operator" { 200 } else { 404 }),
                    (admin, if who == "owner" { 403 } else { 200 }),
                    (Operator::new(OWNER), 200),
                ] {
                    let mut full = format!("{path}{query}");
                    for (key, id) in objects(&daemon).await {
                        full = full.replace(key, &id);
                    }
                    let (status, answer) = ask(&daemon.app, person, (&method, &full), &body).await;
                    let told = format!("{person:?} {method} {full}: {status} {answer}");
                    let is_there = !(403..=405).contains(&status) && status < 500;
                    // What only the supervisor of a whole system has or decides: integration/operators.
                    let elsewhere = matches!(
                        (who, method.as_str(), path.as_str()),
                        ("key", ..) | (_, "DELETE", "/grants/{n}") | (_, "POST", "/shutdown")
                    );
                    match want {
                        _ if elsewhere => assert!([401, 403, 404].contains(&status), "{told}"),
                        // Projects are found by their operator alone, so none is another's.
                        403 if path.starts_with("/projects") => assert_eq!(status, 404, "{told}"),
                        200 => assert!(is_there, "{told}"),
                        _ => assert_eq!(status, want, "{told}"),
                    }
                    if status == 404 && !elsewhere {
                        let words = answer["error"]["message"].as_str().unwrap();
                        let in_words = words.starts_with("There is no such ")
                            || words.starts_with("Nothing is called ");
                        assert!(in_words, "{told}");
                    }
                }
                let full = format!("{path}{query}").replace(['{', '}'], "");
                let eve = Operator::new(OTHER);
                let (status, _) = ask(&closed, eve, (&method, &full), &body).await;
                // Behind a key, not behind who calls: it is the key that is asked for.
                assert_eq!(
                    status,
                    if who == "key" { 401 } else { 403 },
                    "a stranger {method} {full}"
                );
            }
        }
        assert_eq!(Vec::from_iter(kinds), ["key", "object", "operator", "owner"]);
    });
}

#[test]
fn every_described_route_is_there() {
    run(async {
        let daemon = Daemon::start().await;
        let owner = Operator::new(OWNER);
        let described = daemon.get("/openapi.json").await.1;
        assert_eq!(described, document::document());
        for (path, operations) in described["paths"].as_object().unwrap() {
            let full = path.replace(['{', '}'], "");
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                let (status, answer) = ask(&daemon.app, owner, (method, &full), &json!({})).await;
                let told = answer["error"]["message"].as_str().unwrap_or_default();
                let is_there = status != 405 && !told.starts_with("There is no GET");
                let said = operations.get(method.to_lowercase()).is_some();
                assert_eq!(is_there, said, "{method} {full}: {status} {answer}");
            }
        }
    });
}
