//! What is asked, and what must come of it.

use super::layer::Layer;
use super::schedule::{Act, Move, Strike};
use super::strike;
use super::subject::{State, Subject};
use crate::audit;
use crate::talk::text;
use anyhow::{Context as _, ensure};
use std::process::Child;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, pause};

/// What came of a move.
pub(super) struct Done {
    pub(super) acknowledged: bool,
    /// Something died.
    pub(super) struck: bool,
    pub(super) words: String,
}

impl Done {
    fn new(acknowledged: bool, struck: bool, words: impl Into<String>) -> Self {
        Self { acknowledged, struck, words: words.into() }
    }
}

/// Does it, and waits until the session is where it may be.
pub(super) fn apply(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let name = slot.name.clone();
    let before = slot.state;
    let mut exec = String::new();
    let (words, after): (Vec<String>, State) = match next.act {
        Act::Run | Act::RunLayered => (slot.run_words(false), State::Running),
        Act::RunPipes if before == State::Absent => return run_pipes(sandbox, slot, next),
        Act::RunPipes => (slot.run_words(true), State::Running),
        Act::Exec => {
            exec = slot.exec_file();
            let script = format!("echo ran >> {exec}");
            (strings(&["exec", "--no-tty", &name, "--", "sh", "-c", &script]), State::Running)
        }
        Act::Pause => (strings(&["pause", &name]), State::Paused),
        Act::Resume => (strings(&["resume", &name]), State::Running),
        Act::Stop => return stop(sandbox, slot, next),
        Act::Kill => (strings(&["kill", &name]), State::Cancelled),
        Act::End => (strings(&["end", &name]), State::Cancelled),
        Act::Remove => (strings(&["rm", &name]), State::Absent),
        Act::Attach | Act::Detach | Act::Type | Act::Flood | Act::KillClient => {
            return aside(sandbox, slot, next);
        }
        Act::KillBroker => return kill_broker(sandbox, slot, next),
        Act::Limit => return limit(sandbox, slot, next),
        Act::Checkpoint => return checkpoint(sandbox, slot, next),
        Act::Rollback => return rollback(sandbox, slot, next),
        Act::Wrong => (wrong(next), before),
    };
    let is_right = match next.act {
        Act::Run | Act::RunLayered | Act::RunPipes => before == State::Absent,
        Act::Exec => before == State::Running,
        Act::Pause => matches!(before, State::Running | State::Paused),
        // One whose answer was lost finds a session that runs, and cannot tell.
        Act::Resume => {
            before == State::Paused || (before == State::Running && next.strike != Strike::None)
        }
        Act::Kill => before != State::Absent,
        // Rolled back, it waits for its next command: that is no end yet.
        Act::End => matches!(before, State::Running | State::Paused) || slot.is_idle,
        Act::Remove => before.is_over() && !slot.is_idle,
        Act::Stop
        | Act::Attach
        | Act::Detach
        | Act::Type
        | Act::Flood
        | Act::KillClient
        | Act::KillBroker
        | Act::Limit
        | Act::Checkpoint
        | Act::Rollback
        | Act::Wrong => false,
    };
    let stays = matches!(next.act, Act::Kill | Act::End) && before.is_over();
    let after = if stays { before } else { after };
    let (client, struck) = strike::ask(sandbox, &words, next.strike)?;
    let ok = client.code == 0;
    if next.act == Act::Exec && is_right {
        slot.expect_exec(exec, ok);
    }
    if !is_right {
        ensure!(!ok, "{words:?} is acknowledged, and it is {before:?}");
        ensure!(!client.err().is_empty(), "{words:?} fails without a word");
        settle(sandbox, slot, &[before])?;
        return Ok(Done::new(false, struck, "refused"));
    }
    let excused = struck || before == after;
    ensure!(ok || excused, "{words:?}: {}", client.err());
    let allowed: &[State] = match (ok, next.act) {
        (true, _) => &[after],
        // A client that gives up ends what it began.
        (false, Act::Run | Act::RunLayered | Act::RunPipes) => {
            &[State::Absent, State::NeverRan, State::Running, State::Cancelled]
        }
        (false, _) => &[before, after],
    };
    settle(sandbox, slot, allowed)?;
    Ok(Done::new(ok, struck, format!("{ok}, {:?}", slot.state)))
}

