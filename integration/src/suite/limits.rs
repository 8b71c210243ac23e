//! Each limit, when it is met: the right cause, the right status, and nobody else is harmed.

mod clocks;

use crate::runner::Test;
use crate::talk::{Background, Mode, events, start, text, wait_exit};
use anyhow::ensure;
use clocks::*;
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for mode in Mode::BOTH {
        let name = |what: &str| format!("limits.{what}.{}", mode.name());
        tests.push(Test::new(name("idle_is_124"), move |s| idle(s, mode)));
        tests.push(Test::new(name("output_is_told"), move |s| output(s, mode)));
    }
    let rest: [(&str, fn(&Sandbox) -> anyhow::Result<()>); 4] = [
        ("keys_are_a_sign_of_life", keys),
        ("idle_stands_while_paused", idle_paused),
        ("output_of_all_commands_counts", output_together),
        ("output_of_a_terminal_counts", output_terminal),
    ];
    for (name, body) in rest {
        tests.push(Test::new(format!("limits.{name}"), body));
    }
    tests
}

/// A policy as `shell`, with these lines in `[limits]`; where it is.
fn policy(sandbox: &Sandbox, limits: &str) -> anyhow::Result<String> {
    let text = format!("version = 1\nname = \"tight\"\nextends = \"shell\"\n[limits]\n{limits}\n");
    Ok(sandbox.file("home/tight.toml", text)?.to_string_lossy().into_owned())
}

/// Another cage, which must not notice.
struct Neighbour(Background);

impl Neighbour {
    fn start(sandbox: &Sandbox) -> anyhow::Result<Self> {
        let script = "touch near; while [ ! -e over ]; do sleep 0.05; done; exit 5";
        let run = start(sandbox, &["--name", "near"], &["sh", "-c", script])?;
        let up = sandbox.workspace().join("near");
        pause::until("the neighbour runs", LIMIT, || up.exists().then_some(()))?;
        Ok(Self(run))
    }

    fn is_unharmed(self, sandbox: &Sandbox) -> anyhow::Result<()> {
        sandbox.file("ws/over", "")?;
        let exit = ended(sandbox, &self.0.session)?;
        ensure!(exit.pointer("/code").is_some_and(|code| code == 5), "the neighbour: {exit}");
        Ok(())
    }
}

/// The exit of a session's newest run, when it has one.
fn ended(sandbox: &Sandbox, id: &str) -> anyhow::Result<Value> {
    wait_exit(sandbox, id)?;
    let shown = sandbox.json(["inspect", id])?;
    let exit = shown.pointer("/runs/0/exit").cloned();
    exit.ok_or_else(|| anyhow::anyhow!("no exit: {shown}"))
}

fn met(exit: &Value, cause: &str, limit: &str) -> anyhow::Result<()> {
    ensure!(text(exit, "/cause")? == cause, "{exit}");
    let message = text(exit, "/message")?;
    ensure!(message.starts_with(&format!("{limit}: ")), "{exit}");
    Ok(())
}

/// The `cage.limit` events of a session, by their limit.
fn limits_met(sandbox: &Sandbox, id: &str) -> anyhow::Result<Vec<String>> {
    let all = events(sandbox, id)?;
    let met =
        all.iter().filter(|event| event.pointer("/type").is_some_and(|it| it == "cage.limit"));
    met.map(|event| text(event, "/data/limit")).collect()
}
