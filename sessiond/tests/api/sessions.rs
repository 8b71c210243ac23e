use crate::client::Daemon;
use crate::run;
use serde_json::json;
use wire::supervisor::SupervisorRequest;

#[test]
fn names_are_made_unique_and_ids_resolve() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let second = daemon.session("bash").await;
        let (_, view) = daemon.get(&format!("/sessions/{second}")).await;
        assert_eq!(view["name"], "bash-2");
        let (status, by_name) = daemon.get("/resolve?id=bash-1").await;
        let want = json!({
            "session": started.session, "name": "bash-1", "run": started.run,
            "cage": started.cage, "pty": started.pty, "paused": false,
        });
        assert_eq!((status, &by_name), (200, &want));
        for id in [
            started.session.short(),
            started.run.short().to_lowercase(),
            started.cage.to_string(),
            started.pty.short(),
        ] {
            assert_eq!(daemon.get(&format!("/resolve?id={id}")).await.1, want, "{id}");
        }
        let (_, alone) = daemon.get("/resolve?id=bash-2").await;
        assert_eq!((&alone["session"], &alone["run"]), (&json!(second), &json!(null)));
        // All ids of one moment begin alike.
        let (status, error) = daemon.get(&format!("/resolve?id={}", &second[..4])).await;
        assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")));
        assert!(error["error"]["details"]["candidates"].as_array().unwrap().len() > 1);
        assert_eq!(daemon.get("/resolve?id=bas").await.0, 404);
    });
}

#[test]
fn end_answers_when_all_is_gone_and_remove_forgets() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}?confirm=true", started.session);
        let (status, view) = daemon.call("DELETE", &path, None).await;
        assert_eq!((status, &view["state"]), (200, &json!("ended")));
        assert_eq!(view["cages"][0]["phase"], "gone");
        assert_eq!(daemon.call("DELETE", &path, None).await.0, 410);
        let purge = format!("{path}&purge=true");
        assert_eq!(daemon.call("DELETE", &purge, None).await.0, 204);
        assert_eq!(daemon.call("DELETE", &purge, None).await.0, 404);
        assert_eq!(daemon.get(&format!("/ptys/{}", started.pty)).await.0, 404);
        let forgotten = daemon
            .fake
            .state()
            .requests
            .contains(&SupervisorRequest::Forget { cage: started.cage });
        assert!(forgotten);
        assert_eq!(daemon.started().await.name, "bash-1", "the name is free again");
    });
}

#[test]
fn a_plain_list_shows_the_living_and_the_last_ten() {
    run(async {
        let daemon = Daemon::start().await;
        for _ in 0..12 {
            let session = daemon.session("old").await;
            daemon.call("DELETE", &format!("/sessions/{session}?confirm=true"), None).await;
        }
        daemon.session("new").await;
        for (path, count) in [("/sessions", 11), ("/sessions?all=true", 13)] {
            let (_, list) = daemon.get(path).await;
            assert_eq!(list["sessions"].as_array().unwrap().len(), count, "{path}");
        }
    });
}
