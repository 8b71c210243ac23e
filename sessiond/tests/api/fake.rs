//! The supervisor's side of the link, for tests: speaks the real protocol, cages nothing.

use link::nonblocking::AsyncPackets;
use link::{Listener, Packet, Peer, memfd};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use wire::control::{self, Hello, Message};
use wire::limits::LimitsView;
use wire::screen::ScreenView;
use wire::stats::Stats;
use wire::supervisor::{
    CageState, LayerAnswer, LayerRequest, LayerState, Minted, Phase, PtyState, Spawned,
    SupervisorNotice, SupervisorRequest,
};
use wire::{
    CageCheckpoint, CageId, Cause, Changes, Enforced, ErrorCode, Event, EventBody, Exit, GrantId,
    GrantKey, GrantState, PtyId, SavedLayer, ScrollbackForm, SessionId, Source, SpawnSpec,
    Suspension, Usage, WallState, WireError, WorkspaceMode,
};

/// What it does with the next spawns.
#[derive(Clone, Debug)]
pub(crate) enum OnSpawn {
    Run,
    Refuse(WireError),
    /// It ends before the supervisor tells that it began.
    RunAndEnd(Exit),
    /// The cage lives, and the link breaks before the answer.
    RunAndBreak,
    /// Nothing lives, and the link breaks before the answer.
    Break,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) on_spawn: OnSpawn,
    /// Whether who asks is an admin, or why they are not let in.
    pub(crate) admit: Result<bool, WireError>,
    pub(crate) cages: HashMap<CageId, CageState>,
    pub(crate) unacked: BTreeMap<(CageId, Source), Vec<Event>>,
    pub(crate) requests: Vec<SupervisorRequest>,
    pub(crate) specs: Vec<SpawnSpec>,
    /// Viewers that were handed down, with what had been read of them.
    pub(crate) viewers: Vec<(UnixStream, Vec<u8>)>,
    pub(crate) authorities: Vec<u32>,
    /// What it keeps.
    pub(crate) layers: Vec<LayerState>,
    sequences: HashMap<(CageId, Source), u64>,
    out: Option<mpsc::UnboundedSender<(Message, Vec<OwnedFd>)>>,
}

