//! An agent in its full-screen interface, driven by `send` and `wait`: left in mid-turn, met again.

use super::programs::Agent;
use super::provider::Provider;
use super::{PROOF, check_proof};
use crate::talk::{in_workspace, start, wait_exit};
use testkit::{Sandbox, Terminal, pause, process};

/// The usual detach keys.
const LEAVE: &[u8] = b"\x1c\x04";

/// Its tool call waits for a file, so that a turn is long enough for everything here.
pub(super) fn left_and_met_again(sandbox: &Sandbox, agent: &Agent) -> anyhow::Result<()> {
    let wait = "touch tool-started; while [ ! -e go-on ]; do sleep 0.02; done";
    let provider = Provider::start(sandbox, &format!("{wait}; {PROOF}"))?;
    let (options, script) = agent.caged(&provider.socket, agent.screen)?;
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--name", "agent"]);
    start(sandbox, &options, &["sh", "-c", &script])?;
    let told = drive(sandbox, agent).map_err(|error| {
        let screen = sandbox.mews(["screen", "agent"]).map(|done| done.out()).unwrap_or_default();
        error.context(format!("its screen:\n{screen}\n{}", provider.log()))
    });
    told?;
    check_proof(sandbox)
}

fn drive(sandbox: &Sandbox, agent: &Agent) -> anyhow::Result<()> {
    let shown = ["wait", "agent", "--for", agent.ready, "--timeout", "60"];
    sandbox.mews(shown)?.expect(0)?;
    typed(sandbox, "go")?;
    let (started, go_on) = (in_workspace(sandbox, "tool-started"), sandbox.root().join("ws/go-on"));
    pause::until("the tool call", process::LIMIT, || started.exists().then_some(()))?;
    for is_last in [false, true] {
        let mut viewer = Terminal::mews(sandbox, &["attach", "agent"])?;
        viewer.wait_for(agent.busy)?;
        if is_last {
            std::fs::write(&go_on, "")?;
            viewer.wait_for("MOCK_FINAL_ANSWER")?;
        }
        viewer.send(LEAVE)?;
        anyhow::ensure!(viewer.wait_exit()? == 0, "it was not left");
    }
    sandbox.mews(["wait", "agent", "--for", "MOCK_FINAL_ANSWER", "--timeout", "10"])?.expect(0)?;
    typed(sandbox, agent.leave)?;
    wait_exit(sandbox, "agent")?.expect(0)?;
    Ok(())
}

/// Once it stands still: agents take an Enter right behind other keys for a part of pasted text.
fn typed(sandbox: &Sandbox, text: &str) -> anyhow::Result<()> {
    sandbox.mews(["wait", "agent", "--idle", "500ms", "--timeout", "20"])?.expect(0)?;
    sandbox.mews(["send", "agent", text])?.expect(0)?;
    sandbox.mews(["wait", "agent", "--idle", "500ms", "--timeout", "20"])?.expect(0)?;
    sandbox.mews(["send", "agent", "--key", "enter"])?.expect(0)?;
    Ok(())
}
