//! Rows of sessions.

use super::column::{Json, Word};
use super::{Result, cages, runs};
use rusqlite::types::{ToSql, ToSqlOutput, Value};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use std::collections::BTreeMap;
use wire::SessionId;
use wire::api::{SessionState, SessionView};

/// Ended sessions that a plain list still shows.
const ENDED_SHOWN: u32 = 10;

#[derive(Clone, Debug)]
pub struct SessionRow {
    pub id: SessionId,
    pub uid: u32,
    pub project: i64,
    pub slug: String,
    pub folder: String,
    pub name: String,
    pub state: SessionState,
    pub archived: bool,
    pub labels: BTreeMap<String, String>,
    pub source: String,
    pub end_on_exit: bool,
    pub created_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    pub seq: i64,
}

const SELECT: &str = "SELECT s.id, s.uid, s.project, p.slug, p.folder, s.name, s.state, s.archived,
    s.labels, s.source, s.end_on_exit, s.created_at_ms, s.ended_at_ms, s.seq
    FROM sessions s JOIN projects p ON p.id = s.project";

fn from_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get::<_, Word<_>>(0)?.0,
        uid: row.get(1)?,
        project: row.get(2)?,
        slug: row.get(3)?,
        folder: row.get(4)?,
        name: row.get(5)?,
        state: row.get::<_, Word<_>>(6)?.0,
        archived: row.get(7)?,
        labels: row.get::<_, Json<_>>(8)?.0,
        source: row.get(9)?,
        end_on_exit: row.get(10)?,
        created_at_ms: row.get(11)?,
        ended_at_ms: row.get(12)?,
        seq: row.get(13)?,
    })
}

/// # Errors
/// The database.
pub fn get(db: &Connection, id: SessionId) -> Result<Option<SessionRow>> {
    let sql = format!("{SELECT} WHERE s.id = ?1");
    Ok(db.prepare_cached(&sql)?.query_row([Word(id)], from_row).optional()?)
}

/// # Errors
/// The database.
pub fn by_name(db: &Connection, uid: u32, name: &str) -> Result<Option<SessionRow>> {
    let sql = format!("{SELECT} WHERE s.uid = ?1 AND s.name = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![uid, name], from_row).optional()?)
}

/// Names of this operator that begin with `prefix`.
///
/// # Errors
/// The database.
pub fn names(db: &Connection, uid: u32, prefix: &str) -> Result<Vec<String>> {
    let sql = "SELECT name FROM sessions WHERE uid = ?1 AND substr(name, 1, length(?2)) = ?2";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params![uid, prefix], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Which sessions a list shows.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this operator's.
    pub owner: Option<u32>,
    /// Archived ones too, and all that ended, not only the last ten of those that fit.
    pub all: bool,
    /// Any of these; then all that ended, too.
    pub states: Vec<SessionState>,
    /// All of these, each with any value or with this one.
    pub labels: Vec<(String, Option<String>)>,
    pub project: Option<String>,
    /// This one, or one that goes on behind it with a colon.
    pub source: Option<String>,
    pub name: Option<String>,
    /// Only what comes behind this one.
    pub after: Option<SessionId>,
    pub limit: u32,
}

/// A statement that is put together, with its values in order.
#[derive(Debug, Default)]
struct Clauses {
    sql: String,
    values: Vec<Value>,
}

impl Clauses {
    /// The place of a value, which may stand in the statement more than once.
    fn place(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn and(&mut self, clause: &str) {
        let joint = if self.sql.is_empty() { "" } else { " AND " };
        self.sql.push_str(joint);
        self.sql.push_str(clause);
    }
}

/// Those that fit, by id, which is by age; and whether there are more.
///
/// # Errors
/// The database.
pub fn page(db: &Connection, filter: &Filter) -> Result<(Vec<SessionRow>, bool)> {
    let mut clauses = fitting(filter)?;
    if !filter.all && filter.states.is_empty() {
        // Over all pages the same ten: a page begins and ends within what is shown. Each part goes along
        // an index of its own.
        let fit = clauses.sql.clone();
        let from = "FROM sessions s JOIN projects p ON p.id = s.project";
        let last = |state: &str| {
            format!(
                "SELECT * FROM (SELECT s.id, s.ended_at_ms {from} WHERE {fit} AND s.state = '{state}'
                 ORDER BY s.ended_at_ms DESC, s.id DESC LIMIT {ENDED_SHOWN})"
            )
        };
        clauses.and(&format!(
            "s.id IN (SELECT s.id {from} WHERE {fit} AND s.state NOT IN ('ended', 'failed')
             UNION ALL SELECT id FROM (SELECT * FROM ({} UNION ALL {})
             ORDER BY ended_at_ms DESC, id DESC LIMIT {ENDED_SHOWN}))",
            last("ended"),
            last("failed")
        ));
    }
    if let Some(after) = filter.after {
        let place = clauses.place(after.to_string());
        clauses.and(&format!("s.id > {place}"));
    }
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let more = clauses.place(i64::from(filter.limit) + 1);
    let sql = format!("{SELECT} WHERE {} ORDER BY s.id LIMIT {more}", clauses.sql);
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(clauses.values), from_row)?;
    let mut found: Vec<SessionRow> = rows.collect::<rusqlite::Result<_>>()?;
    let is_more = found.len() > limit;
    found.truncate(limit);
    Ok((found, is_more))
}

