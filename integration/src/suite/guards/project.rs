//! The project file, and what `explain`, `--dry-run` and `init` make of it.

use crate::suite::operators::people::{Person, host, need_accounts};
use crate::suite::{operators, users::as_user};
use crate::talk::{Mode, in_workspace, read, run, run_with_status, sh, start, text, wall};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use testkit::{Finished, Sandbox};

const FILE: &str = "ws/.mews.toml";

fn told(enforced: &Value, name: &str) -> anyhow::Result<String> {
    let walls = enforced.pointer("/walls").and_then(Value::as_array).context("walls")?;
    let wall = walls.iter().find(|wall| wall.pointer("/name").is_some_and(|it| it == name));
    text(wall.with_context(|| format!("no {name} in {enforced}"))?, "/how")
}

pub(super) fn tightens(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/.env", "SECRET\n")?;
    let lines = "version = 1\n[fs]\nhide = [\".env\"]\n[limits]\nnofile = 77\npids = 100\n";
    let file = sandbox.file(FILE, lines)?.to_string_lossy().into_owned();
    for mode in Mode::BOTH {
        let (done, status) = run_with_status(
            sandbox,
            mode,
            &["--pids", "50"],
            &["sh", "-c", "ulimit -n; cat .env"],
        )?;
        let done = done.expect(0)?;
        ensure!(done.out() == "77\n" && done.err().is_empty(), "{} {}", done.out(), done.err());
        let enforced = status.pointer("/enforced").context("enforced")?;
        let project = told(enforced, "project")?;
        let wanted = "tightens limits.nofile 77 (line 5), fs.hide $WORKSPACE/.env (line 3)";
        ensure!(project == format!("{file} {wanted}"), "{project}");
        ensure!(told(enforced, "fs.hide")?.contains("$WORKSPACE/.env"), "{enforced}");
    }
    let run = start(sandbox, &[], &["sleep", "1000"])?;
    let shown = sandbox.mews(["inspect", &run.session])?.expect(0)?.out();
    ensure!(shown.contains("limits.pids 100 (line 6)"), "{shown}");
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    Ok(())
}

