use crate::client::Daemon;
use crate::run;
use serde_json::{Value, json};
use sessiond::access::{Admission, Operator};
use sessiond::api::caller::Caller;
use tower::ServiceExt;

#[test]
fn errors_are_json_with_stable_codes() {
    run(async {
        let daemon = Daemon::start().await;
        let none = wire::SessionId::new();
        let session = daemon.session("bash").await;
        let large = vec![b' '; 70_000];
        let jobs = format!("/sessions/{session}/jobs");
        for (method, path, body, status, code) in [
            ("GET", "/nope", "", 404, "not_found"),
            ("PUT", "/sessions", "", 405, "bad_request"),
            ("POST", "/projects", "{", 400, "bad_request"),
            ("POST", "/projects", "{\"folder\": \"relative\"}", 400, "validation_failed"),
            ("POST", "/projects", "{\"folder\": \"/a/../b\"}", 400, "validation_failed"),
            ("POST", "/projects", std::str::from_utf8(&large).unwrap(), 413, "payload_too_large"),
            ("POST", "/projects/none/sessions", "{}", 404, "not_found"),
            ("POST", "/projects/w0/sessions", "{\"name\": \"a b\"}", 400, "validation_failed"),
            ("POST", "/projects/w0/sessions", "{\"name\": \"bash-1\"}", 409, "conflict"),
            ("GET", &format!("/sessions/{none}"), "", 404, "not_found"),
            ("GET", "/sessions/../../etc/passwd", "", 404, "not_found"),
            ("GET", "/sessions/x", "", 404, "not_found"),
            ("GET", &format!("/sessions/{session}/events?after=x"), "", 400, "bad_request"),
            ("DELETE", &format!("/sessions/{session}"), "", 400, "bad_request"),
            (
                "DELETE",
                &format!("/sessions/{session}?confirm=true&purge=true"),
                "",
                409,
                "conflict",
            ),
            ("POST", &jobs, "{}", 400, "bad_request"),
            (
                "POST",
                &jobs,
                "{\"kind\":\"job\",\"policy\":{\"name\":\"x\"},\"exec\":{\"argv\":[]}}",
                400,
                "validation_failed",
            ),
            ("GET", "/resolve?id=nothing", "", 404, "not_found"),
        ] {
            let (told, answer) = daemon.call(method, path, Some(body.to_owned().into())).await;
            assert_eq!(told, status, "{method} {path}: {answer}");
            assert_eq!(answer["error"]["code"], code, "{method} {path}");
            assert!(answer["error"]["message"].as_str().is_some_and(|words| words.len() > 10));
        }
    });
}

