//! Talking to mews as a script would.

use anyhow::Context as _;
use serde_json::Value;
use std::path::PathBuf;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

/// Through the daemons, or `--no-daemon`: the same promises hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Daemons,
    Alone,
}

impl Mode {
    pub(crate) const BOTH: [Self; 2] = [Self::Daemons, Self::Alone];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemons => "daemons",
            Self::Alone => "alone",
        }
    }
}

/// `mews run OPTIONS -- CMD` with pipes.
pub(crate) fn run(
    sandbox: &Sandbox,
    mode: Mode,
    options: &[&str],
    command: &[&str],
) -> anyhow::Result<Finished> {
    sandbox.mews(words(mode, options, command))
}

/// The same with something on standard input.
pub(crate) fn run_fed(
    sandbox: &Sandbox,
    mode: Mode,
    command: &[&str],
    stdin: &[u8],
) -> anyhow::Result<Finished> {
    process::run(&mut sandbox.command(words(mode, &[], command))?, stdin, LIMIT)
}

/// `mews run` of a shell script.
pub(crate) fn sh(sandbox: &Sandbox, options: &[&str], script: &str) -> anyhow::Result<Finished> {
    run(sandbox, Mode::Daemons, options, &["sh", "-c", script])
}

/// What the status file says after such a run.
pub(crate) fn run_with_status(
    sandbox: &Sandbox,
    mode: Mode,
    options: &[&str],
    command: &[&str],
) -> anyhow::Result<(Finished, Value)> {
    let file = sandbox.root().join("home/status.json");
    let path = file.to_string_lossy().into_owned();
    let options: Vec<&str> = options.iter().copied().chain(["--status-file", &path]).collect();
    let finished = run(sandbox, mode, &options, command)?;
    let text = std::fs::read(&file)
        .with_context(|| format!("no status file; stderr: {}", finished.err()))?;
    Ok((finished, serde_json::from_slice(&text)?))
}

fn words<'a>(mode: Mode, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["run", "--no-tty"];
    if mode == Mode::Alone {
        words.push("--no-daemon");
    }
    words.extend(options);
    words.push("--");
    words.extend(command);
    words
}

/// A command in the background, as `run -d --json` tells it.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    pub(crate) session: String,
    pub(crate) cage: String,
    pub(crate) pty: String,
}

pub(crate) fn start(
    sandbox: &Sandbox,
    options: &[&str],
    command: &[&str],
) -> anyhow::Result<Background> {
    let mut words = vec!["run", "-d"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let told = sandbox.json(words)?;
    Ok(Background {
        session: text(&told, "/session")?,
        cage: text(&told, "/cage")?,
        pty: text(&told, "/pty")?,
    })
}

/// One string of a JSON document.
pub(crate) fn text(value: &Value, pointer: &str) -> anyhow::Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("no text at {pointer} in {value}"))
}

pub(crate) fn number(value: &Value, pointer: &str) -> anyhow::Result<i64> {
    let found = value.pointer(pointer).and_then(Value::as_i64);
    found.with_context(|| format!("no number at {pointer} in {value}"))
}

/// The state of a wall in any JSON that holds an `enforced`.
pub(crate) fn wall<'a>(enforced: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    let walls = enforced.pointer("/walls").and_then(Value::as_array).context("no walls")?;
    let wall = walls.iter().find(|wall| wall.pointer("/name").is_some_and(|it| it == name));
    let state = wall.and_then(|wall| wall.pointer("/state")).and_then(Value::as_str);
    state.with_context(|| format!("no wall {name} in {enforced}"))
}

pub(crate) fn events(sandbox: &Sandbox, id: &str) -> anyhow::Result<Vec<Value>> {
    sandbox.mews(["--json", "events", id])?.expect(0)?.json_lines()
}

/// The types of the events, in order, and that their sequence has no hole.
pub(crate) fn event_types(events: &[Value]) -> anyhow::Result<Vec<String>> {
    let mut types = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let seq = number(event, "/seq")?;
        anyhow::ensure!(seq == i64::try_from(index)? + 1, "event {} has seq {seq}", index + 1);
        types.push(text(event, "/type")?);
    }
    Ok(types)
}

/// Waits for the end of a command.
pub(crate) fn wait_exit(sandbox: &Sandbox, id: &str) -> anyhow::Result<Finished> {
    sandbox.mews(["wait", id, "--exit"])
}

/// A file of the workspace.
pub(crate) fn in_workspace(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.workspace().join(name)
}

pub(crate) fn read(sandbox: &Sandbox, name: &str) -> anyhow::Result<String> {
    let path = in_workspace(sandbox, name);
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// `(sessiond, supervisor)`.
pub(crate) fn daemon_pids(sandbox: &Sandbox) -> anyhow::Result<(i32, i32)> {
    let status = sandbox.json(["daemon", "status"])?;
    let pid = |pointer| number(&status, pointer).and_then(|pid| Ok(i32::try_from(pid)?));
    Ok((pid("/versions/pid")?, pid("/versions/supervisor_pid")?))
}

/// The end of a client that was started with pipes.
pub(crate) fn finish(mut child: std::process::Child) -> anyhow::Result<Finished> {
    let status = process::wait(&mut child, LIMIT)?;
    let mut finished = Finished { code: process::code_of(status), ..Finished::default() };
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_end(&mut out, &mut finished.stdout)?;
    }
    if let Some(mut err) = child.stderr.take() {
        std::io::Read::read_to_end(&mut err, &mut finished.stderr)?;
    }
    Ok(finished)
}

/// First the supervisor: who is left could start the other anew.
pub(crate) fn kill_both(sandbox: &Sandbox) -> anyhow::Result<()> {
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    kill(supervisor)?;
    kill(sessiond)
}

/// kill -9, and its end.
pub(crate) fn kill(pid: i32) -> anyhow::Result<()> {
    let handle = link::PidFd::open(pid)?;
    handle.signal(libc::SIGKILL)?;
    testkit::pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))
}
