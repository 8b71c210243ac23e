//! The link to the supervisor: hello, requests with their answers, events with their acks.
//!
//! A [`Connection`] is one life of the link. Whoever needs the supervisor takes the current one
//! *before* the rows are written and uses that one: when it breaks, the request fails, and the
//! reconciliation of the next one decides what became of the rows ([`RequestError`]).
//!
//! Reader and writer are two tasks: a supervisor that is busy sending to us while we send to it
//! must not stop us from reading. Acks are not queued but kept as the newest of each source.

use link::nonblocking::AsyncPackets;
use link::{LinkError, Packet, Packets};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use wire::control::{self, Hello, Message};
use wire::supervisor::{CageState, SupervisorNotice, SupervisorRequest};
use wire::{CageId, ErrorCode, Event, Source, WireError};

/// Requests that may wait to be sent; a caller beyond that waits.
const OUTGOING: usize = 256;
/// Events that may wait to be stored; the supervisor's queue holds the rest.
const INCOMING: usize = 512;
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// A list of all cages, a plan, a scrollback: nothing of ours is larger.
pub const DOCUMENT_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("nobody listens on {0}: {1}")]
    Absent(PathBuf, LinkError),
    #[error("the link broke during hello: {0}")]
    Link(#[from] LinkError),
    #[error("the link: {0}")]
    Io(#[from] io::Error),
    #[error("the supervisor said no hello that we understand: {0}")]
    Hello(String),
    #[error("the supervisor cannot be talked to: {0}")]
    Foreign(WireError),
}

#[derive(Debug)]
pub struct Reply {
    pub value: Value,
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    /// # Errors
    /// The answer is not what this request gives.
    pub fn typed<T: DeserializeOwned>(self) -> Result<T, WireError> {
        control::typed(self.value)
    }

    /// The one descriptor beside the answer.
    ///
    /// # Errors
    /// There is none.
    pub fn descriptor(self) -> Result<OwnedFd, WireError> {
        let missing = || WireError::new(ErrorCode::Internal, "the answer has no descriptor");
        self.fds.into_iter().next().ok_or_else(missing)
    }
}

#[derive(Debug)]
pub enum RequestError {
    /// The supervisor's own answer.
    Refused(WireError),
    /// It never left: nothing happened.
    NotSent,
    /// The link broke after it was sent: it may have happened.
    Lost,
}

impl From<RequestError> for WireError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(error) => error,
            RequestError::NotSent => unavailable(),
            RequestError::Lost => lost(),
        }
    }
}

/// Unlike [`unavailable`] this is not said before anything is done: what must not be done twice must
/// not be asked again.
fn lost() -> WireError {
    WireError::new(
        ErrorCode::SupervisorUnavailable,
        "The supervisor died under this request; whether it was done is not known. Look at it with \
         `mews inspect`, then ask again.",
    )
    .with(serde_json::json!({ "lost": true }))
}

#[must_use]
pub fn unavailable() -> WireError {
    WireError::new(
        ErrorCode::SupervisorUnavailable,
        "The supervisor is away; living cages go on. Try again, or type `mews daemon start`.",
    )
}

type Answer = oneshot::Sender<Result<Reply, RequestError>>;

#[derive(Debug)]
struct Outgoing {
    body: Value,
    fds: Vec<OwnedFd>,
    answer: Answer,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<HashMap<u64, Answer>>,
    acks: Mutex<HashMap<(CageId, Source), u64>>,
    acks_changed: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life of the link, to send requests over.
#[derive(Clone, Debug)]
pub struct Connection {
    outgoing: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
    pub build: Arc<str>,
    pub pid: i32,
}

/// What comes up over one connection; ends when the link does.
#[derive(Debug)]
pub struct Incoming {
    pub events: mpsc::Receiver<Event>,
    /// The newest line of the supervisor's journal that it told of.
    pub audit: watch::Receiver<u64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Connection {
    /// Sends one request and waits for its answer.
    ///
    /// # Errors
    /// Refused, or the link broke before or after it was sent.
    pub async fn request(
        &self,
        request: &SupervisorRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Reply, RequestError> {
        let body = control::value(request).map_err(RequestError::Refused)?;
        let (answer, answered) = oneshot::channel();
        let outgoing = Outgoing { body, fds, answer };
        self.outgoing.send(outgoing).await.map_err(|_closed| RequestError::NotSent)?;
        // Dropped unanswered: it was still in the queue when the link broke.
        answered.await.unwrap_or(Err(RequestError::NotSent))
    }

    /// All cages that the supervisor knows.
    ///
    /// # Errors
    /// As for [`Connection::request`].
    pub async fn list(&self) -> Result<Vec<CageState>, RequestError> {
        let reply = self.request(&SupervisorRequest::List, Vec::new()).await?;
        let bytes = document(reply).await.map_err(RequestError::Refused)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            RequestError::Refused(WireError::new(ErrorCode::Internal, format!("list: {error}")))
        })
    }