#[test]
fn the_open_routes_tell_how_it_is() {
    run(async {
        let daemon = Daemon::without_supervisor().await;
        assert_eq!(daemon.get("/healthz").await, (200, json!({ "status": "ok" })));
        let (status, ready) = daemon.get("/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(ready, json!({ "ready": false, "storage": true, "supervisor": false }));
        let session = daemon.session("bash").await;
        let (status, error) = daemon.job(&session).await;
        assert_eq!((status, &error["error"]["code"]), (503, &json!("supervisor_unavailable")));
        let view = daemon.get(&format!("/sessions/{session}")).await.1;
        assert_eq!((&view["state"], &view["runs"]), (&json!("idle"), &json!([])));
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        assert_eq!(daemon.get("/readyz").await.0, 200);
        let (_, versions) = daemon.get("/versions").await;
        assert_eq!(versions["supervisor_pid"], json!(std::process::id()));
        assert_eq!(
            daemon.post("/shutdown", json!({ "cages": "leave" })).await.0,
            shutdown_status()
        );
    });
}

/// Only root stops the daemons of everyone.
fn shutdown_status() -> u16 {
    if nix::unistd::Uid::effective().is_root() { 200 } else { 403 }
}

async fn as_uid(daemon: &Daemon, uid: u32, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("{}{path}", wire::api::BASE))
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    request.extensions_mut().insert(Caller::new(Operator::new(uid), ours.into()));
    let router = sessiond::api::router(daemon.app.clone());
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[test]
fn two_operators_do_not_see_each_other_and_root_sees_both() {
    run(async {
        let daemon = Daemon::start().await;
        let mut objects = Vec::new();
        for uid in [1000, 1001] {
            let folder = json!({ "folder": "/w" });
            let (_, project) = as_uid(&daemon, uid, "POST", "/projects", folder).await;
            assert_eq!(project["slug"], "w0");
            let name = json!({ "name": "mine" });
            let (status, session) =
                as_uid(&daemon, uid, "POST", "/projects/w0/sessions", name).await;
            assert_eq!(status, 201, "{session}");
            let id = session["id"].as_str().unwrap().to_owned();
            let jobs = format!("/sessions/{id}/jobs");
            let (_, started) = as_uid(&daemon, uid, "POST", &jobs, crate::client::job_body()).await;
            objects.push((uid, id, started));
        }
        for (uid, session, started) in &objects {
            let part = |key: &str| started[key].as_str().unwrap();
            let cage = format!("/sessions/{session}/cages/{}", part("cage"));
            let run = format!("/sessions/{session}/runs/{}", part("run"));
            let pty = format!("/ptys/{}", part("pty"));
            let other = if *uid == 1000 { 1001 } else { 1000 };
            let routes = [
                ("GET", format!("/sessions/{session}")),
                ("GET", format!("/sessions/{session}/events")),
                ("GET", format!("/sessions/{session}/runs")),
                ("GET", format!("/sessions/{session}/cages")),
                ("GET", format!("/sessions/{session}/ptys")),
                ("DELETE", format!("/sessions/{session}?confirm=true")),
                ("DELETE", format!("/sessions/{session}?confirm=true&purge=true")),
                ("GET", cage.clone()),
                ("GET", format!("{cage}/plan")),
                ("GET", format!("{cage}/stats")),
                ("GET", format!("{cage}/limits")),
                ("POST", format!("{cage}/kill")),
                ("GET", run.clone()),
                ("POST", format!("{run}/cancel")),
                ("GET", pty.clone()),
                ("GET", format!("{pty}/attach")),
                ("GET", format!("/attach?id={}", part("pty"))),
                ("GET", format!("{pty}/scrollback")),
                ("POST", format!("{pty}/input")),
                ("POST", format!("{pty}/wait?timeout_ms=0")),
                ("GET", format!("/resolve?id={}", part("pty"))),
            ];
            for (method, path) in routes {
                let (status, answer) = as_uid(&daemon, other, method, &path, Value::Null).await;
                assert_eq!(status, 404, "{other} {method} {path}: {answer}");
            }
            for (path, body) in [
                (format!("/sessions/{session}/jobs"), crate::client::job_body()),
                (format!("{cage}/exec"), json!({ "argv": ["id"] })),
                (format!("{cage}/signal"), json!({ "signal": 9 })),
                (format!("{pty}/resize"), json!({ "cols": 9, "rows": 9 })),
            ] {
                let (status, answer) = as_uid(&daemon, other, "POST", &path, body).await;
                assert_eq!(status, 404, "{other} POST {path}: {answer}");
            }
            let limits = format!("{cage}/limits");
            let body = json!({ "memory": "1G" });
            let (status, answer) = as_uid(&daemon, other, "PATCH", &limits, body).await;
            assert_eq!(status, 404, "{other} PATCH {limits}: {answer}");
            let (_, list) = as_uid(&daemon, *uid, "GET", "/sessions", Value::Null).await;
            assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
            let (_, own) = as_uid(&daemon, *uid, "GET", "/resolve?id=mine", Value::Null).await;
            assert_eq!(own["session"], json!(session));
        }
        let (_, list) = as_uid(&daemon, 0, "GET", "/sessions", Value::Null).await;
        assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
        let (status, error) = as_uid(&daemon, 0, "GET", "/resolve?id=mine", Value::Null).await;
        assert_eq!(
            (status, error["error"]["details"]["candidates"].as_array().unwrap().len()),
            (409, 2)
        );
    });
}

#[test]
fn a_daemon_of_one_operator_refuses_the_others() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let store = sessiond::store::Store::open(&folder.path().join("db")).unwrap();
        let (_current, link) = tokio::sync::watch::channel(None);
        let link = sessiond::supervisor_link::SupervisorLink::new(link);
        let app = sessiond::app::App::new(store, link, 1, Admission::Only(1000));
        let router = sessiond::api::router(app.into());
        for (uid, status) in [(1000, 200), (0, 200), (1001, 403)] {
            let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut request =
                hyper::Request::get("/api/v1/sessions").body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(Caller::new(Operator::new(uid), ours.into()));
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{uid}");
        }
    });
}

#[test]
fn a_client_of_another_protocol_is_refused_before_anything_is_done() {
    run(async {
        let daemon = Daemon::start().await;
        let ask = async |method: &str, path: &str, hello: &str| {
            let request = hyper::Request::builder()
                .method(method)
                .uri(format!("{}{path}", wire::api::BASE))
                .header("host", "mews")
                .header("content-type", "application/json")
                .header(wire::hello::HEADER, hello)
                .body(http_body_util::Full::new(r#"{"folder": "/w"}"#.into()))
                .unwrap();
            let answer = daemon.connect().await.send_request(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
            let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
            (status, body)
        };
        let ours = json!(wire::hello::Hello::ours()).to_string();
        let newer = r#"{"proto": 900, "lowest": 899, "build": "9.0.0"}"#;
        let (status, error) = ask("POST", "/projects", newer).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("version_mismatch")));
        assert_eq!(error["error"]["details"]["theirs"]["build"], "9.0.0");
        let words = error["error"]["message"].as_str().unwrap();
        assert!(words.contains("mews 9.0.0 (protocol 899 to 900)"), "{words}");
        assert_eq!(daemon.get("/projects").await.1, json!({ "projects": [] }), "nothing is done");
        for path in ["/healthz", "/readyz", "/versions"] {
            assert_eq!(ask("GET", path, newer).await.0, 200, "{path}");
        }
        assert_eq!(ask("POST", "/projects", "nonsense").await.0, 400);
        assert_eq!(ask("POST", "/projects", &ours).await.0, 200);
    });
}
