//! The first hour of a new operator: what `mews` says by itself, what it answers to mistakes, what it
//! clears away, what shells and man know of it.

mod shells;
mod top;

use super::users::as_user;
use crate::runner::{Test, need_programs, need_root};
use crate::talk::{in_workspace, start, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox, Terminal, pause};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("everyday.mews_alone_says_what_runs_and_how_to_begin", alone),
        Test::new("everyday.kill_says_what_had_ended", killed),
        Test::new("everyday.a_mistyped_verb_or_name_is_answered_with_what_was_meant", similar),
        Test::new("everyday.colours_come_when_they_are_wanted", colours),
        Test::new("everyday.inspect_is_a_page", inspect),
        Test::new("everyday.cancel_asks_first_and_says_how_it_ended", cancel),
        Test::new("everyday.cancel_tells_who_waits_for_it", cancel_in_front),
        Test::new("everyday.prune_leaves_what_could_be_missed", prune),
        Test::new("everyday.prune_asks_on_a_terminal", prune_asks),
        Test::new("everyday.what_takes_long_shows_a_sign_of_life", progress),
        Test::new("everyday.doctor_says_what_each_policy_would_enforce", doctor),
        Test::new("everyday.doctor_of_an_ordinary_user_says_what_is_absent", doctor_of_user),
        Test::new("everyday.the_manual_has_no_mistake_that_mandoc_knows", manual),
    ];
    tests.extend(shells::tests());
    tests.extend(top::tests());
    tests
}

/// `mews` with variables besides those of the sandbox.
fn mews_with(sandbox: &Sandbox, words: &[&str], more: &[(&str, &str)]) -> anyhow::Result<Finished> {
    let mut command = sandbox.command(words)?;
    command.envs(more.iter().copied());
    process::run(&mut command, b"", LIMIT)
}

fn has(text: &str, words: &[&str]) -> anyhow::Result<()> {
    for word in words {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

fn sleeps(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    start(sandbox, &["--name", name], &["sleep", "1000"])?;
    Ok(())
}

/// One that ran and has ended: `mews run` may be back before the session is.
fn ended(sandbox: &Sandbox, name: &str, options: &[&str], script: &str) -> anyhow::Result<()> {
    let words = [&["run", "--no-tty", "-n", name], options, &["--", "sh", "-c", script]].concat();
    sandbox.mews(words)?.expect(0)?;
    pause::until("its session has ended", LIMIT, || {
        let shown = sandbox.json(["inspect", name]).ok()?;
        (text(&shown, "/state").ok()? == "ended").then_some(())
    })
}

fn alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    let empty = sandbox.mews::<&str>([])?.expect(0)?.out();
    has(&empty, &["Nothing is running.", "mews run -- CMD", "mews attach NAME", "mews end NAME"])?;
    // Nothing was started for it.
    ensure!(!sandbox.api_socket().exists(), "a daemon runs");
    sleeps(sandbox, "first")?;
    let one = sandbox.mews::<&str>([])?.expect(0)?.out();
    has(&one, &["first", "running", "sleep 1000", "mews run -- CMD"])?;
    sandbox.mews(["end", "first"])?.expect(0)?;
    let ended = sandbox.mews::<&str>([])?.expect(0)?.out();
    ensure!(!ended.contains("first"), "it has ended: {ended}");
    let all = sandbox.mews(["ls", "-a"])?.expect(0)?.out();
    has(&all, &["first", "ended", "143"])?;
    sandbox.mews(["archive", "first"])?.expect(0)?;
    let living = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(!living.contains("first"), "it is archived: {living}");
    has(&sandbox.mews(["ls", "-a"])?.expect(0)?.out(), &["first", "archived"])
}

fn killed(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "first")?;
    has(&sandbox.mews(["kill", "first"])?.expect(0)?.err(), &["killed first"])?;
    has(&sandbox.mews(["kill", "first"])?.expect(0)?.err(), &["first had ended already"])
}

