//! The real supervisor, broker, bwrap and cage-init, driven as the CLI drives a one-shot.
//!
//! Needs mews-ptybroker and mews-cage-init beside mews-supervisor (`cargo xtask build`) and bwrap;
//! without them each test says so and passes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects by failing"
)]

use link::{Packets, memfd};
use serde_json::{Value, json};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use wire::control::{Hello, Message};
use wire::supervisor::{CageState, Phase, Spawned, SupervisorNotice, SupervisorRequest};
use wire::{
    Arg, CageId, Cause, Event, EventBody, ExecSpec, Exit, Overrides, PolicySource, PtyId, RunId,
    ScrollbackForm, SessionId, Source, SpawnSpec, WireError,
};

/// A supervisor and the CLI's side of its link.
struct Caller {
    child: Child,
    link: Option<Packets>,
    authority: (UnixStream, UnixStream),
    next_id: u64,
    events: Vec<Event>,
    base: tempfile::TempDir,
}

type Answer = Result<(Value, Vec<OwnedFd>), WireError>;

impl Caller {
    fn start() -> Option<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_mews-supervisor"));
        let folder = program.parent().unwrap();
        let needed = ["mews-ptybroker", "mews-layer", "mews-cage-init", "/usr/bin/bwrap"];
        // An absolute path stays as it is.
        let needed = needed.map(|name| folder.join(name));
        if let Some(missing) = needed.iter().find(|path| !path.exists()) {
            eprintln!("skipped: {} is not there (cargo xtask build)", missing.display());
            return None;
        }
        let base = tempfile::Builder::new().prefix("mews-sup-").tempdir().unwrap();
        let (child, link) = launch(&base);
        let caller = Self {
            child,
            link: Some(link),
            authority: UnixStream::pair().unwrap(),
            next_id: 1,
            events: Vec::new(),
            base,
        };
        caller.greet();
        Some(caller)
    }

    /// Another supervisor in the same folders.
    fn restart(&mut self) {
        let (child, link) = launch(&self.base);
        (self.child, self.link) = (child, Some(link));
        self.greet();
    }

    fn greet(&self) {
        self.send(&Message::Hello(Hello::ours()), &[]);
        assert!(matches!(self.receive(), Some((Message::Hello(_), _))));
    }
    fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        self.link.as_ref().unwrap().send(&message.to_bytes(), fds).unwrap();
    }

    fn receive(&self) -> Option<(Message, Vec<OwnedFd>)> {
        let packet = self.link.as_ref().unwrap().recv().unwrap()?;
        Some((Message::parse(&packet.bytes).unwrap(), packet.fds))
    }

    /// As the operator: the authority goes first.
    fn ask(&mut self, request: &SupervisorRequest, fds: &[BorrowedFd<'_>]) -> Answer {
        let authority = self.authority.0.try_clone().unwrap();
        let mut all = vec![authority.as_fd()];
        all.extend_from_slice(fds);
        self.ask_bare(request, &all)
    }

    fn ask_bare(&mut self, request: &SupervisorRequest, fds: &[BorrowedFd<'_>]) -> Answer {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&Message::request(id, request).unwrap(), fds);
        loop {
            let (message, fds) = self.receive().expect("the link ended");
            match message {
                Message::Answer(answer) => {
                    assert_eq!(answer.id, id);
                    return Result::from(answer.result).map(|value| (value, fds));
                }
                other => self.note(other),
            }
        }
    }

    fn note(&mut self, message: Message) {
        let Message::Notify(body) = message else { panic!("{message:?}") };
        match wire::control::typed(body).unwrap() {
            SupervisorNotice::Event { event } => self.events.push(event),
            SupervisorNotice::Audit { .. } | SupervisorNotice::Rules => {}
        }
    }

    /// Until an event of this type has come.
    fn wait_for(&mut self, kind: &str) -> Event {
        loop {
            if let Some(event) = self.events.iter().find(|event| event.kind == kind) {
                return event.clone();
            }
            let (message, _fds) = self.receive().expect("the link ended");
            self.note(message);
        }
    }

    fn exit(&mut self) -> Exit {
        match self.wait_for("cage.exited").body() {
            Some(EventBody::CageExited { exit }) => exit,
            other => panic!("{other:?}"),
        }
    }

    fn spawn(&mut self, script: &str) -> (SpawnSpec, Result<Spawned, WireError>) {
        let spec = self.spec(script);
        let answer = self.spawn_spec(&spec);
        (spec, answer)
    }

    fn spawn_spec(&mut self, spec: &SpawnSpec) -> Result<Spawned, WireError> {
        let file = memfd::sealed("spec", &serde_json::to_vec(spec).unwrap()).unwrap();
        self.ask(&SupervisorRequest::Spawn { cage: spec.cage, grant: None }, &[file.as_fd()])
            .map(|(value, _fds)| serde_json::from_value(value).unwrap())
    }

    fn spec(&self, script: &str) -> SpawnSpec {
        let workspace = self.base.path().join("ws");
        std::fs::create_dir_all(&workspace).unwrap();
        SpawnSpec {
            session: SessionId::new(),
            run: RunId::new(),
            cage: CageId::new(),
            pty: PtyId::new(),
            name: "sh-1".to_owned(),
            policy: PolicySource::Name("shell".to_owned()),
            overrides: Overrides::default(),
            workspace: Arg::from(workspace.as_os_str()),
            exec: ExecSpec {
                argv: ["sh", "-c", script].map(Arg::from).to_vec(),
                env: Vec::new(),
                cwd: Some(Arg::from(workspace.as_os_str())),
                umask: None,
                tty: None,
                hold: false,
                stdin: false,
            },
        }
    }

    fn list(&mut self) -> Vec<CageState> {
        let (_null, fds) = self.ask_bare(&SupervisorRequest::List, &[]).unwrap();
        serde_json::from_slice(&read(fds)).unwrap()
    }

    /// The link ends; the supervisor ends by itself and leaves nothing.
    fn finish(mut self) {
        self.link.take();
        assert!(self.child.wait().unwrap().success());
        for folder in ["run", "state"] {
            let left: Vec<_> = std::fs::read_dir(self.base.path().join(folder))
                .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
                .unwrap_or_default();
            assert_eq!(left, Vec::<std::path::PathBuf>::new());
        }
        let name = self.base.path().file_name().unwrap();
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten() {
            let group = hierarchy.unwrap().path().join(name);
            assert!(!group.exists(), "{}", group.display());
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.link.take();
        self.child.wait().ok();
    }
}

fn launch(base: &tempfile::TempDir) -> (Child, Packets) {
    let (ours, theirs) = Packets::pair().unwrap();
    let name = base.path().file_name().unwrap().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mews-supervisor"));
    command
        .arg("--one-shot")
        .env("MEWS_RUN_DIR", base.path().join("run"))
        .env("MEWS_STATE_DIR", base.path().join("state"))
        .env("MEWS_CONFIG_DIR", base.path().join("config"))
        .env("MEWS_CGROUP_PARENT", format!("/{name}"));
    hand_over(&mut command, theirs.into());
    (command.spawn().unwrap(), ours)
}

fn read(fds: Vec<OwnedFd>) -> Vec<u8> {
    memfd::read(fds.into_iter().next().expect("a descriptor"), 64 << 20).unwrap()
}

/// `fd` becomes descriptor 3 of the program: a shell does what would be unsafe here.
fn hand_over(command: &mut Command, fd: OwnedFd) {
    let program = command.get_program().to_owned();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 3<&0 </dev/null"]).arg(&program).args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.stdin(Stdio::from(fd)).process_group(0);
    *command = shell;
}

#[test]
fn a_payload_runs_and_its_status_comes_back() {
    let Some(mut caller) = Caller::start() else { return };
    let (spec, spawned) = caller.spawn("echo out; id -u; exit 7");
    let spawned = spawned.unwrap();
    assert_eq!(spawned.cage, spec.cage);
    assert!(!spawned.enforced.walls.is_empty());
    let exit = caller.exit();
    assert_eq!((exit.code, exit.signal, exit.cause), (Some(7), None, Cause::Exited));
    caller.wait_for("cage.gone");
    for source in [Source::Broker, Source::Supervisor] {
        let seqs: Vec<u64> =
            caller.events.iter().filter(|e| e.source == source).map(|e| e.seq).collect();
        assert_eq!(seqs, (1..).take(seqs.len()).collect::<Vec<u64>>(), "{source:?}");
    }
    let own: Vec<&str> = caller
        .events
        .iter()
        .filter(|event| event.source == Source::Supervisor)
        .map(|event| event.kind.as_str())
        .collect();
    assert_eq!(own, ["cage.planned", "cage.attested", "cage.started", "cage.stats", "cage.gone"]);
    let states = caller.list();
    assert_eq!(states.len(), 1);
    assert_eq!((states[0].phase, states[0].exit.as_ref().unwrap().code), (Phase::Gone, Some(7)));
    let request =
        SupervisorRequest::Scrollback { cage: spec.cage, pty: spec.pty, form: ScrollbackForm::Raw };
    let (_null, fds) = caller.ask(&request, &[]).unwrap();
    let text = String::from_utf8(read(fds)).unwrap();
    assert!(text.starts_with("out\n") && text != "out\n0\n", "{text:?}");
    let (_null, fds) = caller.ask(&SupervisorRequest::Plan { cage: spec.cage }, &[]).unwrap();
    let plan: Value = serde_json::from_slice(&read(fds)).unwrap();
    assert_eq!(plan["policy"], "shell");
    caller.ask_bare(&SupervisorRequest::Forget { cage: spec.cage }, &[]).unwrap();
    assert!(caller.list().is_empty());
    caller.finish();
}

#[test]
fn kill_answers_when_nothing_is_left() {
    let Some(mut caller) = Caller::start() else { return };
    let (spec, spawned) = caller.spawn("trap '' TERM; sleep 1000 & sleep 1000 & wait");
    spawned.unwrap();
    let request = SupervisorRequest::Kill { cage: spec.cage, cause: Cause::Cancelled };
    caller.ask(&request, &[]).unwrap();
    assert_eq!(caller.list()[0].phase, Phase::Gone);
    let exit = caller.exit();
    assert_eq!((exit.signal, exit.cause), (Some(9), Cause::Cancelled));
    // Again: it is gone, which is what was asked for.
    caller.ask(&request, &[]).unwrap();
    caller.finish();
}

#[test]
fn the_end_of_the_caller_is_the_end_of_its_cages() {
    let Some(mut caller) = Caller::start() else { return };
    caller.spawn("sleep 1000").1.unwrap();
    caller.finish();
}

#[test]
fn the_next_one_shot_ends_what_a_killed_one_left() {
    let Some(mut caller) = Caller::start() else { return };
    caller.spawn("sleep 1000").1.unwrap();
    let pid = caller.list()[0].pid.unwrap();
    let init = link::PidFd::open(pid).unwrap();
    caller.child.kill().unwrap();
    caller.child.wait().unwrap();
    assert!(init.is_alive(), "a cage lives on without its supervisor");
    caller.restart();
    caller.list();
    assert!(!init.is_alive());
    caller.finish();
}

#[test]
fn files_written_in_the_workspace_belong_to_its_owner() {
    use std::os::unix::fs::MetadataExt;
    let Some(mut caller) = Caller::start() else { return };
    let (spec, spawned) = caller.spawn("echo x > made");
    spawned.unwrap();
    assert_eq!(caller.exit().code, Some(0));
    let workspace = Path::new(spec.workspace.as_os_str()).to_owned();
    let made = std::fs::metadata(workspace.join("made")).unwrap();
    assert_eq!(made.uid(), std::fs::metadata(&workspace).unwrap().uid());
    caller.finish();
}

#[test]
fn a_policy_that_is_wrong_starts_nothing() {
    let Some(mut caller) = Caller::start() else { return };
    let mut spec = caller.spec("true");
    spec.policy = PolicySource::Name("nothing-of-this-name".to_owned());
    assert!(caller.spawn_spec(&spec).is_err());
    assert!(caller.list().is_empty());
    // The id was not used up.
    spec.policy = PolicySource::Name("shell".to_owned());
    caller.spawn_spec(&spec).unwrap();
    let again = caller.spawn_spec(&spec).unwrap_err();
    assert_eq!(again.code, wire::ErrorCode::Conflict);
    caller.finish();
}

#[test]
fn requests_without_an_operator_are_refused_and_unknown_ones_end_the_link() {
    let Some(mut caller) = Caller::start() else { return };
    let request = SupervisorRequest::Plan { cage: CageId::new() };
    assert_eq!(caller.ask_bare(&request, &[]).unwrap_err().code, wire::ErrorCode::Forbidden);
    assert_eq!(caller.ask(&request, &[]).unwrap_err().code, wire::ErrorCode::NotFound);
    let pipe = std::io::pipe().unwrap().0;
    let answer = caller.ask_bare(&request, &[pipe.as_fd()]);
    assert_eq!(answer.unwrap_err().code, wire::ErrorCode::Forbidden);
    let outside = Message::request(99, &json!({ "verb": "become_root" })).unwrap();
    caller.send(&outside, &[]);
    assert!(caller.receive().is_none());
    caller.link.take();
    // Its caller broke the rules: the supervisor says so in its status.
    assert!(!caller.child.wait().unwrap().success());
}
