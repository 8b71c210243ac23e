//! What the supervisor says of a connection holds until it reads its rules again.

use crate::client::Daemon;
use crate::run;
use serde_json::{Value, json};
use sessiond::access::Operator;
use sessiond::api::caller::Caller;
use tower::ServiceExt;
use wire::{ErrorCode, WireError};

/// One connection of somebody, to ask over again and again.
struct Person {
    caller: Caller,
    _theirs: std::os::unix::net::UnixStream,
}

impl Person {
    fn new(uid: u32) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        Self { caller: Caller::new(Operator::new(uid), ours.into()), _theirs: theirs }
    }

    async fn ask(&self, daemon: &Daemon, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(format!("{}{path}", wire::api::BASE))
            .body(axum::body::Body::from(body.to_string()))
            .unwrap();
        request.extensions_mut().insert(self.caller.again());
        let answer = sessiond::api::router(daemon.app.clone()).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// How many sessions are shown, or why none.
    async fn sees(&self, daemon: &Daemon) -> Result<usize, u16> {
        let (status, list) = self.ask(daemon, "GET", "/sessions", Value::Null).await;
        if status == 200 { Ok(list["sessions"].as_array().unwrap().len()) } else { Err(status) }
    }
}

fn forbidden() -> WireError {
    WireError::new(ErrorCode::Forbidden, "the admin of this host has not let you in")
}

/// Rules as they are read again, and the daemon has heard of it.
async fn rules(daemon: &Daemon, admit: Result<bool, WireError>) {
    let mut heard = daemon.app.rules.subscribe();
    daemon.fake.reads_rules(admit);
    heard.changed().await.unwrap();
}

#[test]
fn a_removed_admin_is_none_on_connections_that_are_open() {
    run(async {
        let daemon = Daemon::of_many().await;
        let (ann, boss) = (Person::new(1000), Person::new(1001));
        let (_, project) = ann.ask(&daemon, "POST", "/projects", json!({ "folder": "/w" })).await;
        let path = format!("/projects/{}/sessions", project["slug"].as_str().unwrap());
        let (status, _) = ann.ask(&daemon, "POST", &path, json!({})).await;
        assert_eq!((status, ann.sees(&daemon).await), (201, Ok(1)));
        rules(&daemon, Ok(true)).await;
        assert_eq!(boss.sees(&daemon).await, Ok(1));
        // Not asked of the supervisor each time.
        let asked = || daemon.fake.state().requests.len();
        let before = asked();
        assert_eq!((boss.sees(&daemon).await, asked()), (Ok(1), before));
        rules(&daemon, Ok(false)).await;
        assert_eq!(boss.sees(&daemon).await, Ok(0));
        rules(&daemon, Err(forbidden())).await;
        assert_eq!(boss.sees(&daemon).await, Err(403));
        assert_eq!(ann.sees(&daemon).await, Err(403));
    });
}

#[test]
fn while_the_supervisor_is_away_its_last_word_holds_and_none_from_before() {
    run(async {
        let daemon = Daemon::of_many().await;
        let (ann, bob) = (Person::new(1000), Person::new(1001));
        assert_eq!((ann.sees(&daemon).await, bob.sees(&daemon).await), (Ok(0), Ok(0)));
        rules(&daemon, Ok(false)).await;
        assert_eq!(ann.sees(&daemon).await, Ok(0));
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        assert_eq!(ann.sees(&daemon).await, Ok(0));
        assert_eq!(Person::new(1000).sees(&daemon).await, Ok(0));
        // Said by rules that may not be those of now.
        assert_eq!(bob.sees(&daemon).await, Err(503));
        // A supervisor that comes may have other ones.
        daemon.fake.state().admit = Err(forbidden());
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        assert_eq!(ann.sees(&daemon).await, Err(403));
    });
}

#[test]
fn what_is_under_way_on_such_a_connection_ends() {
    run(async {
        let daemon = Daemon::of_many().await;
        let boss = Person::new(1001);
        daemon.fake.state().admit = Ok(true);
        boss.sees(&daemon).await.unwrap();
        let app = daemon.app.clone();
        let caller = boss.caller.clone();
        let watched = tokio::spawn(async move { caller.outdated(&app).await });
        // The same again: nothing ends.
        rules(&daemon, Ok(true)).await;
        boss.sees(&daemon).await.unwrap();
        assert!(!watched.is_finished());
        rules(&daemon, Ok(false)).await;
        watched.await.unwrap();
    });
}
