//! `mews run` as a step of a CI job: reports, artifacts, GitHub's commands, signals, labels; and a workflow
//! that a real engine runs (`ci/act.rs`).

mod act;

use crate::runner::Test;
use crate::talk::{Mode, finish, in_workspace, run, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for mode in Mode::BOTH {
        let mut add = |what: &str, body: fn(&Sandbox, Mode) -> anyhow::Result<()>| {
            let name = format!("ci.{what}.{}", mode.name());
            tests.push(Test::new(name, move |sandbox| body(sandbox, mode)));
        };
        add("report_is_xml_whatever_is_printed", any_bytes);
        add("report_of_what_never_ran", never_ran);
        add("report_of_a_limit", limit);
        add("cancelled_run_is_reported", cancelled);
        add("who_does_not_end_in_time_is_killed", grace);
        add("artifacts_come_out_of_a_layer", layered);
        add("artifacts_lead_nowhere_else", hostile);
        add("report_and_status_are_no_way_out", paths_turned);
        add("program_gives_github_no_commands", github);
    }
    tests.push(Test::new("ci.pipes_of_a_step_stay_exact", pipes_of_a_step));
    tests.push(Test::new("ci.job_has_the_engines_labels", labels));
    tests.extend(act::tests());
    tests
}

/// What stands there; null where nothing does.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

const READ_REPORT: &str = "
import json, sys, xml.etree.ElementTree as E
root = E.parse(sys.argv[1]).getroot()
case, = root.findall('.//testcase')
found = [(kind, case.find(kind)) for kind in ('failure', 'error', 'skipped')]
found = [(kind, e.get('type'), e.get('message'), e.text) for kind, e in found if e is not None]
kind, cause, message, text = found[0] if found else ('passed', None, None, None)
suite, = root.findall('testsuite')
counts = {name: suite.get(name) for name in ('tests', 'failures', 'errors', 'skipped')}
print(json.dumps({'kind': kind, 'cause': cause, 'message': message, 'text': text, 'counts': counts,
    'name': case.get('name'), 'out': case.findtext('system-out') or '',
    'properties': {p.get('name'): p.get('value') for p in root.iter('property')}}))
";

/// A report as another program's XML parser reads it.
fn report(path: &Path) -> anyhow::Result<Value> {
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-c").arg(READ_REPORT).arg(path);
    process::run(&mut python, b"", LIMIT)?.expect(0)?.json()
}

fn path_of(sandbox: &Sandbox, name: &str) -> String {
    sandbox.root().join(name).to_string_lossy().into_owned()
}

fn any_bytes(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/reports/junit.xml");
    let script = r"head -c 400000 /dev/urandom; printf '\n\000\377\033[31m]]></failure><error/>\n'; 
        printf 'last & least\n' >&2; exit 7";
    let done = run(sandbox, mode, &["--report", &path], &["sh", "-c", script])?.expect(7)?;
    ensure!(done.stdout.len() > 400_000, "the output itself is whole");
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "failure" && at(&found, "/cause") == "exited", "{found}");
    ensure!(at(&found, "/message") == "exit status 7", "{found}");
    let last = text(&found, "/text")?;
    ensure!(last.contains("]]></failure><error/>") && last.contains("last & least"), "{last}");
    ensure!(text(&found, "/out")?.contains("bytes before this are not in the report"), "cut");
    ensure!(
        at(&found, "/counts/failures") == "1" && at(&found, "/counts/errors") == "0",
        "{found}"
    );
    run(sandbox, mode, &["--report", &path], &["echo", "fine"])?.expect(0)?;
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "passed" && at(&found, "/out") == "fine\n", "{found}");
    ensure!(
        at(&found, "/name") == "echo fine" && at(&found, "/properties/run").is_string(),
        "{found}"
    );
    Ok(())
}

