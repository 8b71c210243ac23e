//! `run --no-daemon`: a supervisor of its own for one job, and sessiond's side of its link.
//!
//! The cage's life hangs on this link: when this process ends in any way, the supervisor sees the
//! end of the link and kills the cage.

use crate::connect::{STOP, tail};
use crate::failure::Failure;
use crate::hello;
use crate::http::Upgraded;
use crate::{programs, sys};
use bytes::Bytes;
use link::nonblocking::AsyncPackets;
use link::{Packet, Packets};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use tokio::sync::{mpsc, oneshot, watch};
use wire::control::{Message, typed};
use wire::event::EventBody;
use wire::supervisor::{LayerAnswer, LayerRequest, Spawned, SupervisorNotice, SupervisorRequest};
use wire::{AttachOptions, CageId, Exit, PtyId, SessionId, SpawnSpec, WireError};

/// Largest plan with its reasons.
const PLAN_BYTES_MAX: usize = 16 << 20;
/// The descriptor on which the supervisor finds its end of the link.
const LINK_FD: i32 = 3;

/// What came back, and the descriptors beside it.
type Answer = Result<(Value, Vec<OwnedFd>), WireError>;

/// As sessiond reads it of the supervisor.
const LAYER_ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug)]
struct Command {
    body: SupervisorRequest,
    fds: Vec<OwnedFd>,
    answer: oneshot::Sender<Answer>,
}

/// Requests to the supervisor, from anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    queue: mpsc::Sender<Command>,
    /// Our own end of a socket pair: whose SO_PEERCRED is this operator.
    authority: std::sync::Arc<(UnixStream, UnixStream)>,
}

