//! The database: one writer thread with group commit, two readers, and nothing else of ours in it.
//!
//! A write is a closure over the transaction. It runs inside a savepoint, so that a refused one
//! leaves no trace, and it is answered only after the commit that holds it: durable first. What
//! waits in the queue (at most [`QUEUE`] closures; callers wait beyond that) is committed together.
//!
//! A disk that is full or gone makes the store *degraded*: reads go on, writes fail with
//! [`StoreError::Unavailable`], and the first write that succeeds ends it.

pub mod audit;
pub mod cages;
pub mod checkpoints;
pub mod column;
pub mod events;
pub mod grants;
pub mod projects;
pub mod ptys;
pub mod requests;
pub mod runs;
pub mod schema;
pub mod sessions;

use rusqlite::{Connection, ErrorCode as SqlCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{ErrorCode, WireError};

/// Closures that may wait for the writer; a caller beyond that waits itself.
const QUEUE: usize = 1024;
/// Most closures in one commit.
const GROUP: usize = 256;
const READERS: usize = 2;
/// More than there are: each is compiled once for a connection.
const STATEMENTS: usize = 128;
/// Another process may hold the lock for a moment (a backup, `sqlite3` in a shell).
const BUSY_MS: u64 = 2_000;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The caller's fault, or the state of things: passed on as it is.
    #[error(transparent)]
    Denied(#[from] WireError),
    /// The disk said no. It may say yes later.
    #[error("the database cannot be written: {0}")]
    Unavailable(String),
    /// A statement of ours is wrong.
    #[error("database: {0}")]
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                SqlCode::DiskFull
                | SqlCode::ReadOnly
                | SqlCode::SystemIoFailure
                | SqlCode::CannotOpen
                | SqlCode::DatabaseBusy
                | SqlCode::DatabaseLocked
                | SqlCode::OutOfMemory
                | SqlCode::DatabaseCorrupt
                | SqlCode::NotADatabase,
            ) => Self::Unavailable(error.to_string()),
            Some(_) | None => Self::Sql(error),
        }
    }
}

impl From<StoreError> for WireError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Denied(error) => error,
            StoreError::Unavailable(why) => Self::new(
                ErrorCode::StorageUnavailable,
                format!(
                    "The database cannot be written ({why}); living cages go on. Make room on its \
                     disk and try again."
                ),
            ),
            StoreError::Sql(error) => Self::new(ErrorCode::Internal, format!("database: {error}")),
        }
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Called after the commit, with how it went.
type Completion = Box<dyn FnOnce(Result<(), String>) + Send>;
/// Given the open transaction, or why there is none.
type Write = Box<dyn FnOnce(Result<&Connection, String>) -> Completion + Send>;
type Read = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub struct Store {
    writes: mpsc::Sender<Write>,
    reads: mpsc::Sender<Read>,
    changes: watch::Receiver<u64>,
    healthy: watch::Receiver<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    path: PathBuf,
}

