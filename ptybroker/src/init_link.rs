//! The order socket to the cage's pid 1.
//!
//! Orders wait here, in order, while the cage is frozen or busy; the broker never waits for it.

use crate::broker::Happening;
use cage::orders::{Order, Report, pack_order};
use link::LinkError;
use link::nonblocking::AsyncPackets;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::sync::mpsc;

/// The broker's end.
#[derive(Clone, Debug)]
pub struct InitLink(mpsc::UnboundedSender<Sending>);

type Sending = (Vec<u8>, Vec<OwnedFd>);

impl InitLink {
    /// Starts the task that owns the socket. Its end is told as [`Happening::InitGone`].
    #[must_use]
    pub fn start(link: AsyncPackets, inbox: mpsc::UnboundedSender<Happening>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            let why = run(&link, receiver, &inbox).await.err();
            drop(inbox.send(Happening::InitGone { why: why.map(|error| error.to_string()) }));
        });
        Self(sender)
    }

    /// Queues an order. If pid 1 is gone, that is told by itself.
    pub fn send(&self, order: &Order, fds: Vec<OwnedFd>) {
        // Without a memory file for it the order cannot go; pid 1 answers the empty one by ending.
        let (bytes, memfd) = pack_order(order).unwrap_or_default();
        drop(self.0.send((bytes, memfd.into_iter().chain(fds).collect())));
    }
}

async fn run(
    link: &AsyncPackets,
    mut orders: mpsc::UnboundedReceiver<Sending>,
    inbox: &mpsc::UnboundedSender<Happening>,
) -> Result<(), LinkError> {
    let mut waiting: VecDeque<Sending> = VecDeque::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => waiting.push_back(order),
                None => return Ok(()),
            },
            sent = send_front(link, waiting.front()), if !waiting.is_empty() => {
                sent?;
                waiting.pop_front();
            }
            packet = link.recv() => {
                let Some(packet) = packet? else { return Ok(()) };
                // A report that is not understood can only come from a program that is not ours.
                let report: Report = serde_json::from_slice(&packet.bytes)
                    .map_err(|error| LinkError::Io(io::Error::other(error)))?;
                drop(inbox.send(Happening::Report { report, fds: packet.fds }));
            }
        }
    }
}

async fn send_front(link: &AsyncPackets, front: Option<&Sending>) -> Result<(), LinkError> {
    let Some((bytes, fds)) = front else { return std::future::pending().await };
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    link.send(bytes, &fds).await
}
