use crate::client::{Daemon, job_body};
use crate::fake::{OnSpawn, exit};
use crate::run;
use serde_json::{Value, json};
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{Cause, ErrorCode, WireError};

#[test]
fn a_job_runs_tells_its_events_and_leaves_its_scrollback() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        assert_eq!(started.name, "bash-1");
        assert_eq!(started.enforced.walls.len(), 1);
        let session = started.session.to_string();
        let view = daemon.state(&session, "running").await;
        assert_eq!(view["cages"][0]["phase"], "running");
        assert_eq!(view["runs"][0]["state"], "running");
        daemon.fake.end(started.cage, &exit(Some(7), None, Cause::Exited));
        let wait = format!("/ptys/{}/wait?timeout_ms=5000", started.pty);
        let (status, told) = daemon.post(&wait, Value::Null).await;
        assert_eq!((status, &told["exit"]["code"]), (200, &json!(7)));
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["state"], "done");
        assert_eq!(view["runs"][0]["exit"]["code"], 7);
        assert_eq!(view["cages"][0]["phase"], "gone");
        assert_eq!(
            daemon.kinds(&session).await,
            [
                "session.created",
                "run.created",
                "cage.planned",
                "cage.attested",
                "cage.started",
                "run.started",
                "pty.allocated",
                "pty.started",
                "pty.closed",
                "cage.exited",
                "run.ended",
                "cage.gone",
                "session.ended",
            ]
        );
        // Filed: it is there when the supervisor is not.
        daemon
            .fake
            .until(|state| {
                state.requests.iter().any(|r| matches!(r, SupervisorRequest::Scrollback { .. }))
            })
            .await;
        let path = format!("/ptys/{}/scrollback", started.pty);
        let want = format!("output of {}\n", started.pty);
        assert_eq!(daemon.raw("GET", &path, None).await, (200, want.clone().into()));
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        assert_eq!(daemon.raw("GET", &path, None).await, (200, want.into()));
        assert_eq!(daemon.fake.state().unacked.values().map(Vec::len).sum::<usize>(), 0);
    });
}

#[test]
fn a_job_that_ends_before_its_start_is_told_has_run() {
    run(async {
        let daemon = Daemon::start().await;
        daemon.fake.state().on_spawn = OnSpawn::RunAndEnd(exit(Some(7), None, Cause::Exited));
        let session = daemon.session("bash").await;
        let (status, told) = daemon.job(&session).await;
        assert_eq!(status, 201, "{told}");
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["state"], "done");
        assert_eq!(view["runs"][0]["exit"]["code"], 7);
        let kinds = daemon.kinds(&session).await;
        let at = |kind: &str| kinds.iter().position(|it| it == kind);
        assert!(at("run.started").is_some() && at("run.started") < at("run.ended"), "{kinds:?}");
    });
}

#[test]
fn a_refused_spawn_passes_its_error_and_ends_the_session() {
    run(async {
        let daemon = Daemon::start().await;
        let refusal = WireError::wall("landlock", "Landlock is missing.");
        daemon.fake.state().on_spawn = OnSpawn::Refuse(refusal.clone());
        let session = daemon.session("bash").await;
        let (status, error) = daemon.job(&session).await;
        assert_eq!((status, &error["error"]), (422, &json!(refusal)));
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["state"], "failed");
        assert_eq!(view["runs"][0]["exit"]["cause"], "cage_setup");
        assert_eq!(view["runs"][0]["error"]["details"]["wall"], "landlock");
        let kinds = daemon.kinds(&session).await;
        assert_eq!(kinds, ["session.created", "run.created", "run.failed", "session.ended"]);
        assert_eq!(daemon.job(&session).await.0, 410);
    });
}

#[test]
fn what_is_asked_twice_with_one_id_is_made_once() {
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("bash").await;
        let mut body = job_body();
        body["client_request_id"] = json!("one");
        let path = format!("/sessions/{session}/jobs");
        let (first, second) =
            tokio::join!(daemon.post(&path, body.clone()), daemon.post(&path, body.clone()));
        assert_eq!((first.0, &first), (201, &second));
        assert_eq!(daemon.fake.state().specs.len(), 1);
        body["client_request_id"] = json!("two");
        let (status, error) = daemon.post(&path, body).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("run_active")));
        let body = json!({ "name": "x", "client_request_id": "s" });
        let one = daemon.post("/projects/w0/sessions", body.clone()).await;
        let two = daemon.post("/projects/w0/sessions", body).await;
        assert_eq!((one.0, &one.1["id"]), (201, &two.1["id"]));
    });
}

#[test]
fn a_link_that_breaks_during_a_spawn_is_decided_by_the_next_snapshot() {
    run(async {
        let daemon = Daemon::start().await;
        for (on_spawn, status, state) in
            [(OnSpawn::RunAndBreak, 201, "running"), (OnSpawn::Break, 503, "failed")]
        {
            daemon.fake.state().on_spawn = on_spawn;
            let session = daemon.session("bash").await;
            let (told, answer) = daemon.job(&session).await;
            assert_eq!(told, status, "{answer}");
            let view = daemon.get(&format!("/sessions/{session}")).await.1;
            assert_eq!(view["runs"][0]["state"], state, "{view}");
            daemon.ready().await;
        }
    });
}