/// A fake that serves until it is dropped; state outlives the links, as the real one's does.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    serving: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let state = State {
            on_spawn: OnSpawn::Run,
            admit: Ok(false),
            cages: HashMap::new(),
            unacked: BTreeMap::new(),
            requests: Vec::new(),
            specs: Vec::new(),
            viewers: Vec::new(),
            authorities: Vec::new(),
            layers: Vec::new(),
            sequences: HashMap::new(),
            out: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(watch::channel(0).0),
            serving: Arc::new(Mutex::new(None)),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Listens, in place of an earlier life if there was one.
    pub(crate) fn start(&self, socket: &Path) {
        self.stop();
        let listener = Listener::bind(socket, 0o666).unwrap();
        fcntl(&listener, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let listener = link::nonblocking::watch_input(listener.into()).unwrap();
        let fake = self.clone();
        let task = tokio::spawn(async move {
            loop {
                let mut ready = listener.readable().await.unwrap();
                let accepting = Listener::from_fd(listener.get_ref().try_clone().unwrap());
                let Ok(Ok(accepted)) = ready.try_io(|_socket| accepting.accept()) else { continue };
                // One link at a time, as the real one has.
                fake.clone().link(AsyncPackets::new(accepted).unwrap()).await;
                fake.state().out = None;
            }
        });
        *self.serving.lock().unwrap() = Some(task);
    }

    /// Dies: link and socket are gone, cages live on.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.serving.lock().unwrap().take() {
            task.abort();
        }
        self.state().out = None;
    }

    async fn link(self, packets: AsyncPackets) {
        let packets = Arc::new(packets);
        packets.send(&Message::Hello(Hello::ours()).to_bytes(), &[]).await.unwrap();
        let Ok(Some(hello)) = packets.recv().await else { return };
        assert!(matches!(Message::parse(&hello.bytes), Ok(Message::Hello(_))));
        assert_eq!(hello.fds.len(), 1, "the listener's duplicate comes with the hello");
        let (out, mut queue) = mpsc::unbounded_channel::<(Message, Vec<OwnedFd>)>();
        let resent: Vec<Event> = {
            let mut state = self.state();
            state.out = Some(out.clone());
            state.unacked.values().flatten().cloned().collect()
        };
        for event in resent {
            let notice = SupervisorNotice::Event { event };
            out.send((Message::notify(&notice).unwrap(), Vec::new())).unwrap();
        }
        loop {
            tokio::select! {
                next = queue.recv() => {
                    let Some((message, fds)) = next else { return };
                    let borrowed: Vec<_> = fds.iter().map(std::os::fd::AsFd::as_fd).collect();
                    if packets.send(&message.to_bytes(), &borrowed).await.is_err() {
                        return;
                    }
                }
                packet = packets.recv() => {
                    let Ok(Some(packet)) = packet else { return };
                    let Some(answer) = self.handle(packet) else { return };
                    out.send(answer).unwrap();
                }
            }
        }
    }

    /// `None`: the link breaks here.
    fn handle(&self, packet: Packet) -> Option<(Message, Vec<OwnedFd>)> {
        let Message::Request(request) = Message::parse(&packet.bytes).unwrap() else {
            panic!("only requests come down")
        };
        let verb: SupervisorRequest = control::typed(request.body).unwrap();
        self.state().requests.push(verb.clone());
        let answer = self.answer(verb, packet.fds);
        self.changed.send_modify(|count| *count += 1);
        let (result, fds) = match answer? {
            Ok((value, fds)) => (Ok(value), fds),
            Err(error) => (Err(error), Vec::new()),
        };
        Some((Message::answer(request.id, result), fds))
    }

    fn spawn(
        &self,
        cage: CageId,
        mut fds: impl Iterator<Item = OwnedFd>,
    ) -> Option<Result<(Value, Vec<OwnedFd>), WireError>> {
        let (authority, spec) = (fds.next().unwrap(), fds.next().unwrap());
        let spec: SpawnSpec = serde_json::from_slice(&memfd::read(spec, 1 << 24).unwrap()).unwrap();
        assert_eq!(spec.cage, cage);
        let mut state = self.state();
        state.authorities.push(Peer::of(&authority).unwrap().uid);
        state.specs.push(spec.clone());
        let on_spawn = state.on_spawn.clone();
        drop(state);
        Some(match on_spawn {
            OnSpawn::Run => Ok((json!(self.run(&spec, None)), Vec::new())),
            OnSpawn::RunAndEnd(exit) => Ok((json!(self.run(&spec, Some(&exit))), Vec::new())),
            OnSpawn::Refuse(error) => Err(error),
            OnSpawn::RunAndBreak => {
                self.run(&spec, None);
                return None;
            }
            OnSpawn::Break => return None,
        })
    }

    fn answer(
        &self,
        verb: SupervisorRequest,
        fds: Vec<OwnedFd>,
    ) -> Option<Result<(Value, Vec<OwnedFd>), WireError>> {
        let mut fds = fds.into_iter();
        let plain = Ok((Value::Null, Vec::new()));
        Some(match verb {
            SupervisorRequest::Spawn { cage, .. } => return self.spawn(cage, fds),
            SupervisorRequest::Exec { cage, pty } => {
                self.start_pty(cage, pty, &["exec".to_owned()]);
                plain
            }
            SupervisorRequest::Attach { .. } => {
                let (_authority, viewer) = (fds.next().unwrap(), fds.next().unwrap());
                let read = memfd::read(fds.next().unwrap(), 1 << 20).unwrap();
                self.state().viewers.push((viewer.into(), read));
                plain
            }
            SupervisorRequest::Suspend { cage } => {
                assert_eq!(fds.len(), 1, "an authority comes with it");
                let suspension = Suspension::new("fake", Vec::new());
                self.set_phase(cage, Phase::Suspended);
                let told = EventBody::CageSuspended(suspension.clone());
                self.tell(cage, Source::Supervisor, &told);
                Ok((json!(suspension), Vec::new()))
            }
            SupervisorRequest::Resume { cage } => {
                assert_eq!(fds.len(), 1, "an authority comes with it");
                self.set_phase(cage, Phase::Running);
                let told = EventBody::CageResumed { suspended_ms: 5 };
                self.tell(cage, Source::Supervisor, &told);
                plain
            }
            SupervisorRequest::Checkpoint { cage, .. } => self.checkpoint(cage),
            SupervisorRequest::Layer { .. } => layer(fds.nth(1).unwrap()),
            SupervisorRequest::Audit { .. } => empty(&json!({ "lines": [] })),
            SupervisorRequest::Grants => empty(&json!([])),
            SupervisorRequest::Mint { grant, cages, .. } => {
                assert_eq!(fds.len(), 2, "an authority and what is started by it");
                minted(grant, cages)
            }
            SupervisorRequest::Grant { .. } | SupervisorRequest::Revoke { .. } => none(),
            SupervisorRequest::Layers => Ok((Value::Null, vec![document(&self.state().layers)])),
            SupervisorRequest::ForgetLayer { .. } | SupervisorRequest::ForgetGrant { .. } => plain,
            SupervisorRequest::Stats { .. } => {
                assert_eq!(fds.len(), 1, "an authority comes with it");
                Ok((json!(Stats { ran_ms: Some(7), ..Stats::default() }), Vec::new()))
            }
            SupervisorRequest::Limits { .. } => Ok((json!(LimitsView::default()), Vec::new())),
            SupervisorRequest::SetLimits { cage, set } => {
                assert_eq!(fds.len(), 1, "an authority comes with it");
                self.set_limits(cage, &set["memory"].to_string())
            }
            SupervisorRequest::Kill { cage, cause } | SupervisorRequest::End { cage, cause } => {
                assert_eq!(fds.len(), 1, "an authority comes with it");
                self.end(cage, &exit(None, Some(9), cause));
                plain
            }
            SupervisorRequest::List => {
                let states: Vec<CageState> = self.state().cages.values().cloned().collect();
                let list = memfd::sealed("list", &serde_json::to_vec(&states).unwrap()).unwrap();
                Ok((Value::Null, vec![list]))
            }
            SupervisorRequest::Ack { cage, source, seq } => {
                if let Some(events) = self.state().unacked.get_mut(&(cage, source)) {
                    events.retain(|event| event.seq > seq);
                }
                plain
            }
            SupervisorRequest::Forget { cage } => {
                self.state().cages.remove(&cage);
                plain
            }
            SupervisorRequest::Scrollback { cage, pty, form } => self.printed(cage, pty, form),
            SupervisorRequest::Type { .. } => {
                Ok((json!({ "seq": 0, "paused": false }), Vec::new()))
            }
            SupervisorRequest::Plan { .. } => {
                Ok((Value::Null, vec![memfd::sealed("p", b"{\"plan\":1}").unwrap()]))
            }
            SupervisorRequest::Admit => {
                self.state().admit.clone().map(|admin| (json!({ "admin": admin }), Vec::new()))
            }
            SupervisorRequest::Shutdown { .. } => Ok((json!({ "living": 0 }), Vec::new())),
            SupervisorRequest::DryRun => match self.state().on_spawn.clone() {
                OnSpawn::Refuse(error) => Err(error),
                OnSpawn::Run | OnSpawn::RunAndEnd(_) | OnSpawn::RunAndBreak | OnSpawn::Break => {
                    Ok((Value::Null, vec![memfd::sealed("p", b"{\"plan\":2}").unwrap()]))
                }
            },
            SupervisorRequest::Input { .. }
            | SupervisorRequest::Watch { .. }
            | SupervisorRequest::Resize { .. }
            | SupervisorRequest::Signal { .. } => plain,
        })
    }

    fn printed(
        &self,
        cage: CageId,
        pty: PtyId,
        form: ScrollbackForm,
    ) -> Result<(Value, Vec<OwnedFd>), WireError> {
        if !self.state().cages.contains_key(&cage) {
            return Err(WireError::new(ErrorCode::NotFound, "no such cage"));
        }
        let document = if form == ScrollbackForm::Screen {
            document(&ScreenView::default())
        } else {
            memfd::sealed("s", format!("output of {pty}\n").as_bytes()).unwrap()
        };
        Ok((Value::Null, vec![document]))
    }

    fn set_limits(&self, cage: CageId, memory: &str) -> Result<(Value, Vec<OwnedFd>), WireError> {
        let mut enforced = Enforced::default();
        enforced.push("cgroup.memory", WallState::Enforced, memory);
        let told = EventBody::CageLimits { changes: Vec::new(), enforced };
        self.tell(cage, Source::Supervisor, &told);
        let seq = self.state().cages.get(&cage).map_or(0, |known| known.supervisor_seq);
        Ok((json!(LimitsView { seq, ..LimitsView::default() }), Vec::new()))
    }

    fn checkpoint(&self, cage: CageId) -> Result<(Value, Vec<OwnedFd>), WireError> {
        let suspension = Suspension::new("fake", Vec::new());
        self.set_phase(cage, Phase::Suspended);
        self.tell(cage, Source::Supervisor, &EventBody::CageSuspended(suspension.clone()));
        let mut specs = self.state().specs.clone().into_iter();
        let copied = wire::Copied::default();
        let taken = CageCheckpoint {
            cage,
            suspension,
            usage: None,
            ptys: Vec::new(),
            layer: Some(SavedLayer { mode: WorkspaceMode::Overlay, copied }),
            spec: specs.find(|spec| spec.cage == cage),
        };
        Ok((Value::Null, vec![document(&taken)]))
    }

    pub(crate) fn set_phase(&self, cage: CageId, phase: Phase) {
        if let Some(state) = self.state().cages.get_mut(&cage) {
            state.phase = phase;
        }
    }

    fn run(&self, spec: &SpawnSpec, ended: Option<&Exit>) -> Spawned {
        let mut enforced = Enforced::default();
        enforced.push("userns", WallState::Enforced, "fake");
        let argv: Vec<String> = spec.exec.argv.iter().map(wire::Arg::lossy).collect();
        let cage = CageState {
            cage: spec.cage,
            session: spec.session,
            run: spec.run,
            uid: 0,
            name: spec.name.clone(),
            policy: "shell".into(),
            plan_hash: "abc".into(),
            phase: Phase::Running,
            pid: Some(4242),
            started_at_ms: 1,
            enforced: enforced.clone(),
            exit: None,
            ptys: Vec::new(),
            build: None,
            unreachable: None,
            broker_seq: 0,
            supervisor_seq: 0,
        };
        self.state().cages.insert(spec.cage, cage);
        let planned = EventBody::CagePlanned {
            plan_hash: "abc".into(),
            policy: "shell".into(),
            workspace: "/w".into(),
        };
        self.tell(spec.cage, Source::Supervisor, &planned);
        let attested = EventBody::CageAttested { enforced: enforced.clone() };
        self.tell(spec.cage, Source::Supervisor, &attested);
        let begun = EventBody::CageStarted { pid: 4242 };
        match ended {
            None => {
                self.tell(spec.cage, Source::Supervisor, &begun);
                self.start_pty(spec.cage, spec.pty, &argv);
            }
            Some(exit) => {
                self.start_pty(spec.cage, spec.pty, &argv);
                self.exited(spec.cage, exit);
                self.tell(spec.cage, Source::Supervisor, &begun);
                self.tell(spec.cage, Source::Supervisor, &EventBody::CageGone {});
            }
        }
        Spawned { cage: spec.cage, plan_hash: "abc".into(), enforced, workspace: "/w".into() }
    }

    fn start_pty(&self, cage: CageId, pty: PtyId, argv: &[String]) {
        let state = PtyState {
            pty,
            argv: argv.to_vec(),
            tty: true,
            size: None,
            viewers: 0,
            has_writer: false,
            seq: 0,
            pid: Some(2),
            exit: None,
        };
        self.state().cages.get_mut(&cage).unwrap().ptys.push(state);
        let allocated = EventBody::PtyAllocated { pty, argv: argv.to_vec(), tty: true, size: None };
        self.tell(cage, Source::Broker, &allocated);
        self.tell(cage, Source::Broker, &EventBody::PtyStarted { pty, pid: 2 });
    }

    /// Appends an event to its source's file and sends it where there is a link.
    pub(crate) fn tell(&self, cage: CageId, source: Source, body: &EventBody) {
        let mut state = self.state();
        let seq = state.sequences.entry((cage, source)).or_insert(0);
        *seq += 1;
        let event = Event::new(cage, source, *seq, 1000, body);
        if let Some(known) = state.cages.get_mut(&cage) {
            match source {
                Source::Broker => known.broker_seq = event.seq,
                Source::Supervisor => known.supervisor_seq = event.seq,
            }
        }
        state.unacked.entry((cage, source)).or_default().push(event.clone());
        if let Some(out) = &state.out {
            let notice = SupervisorNotice::Event { event };
            // A link that has just broken: sent again over the next one.
            drop(out.send((Message::notify(&notice).unwrap(), Vec::new())));
        }
    }

    /// It has read its rules again, and they say this.
    pub(crate) fn reads_rules(&self, admit: Result<bool, WireError>) {
        let mut state = self.state();
        state.admit = admit;
        if let Some(out) = &state.out {
            let notice = Message::notify(&SupervisorNotice::Rules).unwrap();
            out.send((notice, Vec::new())).unwrap();
        }
    }

    /// The cage ends by itself or by force; nothing of it is left.
    pub(crate) fn end(&self, cage: CageId, exit: &Exit) {
        self.exited(cage, exit);
        self.tell(cage, Source::Supervisor, &EventBody::CageGone {});
    }

    /// What the broker tells of it.
    fn exited(&self, cage: CageId, exit: &Exit) {
        let ptys: Vec<PtyId> = {
            let mut state = self.state();
            let known = state.cages.get_mut(&cage).unwrap();
            known.phase = Phase::Gone;
            known.exit = Some(exit.clone());
            known.ptys.iter_mut().for_each(|pty| pty.exit = Some(exit.clone()));
            known.ptys.iter().map(|pty| pty.pty).collect()
        };
        for pty in ptys {
            let closed = EventBody::PtyClosed { pty, exit: exit.clone(), bytes: 5, lines: 1 };
            self.tell(cage, Source::Broker, &closed);
        }
        self.tell(cage, Source::Broker, &EventBody::CageExited { exit: exit.clone() });
    }

    /// Waits until the state is so.
    pub(crate) async fn until(&self, is_so: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&self.state()) {
            changes.changed().await.unwrap();
        }
    }
}