impl Commands {
    /// The authority goes first; `fds` follow it.
    pub(crate) async fn request(
        &self,
        body: SupervisorRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Value, Failure> {
        self.request_with_fds(body, fds).await.map(|(value, _fds)| value)
    }

    async fn request_with_fds(
        &self,
        body: SupervisorRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<(Value, Vec<OwnedFd>), Failure> {
        let authority = self.authority.0.as_fd().try_clone_to_owned().map_err(system)?;
        let fds = std::iter::once(authority).chain(fds).collect();
        let (answer, answered) = oneshot::channel();
        let gone = || Failure::new("mews-supervisor has ended before it answered");
        self.queue.send(Command { body, fds, answer }).await.map_err(|_closed| gone())?;
        answered.await.map_err(|_dropped| gone())?.map_err(Failure::from)
    }
}

/// What became of the cage, as its events tell.
#[derive(Clone, Debug, Default)]
struct Told {
    exit: Option<Exit>,
    is_gone: bool,
    link_ended: bool,
    /// The supervisor beside us speaks nothing that we do.
    mismatch: Option<WireError>,
}

#[derive(Debug)]
pub(crate) struct OneShot {
    pub(crate) commands: Commands,
    told: watch::Receiver<Told>,
    /// A cage was made, whose end will be told.
    has_cage: bool,
    /// Owns the link: its end is the link's.
    driver: tokio::task::JoinHandle<()>,
    child: tokio::process::Child,
    stderr: File,
}

impl OneShot {
    /// Starts the supervisor and says hello.
    pub(crate) fn start() -> Result<Self, Failure> {
        let (ours, theirs) = Packets::pair().map_err(system)?;
        let stderr = scratch()?;
        let mut command = std::process::Command::new(programs::find("mews-supervisor")?);
        command.arg("--one-shot").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(stderr.try_clone().map_err(system)?);
        // The keys of the operator's terminal are ours to forward.
        sys::in_new_session(&mut command);
        sys::inherit_as(&mut command, theirs.as_raw_fd(), LINK_FD);
        let mut command = tokio::process::Command::from(command);
        let child = command
            .spawn()
            .map_err(|error| Failure::new(format!("cannot start mews-supervisor: {error}")))?;
        drop((command, theirs));
        let link = AsyncPackets::new(ours).map_err(system)?;
        let (queue, commands) = mpsc::channel(16);
        let (tell, told) = watch::channel(Told::default());
        let driver = tokio::spawn(drive(link, commands, tell));
        let authority = std::sync::Arc::new(UnixStream::pair().map_err(system)?);
        let commands = Commands { queue, authority };
        Ok(Self { commands, told, has_cage: false, driver, child, stderr })
    }

    pub(crate) async fn spawn(&mut self, spec: &SpawnSpec) -> Result<Spawned, Failure> {
        let text = serde_json::to_vec(spec).map_err(|error| Failure::new(error.to_string()))?;
        let memfd = link::memfd::sealed("spawn", &text).map_err(system)?;
        let body = SupervisorRequest::Spawn { cage: spec.cage, grant: None };
        match self.commands.request(body, vec![memfd]).await {
            Ok(answer) => {
                self.has_cage = true;
                Ok(typed(answer)?)
            }
            Err(failure) => Err(self.with_last_words(failure).await),
        }
    }

    /// What the spawn would be, as JSON; nothing is made.
    pub(crate) async fn dry_run(&mut self, spec: &SpawnSpec) -> Result<Vec<u8>, Failure> {
        let text = serde_json::to_vec(spec).map_err(|error| Failure::new(error.to_string()))?;
        let memfd = link::memfd::sealed("spawn", &text).map_err(system)?;
        match self.commands.request_with_fds(SupervisorRequest::DryRun, vec![memfd]).await {
            Ok((_null, mut fds)) => {
                let silent = || Failure::new("mews-supervisor sent no plan");
                let fd = fds.pop().ok_or_else(silent)?;
                link::memfd::read(fd, PLAN_BYTES_MAX).map_err(system)
            }
            Err(failure) => Err(self.with_last_words(failure).await),
        }
    }

    pub(crate) async fn attach(
        &self,
        cage: CageId,
        pty: PtyId,
        options: AttachOptions,
    ) -> Result<Upgraded, Failure> {
        let (ours, theirs) = UnixStream::pair().map_err(system)?;
        let early = link::memfd::sealed("early", b"").map_err(system)?;
        let body = SupervisorRequest::Attach { cage, pty, options };
        self.commands.request(body, vec![theirs.into(), early]).await?;
        Ok(Upgraded { stream: ours.into(), early: Bytes::new(), resolved: None })
    }

    /// Work on the layer of the one session there is.
    pub(crate) async fn layer(
        &self,
        session: SessionId,
        request: &LayerRequest,
    ) -> Result<LayerAnswer, Failure> {
        let text = serde_json::to_vec(request).map_err(|error| Failure::new(error.to_string()))?;
        let memfd = link::memfd::sealed("layer", &text).map_err(system)?;
        let body = SupervisorRequest::Layer { session };
        let (_null, fds) = self.commands.request_with_fds(body, vec![memfd]).await?;
        let silent = || Failure::new("mews-supervisor did not say what became of the layer");
        let answer = fds.into_iter().next().ok_or_else(silent)?;
        let bytes = link::memfd::read(answer, LAYER_ANSWER_BYTES_MAX).map_err(system)?;
        serde_json::from_slice(&bytes).map_err(|error| Failure::new(error.to_string()))
    }

    /// Nothing of the cage runs any more, or the time is over.
    pub(crate) async fn gone(&mut self) {
        // What was refused or broken off has no end to wait for: the end of the link is enough.
        let has_cage = self.has_cage;
        let gone = self.told.wait_for(|told| !has_cage || told.is_gone || told.link_ended);
        // Late or lost: the end of the link makes the supervisor kill what is left.
        drop(tokio::time::timeout(STOP, gone).await);
    }

    /// The exit, if the stream did not tell it: from the cage's events.
    pub(crate) async fn exit(&mut self) -> Option<Exit> {
        let told = self.told.wait_for(|told| told.exit.is_some() || told.link_ended);
        match tokio::time::timeout(STOP, told).await {
            Ok(Ok(told)) => told.exit.clone(),
            Ok(Err(_ended)) => None,
            Err(_late) => None,
        }
    }

    /// Nothing of the cage is left when this returns, or the time is over.
    pub(crate) async fn finish(mut self) {
        self.gone().await;
        self.driver.abort();
        drop(tokio::time::timeout(STOP, self.child.wait()).await);
    }

    /// A supervisor that died says why on its standard error.
    async fn with_last_words(&mut self, mut failure: Failure) -> Failure {
        if let Some(mismatch) = &self.told.borrow().mismatch {
            let words = format!("mews-supervisor beside this program is not of it: {mismatch}");
            return Failure::new(words).next("install mews again");
        }
        if self.told.borrow().link_ended {
            drop(tokio::time::timeout(STOP, self.child.wait()).await);
            let mut text = String::new();
            if self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut text)).is_ok()
                && !text.trim().is_empty()
            {
                failure.error.message = format!("{}:\n{}", failure.error.message, tail(&text));
            }
        }
        failure
    }
}

