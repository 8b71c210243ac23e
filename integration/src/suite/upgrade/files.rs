//! What other builds left on the disk.

use super::*;
use crate::talk::{event_types, events};
use rusqlite::Connection;
use std::path::Path;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("upgrade.database_of_a_newer_build_is_refused", newer_database),
        Test::new("upgrade.records_of_a_newer_build_are_read", newer_records),
    ]
}

/// Refused with words, at once, untouched; and the cage beside it lives.
fn newer_database(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, PRINTS)?;
    sandbox.mews(["daemon", "stop", "--leave"])?.expect(0)?;
    let path = sandbox.state_dir().join("db/mews.db");
    let version = |set: Option<u32>| -> anyhow::Result<u32> {
        let db = Connection::open(&path)?;
        let was = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if let Some(set) = set {
            db.pragma_update(None, "user_version", set)?;
        }
        Ok(was)
    };
    let ours = version(Some(999))?;
    for _twice in 0..2 {
        let refused = sandbox.mews(["ls"])?.expect(69)?;
        for needed in ["newer mews", "999", "mews-sessiond does not start"] {
            ensure!(refused.err().contains(needed), "{}", refused.err());
        }
    }
    ensure!(version(Some(ours))? == 999, "it was changed");
    sandbox.mews(["ls"])?.expect(0)?;
    flow::stop(sandbox, PRINTS)?;
    crate::audit::agrees(sandbox)
}

/// Fields, events and plans that this build does not know.
fn newer_records(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "plain"], &["sh", "-c", "read line; echo got $line"])?;
    flow::begin(sandbox, PRINTS)?;
    sandbox.mews(["daemon", "stop", "--leave"])?.expect(0)?;
    for entry in std::fs::read_dir(sandbox.state_dir().join("sup"))? {
        let path = entry?.path();
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".events.jsonl") {
            add_event(&path)?;
        } else if name.ends_with(".json") {
            let mut value: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            let fields = value.as_object_mut().context("an object")?;
            fields.insert("of_a_build_to_come".to_owned(), serde_json::json!({ "a": [1] }));
            std::fs::write(&path, value.to_string())?;
        }
    }
    sandbox.mews(["ls"])?.expect(0)?;
    sandbox.mews(["exec", "--no-tty", PRINTS, "--", "true"])?.expect(0)?;
    let types = event_types(&events(sandbox, PRINTS)?)?;
    let has = |kind: &str| types.iter().any(|it| it == kind);
    ensure!(has("cage.of_a_build_to_come") && has("cage.adopted"), "{types:?}");
    flow::stop(sandbox, PRINTS)?;
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    crate::audit::agrees(sandbox)
}

fn add_event(path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let last: Value = serde_json::from_str(text.lines().last().context("no event")?)?;
    let mut next = last.clone();
    let seq = last.pointer("/seq").and_then(Value::as_u64).context("a seq")?;
    let fields = next.as_object_mut().context("an object")?;
    fields.insert("seq".to_owned(), (seq + 1).into());
    fields.insert("type".to_owned(), "cage.of_a_build_to_come".into());
    fields.insert("data".to_owned(), serde_json::json!({ "b": 2 }));
    std::fs::write(path, format!("{text}{next}\n"))?;
    Ok(())
}
