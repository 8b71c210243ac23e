//! The same cages, told by four: the database, the supervisor's records, the kernel, the folders.
//!
//! What is written here must hold whenever nothing is under way, whatever was killed before. It is
//! read from outside, with SQL and from `/proc`, so that no daemon can be wrong about itself.

use anyhow::{Context as _, ensure};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;
use testkit::{Sandbox, leftovers, pause};

/// What is under way must have come to its end by then.
const SETTLED: Duration = Duration::from_secs(30);

/// Waits until all agree.
///
/// # Errors
/// They do not; the sentences say where.
pub(crate) fn agrees(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut last = Vec::new();
    let settled = pause::until("database, records and kernel agree", SETTLED, || {
        match problems(sandbox) {
            Ok(found) => last = found,
            Err(error) => last = vec![format!("{error:#}")],
        }
        last.is_empty().then_some(())
    });
    settled.map_err(|error| error.context(last.join("\n")))
}

/// Every sentence is a contradiction.
///
/// # Errors
/// Something could not be read.
pub(crate) fn problems(sandbox: &Sandbox) -> anyhow::Result<Vec<String>> {
    let database = sandbox.state_dir().join("db/mews.db");
    let db = Connection::open_with_flags(&database, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .with_context(|| database.display().to_string())?;
    db.busy_timeout(Duration::from_secs(2))?;
    // All queries see the same moment.
    db.execute_batch("BEGIN")?;
    let records = records(&sandbox.state_dir().join("sup"))?;
    let mut found = Vec::new();
    found.extend(sentences(&db, ROWS)?);
    found.extend(sequences(&db)?);
    found.extend(cages(&db, &records)?);
    found.extend(files(sandbox, &records));
    found.extend(groups(sandbox, &records));
    Ok(found)
}

/// Contradictions inside the database. Each query gives sentences.
const ROWS: &[&str] = &[
    "SELECT 'run ' || id || ' is pending' FROM runs WHERE state = 'pending'",
    "SELECT 'run ' || id || ' is ' || state || ' without a living cage' FROM runs r
     WHERE state IN ('running', 'suspended')
     AND NOT EXISTS (SELECT 1 FROM cages c WHERE c.run = r.id AND c.phase <> 'gone')",
    "SELECT 'run ' || r.id || ' is ' || r.state || ', its cage ' || c.phase
     FROM runs r JOIN cages c ON c.run = r.id
     WHERE (r.state = 'running') <> (c.phase = 'running')
     OR (r.state = 'suspended') <> (c.phase = 'suspended')",
    "SELECT 'run ' || id || ' is over and has no exit' FROM runs
     WHERE state IN ('done', 'failed', 'cancelled') AND (exit IS NULL OR ended_at_ms IS NULL)",
    "SELECT 'cage ' || id || ' is gone and has no exit' FROM cages
     WHERE phase = 'gone' AND (exit IS NULL OR ended_at_ms IS NULL)",
    "SELECT 'cage ' || id || ' is still ' || phase FROM cages WHERE phase IN ('starting', 'ending')",
    "SELECT 'terminal ' || p.id || ' of a cage that is gone has no exit'
     FROM ptys p JOIN cages c ON c.id = p.cage WHERE c.phase = 'gone' AND p.exit IS NULL",
    "SELECT 'terminal ' || p.id || ' was never started and is not over'
     FROM ptys p JOIN cages c ON c.id = p.cage
     WHERE c.phase = 'running' AND p.main = 0 AND p.started_at_ms IS NULL AND p.exit IS NULL",
    "SELECT 'session ' || name || ' is ' || state || ' over a living cage' FROM sessions s
     WHERE state IN ('ended', 'failed', 'idle')
     AND EXISTS (SELECT 1 FROM cages c WHERE c.session = s.id AND c.phase <> 'gone')",
    "SELECT 'run ' || run || ' has ' || count(*) || ' ends in its events' FROM events
     WHERE kind IN ('run.ended', 'run.failed') GROUP BY run HAVING count(*) <> 1",
    "SELECT 'run ' || id || ' is over and no event says so' FROM runs r
     WHERE state IN ('done', 'failed', 'cancelled') AND NOT EXISTS
     (SELECT 1 FROM events e WHERE e.run = r.id AND e.kind IN ('run.ended', 'run.failed'))",
    "SELECT 'cage ' || cage || ' has ' || count(*) || ' × ' || kind FROM events
     WHERE kind IN ('cage.planned', 'cage.attested', 'cage.started', 'cage.failed',
                    'cage.exited', 'cage.gone', 'run.started')
     GROUP BY cage, run, kind HAVING count(*) <> 1",
    "SELECT 'terminal ' || json_extract(data, '$.pty') || ' has ' || count(*) || ' × ' || kind
     FROM events WHERE kind IN ('pty.allocated', 'pty.started', 'pty.closed')
     GROUP BY json_extract(data, '$.pty'), kind HAVING count(*) <> 1",
];

fn sentences(db: &Connection, queries: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for query in queries {
        let mut statement = db.prepare(query)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        found.extend(rows.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(found)
}

/// No hole and no double in any sequence of events.
pub(crate) fn sequences(db: &Connection) -> anyhow::Result<Vec<String>> {
    sentences(
        db,
        &[
            "SELECT 'session ' || session || ' has ' || count(*) || ' events up to ' || max(seq)
             FROM events GROUP BY session HAVING count(*) <> max(seq) OR min(seq) <> 1",
            "SELECT 'session ' || s.name || ' counts ' || s.seq || ' events' FROM sessions s
             WHERE s.seq <> (SELECT count(*) FROM events e WHERE e.session = s.id)",
            "SELECT 'cage ' || cage || ' has ' || count(*) || ' events of the ' || source
             || ' up to ' || max(source_seq) FROM events WHERE source IS NOT NULL
             GROUP BY cage, source HAVING count(*) <> max(source_seq) OR min(source_seq) <> 1",
        ],
    )
}

/// The supervisor's records, by cage.
fn records(folder: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some(id) = name.strip_suffix(".json").filter(|id| !id.contains('.')) {
            records.insert(id.to_owned(), serde_json::from_slice(&fs::read(&path)?)?);
        }
    }
    Ok(records)
}

fn is(record: &Value, key: &str) -> bool {
    record.get(key).and_then(Value::as_bool) == Some(true)
}

/// Whether the process of a record lives: its pid with its start time.
fn lives(record: &Value, key: &str) -> bool {
    let number = |name: &str| record.get(key).and_then(|it| it.get(name)).and_then(Value::as_u64);
    let (Some(pid), Some(start)) = (number("pid"), number("start_time")) else { return false };
    let Ok(pid) = i32::try_from(pid) else { return false };
    link::PidFd::open_same(pid, start).is_ok_and(|handle| handle.is_alive())
}

fn cages(db: &Connection, records: &BTreeMap<String, Value>) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut statement = db.prepare("SELECT id, phase FROM cages")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
    let rows: BTreeMap<String, String> = rows.collect::<Result<_, _>>()?;
    for (id, phase) in &rows {
        let record = records.get(id);
        let gone = record.is_none_or(|record| is(record, "gone"));
        if (phase == "gone") != gone {
            found.push(format!("cage {id} is {phase}, its record says {record:?}"));
        }
        let Some(record) = record.filter(|_| !gone) else { continue };
        let stands = record.pointer("/suspended/suspension").is_some_and(|it| !it.is_null());
        if (phase == "suspended") != stands {
            found.push(format!("cage {id} is {phase}, suspended in its record: {stands}"));
        }
        for process in ["broker", "init"] {
            if !lives(record, process) {
                found.push(format!("cage {id} is {phase}, and its {process} is dead"));
            }
        }
    }
    for id in records.keys().filter(|id| !rows.contains_key(*id)) {
        found.push(format!("a record of cage {id}, and no row"));
    }
    Ok(found)
}

/// In the supervisor's folder, and about no single cage.
const OF_NO_CAGE: [&str; 3] = ["grants", "journal", "journal.1"];

/// After every cage was removed, nothing of one is in the daemons' folders.
pub(crate) fn no_cage_is_left(sandbox: &Sandbox) -> anyhow::Result<()> {
    for folder in ["state/sup", "state/cages", "run/sup"] {
        let mut left = fs::read_dir(sandbox.root().join(folder))?.flatten();
        let left = left.find(|entry| !OF_NO_CAGE.iter().any(|name| entry.file_name() == *name));
        ensure!(left.is_none(), "{left:?} is left");
    }
    Ok(())
}

/// Files and folders without an owner.
fn files(sandbox: &Sandbox, records: &BTreeMap<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    for folder in ["state/sup", "state/cages", "run/sup"] {
        for name in names(&sandbox.root().join(folder)) {
            if OF_NO_CAGE.contains(&name.as_str()) {
                continue;
            }
            let id = name.split('.').next().unwrap_or_default();
            let owner = records.get(id);
            let whole = !name.ends_with(".new");
            // In the run folder: as long as there is a broker to reach.
            let due = folder != "run/sup" || owner.is_some_and(|record| lives(record, "broker"));
            if owner.is_none() || !whole || !due {
                found.push(format!("{folder}/{name} is left"));
            }
        }
    }
    found
}

/// The cgroups of the living, and no other.
fn groups(sandbox: &Sandbox, records: &BTreeMap<String, Value>) -> Vec<String> {
    let words = leftovers::cgroups(sandbox.cgroup_parent());
    let named: BTreeSet<&str> = words
        .iter()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter_map(|path| path.rsplit('/').next())
        .filter(|name| name.len() == 26)
        .collect();
    let strays = named
        .iter()
        .filter(|id| records.get(**id).is_none_or(|record| is(record, "gone")))
        .map(|id| format!("a cgroup of cage {id}, which does not live"));
    let missing = records
        .iter()
        .filter(|(_id, record)| !is(record, "gone"))
        .filter(|(_id, record)| {
            let groups = record.pointer("/cgroup/groups").and_then(Value::as_array);
            groups.is_some_and(|groups| !groups.is_empty())
        })
        .filter(|(id, _record)| !named.contains(id.as_str()))
        .map(|(id, _record)| format!("cage {id} lives and has no cgroup"));
    strays.chain(missing).collect()
}

/// What a process has open, by kind, with how many of it. SQLite's own files are left out: its readers
/// open them when they need them.
pub(crate) fn descriptors(pid: i32) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let kind = target.split('[').next().unwrap_or_default().to_owned();
        if !target.contains("/mews.db") {
            *found.entry(kind).or_insert(0) += 1;
        }
    }
    found
}

/// What is open now and was not, in sentences.
pub(crate) fn more_open(
    before: &BTreeMap<String, usize>,
    now: &BTreeMap<String, usize>,
) -> Vec<String> {
    let more = now.iter().filter_map(|(kind, count)| {
        let was = before.get(kind).copied().unwrap_or(0);
        (*count > was).then(|| format!("{count} × {kind}, {was} before"))
    });
    more.collect()
}