fn never_ran(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/junit.xml");
    let options = ["--report", &path, "-p", "no-such-policy"];
    run(sandbox, mode, &options, &["true"])?.expect(125)?;
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "error" && at(&found, "/cause") == "policy_denied", "{found}");
    ensure!(text(&found, "/message")?.contains("no-such-policy"), "{found}");
    // What could not be reported is not begun.
    let path = path_of(sandbox, "ws");
    let done = run(sandbox, mode, &["--report", &path], &["touch", "began"])?.expect(125)?;
    ensure!(done.err().contains("cannot write the report"), "{}", done.err());
    ensure!(!in_workspace(sandbox, "began").exists(), "it began");
    Ok(())
}

fn limit(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/junit.xml");
    let script = "echo about to sleep; sleep 100";
    let options = ["--report", &path, "--timeout", "1s"];
    run(sandbox, mode, &options, &["sh", "-c", script])?.expect(124)?;
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "failure" && at(&found, "/cause") == "walltime", "{found}");
    ensure!(text(&found, "/text")?.contains("about to sleep"), "{found}");
    Ok(())
}

/// Starts it, waits for its file `ready`, tells it to end.
fn told_to_end(
    sandbox: &Sandbox,
    mode: Mode,
    options: &[&str],
    script: &str,
) -> anyhow::Result<Finished> {
    let mut words = vec!["run", "--no-tty"];
    if mode == Mode::Alone {
        words.push("--no-daemon");
    }
    words.extend(options);
    words.extend(["--", "bash", "-c", script]);
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let ready = in_workspace(sandbox, "ready");
    pause::until("it is ready", LIMIT, || ready.exists().then_some(()))?;
    link::PidFd::open(i32::try_from(child.id())?)?.signal(libc::SIGTERM)?;
    finish(child)
}

fn cancelled(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/junit.xml");
    let script = "touch ready; while :; do sleep 0.05; done";
    told_to_end(sandbox, mode, &["--report", &path], script)?.expect(143)?;
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "error" && at(&found, "/cause") == "cancelled", "{found}");
    ensure!(text(&found, "/message")?.contains("SIGTERM"), "{found}");
    Ok(())
}

fn grace(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/junit.xml");
    let script = "trap 'touch told' TERM; touch ready; while :; do sleep 0.05; done";
    let options = ["--report", &path, "--grace", "1s", "--artifacts", "to*"];
    let done = told_to_end(sandbox, mode, &options, script)?.expect(137)?;
    ensure!(done.err().contains("told to end and did not"), "{}", done.err());
    ensure!(done.err().contains("artifacts: 1 file,"), "{}", done.err());
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/kind") == "error" && at(&found, "/cause") == "cancelled", "{found}");
    Ok(())
}

/// Only what is asked for comes to the folder, as the command left it.
fn layered(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    sandbox.folder("ws/out")?;
    for name in ["ws/out/old", "ws/out/gone", "ws/source"] {
        sandbox.file(name, "before")?;
    }
    let target = path_of(sandbox, "home/artifacts");
    let status = path_of(sandbox, "home/status.json");
    let script = "mkdir out/deep; echo new > out/deep/a; echo changed > source; rm out/gone; \
                  ln -s /etc/passwd out/link; echo 123456789012345 > out/big; exit 3";
    let options = [
        "--overlay",
        "--artifacts",
        "out/**",
        "--artifacts-dir",
        &target,
        "--artifacts-max",
        "10",
        "--status-file",
        &status,
    ];
    run(sandbox, mode, &options, &["sh", "-c", script])?.expect(3)?;
    let status: Value = serde_json::from_slice(&std::fs::read(&status)?)?;
    let artifacts = at(&status, "/artifacts");
    ensure!(
        *at(artifacts, "/files") == serde_json::json!([{ "path": "out/deep/a", "bytes": 4 }]),
        "{artifacts}"
    );
    let left: Vec<&str> = at(artifacts, "/left")
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|left| at(left, "/path").as_str())
        .collect();
    ensure!(left == ["out/big", "out/link"], "{artifacts}");
    for (path, want) in [
        ("home/artifacts/out/deep/a", "new\n"),
        ("ws/out/deep/a", "new\n"),
        ("ws/source", "before"),
    ] {
        let found = std::fs::read_to_string(sandbox.root().join(path))?;
        ensure!(found == want, "{path}: {found}");
    }
    ensure!(in_workspace(sandbox, "out/gone").exists(), "only files are brought out");
    ensure!(!in_workspace(sandbox, "out/big").exists(), "it was more than was allowed");
    ensure!(!Path::new(&target).join("out/old").exists(), "it was not the command's");
    Ok(())
}

