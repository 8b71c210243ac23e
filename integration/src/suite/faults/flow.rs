//! What is under way when something dies, and what is looked at afterwards.

use crate::talk::{in_workspace, number, start, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::process::{Child, Stdio};
use testkit::process::LIMIT;
use testkit::{Finished, Sandbox, pause};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Run,
    /// A run by a grant of one cage.
    Granted,
    /// A run that the supervisor does not begin: its policy is none.
    Refused,
    Exec,
    Pause,
    Resume,
    Kill,
    End,
    /// The command ends by itself.
    Exit,
    Remove,
    /// A new daemon finds a living cage.
    Adopt,
    /// A new supervisor finds a cage whose broker is dead.
    Bury,
    /// A new supervisor finds a cage that was never told to go.
    Discard,
}

/// Prints numbered lines until it is told to stop, then ends with 7.
const LINES: &str = "echo up >> up-$0; n=0; trap 'exit 9' TERM
    while [ ! -e stop-$0 ]; do n=$((n+1)); echo line $n; sleep 0.02; done; exit 7";

impl Flow {
    /// Whether the cage is there before the step.
    pub(super) fn has_cage(self) -> bool {
        !matches!(self, Self::Run | Self::Granted | Self::Refused | Self::Discard)
    }

    /// Everything up to the request that dies.
    pub(super) fn prepare(self, sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
        if self.has_cage() {
            begin(sandbox, name)?;
        }
        match self {
            Self::Resume => drop(sandbox.mews(["pause", name])?.expect(0)?),
            Self::Granted => drop(crate::suite::grants::make(sandbox, name, "1", &[])?),
            Self::Remove => {
                stop(sandbox, name)?;
                crate::audit::agrees(sandbox)?;
            }
            Self::Run
            | Self::Refused
            | Self::Exec
            | Self::Pause
            | Self::Kill
            | Self::End
            | Self::Exit
            | Self::Adopt
            | Self::Bury
            | Self::Discard => {}
        }
        Ok(())
    }