fn fitting(filter: &Filter) -> Result<Clauses> {
    let mut clauses = Clauses::default();
    clauses.and(if filter.all { "true" } else { "NOT s.archived" });
    if let Some(uid) = filter.owner {
        let place = clauses.place(uid);
        clauses.and(&format!("s.uid = {place}"));
    }
    if !filter.states.is_empty() {
        let mut places = Vec::new();
        for state in &filter.states {
            let ToSqlOutput::Owned(word) = Word(*state).to_sql()? else { continue };
            places.push(clauses.place(word));
        }
        clauses.and(&format!("s.state IN ({})", places.join(", ")));
    }
    for (key, value) in &filter.labels {
        let key = clauses.place(key.clone());
        let value = match value {
            Some(value) => format!(" AND value = {}", clauses.place(value.clone())),
            None => String::new(),
        };
        clauses
            .and(&format!("EXISTS (SELECT 1 FROM json_each(s.labels) WHERE key = {key}{value})"));
    }
    for (column, wanted) in [("p.slug", &filter.project), ("s.name", &filter.name)] {
        if let Some(wanted) = wanted {
            let place = clauses.place(wanted.clone());
            clauses.and(&format!("{column} = {place}"));
        }
    }
    if let Some(source) = &filter.source {
        let place = clauses.place(source.clone());
        clauses.and(&format!(
            "(s.source = {place} OR substr(s.source, 1, length({place}) + 1) = {place} || ':')"
        ));
    }
    Ok(clauses)
}

/// # Errors
/// The database.
pub fn insert(db: &Connection, row: &SessionRow) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO sessions (id, project, uid, name, state, labels, source, end_on_exit,
         created_at_ms, used_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)",
    )?
    .execute(params![
        Word(row.id),
        row.project,
        row.uid,
        row.name,
        Word(row.state),
        Json(&row.labels),
        row.source,
        row.end_on_exit,
        row.created_at_ms
    ])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_state(db: &Connection, id: SessionId, state: SessionState, at_ms: i64) -> Result<()> {
    let ended = matches!(state, SessionState::Ended | SessionState::Failed).then_some(at_ms);
    db.prepare_cached("UPDATE sessions SET state = ?2, ended_at_ms = ?3 WHERE id = ?1")?
        .execute(params![Word(id), Word(state), ended])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn set_end_on_exit(db: &Connection, id: SessionId, end_on_exit: bool) -> Result<()> {
    db.prepare_cached("UPDATE sessions SET end_on_exit = ?2 WHERE id = ?1")?
        .execute(params![Word(id), end_on_exit])?;
    Ok(())
}

/// Name, labels and archive, as they stand in `row`.
///
/// # Errors
/// The database; the name is taken.
pub fn amend(db: &Connection, row: &SessionRow) -> Result<()> {
    db.prepare_cached("UPDATE sessions SET name = ?2, labels = ?3, archived = ?4 WHERE id = ?1")?
        .execute(params![Word(row.id), row.name, Json(&row.labels), row.archived])?;
    Ok(())
}

/// Remembers that somebody worked with it: `resolve` prefers what was used last.
///
/// # Errors
/// The database.
pub fn touch(db: &Connection, id: SessionId, at_ms: i64) -> Result<()> {
    db.prepare_cached("UPDATE sessions SET used_at_ms = ?2 WHERE id = ?1")?
        .execute(params![Word(id), at_ms])?;
    Ok(())
}

/// Removes it with all that hangs on it.
///
/// # Errors
/// The database.
pub fn delete(db: &Connection, id: SessionId) -> Result<()> {
    db.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([Word(id)])?;
    Ok(())
}

/// # Errors
/// The database.
pub fn view(db: &Connection, row: SessionRow) -> Result<SessionView> {
    Ok(SessionView {
        runs: runs::of_session(db, row.id)?,
        cages: cages::of_session(db, row.id)?,
        id: row.id,
        name: row.name,
        project: row.slug,
        folder: row.folder,
        state: row.state,
        archived: row.archived,
        labels: row.labels,
        source: row.source,
        end_on_exit: row.end_on_exit,
        uid: row.uid,
        created_at_ms: row.created_at_ms,
        ended_at_ms: row.ended_at_ms,
        seq: row.seq,
    })
}
