//! The accept loop: who is it, then HTTP/1.1 with upgrades, one task a connection.

use crate::access::{Operator, Verdict};
use crate::api::caller::Caller;
use crate::api::room;
use crate::app::App;
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
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tower::ServiceExt;

/// Connections of one operator at a time: one that hoards them stops only itself.
const CONNECTIONS_OF_ONE: usize = 256;
/// Of these, how many are read from before the supervisor has let their uid in; the others wait.
const STRANGERS_OF_ONE: usize = 16;
/// A request's head must be whole by then; an idle connection ends then.
const HEAD_DUE: Duration = Duration::from_secs(30);
const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Counts = Arc<Mutex<HashMap<u32, Share>>>;

/// What one uid has of us.
#[derive(Debug)]
struct Share {
    connections: usize,
    strangers: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

impl Share {
    fn new() -> Self {
        let all = |count| Arc::new(Semaphore::new(count));
        Self {
            connections: 0,
            strangers: all(STRANGERS_OF_ONE),
            room: all(room::BYTES_OF_ONE as usize),
        }
    }

    /// What is done for a connection may go on behind its end.
    fn is_over(&self) -> bool {
        self.connections == 0 && self.room.available_permits() == room::BYTES_OF_ONE as usize
    }
}

/// Serves until `stop` is true, or its sender is gone; then what was asked is still answered.
pub async fn serve(
    listener: UnixListener,
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let counts = Counts::default();
    let mut connections = JoinSet::new();
    let mut exhausted = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _address)) => match admit(stream, &counts) {
                    Ok(admitted) => {
                        exhausted = false;
                        let (router, app) = (router.clone(), Arc::clone(&app));
                        connections.spawn(connection(admitted, router, app, stop.clone()));
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
        if let Some(share) = counts.get_mut(&self.uid) {
            share.connections -= 1;
        }
        counts.retain(|_uid, share| !share.is_over());
    }
}

fn admit(stream: UnixStream, counts: &Counts) -> io::Result<Admitted> {
    let uid = link::Peer::of(&stream)?.uid;
    let (strangers, room) = {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let share = counts.entry(uid).or_insert_with(Share::new);
        if share.connections >= CONNECTIONS_OF_ONE {
            return Err(io::Error::other(format!("uid {uid} has too many connections")));
        }
        share.connections += 1;
        (Arc::clone(&share.strangers), Arc::clone(&share.room))
    };
    let turn = Turn { uid, counts: Arc::clone(counts) };
    let caller = Caller::new(Operator::new(uid), link::peer::duplicate(&stream)?).sharing(room);
    Ok(Admitted { stream, caller, strangers, turn })
}

struct Admitted {
    stream: UnixStream,
    caller: Caller,
    strangers: Arc<Semaphore>,
    turn: Turn,
}

async fn connection(
    admitted: Admitted,
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let Admitted { stream, caller, strangers, turn } = admitted;
    if app.admission.of(caller.operator) == Verdict::Ask {
        tokio::select! {
            Ok(one) = strangers.acquire_owned() => caller.as_stranger(one),
            () = told(&mut stop) => return,
        }
    }
    let asked = caller.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(asked.again());
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
        () = caller.outdated(&app) => {
            tracing::info!(uid = caller.operator.uid, "a connection is let in otherwise: it ends");
            Ok(())
        }
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
