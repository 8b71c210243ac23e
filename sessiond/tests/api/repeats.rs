//! Requests that are sent twice and done once.

use crate::client::{Daemon, job_body};
use crate::run;
use serde_json::{Value, json};
use sessiond::clock::now_ms;
use sessiond::store::requests::{self, RequestKey};
use wire::supervisor::SupervisorRequest;

fn asked(daemon: &Daemon, is_it: impl Fn(&SupervisorRequest) -> bool) -> usize {
    daemon.fake.state().requests.iter().filter(|request| is_it(request)).count()
}

fn is_signal(request: &SupervisorRequest) -> bool {
    matches!(request, SupervisorRequest::Signal { .. })
}

#[test]
fn the_second_one_gets_the_first_ones_answer() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = format!("/sessions/{}", started.session);
        let cage = format!("{session}/cages/{}", started.cage);
        let path = format!("{session}/checkpoints");
        let body = json!({ "note": "here", "resume": true, "client_request_id": "c" });
        let (first, second) =
            tokio::join!(daemon.post(&path, body.clone()), daemon.post(&path, body.clone()));
        assert_eq!((first.0, &first), (201, &second));
        let listed = daemon.get(&path).await.1;
        assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 1);
        // The order of a body's fields is no other request; one word of it is.
        let text = r#"{"client_request_id":"c","resume":true,"note":"here"}"#;
        let again = daemon.call("POST", &path, Some(text.into())).await;
        assert_eq!(again, first);
        let other = json!({ "note": "there", "resume": true, "client_request_id": "c" });
        let (status, error) = daemon.post(&path, other).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")));
        let words = error["error"]["message"].as_str().unwrap();
        assert!(words.contains("give each request its own"), "{words}");
        let signal = json!({ "signal": 10, "client_request_id": "c" });
        for _twice in 0..2 {
            assert_eq!(daemon.post(&format!("{cage}/signal"), signal.clone()).await.0, 204);
        }
        assert_eq!(asked(&daemon, is_signal), 1);
        let input = format!("/ptys/{}/input?client_request_id=i", started.pty);
        for (bytes, status) in [("x", 204), ("x", 204), ("y", 409)] {
            assert_eq!(daemon.raw("POST", &input, Some(bytes.into())).await.0, status, "{bytes}");
        }
        // Typed words are no request, whatever they look like.
        let words = r#"{"client_request_id": "t"}"#;
        let input = format!("/ptys/{}/input", started.pty);
        for _twice in 0..2 {
            assert_eq!(daemon.raw("POST", &input, Some(words.into())).await.0, 204);
        }
        assert_eq!(asked(&daemon, |r| matches!(r, SupervisorRequest::Input { .. })), 3);
        let pause = format!("{session}/pause?client_request_id=p");
        let paused = daemon.post(&pause, Value::Null).await;
        assert_eq!((paused.0, &paused.1["state"]), (200, &json!("paused")));
        let resume = format!("{session}/resume?client_request_id=r");
        for _twice in 0..2 {
            let (status, view) = daemon.post(&resume, Value::Null).await;
            assert_eq!((status, &view["state"]), (200, &json!("running")));
        }
        // As it was answered then, whatever has become of it since.
        assert_eq!(daemon.post(&pause, Value::Null).await, paused);
        let cancel = format!("{session}/runs/{}/cancel?client_request_id=x", started.run);
        for _twice in 0..2 {
            assert_eq!(daemon.post(&cancel, Value::Null).await.1["state"], "cancelled");
        }
    });
}

#[test]
fn what_failed_is_tried_again() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = format!("/sessions/{}", started.session);
        let resume = format!("{session}/resume?client_request_id=r");
        assert_eq!(daemon.post(&resume, Value::Null).await.0, 409);
        assert_eq!(daemon.post(&format!("{session}/pause"), Value::Null).await.0, 200);
        assert_eq!(daemon.post(&resume, Value::Null).await.0, 200);
        assert_eq!(daemon.post(&resume, Value::Null).await.0, 200);
    });
}