pub(crate) fn exit(code: Option<u8>, signal: Option<u8>, cause: Cause) -> Exit {
    Exit { code, signal, core: false, cause, message: None, usage: Usage::default() }
}

fn empty(value: &Value) -> Result<(Value, Vec<OwnedFd>), WireError> {
    Ok((Value::Null, vec![document(value)]))
}

fn minted(id: GrantId, cages: u32) -> Result<(Value, Vec<OwnedFd>), WireError> {
    let grant = GrantState {
        id,
        session: SessionId::new(),
        uid: 0,
        policy_hash: String::new(),
        policy: "shell".into(),
        cages,
        used: Vec::new(),
        created_at_ms: 0,
        expires_at_ms: i64::MAX,
        revoked_at_ms: None,
    };
    Ok((json!(Minted { grant, key: GrantKey { id, secret: "0f".repeat(32) } }), Vec::new()))
}

fn none() -> Result<(Value, Vec<OwnedFd>), WireError> {
    Err(WireError::new(ErrorCode::NotFound, "the fake has no grants"))
}

fn document(value: &impl serde::Serialize) -> OwnedFd {
    memfd::sealed("document", &serde_json::to_vec(value).unwrap()).unwrap()
}

fn layer(request: OwnedFd) -> Result<(Value, Vec<OwnedFd>), WireError> {
    let request = memfd::read(request, 1 << 20).unwrap();
    let answer = match serde_json::from_slice(&request).unwrap() {
        LayerRequest::Diff | LayerRequest::Preview { .. } => {
            LayerAnswer::Changes(Changes::default())
        }
        LayerRequest::Apply { .. } | LayerRequest::Discard { .. } => {
            LayerAnswer::Applied { done: Changes::default(), left: Changes::default() }
        }
        LayerRequest::Restore { .. } => LayerAnswer::Done,
    };
    Ok((Value::Null, vec![document(&answer)]))
}