fn similar(sandbox: &Sandbox) -> anyhow::Result<()> {
    for (typed, meant) in [("atach", "attach"), ("ps", "'ls'"), ("stop", "'end'")] {
        let told = sandbox.mews([typed])?.expect(2)?.err();
        has(&told, &[meant])?;
    }
    let told = sandbox.mews(["--json", "atach"])?.expect(2)?;
    let line: Value = serde_json::from_str(told.err().trim())?;
    ensure!(text(&line, "/error/code")? == "bad_request", "{line}");
    sleeps(sandbox, "nightly")?;
    for verb in ["inspect", "logs", "end"] {
        has(&sandbox.mews([verb, "nigthly"])?.expect(3)?.err(), &["did you mean: nightly"])?;
    }
    has(&sandbox.mews(["attach", "nigthly"])?.err(), &["did you mean: nightly"])?;
    let told = sandbox.mews(["--json", "inspect", "nigthly"])?.expect(3)?.err();
    let line: Value = serde_json::from_str(told.trim())?;
    ensure!(text(&line, "/error/details/similar/0")? == "nightly", "{line}");
    let far = sandbox.mews(["inspect", "zzzz"])?.expect(3)?.err();
    ensure!(!far.contains("did you mean"), "{far}");
    let told = sandbox.mews(["run", "-p", "agent-ofline", "--", "true"])?.expect(125)?.err();
    has(&told, &["did you mean: agent-offline"])
}

fn colours(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "green")?;
    let painted = "\x1b[32mrunning\x1b[0m";
    for (words, more, want) in [
        (&["ls"][..], &[][..], false),
        (&["ls"], &[("CLICOLOR_FORCE", "1")], true),
        (&["ls"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        (&["ls", "--color", "always"], &[("NO_COLOR", "1")], true),
        (&["--color=never", "ls"], &[("CLICOLOR_FORCE", "1")], false),
    ] {
        let shown = mews_with(sandbox, words, more)?.expect(0)?.out();
        ensure!(shown.contains(painted) == want, "{words:?} {more:?}: {shown:?}");
        ensure!(want || !shown.contains('\x1b'), "{words:?} {more:?}: {shown:?}");
    }
    let wrong = mews_with(sandbox, &["--color=always", "bogus"], &[])?.expect(2)?.err();
    ensure!(wrong.contains('\x1b'), "{wrong:?}");
    let mut terminal = Terminal::mews(sandbox, &["ls"])?;
    terminal.wait_raw(painted.as_bytes())?;
    ensure!(terminal.wait_exit()? == 0);
    let mut plain = Terminal::program(sandbox, &["env", "NO_COLOR=1", "mews", "ls"])?;
    plain.wait_for("running")?;
    ensure!(plain.wait_exit()? == 0);
    ensure!(!plain.raw().contains(&0x1b), "{:?}", String::from_utf8_lossy(&plain.raw()));
    Ok(())
}

fn inspect(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "page", "--overlay"], &["sleep", "1000"])?;
    sandbox.mews(["label", "page", "team=blue"])?.expect(0)?;
    let page = sandbox.mews(["inspect", "page"])?.expect(0)?.out();
    let words = ["page  running", "labels    team=blue", "runs for", "walls enforced:", "landlock"];
    has(&page, &words)?;
    has(&page, &["mews attach page", "mews diff page"])?;
    sandbox.mews(["kill", "page"])?.expect(0)?;
    let page = sandbox.mews(["inspect", "page"])?.expect(0)?.out();
    has(&page, &["page  ended", "exit      137", "used", "mews logs page"])?;
    let json = sandbox.json(["inspect", "page"])?;
    ensure!(text(&json, "/name")? == "page", "{json}");
    Ok(())
}

fn cancel(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "plain")?;
    let told = sandbox.mews(["cancel", "plain"])?.expect(0)?.err();
    has(&told, &["cancelled plain (exit 143 cancelled)"])?;
    // One that has words for it, and one that stands still.
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    start(sandbox, &["--name", "polite"], &["bash", "-c", script])?;
    sandbox.mews(["wait", "polite", "--for", "^ready$", "--timeout", "20"])?.expect(0)?;
    sandbox.mews(["pause", "polite"])?.expect(0)?;
    let run = sandbox.json(["cancel", "polite"])?;
    ensure!(text(&run, "/state")? == "cancelled", "{run}");
    ensure!(run.pointer("/exit/code").and_then(|code| code.as_i64()) == Some(7), "{run}");
    ensure!(text(&run, "/exit/cause")? == "cancelled", "{run}");
    has(&sandbox.mews(["logs", "polite"])?.out(), &["bye"])?;
    let again = sandbox.mews(["cancel", "polite"])?.expect(5)?.err();
    has(&again, &["has ended already", "mews inspect polite"])?;
    sandbox.mews(["cancel", "nobody"])?.expect(3)?;
    Ok(())
}

