//! Real agents, driven offline by a mock provider, in real cages: headless here, in full screen in
//! `agent/screen.rs`.

mod install;
mod programs;
mod provider;
mod screen;

pub(crate) use install::cache;

use crate::runner::Test;
use crate::talk::{
    Mode, event_types, events, in_workspace, read, run_with_status, start, text, wait_exit,
};
use anyhow::ensure;
use programs::{AGENTS, Agent, PI};
use provider::Provider;
use serde_json::Value;
use std::path::Path;
use testkit::{Caller, Sandbox, pause, process};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("agent.pi_works_without_daemons", |sandbox| works(sandbox, &PI, Mode::Alone)),
        Test::new("agent.pi_works_for_an_ordinary_user", |_root| {
            let sandbox = Sandbox::of(Caller::ordinary(5))?;
            let done = works(&sandbox, &PI, Mode::Daemons);
            let finish = sandbox.finish();
            done.and(finish)
        }),
        Test::new("agent.pi_is_paused_in_a_tool_call", paused),
    ];
    for agent in AGENTS {
        let name = |what: &str| format!("agent.{}_{what}", agent.name.replace('-', "_"));
        tests.push(Test::new(name("works_offline_in_a_cage"), |sandbox| {
            works(sandbox, agent, Mode::Daemons)
        }));
        tests.push(Test::new(name("is_left_in_mid_turn_and_met_again"), |sandbox| {
            screen::left_and_met_again(sandbox, agent)
        }));
    }
    tests
}

/// The proof that the provider's tool call asks for.
const PROOF: &str = "{ id -u; id -un; pwd; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; \
                     ls /home 2>/dev/null | grep -vcx $USER; test -e /root && echo root-seen; test -e /etc/shadow && \
                     echo shadow-seen; true; } > proof.txt 2>&1; echo tool-ran";

fn works(sandbox: &Sandbox, agent: &Agent, mode: Mode) -> anyhow::Result<()> {
    let provider = Provider::start(sandbox, PROOF)?;
    let (options, script) = agent.caged(&provider.socket, agent.headless)?;
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (finished, status) = run_with_status(sandbox, mode, &options, &["sh", "-c", &script])?;
    let finished = finished.expect(0).map_err(|error| error.context(provider.log()))?;
    ensure!(finished.out().contains("MOCK_FINAL_ANSWER"), "{}", process::tail(&finished.out()));
    check_proof(sandbox)?;
    ensure!(text(&status, "/exit/cause")? == "exited", "{status}");
    if mode == Mode::Daemons {
        check_events(sandbox, &text(&status, "/session")?)?;
    }
    Ok(())
}

/// Its tool call waits for a file that comes while nothing in the cage can see it.
fn paused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let wait = "touch tool-started; while [ ! -e go-on ]; do sleep 0.02; done";
    let provider = Provider::start(sandbox, &format!("{wait}; {PROOF}"))?;
    let (options, script) = PI.caged(&provider.socket, PI.headless)?;
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--name", "agent"]);
    start(sandbox, &options, &["sh", "-c", &script])?;
    let (started, proof) =
        (in_workspace(sandbox, "tool-started"), in_workspace(sandbox, "proof.txt"));
    pause::until("the tool call", process::LIMIT, || started.exists().then_some(()))?;
    sandbox.mews(["pause", "agent"])?.expect(0)?;
    sandbox.file("ws/go-on", "")?;
    for _look in 0..20 {
        pause::briefly();
        ensure!(!proof.exists(), "the tool call goes on");
    }
    sandbox.mews(["resume", "agent"])?.expect(0)?;
    wait_exit(sandbox, "agent")?.expect(0).map_err(|error| error.context(provider.log()))?;
    let shown = sandbox.json(["inspect", "agent"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "exited", "{shown}");
    let printed = sandbox.mews(["logs", "--raw", "agent"])?.expect(0)?.out();
    ensure!(printed.contains("MOCK_FINAL_ANSWER"), "{}", process::tail(&printed));
    check_proof(sandbox)?;
    check_events(sandbox, "agent")
}

fn check_proof(sandbox: &Sandbox) -> anyhow::Result<()> {
    let proof = read(sandbox, "proof.txt")?;
    let lines: Vec<&str> = proof.lines().collect();
    let [uid, name, folder, interface, homes] = lines.as_slice() else {
        anyhow::bail!("the proof has other lines: {lines:?}");
    };
    ensure!(*uid != "0" && *name != "root", "uid {uid}, {name}");
    ensure!(Path::new(folder) == sandbox.workspace(), "in {folder}");
    ensure!(*interface == "lo" && *homes == "0", "{interface}, {homes} other homes");
    let facts = std::fs::metadata(in_workspace(sandbox, "proof.txt"))?;
    let owner = std::os::unix::fs::MetadataExt::uid(&facts);
    ensure!(owner == sandbox.caller().uid(), "the proof belongs to {owner}");
    Ok(())
}

fn check_events(sandbox: &Sandbox, session: &str) -> anyhow::Result<()> {
    let events = events(sandbox, session)?;
    let types = event_types(&events)?;
    for kind in ["cage.planned", "cage.attested", "cage.started", "pty.started", "cage.exited"] {
        ensure!(types.iter().any(|it| it == kind), "no {kind} in {types:?}");
    }
    let exited = events
        .iter()
        .find(|event| event.pointer("/type").and_then(Value::as_str) == Some("cage.exited"));
    let code = exited.and_then(|event| event.pointer("/data/exit/code")).and_then(Value::as_i64);
    ensure!(code == Some(0), "{exited:?}");
    Ok(())
}