/// Waits until nothing is under way; then it must be where it may be.
fn settle(sandbox: &Sandbox, slot: &mut Subject, allowed: &[State]) -> anyhow::Result<()> {
    let looked = || -> anyhow::Result<State> {
        sandbox.mews(["ls"])?.expect(0)?;
        audit::agrees(sandbox)?;
        slot.look(sandbox)
    }();
    let state = looked.with_context(|| slot.name.clone())?;
    ensure!(allowed.contains(&state), "{} is {state:?}, not one of {allowed:?}", slot.name);
    let was_over = slot.state.is_over();
    slot.state = state;
    if state.is_over() && !was_over {
        slot.clients_end(sandbox)?;
    }
    Ok(())
}

fn run_pipes(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let under = strike::under(sandbox, next.strike)?;
    let mut runner: Child = slot.start_pipes(sandbox)?;
    if let Some(pid) = under {
        strike::kill(pid)?;
    }
    let began = pause::until("it prints, or its client ends", LIMIT, || {
        if slot.has_output(sandbox) {
            return Some(true);
        }
        matches!(runner.try_wait(), Ok(Some(_status))).then_some(false)
    })?;
    let at_step = strike::disarm(sandbox, next.strike)?;
    let struck = under.is_some() || next.strike.is_before() || at_step;
    ensure!(began || struck, "its client ends before it prints");
    if began {
        slot.keep_runner(runner);
        settle(sandbox, slot, &[State::Running])?;
    } else {
        process::wait(&mut runner, LIMIT)?;
        let allowed = [State::Absent, State::NeverRan, State::Running, State::Cancelled];
        settle(sandbox, slot, &allowed)?;
    }
    Ok(Done::new(began, struck, format!("{:?}", slot.state)))
}

fn stop(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    if slot.state != State::Running {
        return Ok(Done::new(false, false, "not running"));
    }
    slot.drained(sandbox)?;
    slot.order(sandbox, "stop")?;
    let (waited, struck) =
        strike::ask(sandbox, &strings(&["wait", "--exit", &slot.name]), next.strike)?;
    let ok = waited.code == 0;
    ensure!(ok || struck, "wait: {}", waited.err());
    ensure!(!ok || waited.out().trim() == slot.code.to_string(), "wait says {}", waited.out());
    if !ok {
        sandbox.mews(["wait", "--exit", &slot.name])?.expect(0)?;
    }
    settle(sandbox, slot, &[State::Exited])?;
    Ok(Done::new(ok, struck, format!("exit {}", slot.code)))
}

/// What changes no state.
fn aside(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let done = match (next.act, slot.state) {
        (Act::Attach, State::Running | State::Paused) if slot.is_free() => {
            slot.attach(sandbox)?;
            "attached"
        }
        (Act::Detach, State::Running | State::Paused) => {
            slot.detach(sandbox)?;
            "detached"
        }
        (Act::Type, State::Running | State::Paused) if slot.type_word()? => "typed",
        (Act::Flood, State::Running) => {
            slot.order(sandbox, "flood")?;
            "flood"
        }
        (Act::KillClient, State::Running) => {
            slot.drained(sandbox)?;
            slot.kill_client()?;
            "client killed"
        }
        _ => "nothing to do",
    };
    Ok(Done::new(false, false, done))
}