fn cancel_in_front(sandbox: &Sandbox) -> anyhow::Result<()> {
    let status = sandbox.root().join("home/status.json");
    let status = status.to_string_lossy().into_owned();
    let words = ["run", "-n", "front", "--status-file", &status, "--"];
    let script = ["sh", "-c", "touch begun; exec sleep 1000"];
    let words = [&words[..], &script].concat();
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    // Until then it waits for its viewer, and what it is told is told to nobody.
    let begun = in_workspace(sandbox, "begun");
    pause::until("its command runs", LIMIT, || begun.exists().then_some(()))?;
    sandbox.mews(["cancel", "front"])?.expect(0)?;
    let front = crate::talk::finish(child)?;
    ensure!(front.code == 143, "exit {}: {}", front.code, front.err());
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&status)?)?;
    ensure!(text(&told, "/exit/cause")? == "cancelled", "{told}");
    Ok(())
}

fn names(sandbox: &Sandbox) -> anyhow::Result<Vec<String>> {
    let lines = sandbox.mews(["ls", "-a", "--json"])?.expect(0)?.json_lines()?;
    lines.iter().map(|line| text(line, "/name")).collect()
}

fn prune(sandbox: &Sandbox) -> anyhow::Result<()> {
    for name in ["old", "labelled", "kept"] {
        ended(sandbox, name, &[], "echo x")?;
    }
    sandbox.mews(["label", "labelled", "ci=1"])?.expect(0)?;
    sandbox.mews(["archive", "kept"])?.expect(0)?;
    ended(sandbox, "changed", &["--overlay"], "echo x > new")?;
    ended(sandbox, "unchanged", &["--overlay"], "true")?;
    sleeps(sandbox, "lives")?;
    let all = names(sandbox)?;
    // Nothing is old enough.
    has(&sandbox.mews(["prune", "-y"])?.expect(0)?.err(), &["nothing to remove"])?;
    let shown = sandbox.mews(["prune", "--older-than", "0s", "--dry-run"])?.expect(0)?;
    has(&shown.out(), &["old", "labelled", "unchanged"])?;
    has(&shown.err(), &["1 session with changes", "changed", "1 session that were archived"])?;
    ensure!(!shown.out().contains("lives"), "{}", shown.out());
    // Nobody is there to say yes.
    let asked = sandbox.mews(["prune", "--older-than", "0s"])?.expect(2)?.err();
    has(&asked, &["--yes"])?;
    ensure!(names(sandbox)? == all, "something is gone");
    let only = ["prune", "--older-than", "0s", "--label", "ci", "-y", "--json"];
    let told = sandbox.mews(only)?.expect(0)?.json_lines()?;
    let [one] = told.as_slice() else { anyhow::bail!("{told:?}") };
    ensure!(text(one, "/fate")? == "removed", "{one}");
    sandbox.mews(["prune", "--older-than", "0s", "-y"])?.expect(0)?;
    let mut left = names(sandbox)?;
    left.sort();
    ensure!(left == ["changed", "kept", "lives"], "{left:?}");
    let rest = ["prune", "--older-than", "0s", "-y", "--changed", "--archived"];
    has(&sandbox.mews(rest)?.expect(0)?.err(), &["removed 2 sessions"])?;
    ensure!(names(sandbox)? == ["lives"]);
    Ok(())
}

fn prune_asks(sandbox: &Sandbox) -> anyhow::Result<()> {
    ended(sandbox, "old", &[], "true")?;
    for (answer, code, gone) in [("n\r", 2, false), ("y\r", 0, true)] {
        let mut terminal = Terminal::mews(sandbox, &["prune", "--older-than", "0s"])?;
        terminal.wait_for("remove 1 session with all they have kept? [y/N]")?;
        terminal.send(answer)?;
        ensure!(terminal.wait_exit()? == code, "{:?}", terminal.screen());
        ensure!(names(sandbox)?.is_empty() == gone, "after {answer:?}");
    }
    Ok(())
}

/// Something that takes five seconds to end.
fn progress(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let stubborn = |name: &str| {
        start(sandbox, &["--name", name], &["bash", "-c", script])?;
        sandbox.mews(["wait", name, "--for", "^ready$", "--timeout", "20"])?.expect(0)
    };
    stubborn("one")?;
    let mut terminal = Terminal::mews(sandbox, &["end", "one"])?;
    terminal.wait_for("ending one (")?;
    ensure!(terminal.wait_exit()? == 0);
    let screen = terminal.screen().join("\n");
    ensure!(screen.contains("mews: ended one") && !screen.contains("ending one"), "{screen}");
    terminal.check_sane()?;
    // A pipe has no use for it.
    stubborn("two")?;
    let told = sandbox.mews(["end", "two"])?.expect(0)?.err();
    ensure!(told == "mews: ended two\n", "{told:?}");
    Ok(())
}

