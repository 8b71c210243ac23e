//! There and back again.

use super::*;
use crate::talk::{event_types, events, number, text};

pub(super) fn files_come_back(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    let before = picture(&sandbox.workspace())?;
    waiting(sandbox, flag, "apart")?;
    inside(sandbox, "apart", CHANGES)?;
    let then = diff(sandbox, "apart")?;
    checkpoint(sandbox, "apart", &["-m", "a note"])?;
    let shown = sandbox.json(["inspect", "apart"])?;
    ensure!(text(&shown, "/state")? == "paused", "{shown}");
    sandbox.mews(["resume", "apart"])?.expect(0)?;
    let later =
        "rm -r 'new folder'; echo more >> src/main; echo y > y; chmod 755 README; rm untouched
        mkdir old; echo back > old/back; rm src/link; mkdir src/link; rm -r src/deep";
    inside(sandbox, "apart", later)?;
    let preview = sandbox.mews(["rollback", "apart", "--dry-run"])?.expect(0)?.out();
    for line in ["A new folder/", "M src/main", "D y", "A untouched", "D old/", "A src/deep/leaf"] {
        let found = preview.lines().any(|it| it == line || it.starts_with(&format!("{line} ")));
        ensure!(found, "no '{line}' in\n{preview}");
    }
    // A preview changes nothing.
    must_be(inside(sandbox, "apart", "cat y")?, "y\n".to_owned())?;
    sandbox.mews(["rollback", "apart", "--yes"])?.expect(0)?;
    must_be(diff(sandbox, "apart")?, then)?;
    must_be(picture(&sandbox.workspace())?, before)?;
    let shown = sandbox.json(["inspect", "apart"])?;
    must_be(text(&shown, "/state")?, "idle".to_owned())?;
    must_be(text(&shown, "/runs/0/state")?, "cancelled".to_owned())?;
    let types = event_types(&events(sandbox, "apart")?)?;
    for kind in ["checkpoint.created", "checkpoint.rolled_back"] {
        ensure!(types.iter().any(|it| it == kind), "no {kind}: {types:?}");
    }
    must_be(sandbox.mews(["rollback", "apart", "--dry-run"])?.expect(0)?.out(), String::new())
}

pub(super) fn restart(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    let script = "echo \"start $GIVEN\" >> starts; echo seen; while :; do sleep 1; done";
    let options = [flag, "--name", "apart", "--env", "GIVEN=it"];
    start(sandbox, &options, &["sh", "-c", script])?;
    let lines = |want: &str| {
        pause::until("the command has started", LIMIT, || {
            let told = inside(sandbox, "apart", "cat starts 2>/dev/null; true").ok()?;
            (told == want).then_some(())
        })
    };
    lines("start it\n")?;
    let first = checkpoint(sandbox, "apart", &["-m", "the first"])?;
    // What it kept beside the files can be looked at.
    let page = sandbox.mews(["checkpoints", "apart", &first])?.expect(0)?.out();
    for kept in
        ["note       the first", "stopped   ", "ran       ", "output    ", "terminal  ", "  | seen"]
    {
        ensure!(page.lines().any(|line| line.starts_with(kept)), "{kept}: {page}");
    }
    sandbox.mews(["resume", "apart"])?.expect(0)?;
    inside(sandbox, "apart", "echo junk > starts; mkdir -p junk/junk")?;
    let second = checkpoint(sandbox, "apart", &["--resume"])?;
    let back = sandbox.mews(["rollback", "apart", &first, "--restart", "--yes"])?.expect(0)?;
    ensure!(back.err().contains("mews attach apart"), "{}", back.err());
    lines("start it\nstart it\n")?;
    must_be(inside(sandbox, "apart", "test -e junk || echo gone")?, "gone\n".to_owned())?;
    let all = checkpoints(sandbox, "apart")?;
    let superseded = |id: &str| {
        let found = all.iter().find(|one| one.pointer("/id").is_some_and(|it| it == id));
        found.and_then(|one| one.pointer("/superseded")).and_then(Value::as_bool)
    };
    must_be((superseded(&first), superseded(&second)), (Some(false), Some(true)))?;
    let shown = sandbox.json(["inspect", "apart"])?;
    must_be(text(&shown, "/runs/1/state")?, "running".to_owned())?;
    // Made for one run, it still ends with it.
    sandbox.mews(["kill", "apart"])?.expect(0)?;
    let shown = sandbox.json(["inspect", "apart"])?;
    must_be(text(&shown, "/state")?, "ended".to_owned())?;
    // Its files can be brought back all the same; nothing can be started.
    let over = sandbox.mews(["rollback", "apart", &second, "--restart", "--yes"])?;
    ensure!(over.err().contains("has ended"), "{}", over.err());
    sandbox.mews(["rollback", "apart", &second, "--yes"])?.expect(0)?;
    let told = diff(sandbox, "apart")?;
    ensure!(told.iter().any(|line| line == "A junk/junk/"), "{told:?}");
    Ok(())
}

pub(super) fn direct(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "plain"], &["sleep", "1000"])?;
    let told = sandbox.mews(["checkpoint", "plain", "--resume"])?.expect(0)?;
    ensure!(told.err().contains("files are not part of it"), "{}", told.err());
    let back = sandbox.mews(["rollback", "plain", "--yes"])?.expect(5)?;
    ensure!(back.err().contains("--restart"), "{}", back.err());
    for verb in ["diff", "apply"] {
        let none = sandbox.mews([verb, "plain"])?.expect(3)?;
        ensure!(none.err().contains("--overlay"), "{verb}: {}", none.err());
    }
    sandbox.mews(["rollback", "plain", "--yes", "--restart"])?.expect(0)?;
    let shown = sandbox.json(["inspect", "plain"])?;
    must_be(text(&shown, "/runs/1/state")?, "running".to_owned())
}

