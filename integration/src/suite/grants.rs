//! Grants: who holds a key starts so many cages in one session, as whose grant it is, and nothing else.

mod faults;
mod people;

use crate::runner::Test;
use crate::talk::{event_types, events, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Finished, Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("grants.a_key_starts_so_many_cages", so_many),
        Test::new("grants.as_an_ordinary_user", |_root| super::users::as_user(1, so_many)),
        Test::new("grants.what_is_over_starts_nothing_and_leaves_no_trace", over),
        Test::new("grants.another_policy_is_refused", another_policy),
        Test::new("grants.outlive_both_daemons", outlive),
        Test::new("grants.wrong_usage", wrong),
        Test::new("grants.of_another_account", people::of_another_account),
        Test::new("grants.whom_the_host_lets_in_is_asked_again", people::asked_again),
        Test::new("grants.root_and_host_policy", people::not_allowed),
    ];
    for step in faults::STEPS {
        let name = format!("grants.a_daemon_dies_at_{step}");
        tests.push(Test::new(name, move |sandbox| faults::dies_at(sandbox, step)));
    }
    tests
}

/// `mews grants make` in a new session of this name: where the key is.
pub(super) fn make(
    sandbox: &Sandbox,
    name: &str,
    cages: &str,
    flags: &[&str],
) -> anyhow::Result<String> {
    let file = sandbox.root().join(format!("home/{name}.key")).to_string_lossy().into_owned();
    let words = ["grants", "make", "-n", name, "--cages", cages, "--for", "1h", "--to", &file];
    sandbox.mews([&words[..], flags].concat())?.expect(0)?;
    Ok(file)
}

/// A shell script by a grant.
fn by(sandbox: &Sandbox, key: &str, script: &str) -> anyhow::Result<Finished> {
    sandbox.mews(["grants", "use", key, "--", "sh", "-c", script])
}

/// Waits until nothing runs in the session.
fn idle(sandbox: &Sandbox, name: &str) -> anyhow::Result<Value> {
    pause::until("the session is idle", LIMIT, || {
        let shown = sandbox.json(["inspect", name]).ok()?;
        let idle = text(&shown, "/state").is_ok_and(|state| state == "idle");
        let phases = shown.pointer("/cages").and_then(Value::as_array)?.clone();
        let gone = phases.iter().all(|cage| cage.get("phase").is_some_and(|it| it == "gone"));
        (idle && gone).then_some(shown)
    })
}

/// The only grant, as `mews grants --json` has it.
fn only(sandbox: &Sandbox) -> anyhow::Result<Value> {
    let mut all = sandbox.mews(["--json", "grants"])?.expect(0)?.json_lines()?;
    ensure!(all.len() == 1, "{all:?}");
    all.pop().context("a grant")
}

fn runs(shown: &Value) -> usize {
    shown.pointer("/runs").and_then(Value::as_array).map_or(0, Vec::len)
}

fn so_many(sandbox: &Sandbox) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let key = make(sandbox, "nightly", "2", &["--pids", "77"])?;
    let mode = std::fs::metadata(&key)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    let listed = sandbox.mews(["grants"])?.expect(0)?.out();
    ensure!(
        listed.contains("nightly") && listed.contains("2/2") && listed.contains("good"),
        "{listed}"
    );
    for number in 1..=2 {
        let told = by(sandbox, &key, "echo ran >> ran; id -u > uid")?.expect(0)?;
        ensure!(told.out() == "nightly\n", "{}", told.out());
        let shown = idle(sandbox, "nightly")?;
        ensure!(runs(&shown) == number, "{shown}");
        ensure!(text(&shown, "/runs/0/policy")? == "shell", "{shown}");
    }
    let told = by(sandbox, &key, "echo ran >> ran")?.expect(5)?.err();
    ensure!(told.contains("all 2 cages of this grant"), "{told}");
    ensure!(crate::talk::read(sandbox, "ran")? == "ran\nran\n", "twice");
    let shown = idle(sandbox, "nightly")?;
    ensure!(runs(&shown) == 2, "a refused one left a run: {shown}");
    let all = events(sandbox, "nightly")?;
    let types = event_types(&all)?;
    let count = |kind: &str| types.iter().filter(|it| *it == kind).count();
    ensure!(count("grant.made") == 1 && count("cage.granted") == 2, "{types:?}");
    let grant = only(sandbox)?;
    ensure!(grant.pointer("/left") == Some(&0.into()), "{grant}");
    ensure!(text(&grant, "/standing")? == "used_up", "{grant}");
    // Of a secret there is nothing but the file that it was written to.
    let secret = std::fs::read_to_string(&key)?;
    let secret = secret.trim().rsplit('.').next().unwrap_or_default().to_owned();
    ensure!(secret.len() == 64, "{secret}");
    for folder in ["state", "run"] {
        let found = std::process::Command::new("grep")
            .args(["-rl", "--devices=skip", &secret])
            .arg(sandbox.root().join(folder))
            .output()?;
        ensure!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    }
    sandbox.mews(["end", "nightly"])?.expect(0)?;
    Ok(())
}

