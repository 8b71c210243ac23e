//! The link to one broker: requests down, answers and notices up.
//!
//! A reader task owns the receiving side. Events go to a callback at once, so that a caller who
//! waits for an answer never holds them up; the few other notices go through a small queue. A broker
//! that fills that queue, speaks out of turn or tells events of another cage is not ours any more:
//! the link is closed.

use link::nonblocking::AsyncPackets;
use link::{LinkError, Packet, Packets};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use wire::broker::{BrokerNotice, BrokerRequest};
use wire::control::{self, Hello, Message};
use wire::{ErrorCode, Event, WireError};

/// Attested, Failed, Exited: one each. More is nonsense.
const NOTICES_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerLinkError {
    #[error("the broker's link: {0}")]
    Link(#[from] LinkError),
    #[error("the broker's link: {0}")]
    Io(#[from] std::io::Error),
    #[error("the broker closed its link before it said hello")]
    Closed,
    #[error("nobody listens for it: {0}")]
    Absent(LinkError),
    #[error("{error}")]
    Foreign { theirs: Hello, error: WireError },
    #[error("the broker's first message was no hello")]
    NoHello,
}

pub(crate) struct BrokerLink {
    packets: AsyncPackets,
    /// What the broker said of itself.
    pub(crate) hello: Hello,
    is_same_build: bool,
    next_id: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Reply>>>,
    reader: RefCell<Option<AbortHandle>>,
    closed: Cell<bool>,
    broke_rules: Cell<bool>,
}

impl fmt::Debug for BrokerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerLink").field("closed", &self.closed).finish_non_exhaustive()
    }
}

struct Reply {
    result: Result<Value, WireError>,
    fds: Vec<OwnedFd>,
}

/// Takes an event; `false` if it cannot be this broker's.
pub(crate) type OnEvent = Rc<dyn Fn(Event) -> bool>;

impl BrokerLink {
    /// Says hello, hears hello, and starts the reader. The notices end when the link does.
    pub(crate) async fn open(
        packets: Packets,
        ours: &Hello,
        on_event: OnEvent,
    ) -> Result<(Rc<Self>, mpsc::Receiver<BrokerNotice>), BrokerLinkError> {
        let packets = AsyncPackets::new(packets)?;
        packets.send(&Message::Hello(ours.clone()).to_bytes(), &[]).await?;
        let first = packets.recv().await?.ok_or(BrokerLinkError::Closed)?;
        let hello = match Message::parse(&first.bytes) {
            Ok(Message::Hello(hello)) => hello,
            Ok(Message::Request(_) | Message::Answer(_) | Message::Notify(_)) | Err(_) => {
                return Err(BrokerLinkError::NoHello);
            }
        };
        if let Err(error) = ours.agree(&hello) {
            return Err(BrokerLinkError::Foreign { theirs: hello, error });
        }
        let (notices, received) = mpsc::channel(NOTICES_MAX);
        let link = Rc::new(Self {
            packets,
            is_same_build: hello == *ours,
            hello,
            next_id: Cell::new(1),
            waiting: RefCell::default(),
            reader: RefCell::default(),
            closed: Cell::new(false),
            broke_rules: Cell::new(false),
        });
        let task = tokio::task::spawn_local(read(Rc::clone(&link), notices, on_event));
        link.reader.replace(Some(task.abort_handle()));
        Ok((link, received))
    }

    /// One request and its answer, with the descriptors that came beside it.
    pub(crate) async fn call(
        &self,
        request: &BrokerRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Value, Vec<OwnedFd>), WireError> {
        if self.closed.get() {
            return Err(gone());
        }
        let id = self.next_id.replace(self.next_id.get() + 1);
        let message = Message::request(id, request)?;
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(id, sender);
        if let Err(error) = self.packets.send(&message.to_bytes(), fds).await {
            self.waiting.borrow_mut().remove(&id);
            tracing::debug!(%error, "request to a broker that is gone");
            return Err(gone());
        }
        let reply = receiver.await.map_err(|_dropped| gone())?;
        match reply.result {
            Ok(value) => Ok((value, reply.fds)),
            Err(error) => Err(self.explained(error)),
        }
    }

    /// A broker of another build may not know a request, or a part of it.
    fn explained(&self, mut error: WireError) -> WireError {
        if error.code == ErrorCode::BadRequest && !self.is_same_build {
            let (said, build) = (&error.message, &self.hello);
            error.message = format!("the cage was started by {build}, which answers: {said}");
        }
        error
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Closed because of what it said: it is not ours any more.
    pub(crate) fn broke_rules(&self) -> bool {
        self.broke_rules.get()
    }

    /// Ends the reader, and with it the notices.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.waiting.borrow_mut().clear();
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }

    fn answered(&self, answer: control::Answer, fds: Vec<OwnedFd>) -> bool {
        let Some(sender) = self.waiting.borrow_mut().remove(&answer.id) else { return false };
        // The caller may have given up waiting.
        let _unwanted = sender.send(Reply { result: answer.result.into(), fds });
        true
    }
}

fn gone() -> WireError {
    WireError::new(
        ErrorCode::Gone,
        "the link to the cage's broker has ended: the cage is ending or gone, or descriptors ran out; \
         look with `mews inspect`",
    )
}

async fn read(link: Rc<BrokerLink>, notices: mpsc::Sender<BrokerNotice>, on_event: OnEvent) {
    loop {
        match link.packets.recv().await {
            Ok(Some(packet)) => {
                if !take(&link, packet, &notices, &on_event) {
                    tracing::warn!("a broker spoke out of turn; its link is closed");
                    link.broke_rules.set(true);
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "the link to a broker broke");
                break;
            }
        }
    }
    link.closed.set(true);
    link.waiting.borrow_mut().clear();
}

