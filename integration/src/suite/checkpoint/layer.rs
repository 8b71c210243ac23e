//! What a session changes, against the operator's folder.

use super::*;
use crate::runner::need_root;
use crate::talk::{Mode, event_types, events, in_workspace, read, run, sh, wait_exit};
use std::os::unix::fs::MetadataExt;

pub(super) fn folder_stays(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    let before = picture(&sandbox.workspace())?;
    let script = format!("{CHANGES}\nls -A; cat src/main");
    let told = sh(sandbox, &[flag, "--name", "apart"], &script)?.expect(0)?;
    ensure!(told.out().contains("three") && !told.out().contains("old\n"), "{}", told.out());
    ensure!(told.err().contains("mews diff apart"), "{}", told.err());
    must_be(picture(&sandbox.workspace())?, before)?;
    must_be(diff(sandbox, "apart")?, CHANGED.map(str::to_owned).to_vec())
}

pub(super) fn apply_all(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    sh(sandbox, &[flag, "--name", "apart"], CHANGES)?.expect(0)?;
    let some = sandbox.mews(["apply", "apart", "src/main", "new folder"])?.expect(0)?;
    ensure!(some.err().contains("applied 4"), "{}", some.err());
    ensure!(read(sandbox, "src/main")? == "one\ntwo\nthree\n", "not applied");
    ensure!(in_workspace(sandbox, "old").exists(), "more than asked for");
    let left: Vec<String> = CHANGED
        .iter()
        .filter(|line| !line.contains("src/main") && !line.contains("new folder"))
        .map(|line| (*line).to_owned())
        .collect();
    must_be(diff(sandbox, "apart")?, left)?;
    sandbox.mews(["apply", "apart"])?.expect(0)?;
    ensure!(!in_workspace(sandbox, "old").exists(), "old is there");
    let applied = picture(&sandbox.workspace())?;
    for (name, want) in [
        ("README", "100700 read me\n"),
        ("made", "100644 new\n"),
        ("new folder/sub/x", "100644 x\n"),
        ("src/link", "120777 ../untouched"),
        ("untouched", "100644 untouched\n"),
    ] {
        must_be(applied.get(name).map(String::as_str), Some(want))?;
    }
    let owner = std::fs::metadata(in_workspace(sandbox, "made"))?.uid();
    must_be(owner, sandbox.caller().uid())?;
    must_be(diff(sandbox, "apart")?, Vec::new())?;
    let types = event_types(&events(sandbox, "apart")?)?;
    ensure!(types.iter().filter(|it| *it == "layer.applied").count() == 2, "{types:?}");
    Ok(())
}

pub(super) fn conflict(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    sh(sandbox, &[flag, "--name", "apart"], CHANGES)?.expect(0)?;
    sandbox.file("ws/src/main", "the operator's own\n")?;
    sandbox.file("ws/old/came", "since\n")?;
    sandbox.file("ws/made", "also made here\n")?;
    let told = diff(sandbox, "apart")?;
    for name in ["src/main", "old/", "made"] {
        let line = told.iter().find(|line| line.starts_with(&format!("C {name}")));
        ensure!(line.is_some_and(|line| line.contains('(')), "{name}: {told:#?}");
    }
    let applied = sandbox.mews(["apply", "apart"])?.expect(1)?;
    ensure!(applied.err().contains("left 3"), "{}", applied.err());
    ensure!(read(sandbox, "src/main")? == "the operator's own\n", "overwritten");
    ensure!(read(sandbox, "made")? == "also made here\n", "overwritten");
    ensure!(read(sandbox, "old/came")? == "since\n", "deleted");
    ensure!(in_workspace(sandbox, "new folder/sub/x").exists(), "the rest is not applied");
    // Taken back, the operator's side is what counts.
    sandbox.mews(["discard", "apart", "src/main", "old", "made"])?.expect(0)?;
    must_be(diff(sandbox, "apart")?, Vec::new())
}

pub(super) fn discard(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    waiting(sandbox, flag, "apart")?;
    inside(sandbox, "apart", CHANGES)?;
    let living = sandbox.mews(["discard", "apart", "--yes"])?.expect(5)?;
    ensure!(living.err().contains("mews kill"), "{}", living.err());
    sandbox.mews(["kill", "apart"])?.expect(0)?;
    let unasked = sandbox.mews(["discard", "apart"])?.expect(2)?;
    ensure!(unasked.err().contains("--yes"), "{}", unasked.err());
    sandbox.mews(["discard", "apart", "old", "README"])?.expect(0)?;
    let told = diff(sandbox, "apart")?;
    ensure!(!told.iter().any(|line| line == "D old/" || line.contains("README")), "{told:?}");
    let odd = sandbox.mews(["discard", "apart", "no such path"])?.expect(1)?;
    ensure!(odd.err().contains("no such path"), "{}", odd.err());
    sandbox.mews(["discard", "apart", "--yes"])?.expect(0)?;
    must_be(diff(sandbox, "apart")?, Vec::new())
}