#[test]
fn what_a_daemon_took_to_its_grave_is_not_done_a_second_time() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let cage = format!("/sessions/{}/cages/{}", started.session, started.cage);
        let uid = nix::unistd::getuid().as_raw();
        let signal = json!({ "signal": 10, "client_request_id": "s" });
        let kill = Value::Null;
        let none = None::<&[u8]>;
        let keys = [
            (format!("{cage}/signal"), (None::<&str>, Some(signal.clone()), none)),
            (format!("{cage}/kill"), (Some("client_request_id=s"), None, Some(b"null".as_slice()))),
        ]
        .map(|(path, asked)| {
            RequestKey::new(uid, format!("POST {path}"), "s".into(), &asked).unwrap()
        });
        let earlier = daemon.app.epoch - 1;
        let begun = daemon.app.store.write(move |db| {
            for key in keys {
                assert_eq!(requests::begin(db, &key, earlier, now_ms())?, None);
            }
            Ok(())
        });
        begun.await.unwrap();
        let (status, error) = daemon.post(&format!("{cage}/signal"), signal).await;
        assert_eq!(
            (status, &error["error"]["details"]),
            (409, &json!({ "lost": true })),
            "{error}"
        );
        assert_eq!(asked(&daemon, is_signal), 0);
        // Dead is dead: this one is done.
        let path = format!("{cage}/kill?client_request_id=s");
        for _twice in 0..2 {
            assert_eq!(daemon.post(&path, kill.clone()).await.0, 204);
        }
        assert_eq!(asked(&daemon, |r| matches!(r, SupervisorRequest::Kill { .. })), 1);
    });
}

#[test]
fn another_body_under_the_same_id_is_refused() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let exec = format!("/sessions/{}/cages/{}/exec", started.session, started.cage);
        let session = daemon.session("bash").await;
        let mut other_job = job_body();
        other_job["exec"]["argv"] = json!(["other"]);
        for (path, one, two) in [
            ("/projects".to_owned(), json!({ "folder": "/a" }), json!({ "folder": "/b" })),
            ("/projects/w0/sessions".to_owned(), json!({ "name": "n" }), json!({ "name": "m" })),
            (format!("/sessions/{session}/jobs"), job_body(), other_job),
            (exec, json!({ "argv": ["a"] }), json!({ "argv": ["b"] })),
        ] {
            let with_id = |mut body: Value| {
                body["client_request_id"] = json!("same");
                body
            };
            let first = daemon.post(&path, with_id(one.clone())).await;
            assert!(first.0 < 300, "{path}: {first:?}");
            assert_eq!(daemon.post(&path, with_id(one)).await, first, "{path}");
            let (status, error) = daemon.post(&path, with_id(two)).await;
            assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")), "{path}");
        }
        for id in [json!(""), json!(7), json!("x".repeat(257))] {
            let signal = format!("/sessions/{}/cages/{}/signal", started.session, started.cage);
            for (path, body) in [
                (signal, json!({ "signal": 10, "client_request_id": id })),
                ("/projects".to_owned(), json!({ "folder": "/w", "client_request_id": id })),
            ] {
                assert_eq!(daemon.post(&path, body).await.0, 400, "{path} {id}");
            }
        }
        assert_eq!(asked(&daemon, is_signal), 0);
    });
}

#[test]
fn a_grants_key_is_told_once_and_the_grant_is_made_once() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}/grants", started.session);
        let body = json!({
            "cages": 1, "for_ms": 60_000, "policy": { "name": "shell" }, "client_request_id": "g",
        });
        let (status, made) = daemon.post(&path, body.clone()).await;
        assert_eq!(status, 201, "{made}");
        let (status, error) = daemon.post(&path, body).await;
        assert_eq!((status, &error["error"]["details"]["grant"]), (409, &made["grant"]["id"]));
        assert!(!error.to_string().contains("mews-grant."), "{error}");
        assert_eq!(asked(&daemon, |r| matches!(r, SupervisorRequest::Mint { .. })), 1);
    });
}