/// The one owner of the link: requests out, answers and events in.
async fn drive(
    link: AsyncPackets,
    mut commands: mpsc::Receiver<Command>,
    tell: watch::Sender<Told>,
) {
    let mut pending: HashMap<u64, oneshot::Sender<Answer>> = HashMap::new();
    let mut next_id = 1_u64;
    let mut alive = send(&link, &Message::Hello(hello::ours().clone()), &[]).await;
    // Nothing is asked before it is known who answers.
    if alive {
        alive = match link.recv().await {
            Ok(Some(packet)) => take(&link, packet, &mut pending, &tell, &mut next_id).await,
            Ok(None) | Err(_) => false,
        };
    }
    while alive {
        tokio::select! {
            packet = link.recv() => match packet {
                Ok(Some(packet)) => alive = take(&link, packet, &mut pending, &tell, &mut next_id).await,
                Ok(None) | Err(_) => alive = false,
            },
            command = commands.recv() => match command {
                Some(Command { body, fds, answer }) => {
                    pending.insert(next_id, answer);
                    alive = request(&link, next_id, &body, &fds).await;
                    next_id += 1;
                }
                None => alive = false,
            },
        }
    }
    tell.send_modify(|told| told.link_ended = true);
}

async fn take(
    link: &AsyncPackets,
    packet: Packet,
    pending: &mut HashMap<u64, oneshot::Sender<Answer>>,
    tell: &watch::Sender<Told>,
    next_id: &mut u64,
) -> bool {
    match Message::parse(&packet.bytes) {
        Ok(Message::Hello(theirs)) => match hello::ours().agree(&theirs) {
            Ok(_version) => true,
            Err(mismatch) => {
                tell.send_modify(|told| told.mismatch = Some(mismatch));
                false
            }
        },
        Ok(Message::Answer(answer)) => {
            if let Some(waiting) = pending.remove(&answer.id) {
                // The asker may have given up.
                let result: Result<Value, WireError> = answer.result.into();
                drop(waiting.send(result.map(|value| (value, packet.fds))));
            }
            true
        }
        Ok(Message::Notify(body)) => {
            let Ok(SupervisorNotice::Event { event }) = typed(body) else { return true };
            match event.body() {
                Some(EventBody::CageExited { exit }) => {
                    tell.send_modify(|told| told.exit = Some(exit));
                }
                Some(EventBody::CageGone {}) => tell.send_modify(|told| told.is_gone = true),
                _other => {}
            }
            let (cage, source, seq) = (event.cage, event.source, event.seq);
            let id = *next_id;
            *next_id += 1;
            request(link, id, &SupervisorRequest::Ack { cage, source, seq }, &[]).await
        }
        Ok(Message::Request(_)) | Err(_) => false,
    }
}

async fn request(link: &AsyncPackets, id: u64, body: &SupervisorRequest, fds: &[OwnedFd]) -> bool {
    let Ok(message) = Message::request(id, body) else { return false };
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    send(link, &message, &fds).await
}

async fn send(link: &AsyncPackets, message: &Message, fds: &[BorrowedFd<'_>]) -> bool {
    link.send(&message.to_bytes(), fds).await.is_ok()
}

/// A file without a name for what the supervisor says.
fn scratch() -> Result<File, Failure> {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let fd = nix::sys::memfd::memfd_create("mews-supervisor", flags).map_err(system)?;
    Ok(File::from(fd))
}

fn system(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("a system call failed: {error}"))
}