    /// Events of this cage and source up to `seq` are stored.
    pub fn ack(&self, cage: CageId, source: Source, seq: u64) {
        let mut acks = lock(&self.shared.acks);
        let newest = acks.entry((cage, source)).or_insert(seq);
        *newest = seq.max(*newest);
        self.shared.acks_changed.notify_one();
    }
}

/// The document beside an answer, read outside of the runtime's thread.
///
/// # Errors
/// There is none, or it is too large.
pub async fn document(reply: Reply) -> Result<Vec<u8>, WireError> {
    let fd = reply.descriptor()?;
    let internal = |why: String| WireError::new(ErrorCode::Internal, why);
    tokio::task::spawn_blocking(move || link::memfd::read(fd, DOCUMENT_BYTES_MAX))
        .await
        .map_err(|error| internal(error.to_string()))?
        .map_err(|error| internal(format!("the supervisor's document: {error}")))
}

/// Connects and says hello, with a duplicate of the API's listener for the supervisor to keep. `rules`
/// is counted up when the supervisor says that it has read them again.
///
/// # Errors
/// Nobody is there, or it is not a supervisor that we can talk to.
pub async fn connect(
    path: &Path,
    ours: &Hello,
    listener: &OwnedFd,
    rules: &watch::Sender<u64>,
) -> Result<(Connection, Incoming), ConnectError> {
    let owned = path.to_owned();
    // connect(2) blocks while the listener's backlog is full.
    let packets = tokio::task::spawn_blocking(move || Packets::connect(&owned))
        .await
        .map_err(io::Error::other)?
        .map_err(|error| ConnectError::Absent(path.to_owned(), error))?;
    let pid = link::Peer::of(&packets)?.pid;
    let packets = Arc::new(AsyncPackets::new(packets)?);
    let hello = Message::Hello(ours.clone()).to_bytes();
    packets.send(&hello, &[listener.as_fd()]).await?;
    let theirs = tokio::time::timeout(HELLO_TIMEOUT, hello_of(&packets))
        .await
        .map_err(|_elapsed| ConnectError::Hello("none came".to_owned()))??;
    ours.agree(&theirs).map_err(ConnectError::Foreign)?;
    let shared = Arc::new(Shared::default());
    let (outgoing, outgoing_queue) = mpsc::channel(OUTGOING);
    let (incoming, events) = mpsc::channel(INCOMING);
    let (grown, audit) = watch::channel(0);
    let writer = write_all(Arc::clone(&packets), Arc::clone(&shared), outgoing_queue);
    let told = Told { events: incoming, grown, rules: rules.clone() };
    let reader = read_all(packets, Arc::clone(&shared), told);
    let tasks = vec![tokio::spawn(writer), tokio::spawn(reader)];
    let connection = Connection { outgoing, shared, build: theirs.build.into(), pid };
    Ok((connection, Incoming { events, audit, tasks }))
}

async fn hello_of(packets: &AsyncPackets) -> Result<Hello, ConnectError> {
    let Some(packet) = packets.recv().await? else {
        return Err(ConnectError::Hello("it closed".to_owned()));
    };
    match Message::parse(&packet.bytes) {
        Ok(Message::Hello(hello)) => Ok(hello),
        Ok(Message::Request(_) | Message::Answer(_) | Message::Notify(_)) => {
            Err(ConnectError::Hello("another frame first".to_owned()))
        }
        Err(error) => Err(ConnectError::Hello(error.message)),
    }
}

async fn write_all(
    packets: Arc<AsyncPackets>,
    shared: Arc<Shared>,
    mut queue: mpsc::Receiver<Outgoing>,
) {
    let mut id = 0_u64;
    loop {
        tokio::select! {
            next = queue.recv() => {
                let Some(outgoing) = next else { return };
                id += 1;
                if send_one(&packets, &shared, id, outgoing).await.is_err() {
                    return;
                }
            }
            () = shared.acks_changed.notified() => {
                let acks = std::mem::take(&mut *lock(&shared.acks));
                for ((cage, source), seq) in acks {
                    id += 1;
                    if send_ack(&packets, id, cage, source, seq).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

async fn send_one(
    packets: &AsyncPackets,
    shared: &Shared,
    id: u64,
    outgoing: Outgoing,
) -> Result<(), LinkError> {
    let Outgoing { body, fds, answer } = outgoing;
    let bytes = Message::Request(control::Request { id, body }).to_bytes();
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    // Known before it is sent: the answer may come before `send` returns.
    lock(&shared.waiting).insert(id, answer);
    let sent = packets.send(&bytes, &borrowed).await;
    if let Err(error) = &sent
        && let Some(answer) = lock(&shared.waiting).remove(&id)
    {
        tracing::debug!(%error, "a request was not sent");
        // The caller may be gone; then nobody wants to know.
        drop(answer.send(Err(RequestError::NotSent)));
    }
    match sent {
        Err(LinkError::TooLarge(_)) => Ok(()),
        other => other,
    }
}

async fn send_ack(
    packets: &AsyncPackets,
    id: u64,
    cage: CageId,
    source: Source,
    seq: u64,
) -> Result<(), LinkError> {
    let ack = SupervisorRequest::Ack { cage, source, seq };
    let Ok(message) = Message::request(id, &ack) else { return Ok(()) };
    packets.send(&message.to_bytes(), &[]).await
}

async fn read_all(packets: Arc<AsyncPackets>, shared: Arc<Shared>, told: Told) {
    let why = loop {
        let packet = match packets.recv().await {
            Ok(Some(packet)) => packet,
            Ok(None) => break "closed".to_owned(),
            Err(error) => break error.to_string(),
        };
        if let Err(why) = dispatch(packet, &shared, &told).await {
            break why;
        }
    };
    tracing::info!(why, "the link to the supervisor has ended");
    let lost: Vec<Answer> = lock(&shared.waiting).drain().map(|(_id, answer)| answer).collect();
    for answer in lost {
        drop(answer.send(Err(RequestError::Lost)));
    }
}

/// Where what comes unasked goes.
struct Told {
    events: mpsc::Sender<Event>,
    grown: watch::Sender<u64>,
    rules: watch::Sender<u64>,
}

async fn dispatch(packet: Packet, shared: &Shared, told: &Told) -> Result<(), String> {
    match Message::parse(&packet.bytes).map_err(|error| error.message)? {
        Message::Answer(answer) => {
            let Some(waiting) = lock(&shared.waiting).remove(&answer.id) else { return Ok(()) };
            let result: Result<Value, WireError> = answer.result.into();
            let result =
                result.map(|value| Reply { value, fds: packet.fds }).map_err(RequestError::Refused);
            drop(waiting.send(result));
            Ok(())
        }
        Message::Notify(body) => match control::typed::<SupervisorNotice>(body) {
            Ok(SupervisorNotice::Event { event }) => {
                told.events.send(event).await.map_err(|_closed| "no longer wanted".to_owned())
            }
            Ok(SupervisorNotice::Audit { newest }) => {
                told.grown.send_replace(newest);
                Ok(())
            }
            Ok(SupervisorNotice::Rules) => {
                told.rules.send_modify(|count| *count += 1);
                Ok(())
            }
            // A newer supervisor may tell more than we know.
            Err(error) => {
                tracing::debug!(%error, "a notice of an unknown kind");
                Ok(())
            }
        },
        Message::Request(_) => Err("the supervisor asked something of us".to_owned()),
        Message::Hello(_) => Err("a second hello".to_owned()),
    }
}

/// Where the current connection is to be had; `None` while the supervisor is away or its cages
/// are not reconciled yet.
#[derive(Clone, Debug)]
pub struct SupervisorLink(watch::Receiver<Option<Connection>>);

impl SupervisorLink {
    #[must_use]
    pub fn new(current: watch::Receiver<Option<Connection>>) -> Self {
        Self(current)
    }

    /// # Errors
    /// `supervisor_unavailable`.
    pub fn current(&self) -> Result<Connection, WireError> {
        self.0.borrow().clone().ok_or_else(unavailable)
    }

    #[must_use]
    pub fn peek(&self) -> Option<Connection> {
        self.0.borrow().clone()
    }
}
