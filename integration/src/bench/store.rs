//! What a long life costs: lists, names and events where ten thousand sessions have left a million events,
//! beside the same rows read from the file without daemons, HTTP or JSON: the floor.

use super::rounds;
use super::table::{Aim, Series, Table};
use anyhow::{Context as _, ensure};
use rusqlite::{Connection, params};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};
use wire::api::BASE;

const SESSIONS: u32 = 10_000;
const EVENTS_EACH: u32 = 100;
const REPLAYED: u32 = 10_000;
/// SESSIONS.md 10, in ms.
const LIST_MS: f64 = 20.0;
const REPLAY_MS: f64 = 100.0;

/// # Errors
/// The daemons do not start, or answer with an error.
pub(crate) fn run() -> anyhow::Result<bool> {
    let sandbox = Sandbox::new()?;
    let db = database(&sandbox)?;
    let pages = [
        ("list, as mews ls asks", "/sessions".to_owned(), None),
        ("list of what runs", "/sessions?state=running".to_owned(), Some("s.state = 'running'")),
        ("page of 100", "/sessions?all=true&limit=100".to_owned(), Some("true")),
        (
            "page of 100, from the middle",
            format!("/sessions?all=true&limit=100&after={}", id_of(&db, SESSIONS / 2)?),
            Some("s.id > (SELECT id FROM sessions WHERE name = 'past-5000')"),
        ),
    ];
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    sandbox.mews(["run", "-d", "--name", "alive", "--", "sleep", "100000"])?.expect(0)?;
    let title = format!("{SESSIONS} sessions, {} events, in ms", SESSIONS * EVENTS_EACH);
    let mut table = Table::new(&title, "file");
    for (what, path, clause) in &pages {
        let [mut floor, mut ours] = [(); 2].map(|()| Series::default());
        for _round in 0..rounds(200) {
            let clause = clause.unwrap_or("s.state NOT IN ('ended', 'failed')");
            floor.push_ms(timed(|| rows(&db, clause))?);
            ours.push_ms(timed(|| asked(&sandbox, path))?);
        }
        table.compare(what, &floor, &ours, Aim::None);
        table.alone(&format!("  {what}: p99"), ours.percentile(99), Aim::AtMost(LIST_MS));
    }
    let [mut floor, mut ours] = [(); 2].map(|()| Series::default());
    let path = format!("/sessions/{}/events?after=0&limit={REPLAYED}", id_of(&db, 1)?);
    for _round in 0..rounds(50) {
        floor.push_ms(timed(|| replayed(&db))?);
        ours.push_ms(timed(|| asked(&sandbox, &path))?);
    }
    table.compare(&format!("replay of {REPLAYED} events"), &floor, &ours, Aim::None);
    table.alone("  replay: p99", ours.percentile(99), Aim::AtMost(REPLAY_MS));
    let mut named = Series::default();
    for _round in 0..rounds(50) {
        named.push_ms(timed(|| asked(&sandbox, "/resolve?id=past-7777"))?);
    }
    table.alone("a name: p99", named.percentile(99), Aim::AtMost(LIST_MS));
    drop(db);
    sandbox.finish()?;
    Ok(table.all_met())
}