    /// The client's command, not waited for.
    pub(super) fn act(self, sandbox: &Sandbox, name: &str) -> anyhow::Result<Child> {
        let exec = format!("echo ran >> exec-{name}");
        let key = sandbox.root().join(format!("home/{name}.key")).to_string_lossy().into_owned();
        let words: Vec<&str> = match self {
            Self::Run | Self::Discard => {
                vec!["run", "-d", "--name", name, "--", "sh", "-c", LINES, name]
            }
            Self::Granted => vec!["grants", "use", &key, "--", "sh", "-c", LINES, name],
            Self::Refused => vec!["run", "-d", "--name", name, "-p", "nonesuch", "--", "true"],
            Self::Exec => vec!["exec", "-d", name, "--", "sh", "-c", &exec],
            Self::Pause => vec!["pause", name],
            Self::Resume => vec!["resume", name],
            Self::Kill => vec!["kill", name],
            Self::End => vec!["end", name],
            Self::Exit => {
                sandbox.file(&format!("ws/stop-{name}"), "")?;
                vec!["wait", "--exit", name]
            }
            Self::Remove => vec!["rm", name],
            Self::Adopt | Self::Bury => vec!["ls"],
        };
        let mut command = sandbox.command(words)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// What became of it, in the words of the table; contradictions are errors.
    pub(super) fn outcome(
        self,
        sandbox: &Sandbox,
        name: &str,
        client: &Finished,
    ) -> anyhow::Result<String> {
        let acknowledged = client.code == 0;
        let inspected = sandbox.mews(["--json", "inspect", name])?;
        if inspected.code != 0 {
            let gone = !acknowledged || self == Self::Remove;
            ensure!(gone, "acknowledged and not there: {}", inspected.err());
            return Ok(if self == Self::Remove { "removed" } else { "nothing ran" }.to_owned());
        }
        let shown = inspected.json()?;
        let ran = in_workspace(sandbox, &format!("up-{name}")).exists();
        let found = state(&shown, ran)?;
        let lost = found == "ended: broker_lost";
        let kept = match self {
            Self::Run | Self::Granted | Self::Discard => found == "runs" || lost,
            Self::Refused => false,
            Self::Pause => found == "stands still" || lost,
            Self::Resume => found == "runs" || lost,
            Self::Kill | Self::End => found.starts_with("ended: "),
            Self::Exit | Self::Exec | Self::Adopt | Self::Bury => true,
            Self::Remove => false,
        };
        ensure!(!acknowledged || kept, "acknowledged, and {found}: {shown}");
        if self == Self::Granted {
            granted(sandbox, name)?;
        }
        if self == Self::Exec {
            exec(sandbox, name, acknowledged && !lost)?;
        }
        if self == Self::Exit {
            ensure!(acknowledged, "wait: {}", client.err());
            ensure!(client.out().trim() == "7", "wait says {}", client.out());
            ensure!(number(&shown, "/runs/0/exit/code")? == 7, "{shown}");
        }
        if ran {
            lines(sandbox, name)?;
        }
        Ok(found)
    }
}

fn state(shown: &Value, ran: bool) -> anyhow::Result<String> {
    let run = text(shown, "/runs/0/state")?;
    Ok(match run.as_str() {
        "running" => "runs".to_owned(),
        "suspended" => "stands still".to_owned(),
        _over => {
            let cause = text(shown, "/runs/0/exit/cause")?;
            if ran { format!("ended: {cause}") } else { "nothing ran".to_owned() }
        }
    })
}

/// It was for one cage, and has given one at most.
fn granted(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let up = in_workspace(sandbox, &format!("up-{name}"));
    let ran = || std::fs::read_to_string(&up).unwrap_or_default().lines().count();
    let grants = sandbox.mews(["--json", "grants"])?.expect(0)?.json_lines()?;
    let grant = grants.iter().find(|grant| text(grant, "/name").is_ok_and(|it| it == name));
    let left = number(grant.context("its grant")?, "/left")?;
    ensure!(left <= 1 && (left == 0 || ran() == 0), "{left} are left, and it ran {} times", ran());
    if left == 0 {
        let key = sandbox.root().join(format!("home/{name}.key"));
        sandbox.mews(["grants", "use", &key.to_string_lossy(), "--", "true"])?.expect(5)?;
    }
    ensure!(ran() <= 1, "it ran {} times", ran());
    Ok(())
}

/// At most once; once if it was acknowledged; and whoever waits for it is answered.
fn exec(sandbox: &Sandbox, name: &str, must: bool) -> anyhow::Result<()> {
    let path = in_workspace(sandbox, &format!("exec-{name}"));
    let over = pause::until("the exec is decided", LIMIT, || {
        let shown = sandbox.json(["inspect", name]).ok()?;
        let ptys = shown.pointer("/cages/0/ptys")?.as_array()?.clone();
        let others = ptys.iter().filter(|pty| pty.get("main") == Some(&Value::Bool(false)));
        others.clone().all(|pty| pty.get("exit").is_some_and(|it| !it.is_null())).then_some(())
    });
    over?;
    let ran = std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    ensure!(ran <= 1 && (ran == 1 || !must), "it ran {ran} times, acknowledged: {must}");
    Ok(())
}

/// What it printed is there as a whole, as far as it came.
pub(in crate::suite) fn lines(sandbox: &Sandbox, name: &str) -> anyhow::Result<usize> {
    let raw = sandbox.mews(["logs", "--raw", name])?.expect(0)?.out();
    // The last one may be under way.
    let whole = raw.rfind('\n').map_or("", |at| raw.get(..at).unwrap_or_default());
    // A shell also tells of a `sleep` that was killed beside it.
    let ours = whole.lines().filter(|line| !line.starts_with("Terminated"));
    for (index, line) in ours.enumerate() {
        ensure!(line.trim_end() == format!("line {}", index + 1), "line {index}: {line:?}");
    }
    Ok(whole.lines().count())
}

/// A cage of this name that prints lines.
pub(in crate::suite) fn begin(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    start(sandbox, &["--name", name], &["sh", "-c", LINES, name])?;
    let up = in_workspace(sandbox, &format!("up-{name}"));
    pause::until("it runs", LIMIT, || up.exists().then_some(()))
}

/// Lets it end and checks how.
pub(in crate::suite) fn stop(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    sandbox.file(&format!("ws/stop-{name}"), "")?;
    let waited = crate::talk::wait_exit(sandbox, name)?.expect(0)?;
    ensure!(waited.out().trim() == "7", "{name} ended with {}", waited.out());
    lines(sandbox, name).context("after its end").map(drop)
}

/// Whatever state it is in, it ends and goes.
pub(super) fn remove(sandbox: &Sandbox, name: &str, outcome: &str) -> anyhow::Result<()> {
    let key = sandbox.root().join(format!("home/{name}.key"));
    std::fs::remove_file(key).ok();
    if outcome == "stands still" {
        sandbox.mews(["resume", name])?.expect(0)?;
    }
    if matches!(outcome, "stands still" | "runs") {
        stop(sandbox, name)?;
    }
    if sandbox.mews(["inspect", name])?.code == 0 {
        let removed = sandbox.mews(["rm", name])?;
        let living = removed.code != 0;
        if living {
            sandbox.mews(["rm", "--force", name])?.expect(0)?;
        }
    }
    Ok(())
}
