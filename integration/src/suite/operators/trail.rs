//! The audit trail: everybody's own, the admin's all, and the same in the supervisor's own journal.

use super::people::{Person, host, need_accounts};
use crate::talk::{daemon_pids, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// `(uid, act, outcome)`, and whether it was by an admin's right.
type Entry = (u32, String, String, bool);

fn entries(person: &Person, flags: &[&str]) -> anyhow::Result<Vec<Entry>> {
    let told = person.mews(&[&["--json", "audit", "-n", "1000"], flags].concat())?.expect(0)?;
    told.json_lines()?.iter().map(entry).collect()
}

fn entry(line: &Value) -> anyhow::Result<Entry> {
    let uid = line.pointer("/uid").and_then(Value::as_u64).context("a uid")?;
    let admin = line.pointer("/admin") == Some(&Value::Bool(true));
    Ok((u32::try_from(uid)?, text(line, "/verb")?, text(line, "/outcome")?, admin))
}

fn wait_for(person: &Person, wanted: &Entry) -> anyhow::Result<()> {
    let mut last = Vec::new();
    let found = pause::until("it is in the trail", LIMIT, || {
        last = entries(person, &[]).ok()?;
        last.contains(wanted).then_some(())
    });
    found.with_context(|| format!("{wanted:?} is not in {last:?}"))
}

pub(super) fn everybody_sees_their_own(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let [ann, bob, boss, eve] = [(); 4].map(|()| Person::make(sandbox, &[]));
    let (ann, bob, boss, eve) = (ann?, bob?, boss?, eve?);
    let bobs_rule = format!("[[allow]]\nusers = [{:?}]\ncages = 1\n", bob.name);
    let admins = format!("[admins]\nusers = [{:?}]\n", boss.name);
    let policy = format!("{}{bobs_rule}{admins}", super::allow(&[&ann]));
    host(sandbox, &policy, || {
        let started = ann.start("of-ann")?;
        let cage = text(&started, "/cage")?;
        ann.mews(&["exec", "of-ann", "--", "true"])?.expect(0)?;
        ann.mews(&["limits", "of-ann", "walltime=2h"])?.expect(0)?;
        let key = ann.mews(&["grants", "make", "-n", "given", "--cages", "1", "--for", "1h"])?;
        let key = sandbox.file("key", key.expect(0)?.stdout)?.to_string_lossy().into_owned();
        std::os::unix::fs::chown(&key, Some(eve.uid), None)?;
        eve.mews(&["ls"])?.expect(4)?;
        eve.mews(&["grants", "use", &key, "--", "true"])?.expect(0)?;
        bob.start("of-bob")?;
        // The cap of the host's policy.
        bob.mews(&["run", "-d", "--", "true"])?.expect(125)?;
        boss.mews(&["stats", "of-ann"])?.expect(0)?;
        boss.mews(&["kill", &cage])?.expect(0)?;
        ann.mews(&["rm", "of-ann"])?.expect(0)?;

        let entry = |person: &Person, verb: &str, outcome: &str, admin: bool| {
            (person.uid, verb.to_owned(), outcome.to_owned(), admin)
        };
        let of_ann = [
            entry(&ann, "spawn", "done", false),
            entry(&ann, "exec", "done", false),
            entry(&ann, "set_limits", "done", false),
            entry(&ann, "mint", "done", false),
            entry(&eve, "spawn", "done", false),
            entry(&boss, "stats", "done", true),
            entry(&boss, "kill", "done", true),
            entry(&ann, "rm", "done", false),
        ];
        let of_bob =
            [entry(&bob, "spawn", "done", false), entry(&bob, "spawn", "limit_reached", false)];
        let of_eve = entry(&eve, "admit", "forbidden", false);
        for wanted in of_ann.iter().chain(&of_bob).chain([&of_eve]) {
            wait_for(&boss, wanted)?;
        }
        let anns = entries(&ann, &[])?;
        for wanted in &of_ann {
            ensure!(anns.contains(wanted), "{wanted:?} is not in {anns:?}");
        }
        let foreign = |entry: &Entry| entry.0 == bob.uid || *entry == of_eve;
        ensure!(!anns.iter().any(foreign), "ann sees {anns:?}");
        let bobs = entries(&bob, &[])?;
        ensure!(bobs.iter().all(|entry| entry.0 == bob.uid), "bob sees {bobs:?}");
        // By session, and by time; another's session is not there.
        let given = entries(&ann, &["given"])?;
        ensure!(given.len() == 2, "{given:?}");
        bob.mews(&["audit", "given"])?.expect(3)?;
        ensure!(entries(&ann, &["--since", "1h"])?.len() == anns.len(), "all of it is younger");
        let page = ann.mews(&["audit"])?.expect(0)?.out();
        for words in ["admin", "grant ", "rm*", "set_limits"] {
            ensure!(page.contains(words), "no {words} in {page}");
        }
        ann.mews(&["audit", "--since", "soon"])?.expect(2)?;
        // What sessiond cannot write says the same.
        let journal = std::fs::read_to_string(sandbox.state_dir().join("sup/journal"))?;
        let lines: Vec<Value> =
            journal.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        for (uid, verb, outcome) in [
            (boss.uid, "kill", "asked"),
            (boss.uid, "kill", "done"),
            (eve.uid, "spawn", "asked"),
            (bob.uid, "spawn", "limit_reached"),
            (eve.uid, "admit", "forbidden"),
        ] {
            let found = lines.iter().any(|line| {
                line["uid"] == uid && line["verb"] == verb && line["outcome"] == outcome
            });
            ensure!(found, "{uid} {verb} {outcome} is not in the journal");
        }
        Ok(())
    })
}

/// However often a daemon dies, each line is in the table once.
pub(super) fn has_no_hole(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    for round in 0..3 {
        let (sessiond, supervisor) = daemon_pids(sandbox)?;
        crate::talk::sh(sandbox, &[], "true")?.expect(0)?;
        let handle = link::PidFd::open(if round == 1 { supervisor } else { sessiond })?;
        handle.signal(libc::SIGKILL)?;
        pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))?;
        crate::talk::sh(sandbox, &[], "true")?.expect(0)?;
    }
    let path = sandbox.state_dir().join("sup/journal");
    let database = sandbox.state_dir().join("db/mews.db");
    let mut seen = (Vec::new(), Vec::new());
    let same = pause::until("table and journal agree", LIMIT, || {
        let journal = std::fs::read_to_string(&path).ok()?;
        let lines = journal.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        seen.0 = lines.filter_map(|line| line.get("seq")?.as_i64()).collect::<Vec<i64>>();
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = rusqlite::Connection::open_with_flags(&database, flags).ok()?;
        let sql = "SELECT source_seq FROM audit WHERE source = 'supervisor' ORDER BY id";
        let mut statement = db.prepare(sql).ok()?;
        let rows = statement.query_map([], |row| row.get(0)).ok()?;
        seen.1 = rows.filter_map(Result::ok).collect::<Vec<i64>>();
        (seen.0 == seen.1 && seen.0.len() >= 12).then_some(())
    });
    same.with_context(|| format!("{} in the journal, {} in the table", seen.0.len(), seen.1.len()))
}
