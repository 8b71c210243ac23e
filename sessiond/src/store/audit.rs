//! Rows of the audit trail: only ever appended, the oldest beyond [`AUDIT_ROWS_MAX`] let go.

use super::Result;
use super::column::Word;
use rusqlite::{Connection, OptionalExtension, Row, params};
use wire::SessionId;
use wire::audit::{AUDIT_ROWS_MAX, Act, AuditLine, AuditView, Keeper};

/// How many appends until old rows are looked for.
const SWEEP: i64 = 1_000;

/// The newest line of the supervisor's journal that is stored.
///
/// # Errors
/// The database.
pub fn newest(db: &Connection) -> Result<u64> {
    let sql = "SELECT value FROM meta WHERE key = 'audit_seq'";
    let newest: Option<i64> = db.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    Ok(newest.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0))
}

/// Lines of the supervisor's journal, in their order.
///
/// # Errors
/// The database.
pub fn take_in(db: &Connection, lines: &[AuditLine]) -> Result<()> {
    for line in lines {
        let numbers = (Some(line.seq), line.of);
        append(db, Keeper::Supervisor, numbers, line.at_ms, &line.act, &line.outcome)?;
    }
    let Some(last) = lines.last() else { return Ok(()) };
    db.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('audit_seq', ?1)")?
        .execute([i64::try_from(last.seq).unwrap_or(i64::MAX)])?;
    Ok(())
}

/// What sessiond itself has done or refused.
///
/// # Errors
/// The database.
pub fn note(db: &Connection, at_ms: i64, act: &Act, outcome: &str) -> Result<()> {
    append(db, Keeper::Sessiond, (None, None), at_ms, act, outcome)
}

fn append(
    db: &Connection,
    source: Keeper,
    (seq, of): (Option<u64>, Option<u64>),
    at_ms: i64,
    act: &Act,
    outcome: &str,
) -> Result<()> {
    let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
    db.prepare_cached(
        "INSERT OR IGNORE INTO audit (source, source_seq, outcome_of, at_ms, uid, admin, grant_id,
         verb, session, cage, owner, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        Word(source),
        seq.map(number),
        of.map(number),
        at_ms,
        act.uid,
        act.admin,
        act.grant.map(Word),
        act.verb,
        act.session.map(Word),
        act.cage.map(Word),
        act.owner,
        outcome
    ])?;
    let id = db.last_insert_rowid();
    if id % SWEEP == 0 {
        db.prepare_cached("DELETE FROM audit WHERE id <= ?1")?.execute([id - AUDIT_ROWS_MAX])?;
    }
    Ok(())
}

/// Which entries are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Only what this operator did, or what was done to theirs.
    pub of: Option<u32>,
    pub session: Option<SessionId>,
    pub since_ms: i64,
    /// The newest so many.
    pub limit: u32,
}

/// Acts with their outcomes, the oldest first.
///
/// # Errors
/// The database.
pub fn list(db: &Connection, wanted: Wanted) -> Result<Vec<AuditView>> {
    let sql = "
        SELECT a.at_ms, a.uid, a.admin, a.grant_id, a.verb, coalesce(a.session, o.session),
            coalesce(a.cage, o.cage), coalesce(a.owner, o.owner), coalesce(o.outcome, a.outcome),
            a.source
        FROM audit a LEFT JOIN audit o ON o.outcome_of = a.source_seq
        WHERE a.outcome_of IS NULL AND a.at_ms >= ?1
        AND (?2 IS NULL OR a.uid = ?2 OR coalesce(a.owner, o.owner) = ?2)
        AND (?3 IS NULL OR coalesce(a.session, o.session) = ?3)
        ORDER BY a.id DESC LIMIT ?4";
    let mut statement = db.prepare_cached(sql)?;
    let parameters = params![wanted.since_ms, wanted.of, wanted.session.map(Word), wanted.limit];
    let rows = statement.query_map(parameters, from_row)?;
    let mut views = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    views.reverse();
    Ok(views)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<AuditView> {
    Ok(AuditView {
        at_ms: row.get(0)?,
        act: Act {
            uid: row.get(1)?,
            admin: row.get(2)?,
            grant: row.get::<_, Option<Word<_>>>(3)?.map(|word| word.0),
            verb: row.get(4)?,
            session: row.get::<_, Option<Word<_>>>(5)?.map(|word| word.0),
            cage: row.get::<_, Option<Word<_>>>(6)?.map(|word| word.0),
            owner: row.get(7)?,
        },
        outcome: row.get(8)?,
        source: row.get::<_, Word<_>>(9)?.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema;

    fn database() -> Connection {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        db
    }

    fn act(uid: u32, owner: u32) -> Act {
        let (verb, owner) = ("kill".to_owned(), Some(owner));
        Act { uid, admin: uid != 7, grant: None, verb, session: None, cage: None, owner }
    }

    fn line(seq: u64, of: Option<u64>, act: Act, outcome: &str) -> AuditLine {
        AuditLine { seq, of, at_ms: i64::try_from(seq).unwrap(), act, outcome: outcome.into() }
    }

    fn wanted(of: Option<u32>) -> Wanted {
        Wanted { of, session: None, since_ms: 0, limit: 100 }
    }

    #[test]
    fn an_act_is_one_entry_with_its_outcome_and_twice_told_is_once() {
        let db = database();
        let lines = [
            line(10, None, act(7, 7), "asked"),
            line(11, None, act(8, 7), "asked"),
            line(12, Some(10), act(7, 7), "done"),
            line(13, None, act(9, 9), "forbidden"),
        ];
        take_in(&db, &lines).unwrap();
        take_in(&db, &lines).unwrap();
        assert_eq!(newest(&db).unwrap(), 13);
        let told = |of| -> Vec<(u32, String)> {
            let views = list(&db, wanted(of)).unwrap().into_iter();
            views.map(|view| (view.act.uid, view.outcome)).collect()
        };
        let done = (7, "done".to_owned());
        let asked = (8, "asked".to_owned());
        assert_eq!(told(None), [done.clone(), asked.clone(), (9, "forbidden".to_owned())]);
        // One's own, and what was done to what is one's own.
        assert_eq!(told(Some(7)), [done, asked.clone()]);
        assert_eq!(told(Some(8)), [asked]);
        assert_eq!(list(&db, Wanted { since_ms: 12, ..wanted(None) }).unwrap().len(), 1);
        assert_eq!(list(&db, Wanted { limit: 1, ..wanted(None) }).unwrap()[0].act.uid, 9);
    }

    #[test]
    fn nothing_is_written_over_and_the_oldest_go() {
        let db = database();
        note(&db, 1, &act(7, 7), "done").unwrap();
        let changed = db.execute("UPDATE audit SET uid = 0", []);
        assert!(changed.is_err_and(|error| error.to_string().contains("only appended")));
        let skip = "INSERT INTO audit (id, source, at_ms, uid, admin, verb, outcome)
            VALUES (?1, 'sessiond', 1, 1, 0, 'x', 'done')";
        db.execute(skip, [AUDIT_ROWS_MAX + SWEEP - 1]).unwrap();
        note(&db, 1, &act(8, 8), "done").unwrap();
        let uids: Vec<u32> = list(&db, wanted(None)).unwrap().iter().map(|v| v.act.uid).collect();
        assert_eq!(uids, [1, 8]);
    }
}
