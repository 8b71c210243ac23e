use crate::client::Daemon;
use crate::fake::exit;
use crate::run;
use serde_json::json;
use wire::supervisor::Phase;
use wire::{Cause, EventBody, Source};

#[test]
fn events_told_while_the_link_was_down_arrive_once_and_in_order() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        let idle = |ms| EventBody::PtyIdle { pty: started.pty, idle_ms: ms };
        for round in 0..3 {
            daemon.fake.stop();
            daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
            for number in 0..600 {
                daemon.fake.tell(started.cage, Source::Broker, &idle(round * 1000 + number));
            }
            daemon.fake.start(&daemon.supervisor_socket());
            daemon.ready().await;
        }
        // What was acknowledged is sent again all the same: a source that lost its note of it.
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        let again: Vec<_> = (0..5_u64)
            .map(|seq| wire::Event::new(started.cage, Source::Broker, seq + 1, 0, &idle(seq)))
            .collect();
        daemon.fake.state().unacked.insert((started.cage, Source::Broker), again);
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        let (_, told) = daemon.get(&format!("/sessions/{session}/events?limit=9999")).await;
        let told = told["events"].as_array().unwrap();
        let idles: Vec<u64> = told
            .iter()
            .filter(|event| event["type"] == "pty.idle")
            .map(|event| event["data"]["idle_ms"].as_u64().unwrap())
            .collect();
        let want: Vec<u64> =
            (0..3).flat_map(|round| (0..600).map(move |number| round * 1000 + number)).collect();
        assert_eq!(idles, want);
    });
}

#[test]
fn a_daemon_that_dies_finds_its_cages_again() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        let before = daemon.kinds(&session).await;
        let daemon = daemon.restart().await;
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        let view = daemon.get(&format!("/sessions/{session}")).await.1;
        assert_eq!(
            (&view["state"], &view["cages"][0]["phase"]),
            (&json!("running"), &json!("running"))
        );
        assert_eq!(daemon.kinds(&session).await, before);
        // It ends while nobody listens.
        let daemon = daemon.restart().await;
        daemon.fake.stop();
        daemon.fake.end(started.cage, &exit(Some(9), None, Cause::Exited));
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["exit"]["code"], 9);
        let kinds = daemon.kinds(&session).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "run.ended").count(), 1);
        let exited = kinds.iter().position(|kind| kind == "cage.exited").unwrap();
        assert_eq!(kinds[exited + 1], "run.ended", "{kinds:?}");
    });
}

#[test]
fn the_snapshot_tells_the_end_where_events_are_silent() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        daemon.state(&session, "running").await;
        daemon.fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        daemon.fake.stop();
        {
            let mut state = daemon.fake.state();
            let cage = state.cages.get_mut(&started.cage).unwrap();
            cage.phase = Phase::Gone;
            cage.exit = Some(exit(None, Some(9), Cause::Oom));
        }
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        daemon.fake.start(&daemon.supervisor_socket());
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["exit"]["cause"], "oom");
        assert_eq!(view["cages"][0]["ptys"][0]["exit"]["cause"], "oom");
    });
}

#[test]
fn a_run_without_a_cage_and_without_an_outcome_has_crashed() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        daemon.fake.stop();
        daemon.fake.state().cages.clear();
        daemon.fake.state().unacked.clear();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        let view = daemon.state(&session, "ended").await;
        assert_eq!(view["runs"][0]["state"], "failed");
        assert_eq!(view["runs"][0]["exit"]["cause"], "daemon_crash");
        let kinds = daemon.kinds(&session).await;
        assert!(kinds.contains(&"session.crash_recovered".to_owned()), "{kinds:?}");
    });
}

#[test]
fn a_cage_that_nobody_knows_any_more_is_forgotten() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        daemon.fake.end(started.cage, &exit(Some(0), None, Cause::Exited));
        daemon.state(&session, "ended").await;
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        let purge = format!("/sessions/{session}?confirm=true&purge=true");
        assert_eq!(daemon.call("DELETE", &purge, None).await.0, 204);
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.fake.until(|state| state.cages.is_empty()).await;
    });
}

#[test]
fn a_full_disk_keeps_events_in_their_files_and_mends_itself() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        daemon.fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        let full = |pages: &'static str| {
            daemon
                .app
                .store
                .write(move |db| Ok(db.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?))
        };
        full("1").await.unwrap();
        let words = "x".repeat(50_000);
        for _ in 0..20 {
            let body = EventBody::CageLimit { limit: "pids".into(), message: words.clone() };
            daemon.fake.tell(started.cage, Source::Broker, &body);
        }
        daemon.poll_until(|daemon| !*daemon.app.store.healthy().borrow()).await;
        assert!(!daemon.kinds(&session).await.contains(&"cage.limit".to_owned()));
        assert_eq!(daemon.get("/readyz").await.0, 503);
        full("1000000").await.unwrap();
        daemon.fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        let kinds = daemon.kinds(&session).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "cage.limit").count(), 20);
    });
}

#[test]
fn a_cage_that_cannot_be_reached_is_said_and_loses_nothing() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}/cages/{}", started.session, started.cage);
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        if let Some(state) = daemon.fake.state().cages.get_mut(&started.cage) {
            state.build = Some("0.0.1".to_owned());
            state.unreachable = Some("spoken by nobody".to_owned());
            // As a supervisor that cannot ask has it.
            state.ptys.clear();
        }
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        let cage = daemon.get(&path).await.1;
        assert_eq!(cage["unreachable"], "spoken by nobody");
        assert_eq!((&cage["phase"], &cage["build"]), (&json!("running"), &json!("0.0.1")));
        assert_eq!(cage["ptys"][0]["exit"], json!(null), "its terminals are not given up");
        let versions = daemon.get("/versions").await.1;
        assert_eq!(versions["cages"][0]["build"], "0.0.1", "{versions}");
        daemon.fake.tell(started.cage, Source::Supervisor, &EventBody::CageAdopted {});
        daemon.fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        let cage = daemon.get(&path).await.1;
        assert_eq!((&cage["unreachable"], &cage["build"]), (&json!(null), &json!("0.0.1")));
    });
}
