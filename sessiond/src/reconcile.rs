//! After every (re)connect: the supervisor's snapshot against our rows (SESSIONS.md 6).
//!
//! Snapshots are level-triggered and win where events are silent. Where events of a cage are
//! still under way (its sequences are ahead of what is stored), those tell the end themselves,
//! in their order; the snapshot's exit is used only when they have nothing more to say.

use crate::clock::now_ms;
use crate::ledger::{self, Told};
use crate::store::{Result, cages, events, ptys, runs};
use rusqlite::Connection;
use serde_json::json;
use std::collections::HashSet;
use wire::api::{CageView, RunState};
use wire::supervisor::{CageState, Phase};
use wire::{CageId, Cause, PtyId, Source};

/// What is to be done after the rows are right.
#[derive(Debug, Default, PartialEq)]
pub struct Todo {
    /// Ended, and nobody here knows them (any more): their files may go.
    pub forget: Vec<CageId>,
    /// Living, and nobody here knows them: told to people, never guessed at.
    pub strangers: Vec<CageId>,
    /// Gone, with events still under way: looked at again when those had their time.
    pub unsettled: Vec<CageState>,
}

/// # Errors
/// The database.
pub fn reconcile(db: &Connection, snapshot: Vec<CageState>) -> Result<Todo> {
    let now = now_ms();
    let mut todo = Todo::default();
    let listed: HashSet<CageId> = snapshot.iter().map(|state| state.cage).collect();
    for state in snapshot {
        match cages::bare(db, state.cage)? {
            Some(cage) => known(db, &cage, state, &mut todo)?,
            None if state.phase == Phase::Gone => todo.forget.push(state.cage),
            None => todo.strangers.push(state.cage),
        }
    }
    for cage in cages::living(db)? {
        if !listed.contains(&cage.id) {
            vanished(db, &cage, now)?;
        }
    }
    for run in runs::living(db)? {
        // A run whose cage row is living was decided above.
        if cages::living_of_run(db, run.id)?.is_empty() && !is_under_way(&todo, run.id) {
            crashed(db, run.id, now)?;
        }
    }
    Ok(todo)
}

fn is_under_way(todo: &Todo, run: wire::RunId) -> bool {
    todo.unsettled.iter().any(|state| state.run == run)
}

fn known(db: &Connection, cage: &CageView, state: CageState, todo: &mut Todo) -> Result<()> {
    cages::set_plan(db, cage.id, &state.plan_hash)?;
    if !state.enforced.walls.is_empty() {
        cages::set_enforced(db, cage.id, &state.enforced)?;
    }
    for pty in &state.ptys {
        ptys::set_viewers(db, pty.pty, pty.viewers)?;
        ptys::set_size(db, pty.pty, pty.size)?;
    }
    match state.phase {
        Phase::Starting => {}
        Phase::Running | Phase::Suspended | Phase::Ending => {
            let (build, unreachable) = (state.build.as_deref(), state.unreachable.as_deref());
            cages::set_broker(db, cage.id, build, unreachable)?;
            // What is known of the terminals of one that cannot be asked is old.
            if unreachable.is_none() {
                never_begun(db, cage, &state)?;
            }
            cages::set_started(db, cage.id, state.pid, state.started_at_ms)?;
            ledger::run_started(db, cage.run, state.started_at_ms)?;
            match (cage.phase, state.phase) {
                (Phase::Gone, _) => {}
                (_, Phase::Suspended) => ledger::cage_suspended(db, cage.id, now_ms())?,
                (Phase::Suspended, Phase::Running) => {
                    ledger::cage_resumed(db, cage.id, now_ms())?;
                }
                (_, phase) => cages::set_phase(db, cage.id, phase)?,
            }
        }
        Phase::Gone if is_behind(db, &state)? => todo.unsettled.push(state),
        Phase::Gone => gone(db, &state)?,
    }
    Ok(())
}

/// Execs whose request died on its way: the broker has never heard of them.
fn never_begun(db: &Connection, cage: &CageView, state: &CageState) -> Result<()> {
    let listed: Vec<PtyId> = state.ptys.iter().map(|pty| pty.pty).collect();
    for pty in ptys::unheard_of(db, cage.id, &listed)? {
        let now = now_ms();
        ptys::set_closed(db, pty, &ledger::lost(Cause::DaemonCrash), None, now)?;
        let data = json!({ "pty": pty, "cage": cage.id });
        let told = Told { kind: "exec.lost", data, at_ms: now };
        ledger::note(db, cage.session, Some(cage.run), told)?;
    }
    Ok(())
}

fn is_behind(db: &Connection, state: &CageState) -> Result<bool> {
    Ok(events::newest_of(db, state.cage, Source::Broker)? < state.broker_seq
        || events::newest_of(db, state.cage, Source::Supervisor)? < state.supervisor_seq)
}

/// The snapshot's own word on a cage that is gone, where no event says more.
///
/// # Errors
/// The database.
pub fn gone(db: &Connection, state: &CageState) -> Result<()> {
    let now = now_ms();
    for pty in &state.ptys {
        if let Some(exit) = &pty.exit {
            ptys::set_closed(db, pty.pty, exit, Some(pty.seq), now)?;
        }
    }
    let exit = state.exit.clone().unwrap_or_else(|| ledger::lost(Cause::StatusLost));
    ledger::cage_lost(db, state.cage, &exit, now)
}

/// Our row says living, the supervisor does not know it.
fn vanished(db: &Connection, cage: &CageView, now: i64) -> Result<()> {
    match &cage.exit {
        Some(_) => ledger::cage_gone(db, cage.id, now),
        None => {
            crashed(db, cage.run, now)?;
            ledger::cage_lost(db, cage.id, &ledger::lost(Cause::DaemonCrash), now)
        }
    }
}

fn crashed(db: &Connection, run: wire::RunId, now: i64) -> Result<()> {
    let Some(row) = runs::get(db, run)? else { return Ok(()) };
    if !matches!(row.state, RunState::Pending | RunState::Running | RunState::Suspended) {
        return Ok(());
    }
    ledger::run_ended(db, run, &ledger::lost(Cause::DaemonCrash), None, now)?;
    let data = json!({ "run": run });
    let told = Told { kind: "session.crash_recovered", data, at_ms: now };
    ledger::note(db, row.session, Some(run), told)?;
    ledger::settle(db, row.session, now)
}
