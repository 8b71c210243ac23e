//! The link to the supervisor: one connection at a time, the newest.
//!
//! Owns the listener and the connection. Requests go to the broker's one inbox; answers, notices
//! and events come back through [`Outgoing`]. Order of sending: answers, then events from the log,
//! then notices, so that a notice never overtakes the event it rests on.
//! A supervisor that does not read holds up only itself: no more than [`WAITING_MAX`] of its
//! requests are taken before it takes their answers.

use crate::boot;
use crate::broker::Happening;
use crate::events::EventLog;
use link::nonblocking::{AsyncPackets, watch_input};
use link::{LinkError, Listener, Packet, Peer};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use wire::broker::{BrokerNotice, BrokerRequest};
use wire::control::{self, Hello, Message};
use wire::{ErrorCode, WireError};

const WAITING_MAX: usize = 64;

/// A request, and the way back.
#[derive(Debug)]
pub struct Inbound {
    pub request: BrokerRequest,
    pub fds: Vec<OwnedFd>,
    pub reply: Reply,
}

/// Answers one request, once. Dropped unanswered, it says so itself.
#[derive(Debug)]
pub struct Reply {
    connection: u64,
    id: u64,
    to: Option<mpsc::UnboundedSender<Outgoing>>,
}

#[derive(Debug)]
pub enum Outgoing {
    Answer {
        connection: u64,
        id: u64,
        result: Result<Value, WireError>,
        fds: Vec<OwnedFd>,
    },
    Notice(BrokerNotice),
    /// The log has grown.
    Events,
    /// Answer when all of the above is with the kernel, or nobody is connected.
    Flush(oneshot::Sender<()>),
    /// The same, but for a supervisor that is on its way to us.
    FlushToSomebody(oneshot::Sender<()>),
}

impl Reply {
    pub fn done(self) {
        self.send(Ok(Value::Null), Vec::new());
    }

    pub fn result_value(self, result: Result<Value, WireError>) {
        self.send(result, Vec::new());
    }

    pub fn descriptor(self, fd: OwnedFd) {
        self.send(Ok(Value::Null), vec![fd]);
    }

    pub fn error(self, error: WireError) {
        self.send(Err(error), Vec::new());
    }

    /// `done` or `error`.
    pub fn result(self, result: Result<(), WireError>) {
        self.send(result.map(|()| Value::Null), Vec::new());
    }

    fn send(mut self, result: Result<Value, WireError>, fds: Vec<OwnedFd>) {
        if let Some(to) = self.to.take() {
            let answer = Outgoing::Answer { connection: self.connection, id: self.id, result, fds };
            // The control task is gone only when the broker ends.
            drop(to.send(answer));
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let result = Err(WireError::new(ErrorCode::Gone, "it ended before this was done"));
            let fds = Vec::new();
            drop(to.send(Outgoing::Answer {
                connection: self.connection,
                id: self.id,
                result,
                fds,
            }));
        }
    }
}

/// Serves until the broker drops its end of `outgoing`.
///
/// # Errors
/// The listener cannot be waited on.
pub async fn serve(
    listener: Listener,
    supervisor_uid: u32,
    events: Rc<RefCell<EventLog>>,
    channel: (mpsc::UnboundedSender<Outgoing>, mpsc::UnboundedReceiver<Outgoing>),
    inbox: mpsc::UnboundedSender<Happening>,
) -> io::Result<()> {
    let door = watch_input(listener.as_fd().try_clone_to_owned()?)?;
    nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    let (replies, mut outgoing) = channel;
    let mut control = Control {
        supervisor_uid,
        ours: boot::hello(),
        events,
        replies,
        inbox,
        accepted: 0,
        notices: VecDeque::new(),
        exited: None,
    };
    let mut connection: Option<Connection> = None;
    let mut flush: Option<oneshot::Sender<()>> = None;
    let mut to_somebody = false;
    loop {
        if let Some(connection) = &mut connection {
            control.fill(connection);
        }
        let pending = connection.as_ref().is_some_and(|c| !c.waiting.is_empty());
        // Notices are kept as long as nobody has said hello.
        if !pending
            && (!to_somebody || control.notices.is_empty())
            && let Some(done) = flush.take()
        {
            let _gone = done.send(());
        }
        tokio::select! {
            accepted = accept(&door, &listener) => {
                if let Some(new) = control.greet(accepted?) {
                    connection = Some(new);
                }
            }
            message = outgoing.recv() => match message {
                Some(Outgoing::Flush(done)) => flush = Some(done),
                Some(Outgoing::FlushToSomebody(done)) => {
                    (flush, to_somebody) = (Some(done), true);
                }
                Some(message) => control.take(message, connection.as_mut()),
                None => return Ok(()),
            },
            went = turn(connection.as_mut()) => {
                let keep = match went {
                    Ok(Turn::Sent) => true,
                    Ok(Turn::Received(packet)) => control.receive(connection.as_mut(), packet),
                    Ok(Turn::Ended) | Err(_) => false,
                };
                if !keep {
                    connection = None;
                }
            }
        }
    }
}

#[derive(Debug)]
struct Control {
    supervisor_uid: u32,
    ours: Hello,
    events: Rc<RefCell<EventLog>>,
    replies: mpsc::UnboundedSender<Outgoing>,
    inbox: mpsc::UnboundedSender<Happening>,
    accepted: u64,
    /// Kept while nobody is connected: attested and failed, one of each at most.
    notices: VecDeque<BrokerNotice>,
    /// The end of the cage, which every connection is told.
    exited: Option<BrokerNotice>,
}