fn take(
    link: &BrokerLink,
    packet: Packet,
    notices: &mpsc::Sender<BrokerNotice>,
    on_event: &OnEvent,
) -> bool {
    match Message::parse(&packet.bytes) {
        Ok(Message::Answer(answer)) => link.answered(answer, packet.fds),
        Ok(Message::Notify(body)) => match control::typed::<BrokerNotice>(body) {
            Ok(BrokerNotice::Event { event }) => on_event(event),
            Ok(notice) => notices.try_send(notice).is_ok() || notices.is_closed(),
            // A newer broker may tell more than we know.
            Err(_unknown) => true,
        },
        Ok(Message::Hello(_) | Message::Request(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{CageId, EventBody, Source};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    async fn pair(
        on_event: OnEvent,
    ) -> (Rc<BrokerLink>, mpsc::Receiver<BrokerNotice>, AsyncPackets) {
        let (ours, theirs) = Packets::pair().unwrap();
        let broker = AsyncPackets::new(theirs).unwrap();
        broker.send(&Message::Hello(Hello::ours()).to_bytes(), &[]).await.unwrap();
        let (link, notices) = BrokerLink::open(ours, &Hello::ours(), on_event).await.unwrap();
        broker.recv().await.unwrap().unwrap();
        (link, notices, broker)
    }

    #[test]
    fn answers_find_their_callers_in_any_order() {
        run(async {
            let (link, _notices, broker) = pair(Rc::new(|_| true)).await;
            let serve = async {
                let mut ids = Vec::new();
                for _ in 0..2 {
                    let packet = broker.recv().await.unwrap().unwrap();
                    let Ok(Message::Request(request)) = Message::parse(&packet.bytes) else {
                        panic!("no request");
                    };
                    ids.push(request.id);
                }
                for id in ids.into_iter().rev() {
                    let answer = Message::answer(id, Ok(Value::from(id)));
                    broker.send(&answer.to_bytes(), &[]).await.unwrap();
                }
            };
            let (a, b, ()) = tokio::join!(
                link.call(&BrokerRequest::State, &[]),
                link.call(&BrokerRequest::Go, &[]),
                serve
            );
            assert_eq!((a.unwrap().0, b.unwrap().0), (Value::from(1), Value::from(2)));
        });
    }

    #[test]
    fn the_end_of_a_broker_answers_everybody() {
        run(async {
            let (link, mut notices, broker) = pair(Rc::new(|_| true)).await;
            let gone = async {
                broker.recv().await.unwrap().unwrap();
                drop(broker);
            };
            let (answer, ()) = tokio::join!(link.call(&BrokerRequest::State, &[]), gone);
            assert_eq!(answer.unwrap_err().code, ErrorCode::Gone);
            assert!(notices.recv().await.is_none());
            assert!(link.is_closed());
        });
    }

    #[test]
    fn a_broker_of_a_build_that_nobody_here_speaks_is_named() {
        run(async {
            let (ours, theirs) = Packets::pair().unwrap();
            let broker = AsyncPackets::new(theirs).unwrap();
            let hello =
                |proto| Hello { proto, lowest: Some(proto - 1), build: format!("0.{proto}") };
            broker.send(&Message::Hello(hello(2)).to_bytes(), &[]).await.unwrap();
            let opened = BrokerLink::open(ours, &hello(4), Rc::new(|_| true)).await;
            let Err(BrokerLinkError::Foreign { theirs, error }) = opened else { panic!("opened") };
            assert_eq!(theirs, hello(2));
            assert_eq!(error.code, ErrorCode::VersionMismatch);
        });
    }

    #[test]
    fn a_request_that_an_older_broker_does_not_know_is_answered_with_its_name() {
        run(async {
            let (ours, theirs) = Packets::pair().unwrap();
            let broker = AsyncPackets::new(theirs).unwrap();
            let old = Hello { build: "0.0.9".into(), ..Hello::ours() };
            broker.send(&Message::Hello(old).to_bytes(), &[]).await.unwrap();
            let opened = BrokerLink::open(ours, &Hello::ours(), Rc::new(|_| true)).await;
            let (link, _notices) = opened.unwrap();
            broker.recv().await.unwrap().unwrap();
            let serve = async {
                broker.recv().await.unwrap().unwrap();
                let unknown = WireError::new(ErrorCode::BadRequest, "unknown variant `go`");
                broker.send(&Message::answer(1, Err(unknown)).to_bytes(), &[]).await.unwrap();
            };
            let (answer, ()) = tokio::join!(link.call(&BrokerRequest::Go, &[]), serve);
            let words = answer.unwrap_err().message;
            assert!(words.contains("mews 0.0.9") && words.contains("unknown variant"), "{words}");
        });
    }

    #[test]
    fn a_foreign_event_or_a_stray_answer_closes_the_link() {
        run(async {
            let event = Event::new(CageId::new(), Source::Broker, 1, 0, &EventBody::CageGone {});
            for message in [
                Message::notify(&BrokerNotice::Event { event }).unwrap(),
                Message::answer(99, Ok(Value::Null)),
                Message::request(1, &BrokerRequest::Go).unwrap(),
            ] {
                let (link, mut notices, broker) = pair(Rc::new(|_| false)).await;
                broker.send(&message.to_bytes(), &[]).await.unwrap();
                assert!(notices.recv().await.is_none());
                assert!(link.is_closed());
            }
        });
    }
}