/// A folder that belongs to the command: whatever it makes of it, nothing else is read or written.
fn hostile(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let secret = sandbox.file("home/secret", "secret")?;
    let target = path_of(sandbox, "ws/taken");
    let script = format!(
        "mkdir out; echo mine > out/a; ln -s {secret} out/b; ln -s / out/c; mkfifo out/d; \
         ln -s ../../home/secret out/e; ln -s {home} out/f; rm -rf taken; ln -s {home} taken",
        secret = secret.display(),
        home = sandbox.root().join("home").display()
    );
    let options = [
        "--artifacts",
        "out/**",
        "--artifacts",
        "out/f/secret",
        "--artifacts",
        "taken/**",
        "--artifacts-dir",
        &target,
    ];
    let done = run(sandbox, mode, &options, &["sh", "-c", &script])?.expect(0)?;
    let said = done.err();
    ensure!(!said.contains("(6 bytes)"), "a secret was taken: {said}");
    ensure!(said.matches("left:").count() >= 5, "{said}");
    let home = std::fs::read_dir(sandbox.root().join("home"))?.count();
    ensure!(home == 1, "{home} files at home");
    // The folder that was opened is gone; nothing took its place.
    ensure!(said.contains("artifacts: 0 files"), "{said}");
    // One that stays a folder gets what is regular.
    std::fs::remove_file(&target)?;
    sandbox.folder("ws/taken")?;
    let mut words = vec!["run", "--no-tty"];
    words.extend(options);
    let done = sandbox.mews(words.into_iter().chain(["--", "true"]))?.expect(0)?;
    ensure!(done.err().contains("out/a (5 bytes)"), "{}", done.err());
    ensure!(std::fs::read_dir(sandbox.root().join("ws/taken/out"))?.count() == 1, "only out/a");
    Ok(())
}

/// A report in the workspace: its folder and its name become links while the command runs.
fn paths_turned(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let key = sandbox.file("home/key", "precious")?;
    sandbox.folder("ws/reports")?;
    let report = path_of(sandbox, "ws/reports/key");
    let status = path_of(sandbox, "ws/status");
    // The names of the temporary files cannot be guessed.
    let script = format!(
        "mv reports moved; ln -s {home} reports; ln -s {key} moved/key; ln -s {key} status",
        home = sandbox.root().join("home").display(),
        key = key.display()
    );
    let options = ["--report", &report, "--status-file", &status];
    run(sandbox, mode, &options, &["sh", "-c", &script])?.expect(0)?;
    ensure!(std::fs::read_to_string(&key)? == "precious", "written through a link");
    ensure!(std::fs::read_dir(sandbox.root().join("home"))?.count() == 1, "more than the key");
    let moved = in_workspace(sandbox, "moved/key");
    ensure!(!moved.is_symlink() && report_at(&moved)? == "passed", "the report is where it was");
    ensure!(!Path::new(&status).is_symlink(), "the status file is a link");
    Ok(())
}

fn report_at(path: &Path) -> anyhow::Result<String> {
    text(&report(path)?, "/kind")
}

/// What GitHub's runner would do with these lines: its commands, in order, and what is plain text.
fn commands(output: &str) -> Vec<String> {
    let mut stopped: Option<String> = None;
    let mut done = Vec::new();
    for line in output.split(['\n', '\r']) {
        let line = line.trim_start();
        if let Some(token) = &stopped {
            if line == format!("::{token}::") {
                stopped = None;
            }
        } else if let Some(token) = line.strip_prefix("::stop-commands::") {
            stopped = Some(token.to_owned());
        } else if line.starts_with("::") || line.contains("##[") {
            done.push(line.to_owned());
        }
    }
    done
}

