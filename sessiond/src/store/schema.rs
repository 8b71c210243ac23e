//! The tables, as steps from each version to the next. `PRAGMA user_version` says where we stand.
//!
//! A step is never edited once it was released; a change is a new step.

use super::{Result, StoreError};
use rusqlite::Connection;
use wire::{ErrorCode, WireError};

/// Step N brings version N to N + 1.
const STEPS: &[&str] = &[FIRST, CHECKPOINTS, GRANTS, AUDIT, BUILDS, REQUESTS, LAST_STATE, LISTS];

const FIRST: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY,
    uid INTEGER NOT NULL,
    slug TEXT NOT NULL,
    folder TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (uid, slug),
    UNIQUE (uid, folder)
) STRICT;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES projects (id),
    uid INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    archived INTEGER NOT NULL DEFAULT 0,
    labels TEXT NOT NULL,
    source TEXT NOT NULL,
    end_on_exit INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER,
    used_at_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    UNIQUE (uid, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_state ON sessions (state, ended_at_ms);
CREATE INDEX sessions_by_project ON sessions (project);

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    argv TEXT NOT NULL,
    policy TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER,
    ended_at_ms INTEGER,
    exit TEXT,
    error TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_session ON runs (session);
CREATE INDEX runs_living ON runs (state) WHERE state IN ('pending', 'running', 'suspended');

CREATE TABLE cages (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    phase TEXT NOT NULL,
    pid INTEGER,
    plan_hash TEXT NOT NULL DEFAULT '',
    enforced TEXT NOT NULL DEFAULT '{\"walls\":[]}',
    exit TEXT,
    started_at_ms INTEGER,
    ended_at_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX cages_by_session ON cages (session);
CREATE INDEX cages_by_run ON cages (run);
CREATE INDEX cages_living ON cages (phase) WHERE phase <> 'gone';

CREATE TABLE ptys (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    cage TEXT NOT NULL REFERENCES cages (id) ON DELETE CASCADE,
    argv TEXT NOT NULL,
    tty INTEGER NOT NULL,
    main INTEGER NOT NULL,
    size TEXT,
    viewers INTEGER NOT NULL DEFAULT 0,
    started_at_ms INTEGER,
    ended_at_ms INTEGER,
    exit TEXT,
    bytes INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX ptys_by_session ON ptys (session);
CREATE INDEX ptys_by_cage ON ptys (cage);

CREATE TABLE events (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    run TEXT,
    cage TEXT,
    source TEXT,
    source_seq INTEGER,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX events_by_source ON events (cage, source, source_seq)
    WHERE source IS NOT NULL;

CREATE TABLE scrollbacks (
    pty TEXT PRIMARY KEY REFERENCES ptys (id) ON DELETE CASCADE,
    rendered BLOB NOT NULL
) STRICT;

CREATE TABLE client_requests (
    uid INTEGER NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    made TEXT NOT NULL,
    PRIMARY KEY (uid, scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX client_requests_by_age ON client_requests (created_at_ms);
";

const CHECKPOINTS: &str = "
CREATE TABLE checkpoints (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    note TEXT,
    created_by INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    run TEXT,
    cages TEXT NOT NULL DEFAULT '[]',
    superseded INTEGER NOT NULL DEFAULT 0,
    error TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoints_by_session ON checkpoints (session);
";

const BUILDS: &str = "
ALTER TABLE cages ADD COLUMN build TEXT;
ALTER TABLE cages ADD COLUMN unreachable TEXT;
";

/// What a `client_request_id` asked for, as a hash; null: an older build wrote it down.
const REQUESTS: &str = "
ALTER TABLE client_requests ADD COLUMN asked TEXT;
CREATE INDEX sessions_by_owner ON sessions (uid);
";

const LAST_STATE: &str = "
ALTER TABLE scrollbacks ADD COLUMN last TEXT;
";

/// What a list shows is found without a look at all that ever ended.
const LISTS: &str = "
DROP INDEX sessions_by_owner;
CREATE INDEX sessions_by_owner ON sessions (uid, state, ended_at_ms);
CREATE INDEX sessions_living ON sessions (uid) WHERE state NOT IN ('ended', 'failed');
";

const GRANTS: &str = "
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    policy TEXT NOT NULL,
    overrides TEXT NOT NULL,
    made INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_by_session ON grants (session);
";

const AUDIT: &str = "
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    source_seq INTEGER,
    outcome_of INTEGER,
    at_ms INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    admin INTEGER NOT NULL,
    grant_id TEXT,
    verb TEXT NOT NULL,
    session TEXT,
    cage TEXT,
    owner INTEGER,
    outcome TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX audit_by_source ON audit (source_seq) WHERE source_seq IS NOT NULL;
CREATE INDEX audit_by_outcome ON audit (outcome_of) WHERE outcome_of IS NOT NULL;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit trail is only appended to'); END;
";

/// Brings the database to the newest version, one transaction a step.
///
/// # Errors
/// It is newer than this build, or a step fails; then it stays at the version it had.
pub fn migrate(connection: &mut Connection) -> Result<()> {
    migrate_to(connection, STEPS.len())
}

fn migrate_to(connection: &mut Connection, target: usize) -> Result<()> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > STEPS.len() {
        return Err(StoreError::Denied(WireError::new(
            ErrorCode::Conflict,
            format!(
                "The database was written by a newer mews: it is of version {found}, mews {} knows \
                 up to {}. Nothing was changed in it. Install the newer one again, or move the \
                 database away to begin anew.",
                env!("CARGO_PKG_VERSION"),
                STEPS.len()
            ),
        )));
    }
    for (version, step) in (1_u32..).zip(STEPS).take(target).skip(found) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(connection: &Connection) -> Vec<(String, String)> {
        let sql = "SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn every_older_version_arrives_at_the_same_tables() {
        let mut fresh = Connection::open_in_memory().unwrap();
        migrate(&mut fresh).unwrap();
        for older in 0..=STEPS.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            migrate_to(&mut connection, older).unwrap();
            migrate(&mut connection).unwrap();
            assert_eq!(tables(&connection), tables(&fresh), "from version {older}");
            migrate(&mut connection).unwrap();
        }
    }

    #[test]
    fn a_database_of_a_newer_build_is_refused_untouched() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(migrate(&mut connection), Err(StoreError::Denied(_))));
        assert!(tables(&connection).is_empty());
    }
}
