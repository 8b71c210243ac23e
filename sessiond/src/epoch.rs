//! A number that changes with every start: a reader of events sees that it talks to another life.

use crate::clock::now_ms;
use crate::store::Result;
use rusqlite::{Connection, OptionalExtension};

/// The time of this start, but always more than the last one.
///
/// # Errors
/// The database.
pub fn next(db: &Connection) -> Result<i64> {
    let last: Option<i64> = db
        .query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0))
        .optional()?;
    let epoch = last.map_or(0, |last| last + 1).max(now_ms());
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('epoch', ?1)", [epoch])?;
    Ok(epoch)
}

/// A write that means nothing: does the disk take it?
///
/// # Errors
/// It does not.
pub fn probe(db: &Connection) -> Result<()> {
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?1)", [now_ms()])?;
    Ok(())
}