fn over(sandbox: &Sandbox) -> anyhow::Result<()> {
    let nothing = |key: &str, status: i32, said: &str| {
        let told = by(sandbox, key, "echo ran >> ran")?.expect(status)?.err();
        ensure!(told.contains(said), "{said}: {told}");
        Ok(())
    };
    let revoked = make(sandbox, "one", "5", &[])?;
    let id = text(&only(sandbox)?, "/id")?;
    sandbox.mews(["grants", "revoke", &id])?.expect(0)?;
    sandbox.mews(["grants", "revoke", &id])?.expect(0)?;
    nothing(&revoked, 3, "was revoked")?;
    // A key of the right grant that is not its key, and one of none.
    let text_of = std::fs::read_to_string(&revoked)?;
    let secret = text_of.trim().rsplit('.').next().unwrap_or_default().to_owned();
    for (name, wrong) in [
        ("guessed", text_of.replace(&secret, &"0".repeat(64))),
        ("none", text_of.replace(&id, "01ARZ3NDEKTSV4RRFFQ69G5FAV")),
    ] {
        let file = sandbox.file(&format!("home/{name}"), wrong)?;
        nothing(&file.to_string_lossy(), 3, "no grant with this key")?;
    }
    let file = sandbox.root().join("home/short.key").to_string_lossy().into_owned();
    let words = ["grants", "make", "--in", "one", "--cages", "5", "--for", "1s", "--to", &file];
    sandbox.mews(words)?.expect(0)?;
    pause::until("it has expired", LIMIT, || {
        let all = sandbox.mews(["--json", "grants"]).ok()?.json_lines().ok()?;
        all.iter()
            .any(|grant| text(grant, "/standing").is_ok_and(|it| it == "expired"))
            .then_some(())
    })?;
    nothing(&file, 3, "has expired")?;
    let shown = sandbox.json(["inspect", "one"])?;
    ensure!(runs(&shown) == 0, "{shown}");
    let ended = make(sandbox, "two", "5", &[])?;
    sandbox.mews(["end", "two"])?.expect(0)?;
    let told = by(sandbox, &ended, "echo ran >> ran")?;
    ensure!(told.code == 3, "{told:?}");
    sandbox.mews(["end", "one"])?.expect(0)?;
    // Those of ended sessions are not kept.
    pause::until("no grant is left", LIMIT, || {
        let left = std::fs::read_dir(sandbox.state_dir().join("sup/grants")).ok()?.count();
        (left == 0).then_some(())
    })?;
    ensure!(!sandbox.workspace().join("ran").exists(), "something ran");
    Ok(())
}

fn another_policy(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.folder("config/policies")?;
    let policy = |pids: u32| {
        let text = format!("version = 1\nextends = \"shell\"\n[limits]\npids = {pids}\n");
        sandbox.file("config/policies/mine.toml", text)
    };
    policy(50)?;
    let key = make(sandbox, "mine", "2", &["-p", "mine"])?;
    policy(5000)?;
    let told = by(sandbox, &key, "echo ran >> ran")?.expect(4)?.err();
    ensure!(told.contains("another policy") && told.contains("mews grants make"), "{told}");
    ensure!(only(sandbox)?.pointer("/left") == Some(&2.into()), "what was refused was counted");
    idle(sandbox, "mine")?;
    policy(50)?;
    by(sandbox, &key, "echo ran >> ran")?.expect(0)?;
    idle(sandbox, "mine")?;
    ensure!(crate::talk::read(sandbox, "ran")? == "ran\n", "once");
    sandbox.mews(["end", "mine"])?.expect(0)?;
    Ok(())
}

fn outlive(sandbox: &Sandbox) -> anyhow::Result<()> {
    let key = make(sandbox, "lasting", "2", &[])?;
    for left in [1, 0] {
        let (sessiond, supervisor) = crate::talk::daemon_pids(sandbox)?;
        for pid in [supervisor, sessiond] {
            let handle = link::PidFd::open(pid)?;
            handle.signal(libc::SIGKILL)?;
            pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))?;
        }
        by(sandbox, &key, "echo ran >> ran")?.expect(0)?;
        idle(sandbox, "lasting")?;
        ensure!(only(sandbox)?.pointer("/left") == Some(&left.into()), "{left} are left");
    }
    by(sandbox, &key, "echo ran >> ran")?.expect(5)?;
    sandbox.mews(["end", "lasting"])?.expect(0)?;
    Ok(())
}

fn wrong(sandbox: &Sandbox) -> anyhow::Result<()> {
    let make = |words: &[&str]| sandbox.mews([&["grants", "make"], words].concat());
    for (words, said) in [
        (["--cages", "0", "--for", "1h"], "1 to 1000 cages"),
        (["--cages", "9999", "--for", "1h"], "1 to 1000 cages"),
        (["--cages", "1", "--for", "31d"], "30 days"),
        (["--cages", "1", "--for", "soon"], "not a length of time"),
    ] {
        let told = make(&words)?.expect(2)?.err();
        ensure!(told.contains(said), "{words:?}: {told}");
    }
    let told = make(&["--cages", "1", "--for", "1h", "-p", "nonesuch"])?;
    ensure!(told.code != 0 && told.err().contains("nonesuch"), "{told:?}");
    let there = sandbox.file("home/there", "mine")?.to_string_lossy().into_owned();
    make(&["--cages", "1", "--for", "1h", "--to", &there])?.expect(2)?;
    ensure!(std::fs::read_to_string(&there)? == "mine", "a file was written over");
    let told = sandbox.mews(["grants", "use", &there, "--", "true"])?.expect(2)?.err();
    ensure!(told.contains("no key of a grant"), "{told}");
    sandbox.mews(["grants", "revoke", "nothing"])?.expect(3)?;
    let told = sandbox.mews(["grants"])?.expect(0)?;
    ensure!(told.out().is_empty() && told.err().contains("no grants"), "{told:?}");
    // What could not be granted leaves no session.
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(!listed.contains("idle"), "{listed}");
    Ok(())
}
