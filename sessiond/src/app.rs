//! What every request needs: the store, the link, and who we are.

use crate::access::Admission;
use crate::api::caller::Known;
use crate::store::{Result, Store};
use crate::supervisor_link::SupervisorLink;
use rusqlite::Connection;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use wire::hello::{self, Hello};

/// Cages whose scrollback is fetched at the same time.
const FILING: usize = 2;

#[derive(Debug)]
pub struct App {
    pub store: Store,
    pub link: SupervisorLink,
    pub epoch: i64,
    pub admission: Admission,
    /// What we say of ourselves to the supervisor and to clients.
    pub hello: Hello,
    pub filing: Semaphore,
    pub known: Mutex<Known>,
    /// Counts how often the supervisor may have read its rules: once a link, and when it says so.
    pub rules: watch::Sender<u64>,
    /// True: we end, and with us every answer that has no end of its own.
    pub stopping: watch::Sender<bool>,
}

impl App {
    #[must_use]
    pub fn new(store: Store, supervisor: SupervisorLink, epoch: i64, admission: Admission) -> Self {
        let (filing, known) = (Semaphore::new(FILING), Mutex::default());
        let speaks = link::failpoint::variable(hello::SPEAKS);
        let hello = Hello::speaking("mews-sessiond", speaks.as_deref());
        let (rules, stopping) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { store, link: supervisor, epoch, admission, hello, filing, known, rules, stopping }
    }

    /// Looks again with every commit until `look` finds what it looks for, for so long; `None`: not
    /// found. Each look is taken to its end: what it refuses is refused however short the time is.
    ///
    /// # Errors
    /// What `look` says.
    pub async fn within<T: Send + 'static>(
        &self,
        patience: Duration,
        look: impl Fn(&Connection) -> Result<Option<T>> + Clone + Send + 'static,
    ) -> Result<Option<T>> {
        let mut changes = self.store.changes();
        let mut over = std::pin::pin!(tokio::time::sleep(patience));
        loop {
            changes.mark_unchanged();
            if let Some(found) = self.store.read(look.clone()).await? {
                return Ok(Some(found));
            }
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = &mut over => return Ok(None),
            }
        }
    }
}
