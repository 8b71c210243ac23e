//! Another name, other labels, out of the way.

use crate::client::Daemon;
use crate::run;
use serde_json::{Value, json};

async fn patch(daemon: &Daemon, session: &str, body: Value) -> (u16, Value) {
    daemon.call("PATCH", &format!("/sessions/{session}"), Some(body.to_string().into())).await
}

#[test]
fn a_session_is_renamed_and_labelled_and_its_events_say_so() {
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("bash").await;
        let other = daemon.session("other").await;
        let body = json!({ "name": "review", "labels": { "team": "blue", "none": null } });
        let (status, view) = patch(&daemon, &session, body.clone()).await;
        assert_eq!((status, &view["name"]), (200, &json!("review")));
        assert_eq!(view["labels"], json!({ "team": "blue" }));
        assert_eq!(patch(&daemon, &session, body).await, (200, view), "twice is once");
        assert_eq!(daemon.get("/resolve?id=review").await.1["session"], json!(session));
        assert_eq!(daemon.get("/resolve?id=bash-1").await.0, 404);
        let labels = json!({ "labels": { "team": null, "urgent": "" } });
        let (_, view) = patch(&daemon, &session, labels).await;
        assert_eq!(view["labels"], json!({ "urgent": "" }));
        let events = daemon.get(&format!("/sessions/{session}/events?after=1")).await.1;
        let told: Vec<(&str, &Value)> = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| (event["type"].as_str().unwrap(), &event["data"]))
            .collect();
        let want = [
            ("session.renamed", json!({ "from": "bash-1", "to": "review" })),
            ("session.updated", json!({ "labels": { "team": "blue" } })),
            ("session.updated", json!({ "labels": { "team": null, "urgent": "" } })),
        ];
        assert_eq!(told, want.each_ref().map(|(kind, data)| (*kind, data)));
        let (status, error) = patch(&daemon, &other, json!({ "name": "review" })).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")));
        assert_eq!(error["error"]["details"]["session"], json!(session));
        let words = error["error"]["message"].as_str().unwrap();
        assert!(words.contains("choose another name or `mews rm review`"), "{words}");
        // The old name is free again.
        assert_eq!(patch(&daemon, &other, json!({ "name": "bash-1" })).await.0, 200);
    });
}

#[test]
fn an_archived_session_is_in_no_plain_list() {
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("old").await;
        let (status, error) = patch(&daemon, &session, json!({ "archived": true })).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")));
        let words = error["error"]["message"].as_str().unwrap();
        assert!(words.contains("type `mews end old-1` first"), "{words}");
        daemon.call("DELETE", &format!("/sessions/{session}?confirm=true"), None).await;
        for (archived, plain, ended) in [(true, 0, 0), (false, 1, 1)] {
            let (status, view) = patch(&daemon, &session, json!({ "archived": archived })).await;
            assert_eq!((status, &view["archived"]), (200, &json!(archived)));
            for (path, count) in
                [("/sessions", plain), ("/sessions?state=ended", ended), ("/sessions?all=true", 1)]
            {
                let (_, list) = daemon.get(path).await;
                assert_eq!(list["sessions"].as_array().unwrap().len(), count, "{path} {archived}");
            }
        }
        let kinds = daemon.kinds(&session).await;
        assert_eq!(kinds[2..], ["session.updated", "session.updated"]);
    });
}

#[test]
fn what_is_no_name_no_label_or_no_change_is_refused_whole() {
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("bash").await;
        let many: serde_json::Map<String, Value> =
            (0..65).map(|number| (number.to_string(), json!("x"))).collect();
        for (body, code, words) in [
            (json!({}), "validation_failed", "say 'name', 'labels' or 'archived'"),
            (json!({ "name": "a b", "labels": { "a": "b" } }), "validation_failed", "'a b'"),
            (json!({ "name": "ok", "labels": { "": "b" } }), "validation_failed", "label's key"),
            (json!({ "labels": { "a=b": "c" } }), "validation_failed", "no '='"),
            (json!({ "labels": { "k": "x".repeat(257) } }), "validation_failed", "'k' is too long"),
            (json!({ "labels": many }), "validation_failed", "at most 64 labels, not 65"),
            (json!({ "nmae": "x" }), "bad_request", "nmae"),
            (json!({ "archived": "yes" }), "bad_request", "boolean"),
        ] {
            let (status, error) = patch(&daemon, &session, body.clone()).await;
            assert_eq!((status, &error["error"]["code"]), (400, &json!(code)), "{body}");
            let told = error["error"]["message"].as_str().unwrap();
            assert!(told.contains(words), "{body}: {told}");
        }
        let view = daemon.get(&format!("/sessions/{session}")).await.1;
        assert_eq!((&view["name"], &view["labels"]), (&json!("bash-1"), &json!({})));
        let body = json!({ "name": "new", "labels": { "a=b": "c" } });
        assert_eq!(daemon.post("/projects/w0/sessions", body).await.0, 400, "as at creation");
    });
}
