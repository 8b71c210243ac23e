//! One link to sessiond (or, for a one-shot, to the CLI that plays its part): hello, requests
//! through the permit table, answers, and the pump of events beside them.

use crate::permit::{self, Outside, Permit, Reply};
use crate::pump;
use crate::supervisor::Supervisor;
use link::nonblocking::AsyncPackets;
use link::{LinkError, Packets, failpoint};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use tokio::sync::Semaphore;
use wire::control::{Hello, Message, Request};
use wire::{CONTROL_BYTES_MAX, ErrorCode, WireError};

/// Requests that are worked on at once; a peer with more waits in its own socket.
const REQUESTS_MAX: usize = 128;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("its first message was no hello")]
    NoHello,
    #[error("{0}")]
    Foreign(WireError),
    #[error("a frame that is none: {0}")]
    Frame(WireError),
    #[error("a request that the permit table does not have: '{0}'")]
    Outside(String),
}

/// Serves one link until its end. `pid`: who is at its other end, if that is not our caller.
pub(crate) async fn serve(
    packets: Packets,
    pid: Option<i32>,
    supervisor: Rc<Supervisor>,
) -> Result<(), UpstreamError> {
    let packets = Rc::new(AsyncPackets::new(packets)?);
    let ours = &supervisor.host.hello;
    packets.send(&Message::Hello(ours.clone()).to_bytes(), &[]).await?;
    let Some((hello, listener)) = greet(&packets).await? else { return Ok(()) };
    supervisor.keep_listener(listener);
    if let Err(error) = ours.agree(&hello) {
        supervisor.sessiond_is_foreign(pid);
        return Err(UpstreamError::Foreign(error));
    }
    supervisor.sessiond_said_hello();
    let pump = tokio::task::spawn_local(pump::run(Rc::clone(&packets), Rc::clone(&supervisor)));
    let result = requests(&packets, &supervisor).await;
    pump.abort();
    result
}

/// The peer's hello, with its API listener beside it; `None`: it went away.
async fn greet(packets: &AsyncPackets) -> Result<Option<(Hello, Option<OwnedFd>)>, UpstreamError> {
    let Some(first) = packets.recv().await? else { return Ok(None) };
    match Message::parse(&first.bytes) {
        Ok(Message::Hello(hello)) => Ok(Some((hello, first.fds.into_iter().next()))),
        Ok(Message::Request(_) | Message::Answer(_) | Message::Notify(_)) | Err(_) => {
            Err(UpstreamError::NoHello)
        }
    }
}

async fn requests(
    packets: &Rc<AsyncPackets>,
    supervisor: &Rc<Supervisor>,
) -> Result<(), UpstreamError> {
    let slots = std::sync::Arc::new(Semaphore::new(REQUESTS_MAX));
    while let Some(packet) = packets.recv().await? {
        let request = match Message::parse(&packet.bytes).map_err(UpstreamError::Frame)? {
            Message::Request(request) => request,
            Message::Hello(_) | Message::Answer(_) | Message::Notify(_) => {
                return Err(UpstreamError::NoHello);
            }
        };
        let permit =
            permit::find(&request.body).map_err(|Outside(verb)| UpstreamError::Outside(verb))?;
        let Ok(slot) = std::sync::Arc::clone(&slots).acquire_owned().await else { return Ok(()) };
        let work = answer(Rc::clone(packets), Rc::clone(supervisor), permit, request, packet.fds);
        tokio::task::spawn_local(async move {
            work.await;
            drop(slot);
        });
    }
    Ok(())
}

async fn answer(
    packets: Rc<AsyncPackets>,
    supervisor: Rc<Supervisor>,
    permit: &'static Permit,
    request: Request,
    fds: Vec<OwnedFd>,
) {
    let reply = permit.run(supervisor, request.body, fds).await;
    failpoint::reach_in(permit.verb, "done");
    let (message, fds) = encode(request.id, reply);
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    if let Err(error) = packets.send(&message, &fds).await {
        // The work is done; whoever reconnects sees it in the snapshot.
        tracing::debug!(verb = permit.verb, %error, "the answer found nobody");
    }
}

fn encode(id: u64, reply: Reply) -> (Vec<u8>, Vec<OwnedFd>) {
    let (result, fds) = match reply {
        Ok((value, fds)) => (Ok(value), fds),
        Err(error) => (Err(error), Vec::new()),
    };
    let bytes = Message::answer(id, result).to_bytes();
    if bytes.len() <= CONTROL_BYTES_MAX {
        return (bytes, fds);
    }
    let error = WireError::new(ErrorCode::Internal, "the answer is too long for a packet");
    (Message::answer(id, Err(error)).to_bytes(), Vec::new())
}