impl Store {
    /// Opens the database, made and brought to the newest version where needed.
    ///
    /// # Errors
    /// It cannot be opened, or it is of a newer version than this build knows.
    pub fn open(path: &Path) -> Result<Self> {
        let mut connection = Connection::open(path)?;
        prepare(&connection)?;
        schema::migrate(&mut connection)?;
        let (writes, write_queue) = mpsc::channel(QUEUE);
        let (reads, read_queue) = mpsc::channel(QUEUE);
        let (changed, changes) = watch::channel(0);
        let (health, healthy) = watch::channel(true);
        let read_queue = Arc::new(Mutex::new(read_queue));
        let mut threads = Vec::new();
        let writer = Writer { connection, changed, health };
        threads.push(spawn("store-writer", move || writer.run(write_queue))?);
        for _ in 0..READERS {
            let connection = Connection::open_with_flags(
                path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            let queue = Arc::clone(&read_queue);
            threads.push(spawn("store-reader", move || read_all(&connection, &queue))?);
        }
        let threads = Mutex::new(threads);
        Ok(Self { writes, reads, changes, healthy, threads, path: path.to_owned() })
    }

    /// Runs `act` in a transaction and answers when it is on the disk.
    ///
    /// # Errors
    /// What `act` says, or the commit.
    pub async fn write<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Write = Box::new(move |transaction| {
            let outcome = match transaction {
                Ok(connection) => in_savepoint(connection, act),
                Err(why) => Err(StoreError::Unavailable(why)),
            };
            Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => outcome,
                    Err(why) => Err(StoreError::Unavailable(why)),
                };
                // A caller that went away wants no answer; what it asked for is done.
                drop(answer.send(result));
            })
        });
        let closed = || StoreError::Unavailable("it is closed".to_owned());
        self.writes.send(job).await.map_err(|_closed| closed())?;
        answered.await.map_err(|_closed| closed())?
    }

    /// Runs `act` on a consistent view of what is committed.
    ///
    /// # Errors
    /// What `act` says.
    pub async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Read = Box::new(move |connection| {
            let result = connection.unchecked_transaction().map_err(StoreError::from);
            drop(answer.send(result.and_then(|snapshot| act(&snapshot))));
        });
        let closed = || StoreError::Unavailable("it is closed".to_owned());
        self.reads.send(job).await.map_err(|_closed| closed())?;
        answered.await.map_err(|_closed| closed())?
    }

    /// Changes with every commit: what waits for something looks again then.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// False while the disk refuses writes.
    #[must_use]
    pub fn healthy(&self) -> watch::Receiver<bool> {
        self.healthy.clone()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the threads after what is queued is done.
    pub fn close(self) {
        let Self { writes, reads, threads, .. } = self;
        drop((writes, reads));
        for thread in threads.into_inner().unwrap_or_default() {
            if thread.join().is_err() {
                tracing::error!("a thread of the store has panicked");
            }
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| StoreError::Unavailable(error.to_string()))
}

fn prepare(connection: &Connection) -> Result<()> {
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn in_savepoint<T>(
    connection: &Connection,
    act: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    connection.execute_batch("SAVEPOINT one")?;
    let result = act(connection);
    // After SQLITE_FULL or SQLITE_IOERR the whole transaction may be rolled back already.
    if !connection.is_autocommit() {
        if result.is_err() {
            connection.execute_batch("ROLLBACK TO one")?;
        }
        connection.execute_batch("RELEASE one")?;
    }
    result
}

fn read_all(connection: &Connection, queue: &Mutex<mpsc::Receiver<Read>>) {
    loop {
        let next = match queue.lock() {
            Ok(mut queue) => queue.blocking_recv(),
            Err(_poisoned) => None,
        };
        match next {
            Some(job) => job(connection),
            None => return,
        }
    }
}

struct Writer {
    connection: Connection,
    changed: watch::Sender<u64>,
    health: watch::Sender<bool>,
}

impl Writer {
    fn run(self, mut queue: mpsc::Receiver<Write>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP {
                match queue.try_recv() {
                    Ok(next) => group.push(next),
                    Err(_empty) => break,
                }
            }
            self.commit(group);
        }
    }

    fn commit(&self, group: Vec<Write>) {
        let mut completions = Vec::with_capacity(group.len());
        let mut outcome = self.batch("BEGIN IMMEDIATE");
        for job in group {
            // Without a transaction a savepoint would be one, and would commit by itself.
            completions.push(job(outcome.clone().map(|()| &self.connection)));
            if outcome.is_ok() && self.connection.is_autocommit() {
                outcome = Err("the transaction was rolled back by the database".to_owned());
            }
        }
        if outcome.is_ok() {
            outcome = self.batch("COMMIT");
        }
        if !self.connection.is_autocommit()
            && let Err(why) = self.batch("ROLLBACK")
        {
            tracing::error!(why, "rollback");
        }
        self.tell(&outcome);
        for completion in completions {
            completion(outcome.clone());
        }
    }

    fn batch(&self, sql: &str) -> Result<(), String> {
        self.connection.execute_batch(sql).map_err(|error| error.to_string())
    }

    fn tell(&self, outcome: &Result<(), String>) {
        let healthy = outcome.is_ok();
        if let Err(why) = outcome {
            tracing::warn!(why, "a commit failed");
        }
        self.health.send_if_modified(|was| std::mem::replace(was, healthy) != healthy);
        if healthy {
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests;