pub(super) fn wrong(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "--overlay", "apart")?;
    let none = sandbox.mews(["rollback", "apart", "--yes"])?.expect(3)?;
    ensure!(none.err().contains("mews checkpoints apart"), "{}", none.err());
    let listed = sandbox.mews(["checkpoints", "apart"])?.expect(0)?;
    ensure!(listed.err().contains("mews checkpoint apart"), "{}", listed.err());
    checkpoint(sandbox, "apart", &[])?;
    let unknown = sandbox.mews(["rollback", "apart", "ZZZZZZ", "--yes"])?.expect(3)?;
    ensure!(unknown.err().contains("ZZZZZZ"), "{}", unknown.err());
    let nobody = sandbox.mews(["checkpoint", "nobody"])?.expect(3)?;
    ensure!(nobody.err().contains("nobody"), "{}", nobody.err());
    let long = "x".repeat(2000);
    let note = sandbox.mews(["checkpoint", "apart", "-m", &long])?.expect(2)?;
    ensure!(note.err().contains("1024"), "{}", note.err());
    // Paused stays paused, and a second one is another one.
    checkpoint(sandbox, "apart", &[])?;
    must_be(checkpoints(sandbox, "apart")?.len(), 2)?;
    sandbox.mews(["kill", "apart"])?.expect(0)?;
    let over = sandbox.mews(["checkpoint", "apart"])?;
    ensure!(over.err().contains("has ended"), "{}", over.err());
    let both = sandbox.mews(["run", "--overlay", "--copy", "--", "true"])?.expect(125)?;
    ensure!(both.err().contains("--copy"), "{}", both.err());
    Ok(())
}

/// Without a terminal it does nothing until it is told to.
pub(super) fn asks(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "--overlay", "apart")?;
    checkpoint(sandbox, "apart", &["--resume"])?;
    inside(sandbox, "apart", "echo x > x")?;
    let told = sandbox.mews(["rollback", "apart"])?.expect(2)?;
    ensure!(told.out().contains("D x") && told.err().contains("--yes"), "{}", told.err());
    must_be(inside(sandbox, "apart", "cat x")?, "x\n".to_owned())
}

pub(super) fn screens(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "seq 1 100; echo prompt; exec sleep 1000";
    start(sandbox, &["--name", "shown"], &["sh", "-c", script])?;
    pause::until("it has printed", LIMIT, || {
        let logs = sandbox.mews(["logs", "shown"]).ok()?.out();
        logs.contains("prompt").then_some(())
    })?;
    let taken = sandbox.json(["checkpoint", "shown"])?;
    let screen = text(&taken, "/cages/0/ptys/0/screen")?;
    ensure!(screen.trim_end().ends_with("prompt") && screen.contains("99"), "{screen:?}");
    ensure!(!screen.contains("\n50"), "more than a screen: {screen:?}");
    must_be(text(&taken, "/cages/0/suspension/processes/0/name")?, "sleep".to_owned())?;
    ensure!(number(&taken, "/cages/0/ptys/0/seq")? > 300, "{taken}");
    ensure!(taken.pointer("/cages/0/spec").is_some_and(Value::is_null), "its environment is shown");
    Ok(())
}

pub(super) fn others(sandbox: &Sandbox) -> anyhow::Result<()> {
    furnish(sandbox)?;
    for (flag, name) in [("--overlay", "one"), ("--overlay", "two"), ("--copy", "three")] {
        waiting(sandbox, flag, name)?;
        inside(sandbox, name, &format!("echo {name} > mine; echo {name} >> src/main"))?;
    }
    checkpoint(sandbox, "one", &["--resume"])?;
    for name in ["one", "two", "three"] {
        inside(sandbox, name, "echo later > later")?;
    }
    sandbox.mews(["rollback", "one", "--yes", "--restart"])?.expect(0)?;
    for name in ["two", "three"] {
        let seen = inside(sandbox, name, "cat mine later; tail -1 src/main")?;
        must_be(seen, format!("{name}\nlater\n{name}\n"))?;
    }
    let one = inside(sandbox, "one", "cat mine; test -e later || echo gone")?;
    must_be(one, "one\ngone\n".to_owned())
}

pub(super) fn archived(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "--overlay", "many")?;
    let first = checkpoint(sandbox, "many", &[])?;
    for _more in 0..50 {
        checkpoint(sandbox, "many", &[])?;
    }
    let all = checkpoints(sandbox, "many")?;
    must_be(all.len(), 51)?;
    must_be(text(all.first().unwrap_or(&Value::Null), "/state")?, "archived".to_owned())?;
    let over = sandbox.mews(["rollback", "many", &first, "--yes"])?;
    ensure!(over.err().contains("not kept"), "{}", over.err());
    let layers = sandbox.state_dir().join("layers");
    let session = std::fs::read_dir(&layers)?.next().transpose()?.map(|entry| entry.path());
    let kept = session.map(|path| path.join("checkpoints")).map(std::fs::read_dir).transpose()?;
    must_be(kept.map_or(0, Iterator::count), 50)
}
