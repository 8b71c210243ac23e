//! What is hidden and protected in a lent folder, and the project file: against a program that tries to
//! get round it, in every workspace mode, by root, an ordinary user and an operator of a shared host.

mod attacks;
mod liar;
mod project;

use crate::exchange;
use crate::runner::{Test, need_root, skip};
use crate::suite::operators;
use crate::suite::operators::people::{Person, host, need_accounts};
use crate::suite::users::as_user;
use crate::talk::{Mode, in_workspace, run, run_with_status, sh, wall};
use anyhow::{Context as _, ensure};
use attacks::{Tree, refused};
use serde_json::Value;
use testkit::Sandbox;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("guards.attacks_of_roots_cage", |s| of_sandbox(s, &[])),
        Test::new("guards.attacks_of_roots_cage_in_an_overlay", |s| of_sandbox(s, &["--overlay"])),
        Test::new("guards.attacks_of_roots_cage_in_a_copy", |s| of_sandbox(s, &["--copy"])),
        Test::new("guards.attacks_of_an_ordinary_user", |_| by_user(&[])),
        Test::new("guards.attacks_of_an_ordinary_user_in_an_overlay", |_| by_user(&["--overlay"])),
        Test::new("guards.attacks_of_an_ordinary_user_in_a_copy", |_| by_user(&["--copy"])),
        Test::new("guards.attacks_of_an_operator_among_many", of_operator),
        Test::new("guards.attacks_of_a_second_command", second_command),
        Test::new("guards.each_is_read_back", liar::each_is_read_back),
        Test::new("guards.names_exchanged_while_a_cage_is_built", exchanged),
        Test::new("guards.missing_names_are_refused_or_told", missing),
        Test::new("guards.links_and_second_names", links),
        Test::new("guards.a_project_file_tightens", project::tightens),
        Test::new("guards.a_project_file_widens_nothing", project::widens_nothing),
        Test::new("guards.a_project_file_is_read_as_the_operator", project::as_the_operator),
        Test::new("guards.a_project_file_cannot_be_changed", project::protected),
        Test::new("guards.explain_and_dry_run_are_the_plan", project::one_plan),
        Test::new("guards.init_writes_and_never_overwrites", project::init),
        Test::new("guards.shipped_policies_run", presets),
    ]
}

/// In direct mode the same acts must get through where nothing is guarded, or they prove nothing.
fn of_sandbox(sandbox: &Sandbox, mode: &[&str]) -> anyhow::Result<()> {
    let script = attacks::script();
    let policy = sandbox.file("home/guarded.toml", attacks::POLICY)?;
    let policy = policy.to_string_lossy();
    let tree = Tree::make(&sandbox.workspace(), sandbox)?;
    let options = [&["-p", &*policy], mode].concat();
    for how in Mode::BOTH {
        let (told, status) =
            run_with_status(sandbox, how, &options, &["python3", "-c", &script, "guarded"])?;
        refused(&told.expect(0)?.out()).with_context(|| how.name())?;
        tree.unchanged()?;
        check_told(status.pointer("/enforced").context("enforced")?)?;
    }
    let plain = run(sandbox, Mode::Daemons, mode, &["python3", "-c", &script, "plain"])?;
    attacks::got_through(&plain.expect(0)?.out())
}

fn check_told(enforced: &Value) -> anyhow::Result<()> {
    for (name, state) in
        [("fs.hide", "enforced"), ("fs.protect", "enforced"), ("fs.protect.open", "absent")]
    {
        ensure!(wall(enforced, name)? == state, "{name}: {enforced}");
    }
    ensure!(enforced.to_string().contains(".envrc does not exist"), "{enforced}");
    Ok(())
}

fn by_user(mode: &[&str]) -> anyhow::Result<()> {
    as_user(1, |sandbox| of_sandbox(sandbox, mode))
}

