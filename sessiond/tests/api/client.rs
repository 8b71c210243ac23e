//! A daemon in the test's own process, and a client on its socket.

use crate::fake::Fake;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sessiond::access::Admission;
use sessiond::app::App;
use sessiond::keeper::Keeper;
use sessiond::store::Store;
use sessiond::supervisor_link::SupervisorLink;
use sessiond::{api, epoch, serve};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::api::Started;

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fake: Fake,
    pub(crate) app: Arc<App>,
    tasks: Vec<JoinHandle<()>>,
    /// Never told: these daemons die.
    _stop: watch::Sender<bool>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Daemon {
    /// With a supervisor that is there.
    pub(crate) async fn start() -> Self {
        let daemon = Self::without_supervisor().await;
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        daemon
    }

    pub(crate) async fn without_supervisor() -> Self {
        Self::on(tempfile::tempdir().unwrap(), Fake::new()).await
    }

    /// Of many operators, as root starts it.
    pub(crate) async fn of_many() -> Self {
        let daemon = Self::of(tempfile::tempdir().unwrap(), Fake::new(), Admission::Asked).await;
        daemon.fake.start(&daemon.supervisor_socket());
        daemon.ready().await;
        daemon
    }

    async fn on(folder: tempfile::TempDir, fake: Fake) -> Self {
        Self::of(folder, fake, Admission::Everyone).await
    }

    async fn of(folder: tempfile::TempDir, fake: Fake, admission: Admission) -> Self {
        let store = Store::open(&folder.path().join("mews.db")).unwrap();
        let epoch = store.write(epoch::next).await.unwrap();
        let (current, link) = watch::channel(None);
        let app = Arc::new(App::new(store, SupervisorLink::new(link), epoch, admission));
        let api = folder.path().join("api.sock");
        drop(std::fs::remove_file(&api));
        let listener = std::os::unix::net::UnixListener::bind(&api).unwrap();
        listener.set_nonblocking(true).unwrap();
        let kept = OwnedFd::from(listener.try_clone().unwrap());
        let socket = folder.path().join("supervisor.sock");
        let keeper = Keeper { app: Arc::clone(&app), socket, listener: kept, current };
        let listener = UnixListener::from_std(listener).unwrap();
        let router = api::router(Arc::clone(&app));
        let (stop, stopped) = watch::channel(false);
        let served = serve::serve(listener, router, Arc::clone(&app), stopped);
        let tasks = vec![tokio::spawn(keeper.run()), tokio::spawn(served)];
        Self { folder, fake, app, tasks, _stop: stop }
    }

    /// Dies and comes back on the same database.
    pub(crate) async fn restart(mut self) -> Self {
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let fake = self.fake.clone();
        drop(self);
        Self::on(folder, fake).await
    }

    pub(crate) fn supervisor_socket(&self) -> PathBuf {
        self.folder.path().join("supervisor.sock")
    }

    /// Waits until the link is up and reconciled.
    pub(crate) async fn ready(&self) {
        self.poll_until(|daemon| daemon.app.link.peek().is_some()).await;
    }

    pub(crate) async fn poll_until(&self, is_so: impl Fn(&Self) -> bool) {
        // What is waited for has no event in this process' reach; the test's timeout bounds it.
        while !is_so(self) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        connect(&self.folder.path().join("api.sock")).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, Some(body.to_string().into())).await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Bytes>) -> (u16, Value) {
        let (status, bytes) = self.raw(method, path, body).await;
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (status, value)
    }

    pub(crate) async fn raw(&self, method: &str, path: &str, body: Option<Bytes>) -> (u16, Bytes) {
        raw(&mut self.connect().await, method, path, body).await
    }

    /// Server-sent events; the status where they are refused.
    pub(crate) async fn follow(&self, path: &str, last: Option<&str>) -> Result<Blocks, u16> {
        let mut request = hyper::Request::get(format!("{}{path}", wire::api::BASE));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.header("host", "mews").body(Full::default()).unwrap();
        let answer = self.connect().await.send_request(request).await.unwrap();
        if answer.status() != 200 {
            return Err(answer.status().as_u16());
        }
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let mut blocks = Blocks { body: answer.into_body(), read: String::new() };
        assert_eq!(blocks.next().await.as_deref(), Some("retry: 1000"));
        Ok(blocks)
    }

    /// A session in the project of `/w`, which ends with its first run.
    pub(crate) async fn session(&self, name_hint: &str) -> String {
        let (status, project) = self.post("/projects", json!({ "folder": "/w" })).await;
        assert_eq!(status, 200, "{project}");
        let body = json!({ "name_hint": name_hint, "end_on_exit": true, "source": "cli:run" });
        let path = format!("/projects/{}/sessions", project["slug"].as_str().unwrap());
        let (status, session) = self.post(&path, body).await;
        assert_eq!(status, 201, "{session}");
        session["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, session: &str) -> (u16, Value) {
        self.post(&format!("/sessions/{session}/jobs"), job_body()).await
    }

    pub(crate) async fn started(&self) -> Started {
        let session = self.session("bash").await;
        let (status, started) = self.job(&session).await;
        assert_eq!(status, 201, "{started}");
        serde_json::from_value(started).unwrap()
    }

    pub(crate) async fn kinds(&self, session: &str) -> Vec<String> {
        let (status, events) = self.get(&format!("/sessions/{session}/events")).await;
        assert_eq!(status, 200, "{events}");
        let events = events["events"].as_array().unwrap().clone();
        for (index, event) in (1..).zip(&events) {
            assert_eq!(event["seq"], json!(index), "no holes: {events:?}");
        }
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the session has come to this state.
    pub(crate) async fn state(&self, session: &str, want: &str) -> Value {
        loop {
            let seq = self.get(&format!("/sessions/{session}")).await.1;
            if seq["state"] == want {
                return seq;
            }
            let after = seq["seq"].as_i64().unwrap();
            let path = format!("/sessions/{session}/events?after={after}&wait_ms=1000");
            self.get(&path).await;
        }
    }
}

/// What a client of server-sent events reads.
#[derive(Debug)]
pub(crate) struct Blocks {
    body: hyper::body::Incoming,
    read: String,
}

impl Blocks {
    /// What stands before the next empty line; `None`: it has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.read.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.read = rest;
                return Some(block);
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.push_str(std::str::from_utf8(&frame.into_data().ok()?).unwrap());
        }
    }

    /// The next event, whose id is its sequence.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        let block = self.next().await?;
        let (id, data) = block.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(id, format!("id: {}", event["seq"]));
        Some(event)
    }
}

pub(crate) fn job_body() -> Value {
    json!({
        "kind": "job",
        "policy": { "name": "shell" },
        "exec": { "argv": ["bash", "-c", "true"], "tty": { "cols": 80, "rows": 24 } },
    })
}

pub(crate) async fn connect(socket: &std::path::Path) -> http1::SendRequest<Full<Bytes>> {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub(crate) async fn raw(
    client: &mut http1::SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    body: Option<Bytes>,
) -> (u16, Bytes) {
    let request = hyper::Request::builder()
        .method(method)
        .uri(format!("{}{path}", wire::api::BASE))
        .header("host", "mews")
        .body(Full::new(body.unwrap_or_default()))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes())
}
