//! Each limit, when it is met: the right cause, the right status, and nobody else is harmed.

mod clocks;
mod kernel;
mod living;
mod stopped;
mod workspace;

use super::cage::cgroup_file;
use crate::runner::Test;
use crate::talk::{Background, Mode, events, start, text, wait_exit};
use anyhow::ensure;
use clocks::*;
use kernel::*;
use living::*;
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for mode in Mode::BOTH {
        let name = |what: &str| format!("limits.{what}.{}", mode.name());
        tests.push(Test::new(name("idle_is_124"), move |s| idle(s, mode)));
        tests.push(Test::new(name("output_is_told"), move |s| output(s, mode)));
        tests.push(Test::new(name("workspace_bytes"), move |s| workspace::bytes(s, mode)));
    }
    let rest: [(&str, Body); 34] = [
        ("of_a_run_by_flags", by_flags),
        ("keys_are_a_sign_of_life", keys),
        ("idle_stands_while_paused", idle_paused),
        ("output_of_all_commands_counts", output_together),
        ("output_of_a_terminal_counts", output_terminal),
        ("walltime", walltime),
        ("memory_kills_the_whole_cage", memory),
        ("memory_kills_one_without_oom_group", memory_of_one),
        ("swap_on_top_of_memory", swap),
        ("pids", pids),
        ("cpu", cpu),
        ("ptys", ptys),
        ("io", io),
        ("io_that_cannot_be_held", io_absent),
        ("workspace_bytes_of_a_copy", workspace::copied),
        ("workspace_inodes", workspace::inodes),
        ("workspace_bytes_of_a_living_cage", workspace::living),
        ("workspace_without_a_layer", workspace::direct),
        ("workspace_modes_stay", workspace::modes_stay),
        ("walltime_of_a_stopped_broker", stopped::walltime),
        ("workspace_of_a_stopped_broker", stopped::workspace),
        ("workspace_of_an_unreachable_cage", stopped::unreachable),
        ("workspace_whose_measuring_is_stopped", stopped::measuring),
        ("shown", shown),
        ("changed_on_a_living_cage", changed),
        ("changes_refused_by_name", refused),
        ("memory_below_what_is_in_use", below_use),
        ("new_limits_hold", new_limits_hold),
        ("limits_taken_away", taken_away),
        ("changes_outlive_the_daemons", daemons_die),
        ("changes_while_paused", paused),
        ("for_an_ordinary_user", as_a_user),
        ("stats", stats),
        ("stats_of_nothing", |sandbox| {
            let said = sandbox.mews(["stats"])?.expect(0)?;
            ensure!(said.err().contains("nothing is running"), "{}", said.err());
            Ok(())
        }),
    ];
    for (name, body) in rest {
        tests.push(Test::new(format!("limits.{name}"), body));
    }
    for failpoint in FAILPOINTS {
        let name = format!("limits.supervisor_dies_at_{failpoint}");
        tests.push(Test::new(name, move |s| supervisor_dies(s, failpoint)));
    }
    tests
}

type Body = fn(&Sandbox) -> anyhow::Result<()>;

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

    fn ends_unharmed(self, sandbox: &Sandbox) -> anyhow::Result<()> {
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