#[derive(Debug)]
struct Connection {
    link: AsyncPackets,
    number: u64,
    greeted: bool,
    /// The next event that this connection has not been sent.
    cursor: u64,
    told_exited: bool,
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

enum Turn {
    Sent,
    Received(Packet),
    Ended,
}

impl Control {
    /// Ours first; nothing but the hello is sent before theirs is here.
    fn greet(&mut self, packets: link::Packets) -> Option<Connection> {
        let peer = Peer::of(&packets).ok()?;
        if peer.uid != self.supervisor_uid {
            return None;
        }
        self.accepted += 1;
        let hello = Message::Hello(self.ours.clone()).to_bytes();
        Some(Connection {
            link: AsyncPackets::new(packets).ok()?,
            number: self.accepted,
            greeted: false,
            cursor: 0,
            told_exited: false,
            waiting: VecDeque::from([(hello, Vec::new())]),
        })
    }

    /// One packet more to send, if nothing waits: an event, else a notice.
    fn fill(&mut self, connection: &mut Connection) {
        if !connection.greeted || !connection.waiting.is_empty() {
            return;
        }
        let body = self.next_event(connection).map(|event| BrokerNotice::Event { event });
        let exited = || {
            let told = std::mem::replace(&mut connection.told_exited, self.exited.is_some());
            self.exited.clone().filter(|_| !told)
        };
        if let Some(notice) = body.or_else(|| self.notices.pop_front()).or_else(exited)
            && let Ok(message) = Message::notify(&notice)
        {
            connection.waiting.push_back((message.to_bytes(), Vec::new()));
        }
    }

    fn next_event(&self, connection: &mut Connection) -> Option<wire::Event> {
        let events = self.events.borrow();
        loop {
            let seq = connection.cursor.max(events.first_unacknowledged());
            if seq > events.newest() {
                return None;
            }
            connection.cursor = seq + 1;
            // An event that cannot be read back is passed over: the state says the rest.
            if let Some(event) = events.get(seq) {
                return Some(event);
            }
        }
    }

    fn take(&mut self, message: Outgoing, connection: Option<&mut Connection>) {
        match message {
            Outgoing::Answer { connection: number, id, result, fds } => {
                // An answer to a connection that was replaced has no reader.
                if let Some(connection) = connection.filter(|c| c.number == number) {
                    let bytes = Message::answer(id, result).to_bytes();
                    connection.waiting.push_back((bytes, fds));
                }
            }
            Outgoing::Notice(notice @ BrokerNotice::Exited { .. }) => self.exited = Some(notice),
            Outgoing::Notice(notice) => self.notices.push_back(notice),
            Outgoing::Events | Outgoing::Flush(_) | Outgoing::FlushToSomebody(_) => {}
        }
    }

    /// Whether the connection is kept.
    fn receive(&mut self, connection: Option<&mut Connection>, packet: Packet) -> bool {
        let Some(connection) = connection else { return false };
        match Message::parse(&packet.bytes) {
            Ok(Message::Hello(hello)) => {
                // One that speaks otherwise has our hello, and knows from it what to say.
                connection.greeted = self.ours.agree(&hello).is_ok();
                connection.greeted
            }
            Ok(Message::Request(request)) if connection.greeted => {
                let (number, id) = (connection.number, request.id);
                let reply = Reply { connection: number, id, to: Some(self.replies.clone()) };
                match control::typed::<BrokerRequest>(request.body) {
                    Ok(request) => {
                        let inbound = Inbound { request, fds: packet.fds, reply };
                        drop(self.inbox.send(Happening::Request(inbound)));
                    }
                    Err(error) => reply.error(error),
                }
                true
            }
            Ok(Message::Request(_) | Message::Answer(_) | Message::Notify(_)) | Err(_) => false,
        }
    }
}

async fn accept(door: &AsyncFd<OwnedFd>, listener: &Listener) -> io::Result<link::Packets> {
    loop {
        let mut ready = door.readable().await?;
        match listener.accept() {
            Ok(packets) => return Ok(packets),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EMFILE, ENOMEM: it waits in the backlog.
            Err(_exhausted) => tokio::time::sleep(link::nonblocking::EXHAUSTED_PAUSE).await,
        }
    }
}

/// Sends what waits, or receives; for ever, if there is no connection.
async fn turn(connection: Option<&mut Connection>) -> Result<Turn, LinkError> {
    let Some(Connection { link, waiting, .. }) = connection else {
        return std::future::pending().await;
    };
    let front = waiting.front();
    let may_receive = waiting.len() < WAITING_MAX;
    let turn = tokio::select! {
        sent = send(link, front), if front.is_some() => sent.map(|()| Turn::Sent)?,
        packet = link.recv(), if may_receive => packet?.map_or(Turn::Ended, Turn::Received),
    };
    if matches!(turn, Turn::Sent) {
        waiting.pop_front();
    }
    Ok(turn)
}

async fn send(
    link: &AsyncPackets,
    front: Option<&(Vec<u8>, Vec<OwnedFd>)>,
) -> Result<(), LinkError> {
    let Some((bytes, fds)) = front else { return std::future::pending().await };
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    link.send(bytes, &fds).await
}