const CHECKS: [&str; 20] = [
    "bwrap",
    "userns",
    "apparmor",
    "proc",
    "loopback",
    "landlock",
    "seccomp",
    "tiocsti",
    "terminals",
    "memfd",
    "inotify",
    "nesting",
    "clock",
    "cage-init",
    "delegation",
    "cgroup.memory",
    "cgroup.pids",
    "cgroup.io",
    "freezer",
    "a real cage",
];
const POLICIES: [&str; 4] = ["base", "shell", "agent-offline", "ci"];

fn doctor(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let told = sandbox.mews(["doctor", "--json"])?.expect(0)?.json_lines()?;
    for name in CHECKS {
        let check = told.iter().find(|line| line.pointer("/name").is_some_and(|it| it == name));
        let check = check.with_context(|| format!("no check {name}"))?;
        ensure!(text(check, "/state")? != "fail", "{check}");
    }
    let socket = sandbox.root().join("home/provider.sock");
    let _provider = std::os::unix::net::UnixListener::bind(&socket)?;
    let provider = format!("unix:{}", socket.display());
    for policy in POLICIES {
        let is_its = |line: &&Value| line.pointer("/policy").is_some_and(|it| it == policy);
        let planned = told.iter().find(is_its).with_context(|| format!("no policy {policy}"))?;
        // What is said beforehand is what a cage then says of itself.
        let name = format!("of-{policy}");
        let options = ["--name", &name, "-p", policy, "--provider", &provider];
        let given = if policy == "agent-offline" { 6 } else { 4 };
        start(sandbox, options.get(..given).unwrap_or(&options), &["sleep", "1000"])?;
        let shown = sandbox.json(["inspect", &name])?;
        let walls = shown.pointer("/cages/0/enforced/walls").and_then(|all| all.as_array());
        let states = |walls: &[Value]| {
            let one = |wall: &Value| Ok((text(wall, "/name")?, text(wall, "/state")?));
            walls.iter().map(one).collect::<anyhow::Result<Vec<_>>>()
        };
        let said = planned.pointer("/walls").and_then(|all| all.as_array()).context("walls")?;
        ensure!(states(said)? == states(walls.context("walls")?)?, "{policy}: {planned}\n{shown}");
        sandbox.mews(["kill", &name])?.expect(0)?;
    }
    let shown = sandbox.mews(["doctor"])?.expect(0)?.out();
    has(&shown, &["ok    a real cage", "What each shipped policy would enforce here:"])
}

/// Without a cgroup of its own: `ci` would refuse, and says why.
fn doctor_of_user(_root: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    as_user(8, |sandbox| {
        let told = sandbox.mews(["doctor", "--json"])?.expect(0)?.json_lines()?;
        let is_ci = |line: &&Value| line.pointer("/policy").is_some_and(|it| it == "ci");
        let ci = told.iter().find(is_ci).context("no such policy")?;
        ensure!(text(ci, "/state")? == "warn" && ci.pointer("/walls").is_none(), "{ci}");
        has(&text(ci, "/what")?, &["would refuse to start", "cgroup.memory"])?;
        let refused = sandbox.mews(["run", "-p", "ci", "--", "true"])?.expect(125)?.err();
        has(&refused, &["cgroup.memory"])?;
        let shown = sandbox.mews(["doctor"])?.expect(0)?.out();
        has(&shown, &["warn  shell", "ABSENT  cgroup.memory: ", "weaker  cgroup.pids: rlimit"])
    })
}

fn manual(sandbox: &Sandbox) -> anyhow::Result<()> {
    let folder = sandbox.root().join("home/man1");
    let into = folder.to_string_lossy().into_owned();
    sandbox.mews(["man", &into])?.expect(0)?;
    let mut pages: Vec<String> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<_>>()?;
    pages.sort();
    ensure!(pages.len() > 45, "{} pages", pages.len());
    need_programs(&["mandoc"])?;
    let mut command = Command::new("mandoc");
    command.args(["-Tlint", "-Wwarning"]).args(&pages);
    let told = process::run(&mut command, b"", Duration::from_secs(60))?;
    ensure!(told.code == 0 && told.stdout.is_empty(), "{}{}", told.out(), told.err());
    let mut command = Command::new("mandoc");
    command.args(["-Tutf8"]).arg(folder.join("mews-grants-make.1"));
    let shown = process::run(&mut command, b"", LIMIT)?.expect(0)?.out();
    // What is printed bold is overstruck.
    let plain = shown.replace('\x08', "");
    has(&plain, &["mews grants make --cages 1 --for 2h"])?;
    Ok(())
}