fn github(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let summary = sandbox.file("home/summary.md", "before\n")?;
    let script = r"echo '::set-env name=PATH::/tmp'; echo '::stop-commands::x'; echo '::x::' >&2;
        echo '::add-mask::a' >&2; printf '##[error]no\n'; printf '\r::error::forged\r\n';
        printf '`````\n# heading\n'; printf '::notice::without an end'; exit 4";
    let mut command = sandbox.command(
        ["run", "--no-tty"]
            .into_iter()
            .chain((mode == Mode::Alone).then_some("--no-daemon"))
            .chain(["--ci", "github", "--", "sh", "-c", script]),
    )?;
    command.env("GITHUB_STEP_SUMMARY", &summary);
    let done = process::run(&mut command, b"", LIMIT)?.expect(4)?;
    let found = commands(&done.out());
    let [group, end, error] = found.as_slice() else { anyhow::bail!("commands: {found:#?}") };
    ensure!(group.starts_with("::group::mews run: sh -c") && end == "::endgroup::", "{found:?}");
    ensure!(error.starts_with("::error title=mews run%3A sh -c"), "{error}");
    ensure!(
        error.contains("::exit status 4%0A") && error.contains("::notice::without an end"),
        "{error}"
    );
    ensure!(commands(&done.err()).is_empty(), "on standard error: {}", done.err());
    let text = std::fs::read_to_string(&summary)?;
    ensure!(text.starts_with("before\n### mews run: failed"), "{text}");
    ensure!(text.contains("``````text\n") && text.contains("exit status 4"), "{text}");
    // Whoever passes has no annotation.
    let options = ["--ci", "github"];
    let done = run(sandbox, mode, &options, &["printf", "x"])?.expect(0)?;
    let found = commands(&done.out());
    ensure!(found == ["::group::mews run: printf x", "::endgroup::"], "{found:?}");
    Ok(())
}

/// By itself the engine's words are only added where nothing but the engine reads them.
fn pipes_of_a_step(sandbox: &Sandbox) -> anyhow::Result<()> {
    let step = "mews run --no-tty -- echo for-the-log
        mews run --no-tty -- echo data | sha256sum > piped
        echo \"$(mews run --no-tty -- echo data)\" | sha256sum > captured
        mews run --no-tty -- echo data > file
        mews run --no-tty --ci none -- echo quiet";
    let mut command = Command::new("/bin/bash");
    command.args(["-c", step]).env_clear().envs(sandbox.env()?).env("GITHUB_ACTIONS", "true");
    command.current_dir(sandbox.workspace());
    let done = process::run(&mut command, b"", LIMIT)?.expect(0)?;
    let found = commands(&done.out());
    ensure!(found == ["::group::mews run: echo for-the-log", "::endgroup::"], "{}", done.out());
    ensure!(done.out().ends_with("quiet\n"), "{}", done.out());
    let want = process::run(Command::new("sha256sum").stdin(Stdio::piped()), b"data\n", LIMIT)?;
    for name in ["piped", "captured"] {
        let found = std::fs::read_to_string(in_workspace(sandbox, name))?;
        ensure!(found == want.out(), "{name}: {found}");
    }
    ensure!(std::fs::read_to_string(in_workspace(sandbox, "file"))? == "data\n", "the file");
    Ok(())
}

fn labels(sandbox: &Sandbox) -> anyhow::Result<()> {
    let path = path_of(sandbox, "home/junit.xml");
    let mut command = sandbox.command(["run", "--no-tty", "--report", &path, "--", "true"])?;
    command.env("SLURM_JOB_ID", "17").env("CI_JOB_ID", "");
    process::run(&mut command, b"", LIMIT)?.expect(0)?;
    let found = sandbox.mews(["ls", "-a", "--label", "SLURM_JOB_ID=17"])?.expect(0)?.out();
    ensure!(found.contains("true-1"), "{found}");
    let found = report(Path::new(&path))?;
    ensure!(at(&found, "/properties/SLURM_JOB_ID") == "17", "{found}");
    ensure!(at(&found, "/properties").get("CI_JOB_ID").is_none(), "{found}");
    Ok(())
}
