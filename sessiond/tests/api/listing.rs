//! Which sessions a list shows, and in which pages.

use crate::client::Daemon;
use crate::run;
use serde_json::{Value, json};

async fn make(daemon: &Daemon, folder: &str, body: Value) -> String {
    let (_, project) = daemon.post("/projects", json!({ "folder": folder })).await;
    let path = format!("/projects/{}/sessions", project["slug"].as_str().unwrap());
    let (status, session) = daemon.post(&path, body).await;
    assert_eq!(status, 201, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

async fn end(daemon: &Daemon, session: &str) {
    daemon.call("DELETE", &format!("/sessions/{session}?confirm=true"), None).await;
}

fn names(page: &Value) -> Vec<&str> {
    let sessions = page["sessions"].as_array().unwrap().iter();
    sessions.map(|session| session["name"].as_str().unwrap()).collect()
}

#[test]
fn filters_leave_what_fits_all_of_them() {
    run(async {
        let daemon = Daemon::start().await;
        let blue = json!({ "team": "blue", "odd 'key\"": "%" });
        make(&daemon, "/w", json!({ "name": "a", "labels": blue, "source": "ci:github:build" }))
            .await;
        make(&daemon, "/w", json!({ "name": "b", "labels": { "team": "red" }, "source": "ci" }))
            .await;
        let c = make(&daemon, "/x/other", json!({ "name": "c", "source": "cid" })).await;
        end(&daemon, &c).await;
        for (query, want) in [
            ("", "a b c"),
            ("state=ended", "c"),
            ("state=ended&state=idle", "a b c"),
            ("state=running", ""),
            ("label=team", "a b"),
            ("label=team=blue", "a"),
            ("label=team&label=odd%20%27key%22=%25", "a"),
            ("label=team=blue&label=team=red", ""),
            ("label=team=", ""),
            ("project=w0", "a b"),
            ("project=other&state=ended", "c"),
            ("project=none", ""),
            ("source=ci", "a b"),
            ("source=ci:github", "a"),
            ("name=b", "b"),
            ("name=b&label=team=blue", ""),
        ] {
            let (status, page) = daemon.get(&format!("/sessions?{query}")).await;
            assert_eq!((status, &page["next"]), (200, &Value::Null), "{query}");
            let mut shown = names(&page);
            shown.sort_unstable();
            assert_eq!(shown.join(" "), want, "{query}");
        }
    });
}

#[test]
fn pages_hold_everything_once_in_one_order() {
    run(async {
        let daemon = Daemon::start().await;
        let mut sessions = Vec::new();
        for number in 10..22 {
            sessions.push(make(&daemon, "/w", json!({ "name": format!("n{number}") })).await);
        }
        for session in &sessions {
            end(&daemon, session).await;
        }
        let living = make(&daemon, "/w", json!({ "name": "z" })).await;
        for (query, limit, count) in
            [("all=false", 4, 11), ("all=true", 4, 13), ("all=true", 1, 13)]
        {
            let mut seen: Vec<String> = Vec::new();
            let mut after = String::new();
            loop {
                let path = format!("/sessions?{query}&limit={limit}{after}");
                let (status, page) = daemon.get(&path).await;
                assert_eq!(status, 200, "{page}");
                seen.extend(names(&page).into_iter().map(str::to_owned));
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={next}");
            }
            // Those of one millisecond stand in any order, but always in the same.
            let (_, whole) = daemon.get(&format!("/sessions?{query}")).await;
            assert_eq!(seen, names(&whole), "{query} {limit}");
            assert_eq!(
                (seen.len(), seen.last().unwrap().as_str()),
                (count, "z"),
                "{query} {limit}"
            );
        }
        // What a cursor stands on may go.
        let two = daemon.get("/sessions?limit=2&all=true").await.1;
        let one = daemon.get("/sessions?limit=1&all=true").await.1;
        let next = one["next"].as_str().unwrap();
        let purge = format!(
            "/sessions/{}?confirm=true&purge=true",
            one["sessions"][0]["id"].as_str().unwrap()
        );
        assert_eq!(daemon.call("DELETE", &purge, None).await.0, 204);
        let page = daemon.get(&format!("/sessions?limit=1&all=true&after={next}")).await.1;
        assert_eq!(page["sessions"][0], two["sessions"][1]);
        let page = daemon.get(&format!("/sessions?after={living}")).await.1;
        assert_eq!((names(&page).len(), &page["next"]), (0, &Value::Null));
    });
}

#[test]
fn a_wrong_value_is_refused_by_its_name() {
    run(async {
        let daemon = Daemon::start().await;
        for (query, words) in [
            (
                "state=bogus",
                "'state': it is idle, running, queued, paused, ended or failed, not 'bogus'",
            ),
            ("state=", "'state'"),
            ("all=yes", "'all': it is true or false, not 'yes'"),
            ("limit=0", "'limit': it is a number from 1 to 200, not '0'"),
            ("limit=201", "'limit'"),
            ("limit=x", "'limit'"),
            ("limit=-1", "'limit'"),
            ("label==x", "'label': it is KEY or KEY=VALUE, not '=x'"),
            ("after=zzz", "'after': it is what the page before said as 'next', not 'zzz'"),
            ("lable=x", "'lable': a list takes all, state, label,"),
            ("name=a&name=b", "'name': it stands there twice"),
        ] {
            let (status, answer) = daemon.get(&format!("/sessions?{query}")).await;
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!("validation_failed")),
                "{query}"
            );
            let told = answer["error"]["message"].as_str().unwrap();
            assert!(told.contains(words), "{query}: {told}");
        }
    });
}