fn of_operator(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let ann = Person::make(sandbox, &[])?;
    host(sandbox, &operators::allow(&[&ann]), || {
        for mode in [&[][..], &["--overlay"], &["--copy"]] {
            let make = attacks::MAKE;
            ann.sh(&format!("cd project; find . -mindepth 1 -delete; {make}"))?.expect(0)?;
            std::fs::write(ann.home().join("guarded.toml"), attacks::POLICY)?;
            let policy = ann.home().join("guarded.toml").to_string_lossy().into_owned();
            let command = ["--", "python3", "-c", &*attacks::script(), "guarded"];
            let words = [&["run", "--no-tty", "-p", &*policy], mode, &command].concat();
            let told = ann.mews(&words)?.expect(0)?.out();
            refused(&told).with_context(|| format!("{mode:?}"))?;
            // The same plan, from root's daemons.
            let words = [&["run", "--dry-run", "-p", &*policy], mode, &["--", "true"]].concat();
            let dry = ann.json(&words)?;
            check_told(dry.pointer("/enforced").context("enforced")?)?;
            let uid = dry.pointer("/plan/user/uid").and_then(Value::as_u64);
            ensure!(uid == Some(u64::from(ann.uid)), "{uid:?}");
            let seen = ann.sh(&format!("cd project && {}", attacks::SUM))?.expect(0)?.out();
            ensure!(seen == attacks::WHOLE, "{mode:?}: {seen}");
        }
        Ok(())
    })
}

fn second_command(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = attacks::script();
    let policy = sandbox.file("home/guarded.toml", attacks::POLICY)?;
    let tree = Tree::make(&sandbox.workspace(), sandbox)?;
    let policy = policy.to_string_lossy();
    let run = crate::talk::start(sandbox, &["-p", &*policy], &["sleep", "1000"])?;
    let words = ["exec", &run.session, "--", "python3", "-c", &script, "guarded"];
    refused(&sandbox.mews(words)?.expect(0)?.out())?;
    tree.unchanged()?;
    let shown = sandbox.json(["inspect", &run.session])?;
    check_told(shown.pointer("/cages/0/enforced").context("enforced")?)?;
    let events = crate::talk::events(sandbox, &run.session)?;
    let attested =
        events.iter().find(|event| event.pointer("/type").is_some_and(|it| it == "cage.attested"));
    ensure!(
        attested.is_some_and(|event| event.to_string().contains("fs.protect.open")),
        "{events:?}"
    );
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    Ok(())
}

/// As a program in another cage can that works in the same folder: what is mounted is what the plan saw,
/// or nothing runs.
fn exchanged(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        let tree = Tree::make(&sandbox.workspace(), sandbox)?;
        let policy = sandbox.file("home/guarded.toml", attacks::POLICY)?;
        let policy = policy.to_string_lossy();
        let (git, link) = (in_workspace(sandbox, ".git"), in_workspace(sandbox, "link"));
        std::os::unix::fs::symlink(sandbox.run_dir(), &link)?;
        let marker = sandbox.run_dir().join("hooks");
        std::fs::create_dir_all(marker.join("marker"))?;
        exchange::meanwhile((&git, &link), |number| {
            let mode: &[&str] = if number % 2 == 0 { &[] } else { &["--overlay"] };
            let options = [&["-p", &*policy], mode].concat();
            let script = "for f in .git/api.sock .git/hooks/marker link/api.sock link/hooks/marker; do \
                          test -e $f && echo reached; done; true";
            let told = run(sandbox, Mode::Daemons, &options, &["sh", "-c", script])?;
            ensure!(!told.out().contains("reached"), "mews's own folder was lent");
            Ok(told.code != 125)
        })?;
        std::fs::remove_dir_all(&marker)?;
        std::fs::remove_file(&link)?;
        tree.unchanged()
    })
}