fn refused(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<String> {
    let (done, status): (Finished, Value) =
        run_with_status(sandbox, mode, &[], &["touch", "it-ran"])?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran: {status}");
    Ok(done.expect(125)?.err())
}

pub(super) fn widens_nothing(sandbox: &Sandbox) -> anyhow::Result<()> {
    let secret = sandbox.file("home/secret", "SECRET")?;
    let read = format!("[fs]\nread = [{:?}]", secret.to_string_lossy());
    for (lines, line, key) in [
        (&*read, 3, "fs.read"),
        ("[fs]\nwrite = [\"/srv\"]", 3, "fs.write"),
        ("[env]\npass = [\"TOKEN\"]", 3, "env.pass"),
        ("[limits]\nmemory = \"64G\"", 3, "limits.memory"),
        ("[[net.socket]]\nlisten = \"127.0.0.1:9\"\nconnect = \"unix:/x\"", 2, "net.socket"),
        ("extends = \"base\"", 2, "extends"),
        ("[limits]\nmemroy = 1", 3, "limits.memroy"),
        ("[fs]\nhide = [\"*.{a,b}\"]", 3, "fs.hide"),
        ("[fs", 2, ""),
    ] {
        sandbox.file(FILE, format!("version = 1\n{lines}\n"))?;
        for mode in Mode::BOTH {
            let said = refused(sandbox, mode)?;
            let place = format!(".mews.toml:{line}: {key}");
            ensure!(said.contains(&place), "{lines}: {said}");
        }
    }
    // Only the workspace's own: one in the folder above, or below, says nothing.
    sandbox.file(".mews.toml", "nonsense")?;
    std::fs::remove_file(sandbox.root().join(FILE))?;
    sandbox.folder("ws/sub")?;
    sandbox.file("ws/sub/.mews.toml", "nonsense")?;
    sh(sandbox, &[], "true")?.expect(0)?;
    Ok(())
}

pub(super) fn as_the_operator(sandbox: &Sandbox) -> anyhow::Result<()> {
    let file = sandbox.root().join(FILE);
    symlink("/etc/shadow", &file)?;
    let said = refused(sandbox, Mode::Daemons)?;
    ensure!(said.contains("is a link") && !said.contains("root:"), "{said}");
    std::fs::remove_file(&file)?;
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU)?;
    let said = refused(sandbox, Mode::Daemons)?;
    ensure!(said.contains("not a plain file"), "{said}");
    std::fs::remove_file(&file)?;
    sandbox.file(FILE, format!("version = 1\n#{}", "x".repeat(300_000)))?;
    let said = refused(sandbox, Mode::Daemons)?;
    ensure!(said.contains("larger than"), "{said}");
    std::fs::remove_file(&file)?;
    crate::runner::need_root()?;
    as_user(1, |sandbox| {
        // Somebody else's, that the operator cannot read: what it asks for is not known.
        let file = sandbox.file(FILE, "version = 1\n")?;
        chown(&file, Some(0), Some(0))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let said = refused(sandbox, Mode::Daemons)?;
        ensure!(said.contains("cannot be read"), "{said}");
        // Another's that they can read tightens all the same.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
        std::fs::write(&file, "version = 1\n[limits]\nnofile = 66\n")?;
        let shown = sh(sandbox, &[], "ulimit -n; echo x >> .mews.toml")?.out();
        ensure!(shown == "66\n", "{shown}");
        Ok(())
    })?;
    need_accounts()?;
    sandbox.mews(["daemon", "stop", "--kill"])?.expect(0)?;
    let ann = Person::make(sandbox, &[])?;
    host(sandbox, &operators::allow(&[&ann]), || {
        // Read by a child of hers, not by root.
        let file = ann.project().join(".mews.toml");
        std::fs::write(&file, "version = 1\n[limits]\nnofile = 66\n")?;
        let shown = ann.caged(&[], "ulimit -n")?.expect(0)?.out();
        ensure!(shown == "66\n", "{shown}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let said = ann.caged(&[], "true")?.expect(125)?.err();
        ensure!(said.contains("cannot be read"), "{said}");
        std::fs::remove_file(&file)?;
        symlink("/etc/shadow", &file)?;
        let said = ann.caged(&[], "true")?.expect(125)?.err();
        ensure!(said.contains("is a link"), "{said}");
        Ok(())
    })
}

pub(super) fn protected(sandbox: &Sandbox) -> anyhow::Result<()> {
    let lines = "version = 1\n[limits]\nnofile = 88\n";
    sandbox.file(FILE, lines)?;
    let script = "echo '' > .mews.toml; rm -f .mews.toml; mv .mews.toml x; ln .mews.toml y; \
                  chmod 777 .mews.toml; echo z > z; mv z .mews.toml; ls -A | tr '\\n' ' '";
    for mode in [&[][..], &["--overlay"], &["--copy"]] {
        let done = sh(sandbox, mode, script)?.expect(0)?;
        ensure!(done.out().trim() == ".mews.toml z", "{mode:?}: {} {}", done.out(), done.err());
        ensure!(read(sandbox, ".mews.toml")? == lines, "{mode:?}");
        std::fs::remove_file(in_workspace(sandbox, "z")).ok();
    }
    Ok(())
}

pub(super) fn one_plan(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/.env", "SECRET\n")?;
    sandbox.file(FILE, "version = 1\n[fs]\nhide = [\".env\"]\nprotect = [\"nope\"]\n")?;
    let options = ["--memory", "128M", "-p", "shell"];
    let dry = |more: &[&str]| {
        let words = [&["run", "--dry-run"], more, &options, &["--", "touch", "it-ran"]].concat();
        sandbox.json(words)
    };
    // Nobody runs yet, and nobody does afterwards.
    let first = dry(&[])?;
    ensure!(!sandbox.api_socket().exists(), "daemons were started");
    let explained = sandbox.json(["policy", "explain", "shell", "--memory", "128M"])?;
    ensure!(!sandbox.api_socket().exists(), "daemons were started");
    let real = start(sandbox, &options, &["sleep", "1000"])?;
    let asked = dry(&[])?;
    let shown = sandbox.json(["inspect", &real.session])?;
    let hash = text(&shown, "/cages/0/plan_hash")?;
    for found in [&first, &explained, &asked, &dry(&["--no-daemon"])?] {
        ensure!(text(found, "/plan_hash")? == hash, "{} is not {hash}", text(found, "/plan_hash")?);
        let states = |enforced: &Value| -> anyhow::Result<Vec<(String, String)>> {
            let walls = enforced.pointer("/walls").and_then(Value::as_array).context("walls")?;
            walls.iter().map(|wall| Ok((text(wall, "/name")?, text(wall, "/state")?))).collect()
        };
        let stands = shown.pointer("/cages/0/enforced").context("enforced")?;
        let said = found.pointer("/enforced").context("enforced")?;
        ensure!(states(said)? == states(stands)?, "{said}\n{stands}");
        ensure!(wall(said, "fs.protect.open")? == "absent", "{said}");
    }
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    let sessions = sandbox.mews(["--json", "ls", "-a"])?.expect(0)?.json_lines()?;
    ensure!(sessions.len() == 1, "{sessions:?}");
    sandbox.mews(["kill", &real.session])?.expect(0)?;
    let page = sandbox.mews(["policy", "explain", "--memory", "128M"])?.expect(0)?.out();
    for (key, by) in [
        ("limits.memory", "--memory"),
        ("limits.pids", "preset shell:"),
        ("fs.hide", "/ws/.mews.toml:3"),
        ("net.mode", "preset base:"),
        ("fs.protect.open", "$WORKSPACE/nope does not exist"),
    ] {
        let found = page.lines().any(|line| line.starts_with(key) && line.contains(by));
        ensure!(found, "{key} {by}: {page}");
    }
    // What a run would be refused for, it is refused for.
    let said = sandbox.mews(["policy", "explain", "pi"])?;
    ensure!(said.code != 0 && said.err().contains("--provider unix:"), "{}", said.err());
    let said = run(sandbox, Mode::Daemons, &["--dry-run", "--read", "/nope"], &["true"])?;
    ensure!(said.code != 0 && said.err().contains("/nope"), "{}", said.err());
    Ok(())
}

pub(super) fn init(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/.env", "SECRET\n")?;
    sandbox.folder("ws/.git")?;
    sandbox.file("ws/.git/config", "")?;
    sandbox.mews(["policy", "init"])?.expect(0)?;
    let written = read(sandbox, ".mews.toml")?;
    ensure!(
        written.contains("hide = [\".env\"]") && written.contains("\".git/config\""),
        "{written}"
    );
    let shown =
        sh(sandbox, &[], "cat .env; echo x > .git/config || echo refused")?.expect(0)?.out();
    ensure!(shown == "refused\n", "{shown}");
    let said = sandbox.mews(["policy", "init"])?.expect(5)?.err();
    ensure!(said.contains("is there already") && read(sandbox, ".mews.toml")? == written, "{said}");
    sandbox.mews(["policy", "check", "./.mews.toml"])?.expect(0)?;
    let made = sandbox.json(["policy", "init", "mine", "--extends", "ci"])?;
    ensure!(text(&made, "/file")?.ends_with("/policies/mine.toml"), "{made}");
    sandbox.mews(["policy", "check", "mine"])?.expect(0)?;
    sandbox.mews(["policy", "init", "mine"])?.expect(5)?;
    ensure!(sandbox.mews(["policy", "init", "other", "--extends", "nope"])?.code != 0, "nope");
    Ok(())
}
