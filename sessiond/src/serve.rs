//! The accept loop: who is it, then HTTP/1.1 with upgrades, one task a connection.

use crate::access::Operator;
use crate::api::caller::Caller;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tower::ServiceExt;

/// Connections of one operator at a time: one that hoards them stops only itself.
const CONNECTIONS_OF_ONE: usize = 256;
/// A request's head must be whole by then; an idle connection ends then.
const HEAD_DUE: Duration = Duration::from_secs(30);
const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Counts = Arc<Mutex<HashMap<u32, usize>>>;

/// Serves until `stop` is true, or its sender is gone; then what was asked is still answered.
pub async fn serve(listener: UnixListener, router: Router, mut stop: watch::Receiver<bool>) {
    let counts = Counts::default();
    let mut connections = JoinSet::new();
    let mut exhausted = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _address)) => match admit(stream, &counts) {
                    Ok(admitted) => {
                        exhausted = false;
                        connections.spawn(connection(admitted, router.clone(), stop.clone()));
                    }
                    Err(error) => tracing::debug!(%error, "a connection is not served"),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if !std::mem::replace(&mut exhausted, true) {
                        tracing::error!(%error, "accept; it is tried again until it works");
                    }
                    tokio::time::sleep(link::nonblocking::EXHAUSTED_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => note(ended),
            () = told(&mut stop) => break,
        }
    }
    while let Some(ended) = connections.join_next().await {
        note(ended);
    }
}

/// Told to end: by a word, or because nobody is left to say it.
async fn told(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the task of a connection");
    }
}

/// One connection counted; given back when it ends or is handed down.
struct Turn {
    uid: u32,
    counts: Counts,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

fn admit(stream: UnixStream, counts: &Counts) -> io::Result<(UnixStream, Caller, Turn)> {
    let uid = link::Peer::of(&stream)?.uid;
    {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(uid).or_insert(0);
        if *count >= CONNECTIONS_OF_ONE {
            return Err(io::Error::other(format!("uid {uid} has too many connections")));
        }
        *count += 1;
    }
    let turn = Turn { uid, counts: Arc::clone(counts) };
    let caller = Caller::new(Operator::new(uid), link::peer::duplicate(&stream)?);
    Ok((stream, caller, turn))
}

async fn connection(
    admitted: (UnixStream, Caller, Turn),
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let (stream, caller, turn) = admitted;
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DUE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(served);
    let served = tokio::select! {
        done = served.as_mut() => done,
        () = told(&mut stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
    drop(turn);
}
