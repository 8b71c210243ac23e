//! sessiond and the broker, as far as a client sees them. Real HTTP, real frames, no cage.

use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::api::Resolved;
use wire::frame::{Decoder, Frame, Hello, Mode};
use wire::{CageId, Enforced, PtyId, Role, RunId, SessionId, Size, WallState};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Fake {
    folder: tempfile::TempDir,
    found: Resolved,
    /// That somebody listens there is all that a client looks for.
    _supervisor: link::Listener,
    viewers: Receiver<UnixStream>,
    asked: Receiver<String>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let listener = UnixListener::bind(run.join("api.sock")).unwrap();
        let supervisor = link::Listener::bind(&run.join("supervisor.sock"), 0o600).unwrap();
        let found = Resolved {
            session: SessionId::new(),
            name: "pi-1".into(),
            run: Some(RunId::new()),
            cage: Some(CageId::new()),
            pty: Some(PtyId::new()),
            paused: false,
        };
        let (viewer, viewers) = channel();
        let (ask, asked) = channel();
        let answers = found.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (found, viewer, ask) = (answers.clone(), viewer.clone(), ask.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &found, &viewer, &ask));
            }
        });
        Self { folder, found, _supervisor: supervisor, viewers, asked }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn session(&self) -> SessionId {
        self.found.session
    }

    /// The broker's end of the next viewer stream.
    pub(crate) fn viewer(&self) -> Stream {
        let stream = self.viewers.recv_timeout(PATIENCE).expect("nobody has attached");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Stream { stream, decoder: Decoder::default(), pty: self.found.pty.unwrap() }
    }

    /// The next request that changes something in a cage.
    pub(crate) fn asked(&self) -> String {
        self.asked.recv_timeout(PATIENCE).expect("nothing was asked for")
    }
}

pub(crate) struct Stream {
    stream: UnixStream,
    decoder: Decoder,
    pty: PtyId,
}

impl Stream {
    pub(crate) fn hello(&mut self, mode: Mode) {
        let hello = Hello {
            proto: wire::PROTO,
            pty: self.pty,
            mode,
            size: Size { cols: 80, rows: 24 },
            seq: 0,
            role: Role::Writer,
            others: Vec::new(),
            writer: None,
        };
        self.send(&Frame::Hello(hello));
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        self.raw(&frame.to_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut buffer = [0_u8; 16 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut buffer).expect("nothing came") {
                0 => return None,
                count => self.decoder.feed(&buffer[..count]),
            }
        }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        match self.next() {
            Some(Frame::Input(bytes)) => bytes,
            other => panic!("not input: {other:?}"),
        }
    }
}

fn serve(
    mut stream: UnixStream,
    found: &Resolved,
    viewer: &Sender<UnixStream>,
    ask: &Sender<String>,
) {
    while let Some((line, body)) = request(&mut stream) {
        let (method, path) = line.split_once(' ').unwrap();
        let path = path.split_once(['?', ' ']).map_or(path, |(path, _)| path);
        if path.ends_with("/attach") {
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                 upgrade: mews.v1.viewer\r\nmews-resolved: {}\r\n\r\n",
                json!(found)
            );
            stream.write_all(head.as_bytes()).unwrap();
            viewer.send(stream).unwrap();
            return;
        }
        let what = path.rsplit('/').next().unwrap();
        let answer = match (method, what) {
            ("GET", "resolve") => json!(found),
            ("POST", "projects") => json!({"slug": "p", "folder": "/p", "created_at_ms": 0}),
            ("POST", "sessions") => session(found),
            ("POST", "jobs") => started(found),
            ("POST", "wait") => json!({"exit": null}),
            ("POST", "signal") => {
                let body: wire::api::SignalRequest = serde_json::from_slice(&body).unwrap();
                assert_eq!(body.pty, found.pty);
                ask.send(format!("signal {}", body.signal)).unwrap();
                json!({})
            }
            ("POST", "kill") => {
                ask.send("kill".to_owned()).unwrap();
                json!({})
            }
            other => panic!("not expected: {other:?}"),
        };
        let body = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
}

/// The request line without its method's version, and the body.
fn request(stream: &mut UnixStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0_u8];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    Some((head.lines().next().unwrap().to_owned(), body))
}

fn session(found: &Resolved) -> serde_json::Value {
    json!({
        "id": found.session, "name": found.name, "project": "p", "folder": "/p",
        "state": "idle", "archived": false, "labels": {}, "source": "cli:run",
        "end_on_exit": true, "uid": 0, "created_at_ms": 0, "ended_at_ms": null, "seq": 1,
        "runs": [], "cages": [],
    })
}

fn started(found: &Resolved) -> serde_json::Value {
    let mut enforced = Enforced::default();
    enforced.push("landlock", WallState::Enforced, "Landlock ABI 7");
    json!({
        "session": found.session, "name": found.name, "run": found.run, "cage": found.cage,
        "pty": found.pty, "enforced": enforced,
    })
}