fn missing(sandbox: &Sandbox) -> anyhow::Result<()> {
    let with = |lines: &str| {
        let text = format!("version = 1\nextends = \"shell\"\n[fs]\n{lines}\n");
        let path = sandbox.file("home/missing.toml", text)?.to_string_lossy().into_owned();
        run_with_status(sandbox, Mode::Daemons, &["-p", &path], &["sh", "-c", "echo x > made"])
    };
    for (list, key) in [("protect", "fs.protect"), ("hide", "fs.hide")] {
        let (told, status) = with(&format!("missing = \"error\"\n{list} = [\n  \"made\"]"))?;
        let said = told.expect(125)?.err();
        let wanted = format!("missing.toml:6: {key}: \"$WORKSPACE/made\" does not exist");
        ensure!(said.contains(&wanted), "{said}");
        let walls = status.pointer("/enforced/walls").and_then(Value::as_array);
        ensure!(walls.is_some_and(Vec::is_empty), "{status}");
        ensure!(!in_workspace(sandbox, "made").exists(), "it ran");
        let (told, status) = with(&format!("missing = \"ignore\"\n{list} = [\"made\"]"))?;
        told.expect(0)?;
        let enforced = status.pointer("/enforced").context("enforced")?;
        ensure!(wall(enforced, &format!("{key}.open"))? == "absent", "{enforced}");
        ensure!(in_workspace(sandbox, "made").exists(), "what is not there can be made");
        std::fs::remove_file(in_workspace(sandbox, "made"))?;
    }
    // No mount leaves anything behind where there was nothing.
    let left: Vec<_> = std::fs::read_dir(sandbox.workspace())?.flatten().collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

fn links(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.folder("ws/real")?;
    let place = sandbox.file("ws/real/.env", "SECRET\n")?;
    std::os::unix::fs::symlink("real/.env", in_workspace(sandbox, ".env"))?;
    std::fs::hard_link(&place, in_workspace(sandbox, "second"))?;
    let with = |lines: &str, script: &str| {
        let text = format!("version = 1\nextends = \"shell\"\n[fs]\n{lines}\n");
        let path = sandbox.file("home/links.toml", text)?.to_string_lossy().into_owned();
        sh(sandbox, &["-p", &path], script)
    };
    for (lines, words) in [
        ("protect = [\".env\"]", "leads through a link"),
        ("protect = [\"real/.env\"]", "another name beside this one"),
        ("hide = [\".env\"]", "another name beside this one"),
    ] {
        let said = with(lines, "true")?.expect(125)?.err();
        ensure!(said.contains(words), "{lines}: {said}");
    }
    std::fs::remove_file(in_workspace(sandbox, "second"))?;
    let script = "cat .env real/.env; rm .env; cat real/.env; mv real other 2>/dev/null; ls";
    let said = with("hide = [\".env\"]", script)?.expect(0)?.out();
    ensure!(said.trim() == "real", "{said}");
    ensure!(std::fs::read_to_string(&place)? == "SECRET\n", "the file itself");
    Ok(())
}

fn presets(sandbox: &Sandbox) -> anyhow::Result<()> {
    let socket = sandbox.root().join("home/provider.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    std::os::unix::fs::chown(&socket, Some(sandbox.caller().uid()), None)?;
    std::fs::create_dir_all(in_workspace(sandbox, ".git/hooks"))?;
    sandbox.file("ws/.git/config", "[core]\n")?;
    let provider = format!("unix:{}", socket.display());
    for policy in ["pi", "qwen", "codex", "claude-code", "opencode"] {
        let options = ["-p", policy, "--provider", &provider];
        let script = "touch ~/kept && touch made && rm made; echo x >> .git/config; \
                      touch .git/hooks/x; touch .git/index && rm .git/index && echo ok";
        let told = sh(sandbox, &options, script)?.expect(0)?;
        ensure!(told.out() == "ok\n", "{policy}: {}", told.err());
        let kept = sh(sandbox, &options, "ls -A ~")?.expect(0)?.out();
        ensure!(kept.contains("kept"), "{policy}: its home is {kept}");
        let hooks = std::fs::read_dir(in_workspace(sandbox, ".git/hooks"))?.count();
        ensure!(hooks == 0, "{policy}: a hook was made");
    }
    ensure!(std::fs::read_to_string(in_workspace(sandbox, ".git/config"))? == "[core]\n", "config");
    drop(listener);
    need_root().map_err(|_ordinary| skip("strict wants limits that hold"))?;
    let script = "touch made; touch .git/x 2>/dev/null || echo refused";
    let (told, status) =
        run_with_status(sandbox, Mode::Alone, &["-p", "strict"], &["sh", "-c", script])?;
    ensure!(told.expect(0)?.out() == "refused\n", "strict");
    let enforced = status.pointer("/enforced").context("enforced")?;
    for (name, state) in
        [("fs.protect", "enforced"), ("cgroup.memory", "enforced"), ("fs.hide.open", "absent")]
    {
        ensure!(wall(enforced, name)? == state, "{name}: {enforced}");
    }
    ensure!(!in_workspace(sandbox, "made").exists(), "it writes into a layer");
    Ok(())
}