/// What is acknowledged is in effect, and stays so.
fn limit(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let hours = u32::from(next.code) + 1;
    let words = strings(&["limits", &slot.name, &format!("walltime={hours}h")]);
    let (client, struck) = strike::ask(sandbox, &words, next.strike)?;
    let ok = client.code == 0;
    if !matches!(slot.state, State::Running | State::Paused) {
        ensure!(!ok, "the limits of {:?} are changed", slot.state);
        return Ok(Done::new(false, struck, "refused"));
    }
    ensure!(ok || struck, "{words:?}: {}", client.err());
    sandbox.mews(["ls"])?.expect(0)?;
    slot.limit_asked(sandbox, hours, ok)?;
    settle(sandbox, slot, &[slot.state])?;
    Ok(Done::new(ok, struck, format!("{hours} h")))
}

/// Whole or not there; the session goes on as it did, or stands still where somebody died.
fn checkpoint(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let (name, before) = (slot.name.clone(), slot.state);
    let mut words = strings(&["checkpoint", &name]);
    words.extend((before == State::Running).then(|| "--resume".to_owned()));
    let (client, struck) = strike::ask(sandbox, &words, next.strike)?;
    let ok = client.code == 0;
    if !matches!(before, State::Running | State::Paused) {
        ensure!(!ok && !client.err().is_empty(), "{words:?} of {before:?}: {}", client.err());
        settle(sandbox, slot, &[before])?;
        return Ok(Done::new(false, struck, "refused"));
    }
    ensure!(ok || struck, "{words:?}: {}", client.err());
    sandbox.mews(["ls"])?.expect(0)?;
    if let Some(layer) = &mut slot.layer {
        layer.checkpoint_asked(sandbox, &name, ok)?;
    }
    settle(sandbox, slot, &[before, if ok { before } else { State::Paused }])?;
    Ok(Done::new(ok, struck, format!("{ok}, {:?}", slot.state)))
}

/// Half done, it is finished when it is said again.
fn rollback(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    let (name, before) = (slot.name.clone(), slot.state);
    let words = strings(&["rollback", &name, "--yes"]);
    let (client, struck) = strike::ask(sandbox, &words, next.strike)?;
    let ok = client.code == 0;
    if before == State::Absent || !slot.layer.as_ref().is_some_and(Layer::has_checkpoint) {
        ensure!(!ok && !client.err().is_empty(), "{words:?} of {before:?}: {}", client.err());
        settle(sandbox, slot, &[before])?;
        return Ok(Done::new(false, struck, "refused"));
    }
    ensure!(ok || struck, "{words:?}: {}", client.err());
    if !ok {
        sandbox.mews(&words)?.expect(0).context("said again")?;
    }
    if let Some(layer) = &mut slot.layer {
        layer.rolled_back();
    }
    slot.is_rolled_back |= !before.is_over();
    settle(sandbox, slot, &[if before.is_over() { before } else { State::Cancelled }])?;
    slot.files_hold(sandbox)?;
    Ok(Done::new(ok, struck, format!("{ok}, files as they were")))
}

fn kill_broker(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Done> {
    if !matches!(slot.state, State::Running | State::Paused) {
        return Ok(Done::new(false, false, "no broker"));
    }
    let shown = sandbox.json(["inspect", &slot.name])?;
    let cage = text(&shown, "/cages/0/id")?;
    let record = std::fs::read(sandbox.state_dir().join("sup").join(format!("{cage}.json")))?;
    let record: serde_json::Value = serde_json::from_slice(&record)?;
    strike::kill(i32::try_from(crate::talk::number(&record, "/broker/pid")?)?)?;
    let (_listed, _struck) = strike::ask(sandbox, &strings(&["ls"]), next.strike)?;
    settle(sandbox, slot, &[State::BrokerLost])?;
    Ok(Done::new(false, true, "broker killed"))
}

/// Requests that are never right.
fn wrong(next: Move) -> Vec<String> {
    match next.code % 5 {
        0 => strings(&["attach", "nobody-of-this-name"]),
        1 => strings(&["run", "-d", "-p", "no-such-policy", "--", "true"]),
        2 => strings(&["exec", "nobody-of-this-name", "--", "true"]),
        3 => strings(&["run", "-d", "--memory", "much", "--", "true"]),
        _ => strings(&["kill", "-s", "99", "nobody-of-this-name"]),
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
