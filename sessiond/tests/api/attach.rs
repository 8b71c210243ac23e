use crate::client::Daemon;
use crate::fake::exit;
use crate::run;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{Read, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Cause;
use wire::api::{BASE, RESOLVED, Resolved, UPGRADE};
use wire::supervisor::SupervisorRequest;

const TAKE: &str = "%7B%22join%22%3A%22take%22%7D";

async fn ask(daemon: &Daemon, pty: &str, upgrade: &str) -> Response<Incoming> {
    get(daemon, &format!("{BASE}/ptys/{pty}/attach?options={TAKE}"), upgrade).await
}

async fn ask_any(daemon: &Daemon, id: &str, upgrade: &str) -> Response<Incoming> {
    get(daemon, &format!("{BASE}/attach?id={id}&options={TAKE}"), upgrade).await
}

async fn get(daemon: &Daemon, path: &str, upgrade: &str) -> Response<Incoming> {
    let request = Request::get(path)
        .header("host", "mews")
        .header("connection", "Upgrade")
        .header("upgrade", upgrade)
        .body(Full::<Bytes>::default())
        .unwrap();
    daemon.connect().await.send_request(request).await.unwrap()
}

async fn error(answer: Response<Incoming>) -> (u16, Value) {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[test]
fn the_viewers_own_stream_goes_down_and_no_daemon_is_in_its_path() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let answer = ask(&daemon, &started.pty.to_string(), UPGRADE).await;
        assert_eq!(answer.status(), 101);
        let upgraded = hyper::upgrade::on(answer).await.unwrap();
        let mut ours = upgraded.downcast::<TokioIo<tokio::net::UnixStream>>().unwrap().io;
        daemon.fake.until(|state| !state.viewers.is_empty()).await;
        let (mut theirs, read) = daemon.fake.state().viewers.remove(0);
        assert_eq!(read, b"");
        let asked = daemon.fake.state().requests.iter().any(|request| {
            matches!(request, SupervisorRequest::Attach { options, .. }
                if options.join == wire::Join::Take)
        });
        assert!(asked, "the options go down as they were given");
        // The daemon dies; the stream does not notice.
        let fake = daemon.fake.clone();
        drop(daemon);
        drop(fake);
        theirs.set_nonblocking(false).unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        ours.inner_mut().read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
        ours.inner_mut().write_all(b"keys!").await.unwrap();
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"keys!");
        // Nobody else holds the stream: when the broker closes it, the viewer sees the end.
        drop(theirs);
        assert_eq!(ours.inner_mut().read(&mut bytes).await.unwrap(), 0);
    });
}

#[test]
fn bytes_sent_with_the_request_go_down_with_the_stream() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let socket = daemon.folder.path().join("api.sock");
        let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
        let head = format!(
            "GET {BASE}/ptys/{}/attach HTTP/1.1\r\nhost: mews\r\nconnection: upgrade\r\n\
             upgrade: {UPGRADE}\r\n\r\nEARLY",
            started.pty
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        daemon.fake.until(|state| !state.viewers.is_empty()).await;
        assert_eq!(daemon.fake.state().viewers[0].1, b"EARLY");
    });
}

#[test]
fn any_id_attaches_and_the_answer_says_what_it_meant() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let session = started.session.to_string();
        for id in [started.pty.to_string(), session.clone(), session[20..].to_lowercase()] {
            let answer = ask_any(&daemon, &id, UPGRADE).await;
            assert_eq!(answer.status(), 101, "{id}");
            let said = answer.headers().get(RESOLVED).unwrap().as_bytes();
            let said: Resolved = serde_json::from_slice(said).unwrap();
            assert_eq!((said.session, said.cage), (started.session, Some(started.cage)));
            assert_eq!(said.pty, Some(started.pty));
        }
        daemon.fake.until(|state| state.viewers.len() == 3).await;
        assert_eq!(error(ask_any(&daemon, "nobody", UPGRADE).await).await.0, 404);
        assert_eq!(error(ask_any(&daemon, &session, "websocket").await).await.0, 400);
        daemon.fake.end(started.cage, &exit(Some(3), None, Cause::Exited));
        daemon.state(&session, "ended").await;
        let (status, told) = error(ask_any(&daemon, &session, UPGRADE).await).await;
        assert_eq!((status, &told["error"]["details"]["exit"]["code"]), (410, &json!(3)));
        assert!(told["error"]["details"]["name"].as_str().is_some_and(|name| !name.is_empty()));
    });
}

#[test]
fn what_cannot_be_attached_is_refused_before_the_101() {
    run(async {
        let daemon = Daemon::start().await;
        let started = daemon.started().await;
        let pty = started.pty.to_string();
        let unknown = wire::PtyId::new().to_string();
        assert_eq!(error(ask(&daemon, &unknown, UPGRADE).await).await.0, 404);
        assert_eq!(error(ask(&daemon, &pty, "websocket").await).await.0, 400);
        daemon.fake.stop();
        daemon.poll_until(|daemon| daemon.app.link.peek().is_none()).await;
        let (status, told) = error(ask(&daemon, &pty, UPGRADE).await).await;
        assert_eq!((status, &told["error"]["code"]), (503, &json!("supervisor_unavailable")));
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        daemon.fake.end(started.cage, &exit(Some(3), None, Cause::Exited));
        daemon.state(&started.session.to_string(), "ended").await;
        let (status, told) = error(ask(&daemon, &pty, UPGRADE).await).await;
        assert_eq!((status, &told["error"]["details"]["exit"]["code"]), (410, &json!(3)));
    });
}