/// Names that are no text, links that lead out, folders that nobody may enter.
pub(super) fn hostile(sandbox: &Sandbox, flag: &str) -> anyhow::Result<()> {
    furnish(sandbox)?;
    sandbox.folder("secret")?;
    let outside = sandbox.file("secret/file", "not yours\n")?;
    let script = format!(
        "rm -r src; ln -s {} src
        printf '\\033[31mred\\n' > \"$(printf 'odd\\033[2J\\377name')\"
        mkdir locked; echo x > locked/x; chmod 000 locked
        ln -s /etc/passwd passwd; ln -s .. up
        i=0; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done; echo deep > leaf",
        outside.parent().unwrap_or(Path::new("/")).display()
    );
    sh(sandbox, &[flag, "--name", "apart"], &script)?.expect(0)?;
    let told = sandbox.mews(["diff", "apart"])?.expect(1)?;
    ensure!(!told.out().contains('\u{1b}'), "escape sequences are printed");
    sandbox.mews(["apply", "apart"])?.expect(0)?;
    ensure!(std::fs::read_to_string(&outside)? == "not yours\n", "written through a link");
    let src = std::fs::symlink_metadata(in_workspace(sandbox, "src"))?;
    ensure!(src.is_symlink(), "src is no link");
    let leaf = format!("{}leaf", "d/".repeat(200));
    ensure!(read(sandbox, &leaf)? == "deep\n", "the deep file");
    ensure!(
        std::fs::symlink_metadata(in_workspace(sandbox, "locked"))?.mode() & 0o777 == 0,
        "open"
    );
    sandbox.mews(["rm", "apart"])?.expect(0)?;
    until_empty(&sandbox.state_dir().join("layers"))
}

pub(super) fn setuid(sandbox: &Sandbox) -> anyhow::Result<()> {
    furnish(sandbox)?;
    let script = "cp /bin/true tool && chmod 6755 tool; stat -c %a tool";
    sh(sandbox, &["--overlay", "--name", "apart"], script)?.expect(0)?;
    sandbox.mews(["apply", "apart"])?.expect(0)?;
    must_be(std::fs::metadata(in_workspace(sandbox, "tool"))?.mode() & 0o7777, 0o755)
}

pub(super) fn mounts_below(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    sandbox.folder("ws/mounted")?;
    // In a mount namespace of its own, and so its daemons: the host is not touched.
    let mut command = std::process::Command::new("unshare");
    let mews = sandbox.command(["run", "--overlay", "--", "true"])?;
    let mount = "mount -t tmpfs none mounted && exec \"$@\"";
    command.args(["--mount", "--", "sh", "-c", mount, "sh"]).arg(mews.get_program());
    command.args(mews.get_args()).env_clear().envs(sandbox.env()?);
    command.current_dir(sandbox.workspace());
    let told = testkit::process::run(&mut command, b"", LIMIT)?.expect(125)?;
    ensure!(told.err().contains("ws/mounted is a mount"), "{}", told.err());
    Ok(())
}

pub(super) fn alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    furnish(sandbox)?;
    for flag in ["--overlay", "--copy"] {
        let told = run(sandbox, Mode::Alone, &[flag], &["sh", "-c", CHANGES])?.expect(0)?;
        ensure!(told.err().contains("thrown away"), "{}", told.err());
        ensure!(read(sandbox, "src/main")? == "one\ntwo\n", "the folder has changed");
    }
    Ok(())
}

pub(super) fn removed(sandbox: &Sandbox) -> anyhow::Result<()> {
    furnish(sandbox)?;
    waiting(sandbox, "--overlay", "apart")?;
    inside(sandbox, "apart", CHANGES)?;
    checkpoint(sandbox, "apart", &["--resume"])?;
    ensure!(!is_empty(&sandbox.state_dir().join("layers")), "there is no layer");
    sandbox.mews(["rm", "-f", "apart"])?.expect(0)?;
    until_empty(&sandbox.state_dir().join("layers"))
}

/// After a rollback the session is idle; its next run works in the same layer.
pub(super) fn layer_goes_on(sandbox: &Sandbox) -> anyhow::Result<()> {
    furnish(sandbox)?;
    waiting(sandbox, "--overlay", "apart")?;
    inside(sandbox, "apart", "echo kept > kept")?;
    checkpoint(sandbox, "apart", &["--resume"])?;
    inside(sandbox, "apart", "echo lost > lost")?;
    sandbox.mews(["rollback", "apart", "--yes", "--restart"])?.expect(0)?;
    must_be(
        inside(sandbox, "apart", "cat kept; test ! -e lost && echo gone")?,
        "kept\ngone\n".into(),
    )?;
    inside(sandbox, "apart", "echo more > more")?;
    sandbox.mews(["kill", "apart"])?.expect(0)?;
    wait_exit(sandbox, "apart")?;
    must_be(diff(sandbox, "apart")?, vec!["A kept".to_owned(), "A more".to_owned()])
}
