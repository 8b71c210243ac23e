//! Rows of grants: what the cages of each are started with. Their count, their end and the hash of their
//! key are in the supervisor's own table, which believes none of this.

use super::Result;
use super::column::{Json, Word};
use rusqlite::{Connection, OptionalExtension, params};
use wire::{GrantId, Overrides, PolicySource, SessionId};

#[derive(Clone, Debug, PartialEq)]
pub struct GrantRow {
    pub id: GrantId,
    pub session: SessionId,
    pub policy: PolicySource,
    pub overrides: Overrides,
    /// The supervisor has it and its key was told.
    pub made: bool,
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, row: &GrantRow) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO grants (id, session, policy, overrides, made) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        Word(row.id),
        Word(row.session),
        Json(&row.policy),
        Json(&row.overrides),
        row.made
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: GrantId) -> Result<Option<GrantRow>> {
    let sql = "SELECT id, session, policy, overrides, made FROM grants WHERE id = ?1";
    let found = db.prepare_cached(sql)?.query_row([Word(id)], |row| {
        Ok(GrantRow {
            id: row.get::<_, Word<_>>(0)?.0,
            session: row.get::<_, Word<_>>(1)?.0,
            policy: row.get::<_, Json<_>>(2)?.0,
            overrides: row.get::<_, Json<_>>(3)?.0,
            made: row.get(4)?,
        })
    });
    Ok(found.optional()?)
}

/// # Errors
/// The database.
pub fn set_made(db: &Connection, id: GrantId) -> Result<()> {
    db.prepare_cached("UPDATE grants SET made = 1 WHERE id = ?1")?.execute([Word(id)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn delete(db: &Connection, id: GrantId) -> Result<()> {
    db.prepare_cached("DELETE FROM grants WHERE id = ?1")?.execute([Word(id)])?;
    Ok(())
}

/// Nothing is started in a session that has ended.
///
/// # Errors
/// The database.
pub fn delete_of(db: &Connection, session: SessionId) -> Result<()> {
    db.prepare_cached("DELETE FROM grants WHERE session = ?1")?.execute([Word(session)])?;
    Ok(())
}

/// Those that an earlier daemon was making when it died: nobody was told their key.
///
/// # Errors
/// The database.
pub fn delete_unmade(db: &Connection) -> Result<()> {
    db.execute("DELETE FROM grants WHERE made = 0", [])?;
    Ok(())
}