/// Copies of one session that really ran.
fn database(sandbox: &Sandbox) -> anyhow::Result<Connection> {
    sandbox.mews(["run", "--no-tty", "--name", "past-0", "--", "true"])?.expect(0)?;
    pause::until("the session has ended", LIMIT, || {
        let shown = sandbox.json(["inspect", "past-0"]).ok()?;
        shown.pointer("/state").filter(|state| *state == "ended").map(drop)
    })?;
    sandbox.mews(["daemon", "stop"])?.expect(0)?;
    let path: PathBuf = sandbox.state_dir().join("db/mews.db");
    let mut db = Connection::open(&path)?;
    let filling = db.transaction()?;
    // Ids are letters of base 32, of which digits are some; the last eight make each another one.
    let copy = "substr(id, 1, 18) || printf('%08d', ?1)";
    for number in 1..SESSIONS {
        for sql in [
            format!(
                "INSERT INTO sessions SELECT {copy}, project, uid, 'past-' || ?1, state, archived, labels,
                 source, end_on_exit, created_at_ms + ?1, ended_at_ms + ?1, used_at_ms, ?2
                 FROM sessions WHERE name = 'past-0'"
            ),
            format!(
                "INSERT INTO runs SELECT {copy}, substr(session, 1, 18) || printf('%08d', ?1), kind,
                 state, argv, policy, created_at_ms, started_at_ms, ended_at_ms, exit, error
                 FROM runs WHERE session = (SELECT id FROM sessions WHERE name = 'past-0') AND ?2"
            ),
            format!(
                "INSERT INTO cages SELECT {copy}, substr(session, 1, 18) || printf('%08d', ?1),
                 substr(run, 1, 18) || printf('%08d', ?1), phase, pid, plan_hash, enforced, exit,
                 started_at_ms, ended_at_ms, build, unreachable
                 FROM cages WHERE session = (SELECT id FROM sessions WHERE name = 'past-0') AND ?2"
            ),
            format!(
                "INSERT INTO ptys SELECT {copy}, substr(session, 1, 18) || printf('%08d', ?1),
                 substr(cage, 1, 18) || printf('%08d', ?1), argv, tty, main, size, viewers,
                 started_at_ms, ended_at_ms, exit, bytes
                 FROM ptys WHERE session = (SELECT id FROM sessions WHERE name = 'past-0') AND ?2"
            ),
        ] {
            let events = if number == 1 { REPLAYED } else { EVENTS_EACH };
            filling.prepare_cached(&sql)?.execute(params![number, events])?;
        }
        let events = if number == 1 { REPLAYED } else { EVENTS_EACH };
        filling
            .prepare_cached(
                "WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?2)
                 INSERT INTO events SELECT (SELECT id FROM sessions WHERE name = 'past-' || ?1), n.seq,
                 e.at_ms, e.kind, e.data, e.run, e.cage, NULL, NULL FROM n JOIN events e
                 ON e.session = (SELECT id FROM sessions WHERE name = 'past-0') AND e.seq = 1 + n.seq % 7",
            )?
            .execute(params![number, events])?;
    }
    filling.commit()?;
    let count: u32 = db.query_row("SELECT count(*) FROM events", [], |row| row.get(0))?;
    ensure!(count >= (SESSIONS - 1) * EVENTS_EACH, "{count} events");
    Ok(db)
}

fn id_of(db: &Connection, number: u32) -> anyhow::Result<String> {
    let sql = "SELECT id FROM sessions WHERE name = 'past-' || ?1";
    db.query_row(sql, [number], |row| row.get(0)).context("a session")
}

/// The rows of sessions that a page is made of.
fn rows(db: &Connection, clause: &str) -> anyhow::Result<()> {
    let sql = format!(
        "SELECT s.*, r.*, c.*, p.* FROM (SELECT * FROM sessions s WHERE {clause} ORDER BY s.id LIMIT 100) s
         JOIN runs r ON r.session = s.id JOIN cages c ON c.run = r.id JOIN ptys p ON p.cage = c.id"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let _text: String = row.get(0)?;
    }
    Ok(())
}

fn replayed(db: &Connection) -> anyhow::Result<()> {
    let sql = "SELECT seq, at_ms, kind, data FROM events
               WHERE session = (SELECT id FROM sessions WHERE name = 'past-1') ORDER BY seq";
    let mut statement = db.prepare_cached(sql)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let _text: String = row.get(3)?;
    }
    Ok(())
}

/// One GET on a connection of its own, to its last byte.
fn asked(sandbox: &Sandbox, path: &str) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(sandbox.api_socket())?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {BASE}{path} HTTP/1.1\r\nHost: mews\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let at = answer.windows(4).position(|part| part == b"\r\n\r\n").context("an HTTP answer")?;
    let (head, body) = answer.split_at(at + 4);
    ensure!(head.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
    ensure!(body.len() > 2, "{path}: an empty answer");
    Ok(())
}

fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}