#[test]
fn a_second_command_in_a_living_cage_and_none_in_a_dead_one() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}/cages/{}/exec", started.session, started.cage);
        let (status, second) = daemon.post(&path, json!({ "argv": ["id"] })).await;
        assert_eq!(status, 201, "{second}");
        assert_ne!(second["pty"], json!(started.pty));
        assert_eq!(second["run"], json!(started.run));
        let (_, view) = daemon.get(&format!("/sessions/{}/ptys", started.session)).await;
        assert_eq!(view["ptys"].as_array().unwrap().len(), 2);
        let kill = format!("/sessions/{}/cages/{}/kill", started.session, started.cage);
        assert_eq!(daemon.post(&kill, Value::Null).await.0, 204);
        assert_eq!(daemon.post(&kill, Value::Null).await.0, 204);
        let (status, error) = daemon.post(&path, json!({ "argv": ["id"] })).await;
        assert_eq!(
            (status, &error["error"]["details"]["exit"]["cause"]),
            (410, &json!("cancelled"))
        );
    });
}

#[test]
fn cancel_ends_the_cages_of_a_run_and_only_once() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}/runs/{}/cancel", started.session, started.run);
        let (status, view) = daemon.post(&path, Value::Null).await;
        assert_eq!((status, &view["state"]), (200, &json!("cancelled")));
        let (status, error) = daemon.post(&path, Value::Null).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!(ErrorCode::Conflict)));
    });
}

#[test]
fn plan_signal_input_and_resize_reach_the_supervisor() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let cage = format!("/sessions/{}/cages/{}", started.session, started.cage);
        assert_eq!(daemon.get(&format!("{cage}/plan")).await, (200, json!({ "plan": 1 })));
        let signal = json!({ "signal": 15, "pty": started.pty });
        assert_eq!(daemon.post(&format!("{cage}/signal"), signal).await.0, 204);
        assert_eq!(daemon.post(&format!("{cage}/signal"), json!({ "signal": 99 })).await.0, 400);
        let pty = format!("/ptys/{}", started.pty);
        assert_eq!(daemon.raw("POST", &format!("{pty}/input"), Some("x".into())).await.0, 204);
        let size = json!({ "cols": 1000, "rows": 1 });
        assert_eq!(daemon.post(&format!("{pty}/resize"), size).await.0, 204);
        let (_, view) = daemon.get(&pty).await;
        assert_eq!(view["size"], json!({ "cols": 500, "rows": 2 }));
    });
}

#[test]
fn limits_change_and_the_rows_say_so() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let cage = format!("/sessions/{}/cages/{}", started.session, started.cage);
        assert_eq!(daemon.get(&format!("{cage}/stats")).await.1["ran_ms"], 7);
        let (status, view) = daemon.get(&format!("{cage}/limits")).await;
        assert_eq!((status, &view["limits"]), (200, &json!([])));
        let body = |text: &str| Some(text.to_owned().into());
        let path = format!("{cage}/limits");
        let (status, error) = daemon.call("PATCH", &path, body("[1]")).await;
        assert_eq!((status, &error["error"]["code"]), (400, &json!(ErrorCode::BadRequest)));
        let (status, _) = daemon.call("PATCH", &path, body("{\"memory\": \"4G\"}")).await;
        assert_eq!(status, 200);
        let (_, view) = daemon.get(&cage).await;
        assert_eq!(view["enforced"]["walls"][0]["how"], "\"4G\"");
        assert_eq!(daemon.post(&format!("{cage}/kill"), Value::Null).await.0, 204);
        for (method, what) in [("GET", "stats"), ("GET", "limits"), ("PATCH", "limits")] {
            let (status, _) = daemon.call(method, &format!("{cage}/{what}"), body("{}")).await;
            assert_eq!(status, 410, "{method} {what}");
        }
    });
}

#[test]
fn a_session_is_paused_and_goes_on() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = format!("/sessions/{}", started.session);
        let (status, error) = daemon.post(&format!("{session}/resume"), Value::Null).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!(ErrorCode::Conflict)));
        for _again in 0..2 {
            let (status, view) = daemon.post(&format!("{session}/pause"), Value::Null).await;
            assert_eq!((status, &view["state"]), (200, &json!("paused")));
            assert_eq!(view["cages"][0]["phase"], "suspended");
            assert_eq!(view["runs"][0]["state"], "suspended");
        }
        let (status, _) = daemon.post(&format!("{session}/jobs"), job_body()).await;
        assert_eq!(status, 409);
        // A restart in between changes nothing.
        let daemon = daemon.restart().await;
        daemon.ready().await;
        daemon.state(&started.session.to_string(), "paused").await;
        let (status, view) = daemon.post(&format!("{session}/resume"), Value::Null).await;
        assert_eq!((status, &view["state"]), (200, &json!("running")));
        assert_eq!(view["runs"][0]["state"], "running");
        let cage = format!("{session}/cages/{}", started.cage);
        let (status, view) = daemon.post(&format!("{cage}/suspend"), Value::Null).await;
        assert_eq!((status, &view["phase"]), (200, &json!("suspended")));
        let (status, _) = daemon.post(&format!("{cage}/kill"), Value::Null).await;
        assert_eq!(status, 204);
        daemon.state(&started.session.to_string(), "ended").await;
        let (status, _) = daemon.post(&format!("{session}/pause"), Value::Null).await;
        assert_eq!(status, 410);
    });
}

/// The supervisor's word after a reconnect, where its events say nothing.
#[test]
fn a_snapshot_tells_what_stands() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        for (phase, state) in [(Phase::Suspended, "paused"), (Phase::Running, "running")] {
            daemon.fake.stop();
            daemon.fake.set_phase(started.cage, phase);
            daemon.fake.start(&daemon.supervisor_socket());
            daemon.state(&started.session.to_string(), state).await;
        }
    });
}
