//! Checkpoints and layers, as the API gives them.

use crate::client::Daemon;
use crate::fake::OnSpawn;
use crate::run;
use serde_json::{Value, json};
use wire::supervisor::{LayerState, SupervisorRequest};
use wire::{CheckpointId, ErrorCode, SessionId, WireError};

#[test]
fn a_checkpoint_pauses_and_a_rollback_starts_again() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = format!("/sessions/{}", started.session);
        let path = format!("{session}/checkpoints");
        let (status, taken) = daemon.post(&path, json!({ "note": "here" })).await;
        assert_eq!(
            (status, &taken["state"], &taken["note"]),
            (201, &json!("taken"), &json!("here"))
        );
        assert_eq!(taken["covers_files"], true);
        // What started it holds the operator's environment.
        assert_eq!(taken["cages"][0]["spec"], Value::Null);
        daemon.state(&started.session.to_string(), "paused").await;
        let one = format!("{path}/{}", taken["id"].as_str().unwrap());
        let (status, later) = daemon.post(&path, json!({ "resume": true })).await;
        assert_eq!(status, 201);
        daemon.state(&started.session.to_string(), "running").await;
        let (status, _) = daemon.post(&format!("{one}/rollback"), json!({})).await;
        assert_eq!(status, 400);
        let body = json!({ "confirm": true, "restart": true });
        let (status, back) = daemon.post(&format!("{one}/rollback"), body).await;
        assert_eq!(status, 200, "{back}");
        assert_eq!(back["session"]["state"], "running");
        assert_eq!(back["session"]["runs"][0]["state"], "cancelled");
        assert_eq!(back["session"]["end_on_exit"], true);
        assert_ne!(back["started"]["run"], json!(started.run));
        let (_, listed) = daemon.get(&path).await;
        assert_eq!(listed["checkpoints"][0]["superseded"], false);
        assert_eq!(listed["checkpoints"][1]["superseded"], true);
        assert_eq!(listed["checkpoints"][1]["id"], later["id"]);
        let restored = daemon.fake.state().requests.iter().any(|request| {
            matches!(request, SupervisorRequest::Layer { session } if *session == started.session)
        });
        assert!(restored);
    });
}

/// What may not be started again is not killed first.
#[test]
fn a_rollback_that_may_not_start_again_changes_nothing() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = format!("/sessions/{}", started.session);
        let path = format!("{session}/checkpoints");
        let (_, taken) = daemon.post(&path, json!({ "resume": true })).await;
        let refused =
            WireError::new(ErrorCode::Forbidden, "policy 'shell' is not for you any more");
        daemon.fake.state().on_spawn = OnSpawn::Refuse(refused);
        let one = format!("{path}/{}/rollback", taken["id"].as_str().unwrap());
        let body = json!({ "confirm": true, "restart": true });
        let (status, error) = daemon.post(&one, body).await;
        assert_eq!((status, &error["error"]["code"]), (403, &json!("forbidden")));
        let (_, view) = daemon.get(&session).await;
        assert_eq!(
            (&view["state"], &view["cages"][0]["phase"]),
            (&json!("running"), &json!("running"))
        );
        let kinds = daemon.kinds(&started.session.to_string()).await;
        assert!(!kinds.iter().any(|kind| kind == "checkpoint.rolled_back"), "{kinds:?}");
        // Without it the files come back.
        let (status, back) = daemon.post(&one, json!({ "confirm": true })).await;
        assert_eq!((status, &back["session"]["state"]), (200, &json!("idle")));
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let unknown = CheckpointId::new();
        let session = format!("/sessions/{}", started.session);
        for path in [format!("{session}/checkpoints/{unknown}"), "/sessions/x/checkpoints".into()] {
            assert_eq!(daemon.get(&path).await.0, 404, "{path}");
        }
        let path = format!("{session}/checkpoints/{unknown}/rollback");
        assert_eq!(daemon.post(&path, json!({ "confirm": true })).await.0, 404);
        let note = json!({ "note": "x".repeat(1025) });
        assert_eq!(daemon.post(&format!("{session}/checkpoints"), note).await.0, 400);
    });
}

/// Layers and checkpoints that no row has are let go with the next link.
#[test]
fn strangers_are_let_go() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let (mine, unknown) = (started.session, SessionId::new());
        let (lost, nobodys) = (CheckpointId::new(), CheckpointId::new());
        daemon.fake.stop();
        daemon.fake.state().layers = vec![
            LayerState { session: mine, checkpoints: vec![lost] },
            LayerState { session: unknown, checkpoints: vec![nobodys] },
        ];
        daemon.fake.start(&daemon.supervisor_socket());
        let told = |session, checkpoint| SupervisorRequest::ForgetLayer { session, checkpoint };
        for request in [told(mine, Some(lost)), told(unknown, None)] {
            daemon.poll_until(|daemon| daemon.fake.state().requests.contains(&request)).await;
        }
        let asked = daemon.fake.state().requests.clone();
        assert!(!asked.contains(&told(mine, None)), "a layer that has its session");
    });
}
