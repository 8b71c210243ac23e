//! HTTP bodies that come in pieces: a file, and whatever else is sent as it comes.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

const PIECE: usize = 256 * 1024;
/// Pieces in memory for one slow client.
const AHEAD: usize = 2;

struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|next| next.map(|piece| piece.map(Frame::data)))
    }
}

/// What is sent, until the sender goes; it waits for a client that is slow, and hears of one that is gone.
pub fn sent(ahead: usize) -> (mpsc::Sender<io::Result<Bytes>>, Body) {
    let (pieces, receiver) = mpsc::channel(ahead);
    (pieces, Body::new(Pieces(receiver)))
}

/// The whole file from its start. A client that goes away ends the reading.
pub fn body(file: File) -> Body {
    let (pieces, body) = sent(AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = read_all(file, &pieces) {
            // The receiver may be gone, and then nobody wants to know.
            drop(pieces.blocking_send(Err(error)));
        }
    });
    body
}

fn read_all(mut file: File, pieces: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    file.rewind()?;
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let limit = u64::try_from(PIECE).unwrap_or(u64::MAX);
        if (&mut file).take(limit).read_to_end(&mut piece)? == 0 {
            return Ok(());
        }
        if pieces.blocking_send(Ok(piece.into())).is_err() {
            return Ok(());
        }
    }
}
