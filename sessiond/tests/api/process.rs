//! The real program: started with an inherited listener, killed without warning.

use crate::client::{connect, job_body, raw};
use crate::fake::Fake;
use crate::run;
use serde_json::{Value, json};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use wire::{EventBody, Source};

/// An ordinary uid for when the tests run as root, which the daemon refuses to be.
const ORDINARY: u32 = 65_534;

struct Place {
    folder: tempfile::TempDir,
    listener: OwnedFd,
}

impl Place {
    fn new() -> Self {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::Builder::new().prefix("mews-sessiond-").tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("api.sock")).unwrap();
        // The build folder may lie where the ordinary uid cannot go.
        let program = folder.path().join("mews-sessiond");
        // By another process: a descriptor for writing that a fork of this one inherits for a
        // moment would make the copy unexecutable (ETXTBSY).
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_mews-sessiond")).arg(program);
        assert!(copy.status().unwrap().success());
        if is_root() {
            chown(folder.path(), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        Self { folder, listener: listener.into() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self) -> Command {
        // A descriptor is inherited under its own number; the shell puts ours on 3.
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg("exec 3<&0 4<>\"$0.lock\" </dev/null; exec \"$0\" --listen-fd 3 --lock-fd 4")
            .arg(self.path().join("mews-sessiond"))
            .stdin(Stdio::from(self.listener.try_clone().unwrap()))
            .env_clear()
            .env("MEWS_RUN_DIR", self.path())
            .env("MEWS_STATE_DIR", self.path().join("state"));
        command
    }

    fn start(&self) -> Started {
        let mut command = self.command();
        if is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        Started(command.spawn().unwrap())
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut client = connect(&self.path().join("api.sock")).await;
        let body = Some(body.to_string().into());
        let (status, bytes) = raw(&mut client, method, path, body).await;
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn ready(&self) {
        while self.call("GET", "/readyz", Value::Null).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// SIGKILL when it goes out of sight, also where an assertion fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn killed_while_events_come_in_it_loses_none_and_has_none_twice() {
    run(async {
        let place = Place::new();
        let fake = Fake::new();
        fake.start(&place.path().join("supervisor.sock"));
        let mut child = place.start();
        place.ready().await;
        let (_, project) = place.call("POST", "/projects", json!({ "folder": "/w" })).await;
        let path = format!("/projects/{}/sessions", project["slug"].as_str().unwrap());
        let (_, session) = place.call("POST", &path, json!({ "name": "s" })).await;
        let session = session["id"].as_str().unwrap().to_owned();
        let path = format!("/sessions/{session}/jobs");
        let (status, started) = place.call("POST", &path, job_body()).await;
        assert_eq!(status, 201, "{started}");
        let cage = started["cage"].as_str().unwrap().parse().unwrap();
        let pty = started["pty"].as_str().unwrap().parse().unwrap();
        for round in 0..5_u64 {
            for number in 0..500_u64 {
                let body = EventBody::PtyIdle { pty, idle_ms: round * 500 + number };
                fake.tell(cage, Source::Broker, &body);
            }
            let left = usize::try_from(100 * round).unwrap();
            fake.until(|state| state.unacked.values().map(Vec::len).sum::<usize>() <= left).await;
            drop(child);
            child = place.start();
        }
        fake.until(|state| state.unacked.values().all(Vec::is_empty)).await;
        place.ready().await;
        let path = format!("/sessions/{session}/events?limit=10000");
        let (_, told) = place.call("GET", &path, Value::Null).await;
        let events = told["events"].as_array().unwrap();
        let seqs: Vec<i64> = events.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        assert_eq!(seqs, (1..).take(seqs.len()).collect::<Vec<i64>>());
        let idles: Vec<u64> =
            events.iter().filter_map(|event| event["data"]["idle_ms"].as_u64()).collect();
        assert_eq!(idles, (0..2500).collect::<Vec<u64>>());
    });
}

#[test]
fn told_to_end_it_answers_what_was_asked_and_ends() {
    run(async {
        let place = Place::new();
        let fake = Fake::new();
        fake.start(&place.path().join("supervisor.sock"));
        let mut child = place.start();
        place.ready().await;
        place.call("POST", "/projects", json!({ "folder": "/w" })).await;
        let path = "/projects/w0/sessions";
        let (_, session) = place.call("POST", path, json!({ "name": "s" })).await;
        let path =
            format!("/sessions/{}/events?after=1&wait_ms=300", session["id"].as_str().unwrap());
        let mut idle = connect(&place.path().join("api.sock")).await;
        assert_eq!(raw(&mut idle, "GET", "/healthz", None).await.0, 200);
        let asked = place.call("GET", &path, Value::Null);
        let told = async {
            // Let the request go out first; both are on this thread.
            raw(&mut idle, "GET", "/healthz", None).await;
            link::PidFd::open(child.0.id().try_into().unwrap()).unwrap().signal(15).unwrap();
        };
        let ((status, events), ()) = tokio::join!(asked, told);
        assert_eq!((status, &events["events"]), (200, &json!([])));
        let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
        assert!(ended.success());
    });
}

/// What systemd does to the listener of a living sessiond, when it starts a new supervisor.
#[test]
fn a_listener_that_is_made_to_block_stops_nobody() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    run(async {
        let place = Place::new();
        let fake = Fake::new();
        fake.start(&place.path().join("supervisor.sock"));
        let _child = place.start();
        place.ready().await;
        let flags = OFlag::from_bits_retain(fcntl(&place.listener, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
        let blocking = FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK);
        fcntl(&place.listener, blocking).unwrap();
        for _ in 0..3 {
            assert_eq!(place.call("GET", "/healthz", Value::Null).await.0, 200);
        }
    });
}

#[test]
fn root_is_refused_and_so_are_strange_arguments() {
    let place = Place::new();
    if is_root() {
        let output = place.command().output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("does not run as root"));
    }
    let program = place.path().join("mews-sessiond");
    let none = place.listener.as_raw_fd().to_string();
    for arguments in [vec![], vec!["--listen-fd"], vec!["--listen-fd", "99"], vec!["--x", &none]] {
        let output = Command::new(&program).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
