//! What a person gets wrong, and what is said to them: the words, the next thing to type, the exit
//! status. `table.rs` is data; `docs/mistakes.md` is made of it.
//!
//! All rows of a scene share its daemons, so that all of them take seconds.

mod table;

use crate::pattern::fits;
use crate::runner::{Test, need_root};
use crate::talk::kill_both;
use anyhow::ensure;
use std::process::Command;
use std::time::Duration;
use table::{MISTAKES, Mistake, SCENES, Scene, Who};
use testkit::pace::stretched;
use testkit::process::{self, LIMIT};
use testkit::{Caller, Finished, Sandbox};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = SCENES
        .iter()
        .map(|scene| Test::new(format!("mistakes.{}", scene.name), move |s| play(s, scene)))
        .collect();
    tests.push(Test::new("mistakes.as_json", as_json));
    tests
}

fn play(sandbox: &Sandbox, scene: &Scene) -> anyhow::Result<()> {
    match scene.who {
        Who::Tester => rows(sandbox, sandbox.caller(), scene),
        Who::Root => {
            need_root()?;
            rows(sandbox, sandbox.caller(), scene)
        }
        // Of an account that root's daemons have not let in; they are started by the preparation.
        Who::Guest => {
            need_root()?;
            rows(sandbox, Caller::ordinary(1), scene)
        }
        Who::User => super::users::as_user(1, |sandbox| rows(sandbox, sandbox.caller(), scene)),
    }
}

/// What the preparation made is taken away, whatever came between.
fn rows(sandbox: &Sandbox, caller: Caller, scene: &Scene) -> anyhow::Result<()> {
    let told = prepare(sandbox, scene).and_then(|()| type_all(sandbox, caller, scene));
    sandbox.speak(scene.daemons);
    let done = shell(sandbox, sandbox.caller(), scene.after)?;
    told?;
    ensure!(done.code == 0, "afterwards: {}{}", done.out(), done.err());
    Ok(())
}

fn prepare(sandbox: &Sandbox, scene: &Scene) -> anyhow::Result<()> {
    if !scene.daemons.is_empty() {
        sandbox.speak(scene.daemons);
    }
    let prepared = shell(sandbox, sandbox.caller(), &format!("set -e\n{}", scene.prepare))?;
    ensure!(prepared.code == 0, "the preparation: {}{}", prepared.out(), prepared.err());
    if scene.dead {
        kill_both(sandbox)?;
    }
    if !scene.client.is_empty() {
        sandbox.speak(scene.client);
    }
    Ok(())
}

fn type_all(sandbox: &Sandbox, caller: Caller, scene: &Scene) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for row in MISTAKES.iter().filter(|row| row.scene == scene.name) {
        let told = shell(sandbox, caller, row.typed)?;
        if told.code != row.status || !told.stdout.is_empty() || !fits(&row.words(), &told.err()) {
            wrong.push(format!(
                "{}\n$ {}\nexit {}, not {}; stdout {:?}\n{}instead of\n{}",
                row.what,
                row.typed,
                told.code,
                row.status,
                told.out(),
                told.err(),
                row.words()
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}: {} wrong:\n{}", scene.title, wrong.len(), wrong.join("\n\n"));
    Ok(())
}

/// As a person would type it, in the workspace, without a terminal.
fn shell(sandbox: &Sandbox, caller: Caller, script: &str) -> anyhow::Result<Finished> {
    // What waits although it should have refused is ended with all that it has started.
    let mut command = Command::new("timeout");
    let limit = stretched(Duration::from_secs(20)).as_secs().to_string();
    command.args(["--kill-after=1", &limit, "sh", "-c", script]);
    command.env_clear().envs(sandbox.env()?);
    command.env("SANDBOX", sandbox.root()).current_dir(sandbox.workspace());
    caller.apply(&mut command);
    process::run(&mut command, b"", LIMIT)
}

impl Mistake {
    /// All of standard error.
    fn words(&self) -> String {
        format!("mews: {}\n  try: {}", self.says, self.next)
    }
}

/// For programs: one object, with the same next step.
fn as_json(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    for (line, status, code, next) in [
        ("mews --json logs nobody", 3, "not_found", "mews ls -a"),
        ("mews logs --json --bogus", 2, "bad_request", "mews logs --help"),
        ("mews run --json -w /no/such -- true", 125, "bad_request", "mews run -w FOLDER -- CMD"),
    ] {
        let told = shell(sandbox, sandbox.caller(), line)?.expect(status)?;
        let error: serde_json::Value = serde_json::from_slice(&told.stderr)?;
        ensure!(error.pointer("/error/code").is_some_and(|it| it == code), "{line}: {error}");
        ensure!(error.pointer("/next").is_some_and(|it| it == next), "{line}: {error}");
        ensure!(told.stdout.is_empty(), "{line}: {}", told.out());
    }
    Ok(())
}
