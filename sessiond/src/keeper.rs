//! Keeps the link to the supervisor: connects, reconciles, takes events in, and does so again.
//!
//! Events are stored in one transaction a batch, then acknowledged. When the disk refuses, they
//! are dropped unacknowledged: they wait in their source's file, and as soon as a write succeeds
//! the link is made anew, which brings them again.

use crate::app::App;
use crate::audit;
use crate::filing;
use crate::grants;
use crate::layers;
use crate::ledger::{self, Applied};
use crate::reconcile::{self, Todo};
use crate::store::{Result, ptys};
use crate::supervisor_link::{self, ConnectError, Connection, Incoming, RequestError};
use link::failpoint;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wire::supervisor::{CageState, SupervisorRequest};
use wire::{CageId, Event, Source};

/// Most events in one transaction.
const BATCH: usize = 512;
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(100);
/// How often a degraded database is tried.
const PROBE: Duration = Duration::from_secs(1);
/// How long events of a cage that is gone may take to come after a reconnect.
const EVENTS_DUE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Keeper {
    pub app: Arc<App>,
    pub socket: PathBuf,
    /// Given to the supervisor with each hello, so that a restarted one has it again.
    pub listener: OwnedFd,
    pub current: watch::Sender<Option<Connection>>,
}

impl Keeper {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut pause = RETRY_FIRST;
        loop {
            let (ours, rules) = (&self.app.hello, &self.app.rules);
            let link = supervisor_link::connect(&self.socket, ours, &self.listener, rules);
            match link.await {
                Ok((connection, incoming)) => {
                    tracing::info!(build = %connection.build, pid = connection.pid, "supervisor");
                    self.live(&connection, incoming).await;
                    self.current.send_replace(None);
                    pause = RETRY_FIRST;
                }
                Err(error) => {
                    // It replaces us, or its operator does.
                    if matches!(error, ConnectError::Foreign(_)) {
                        tracing::warn!(%error, "no supervisor");
                    } else {
                        tracing::debug!(%error, "no supervisor yet");
                    }
                    pause = (pause * 2).min(RETRY_LAST);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One life of the link.
    async fn live(&self, connection: &Connection, mut incoming: Incoming) {
        let mut healthy = self.app.store.healthy();
        let mut probe = tokio::time::interval(PROBE);
        let mut batch = Vec::with_capacity(BATCH);
        let mut degraded = !*healthy.borrow_and_update();
        let mut listed = false;
        let trail = incoming.audit.clone();
        tokio::spawn(audit::follow(Arc::clone(&self.app), connection.clone(), trail));
        let list = connection.list();
        tokio::pin!(list);
        loop {
            tokio::select! {
                snapshot = &mut list, if !listed => {
                    listed = true;
                    match snapshot {
                        Ok(snapshot) => degraded |= !self.reconcile(connection, snapshot).await,
                        Err(RequestError::Refused(error)) => {
                            tracing::error!(%error, "the list of cages");
                            return;
                        }
                        Err(RequestError::NotSent | RequestError::Lost) => return,
                    }
                    self.current.send_replace(Some(connection.clone()));
                    // It may be another one, with other rules.
                    self.app.rules.send_modify(|count| *count += 1);
                }
                count = incoming.events.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    let events = std::mem::take(&mut batch);
                    // Once one was dropped all later ones are, so that an ack never covers a hole.
                    if !degraded {
                        degraded = !self.take_in(connection, events).await;
                    }
                }
                _ = probe.tick(), if degraded => {
                    if self.app.store.write(crate::epoch::probe).await.is_ok() {
                        tracing::info!("the database can be written again");
                        return;
                    }
                }
            }
        }
    }

    /// Stores events, then acknowledges them. False: nothing was stored.
    async fn take_in(&self, connection: &Connection, events: Vec<Event>) -> bool {
        let mut newest: HashMap<(CageId, Source), u64> = HashMap::new();
        for event in &events {
            let seq = newest.entry((event.cage, event.source)).or_insert(0);
            *seq = event.seq.max(*seq);
        }
        let stored = self.app.store.write(move |db| {
            events.iter().map(|event| ledger::apply(db, event)).collect::<Result<Vec<Applied>>>()
        });
        let stored = stored.await;
        failpoint::reach("events.stored");
        match stored {
            Ok(applied) => {
                for ((cage, source), seq) in newest {
                    connection.ack(cage, source, seq);
                }
                for one in applied {
                    if let Applied::Gone(cage) = one {
                        filing::spawn(&self.app, connection, cage);
                    }
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "events wait in their source's file");
                false
            }
        }
    }

    /// Makes rows and snapshot agree. False: the disk refused.
    async fn reconcile(&self, connection: &Connection, snapshot: Vec<CageState>) -> bool {
        failpoint::reach("reconcile.listed");
        let done = self.app.store.write(move |db| {
            let todo = reconcile::reconcile(db, snapshot)?;
            Ok((todo, ptys::unfiled(db)?))
        });
        match done.await {
            Ok((todo, unfiled)) => {
                failpoint::reach("reconcile.rows");
                self.follow_up(connection, todo);
                let mut cages: Vec<CageId> = unfiled.into_iter().map(|(cage, _pty)| cage).collect();
                cages.dedup();
                for cage in cages {
                    filing::spawn(&self.app, connection, cage);
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "reconciling");
                false
            }
        }
    }

    fn follow_up(&self, connection: &Connection, todo: Todo) {
        tokio::spawn(layers::tidy(Arc::clone(&self.app), connection.clone()));
        tokio::spawn(grants::tidy(Arc::clone(&self.app), connection.clone()));
        for cage in todo.strangers {
            tracing::warn!(%cage, "a living cage that no session has");
        }
        for cage in todo.forget {
            let connection = connection.clone();
            tokio::spawn(async move { forget(&connection, cage).await });
        }
        for state in todo.unsettled {
            let (app, connection) = (Arc::clone(&self.app), connection.clone());
            tokio::spawn(async move { settle(&app, &connection, state).await });
        }
    }
}

/// The files of an ended cage may go; if that is not heard, the next reconciliation says it again.
pub async fn forget(connection: &Connection, cage: CageId) {
    if let Err(error) = connection.request(&SupervisorRequest::Forget { cage }, Vec::new()).await {
        tracing::debug!(?error, %cage, "forget");
    }
}

/// Gives the events of a cage that is gone their time, then lets the snapshot decide.
async fn settle(app: &Arc<App>, connection: &Connection, state: CageState) {
    let (cage, run) = (state.cage, state.run);
    let over = app.within(EVENTS_DUE, move |db| {
        let gone = crate::store::cages::bare(db, cage)?
            .is_none_or(|row| row.phase == wire::supervisor::Phase::Gone);
        let ended = crate::store::runs::get(db, run)?.is_none_or(|row| row.exit.is_some());
        Ok((gone && ended).then_some(()))
    });
    if !matches!(over.await, Ok(None)) {
        return;
    }
    match app.store.write(move |db| reconcile::gone(db, &state)).await {
        Ok(()) => filing::spawn(app, connection, cage),
        Err(error) => tracing::warn!(%error, %cage, "settling"),
    }
}
