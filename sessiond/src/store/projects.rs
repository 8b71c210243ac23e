//! Rows of projects: a folder of one operator, made on first use.

use super::Result;
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::api::Project;

#[derive(Clone, Debug)]
pub struct ProjectRow {
    pub id: i64,
    pub project: Project,
}

const COLUMNS: &str = "id, slug, folder, created_at_ms";

fn from_row(row: &Row<'_>) -> rusqlite::Result<ProjectRow> {
    let project = Project { slug: row.get(1)?, folder: row.get(2)?, created_at_ms: row.get(3)? };
    Ok(ProjectRow { id: row.get(0)?, project })
}

/// # Errors
/// The database.
pub fn by_slug(db: &Connection, uid: u32, slug: &str) -> Result<Option<ProjectRow>> {
    let sql = format!("SELECT {COLUMNS} FROM projects WHERE uid = ?1 AND slug = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![uid, slug], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn by_folder(db: &Connection, uid: u32, folder: &str) -> Result<Option<ProjectRow>> {
    let sql = format!("SELECT {COLUMNS} FROM projects WHERE uid = ?1 AND folder = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![uid, folder], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn list(db: &Connection, uid: u32) -> Result<Vec<Project>> {
    let sql = format!("SELECT {COLUMNS} FROM projects WHERE uid = ?1 ORDER BY slug");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([uid], from_row)?;
    Ok(rows.map(|row| row.map(|found| found.project)).collect::<rusqlite::Result<_>>()?)
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, uid: u32, project: &Project) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO projects (uid, slug, folder, created_at_ms) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![uid, project.slug, project.folder, project.created_at_ms])?;
    Ok(())
}
