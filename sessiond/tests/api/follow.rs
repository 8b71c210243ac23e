//! Events as they come.

use crate::client::{Blocks, Daemon};
use crate::fake::exit;
use crate::run;
use serde_json::{Value, json};
use sessiond::ledger::{self, Told};
use wire::{Cause, SessionId};

async fn until(blocks: &mut Blocks, kind: &str) -> Vec<Value> {
    let mut read = Vec::new();
    loop {
        let event = blocks.event().await.unwrap();
        read.push(event);
        if read.last().unwrap()["type"] == kind {
            return read;
        }
    }
}

#[test]
fn who_comes_back_misses_nothing_and_reads_nothing_twice() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let path = format!("/sessions/{}/events/stream?after=0", started.session);
        let mut read = until(&mut daemon.follow(&path, None).await.unwrap(), "run.created").await;
        let last = read.last().unwrap()["seq"].to_string();
        // The header counts, not the query that a browser repeats.
        let mut blocks = daemon.follow(&path, Some(&last)).await.unwrap();
        read.extend(until(&mut blocks, "pty.started").await);
        let daemon = daemon.restart().await;
        daemon.ready().await;
        assert_eq!(blocks.next().await, None, "its daemon died");
        daemon.fake.end(started.cage, &exit(Some(0), None, Cause::Exited));
        let last = read.last().unwrap()["seq"].to_string();
        let mut blocks = daemon.follow(&path, Some(&last)).await.unwrap();
        read.extend(until(&mut blocks, "session.ended").await);
        let all = daemon.get(&format!("/sessions/{}/events", started.session)).await.1;
        assert_eq!(json!(read), all["events"]);
        let after = format!("/sessions/{}/events/stream?after=3", started.session);
        let fourth = daemon.follow(&after, None).await.unwrap().event().await.unwrap();
        assert_eq!(fourth, all["events"][3]);
    });
}

#[test]
fn a_stream_ends_with_its_session_and_with_its_daemon() {
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("bash").await;
        let path = format!("/sessions/{session}/events/stream");
        let mut gone = daemon.follow(&path, None).await.unwrap();
        until(&mut gone, "session.created").await;
        let end = format!("/sessions/{session}?confirm=true");
        assert_eq!(daemon.call("DELETE", &end, None).await.0, 200);
        // An ended one may still be labelled, so there may be more to tell.
        until(&mut gone, "session.ended").await;
        assert_eq!(daemon.call("DELETE", &format!("{end}&purge=true"), None).await.0, 204);
        assert_eq!(gone.next().await, None);
        assert_eq!(daemon.follow(&path, None).await.unwrap_err(), 404);
        let session = daemon.session("bash").await;
        let path = format!("/sessions/{session}/events/stream");
        assert_eq!(daemon.follow(&path, Some("x")).await.unwrap_err(), 400);
        assert_eq!(daemon.follow(&format!("{path}?after=x"), None).await.unwrap_err(), 400);
        let mut blocks = daemon.follow(&path, Some("")).await.unwrap();
        until(&mut blocks, "session.created").await;
        daemon.app.stopping.send_replace(true);
        assert_eq!(blocks.next().await, None);
    });
}

#[test]
fn what_a_slow_reader_has_not_read_stays_in_the_database() {
    const EVENTS: usize = 20_000;
    run(async {
        let daemon = Daemon::start().await;
        let session = daemon.session("bash").await;
        let id: SessionId = session.parse().unwrap();
        let filled = daemon.app.store.write(move |db| {
            for _ in 0..EVENTS {
                let data = json!({ "filler": "x".repeat(1000) });
                ledger::note(db, id, None, Told { kind: "test.event", data, at_ms: 1 })?;
            }
            Ok(())
        });
        filled.await.unwrap();
        let path = format!("/sessions/{session}/events/stream");
        let mut slow = daemon.follow(&path, None).await.unwrap();
        let mut quick = daemon.follow(&path, None).await.unwrap();
        for seq in 1..=EVENTS + 1 {
            assert_eq!(quick.event().await.unwrap()["seq"], json!(seq));
        }
        let end = format!("/sessions/{session}?confirm=true");
        daemon.call("DELETE", &end, None).await;
        daemon.call("DELETE", &format!("{end}&purge=true"), None).await;
        let mut under_way = 0;
        while slow.event().await.is_some() {
            under_way += 1;
        }
        assert!(under_way < EVENTS / 10, "{under_way} events were in memory for it");
    });
}
