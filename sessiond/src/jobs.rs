//! Starting commands: a run in a new cage, and one more command in a living one.
//!
//! Row, then effect, then acknowledgement. Each goes on to its end in a task of its own, also
//! when the client that asked has gone.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::audit;
use crate::clock::now_ms;
use crate::ledger::{self, Told};
use crate::session::state::{self, Room};
use crate::store::requests::{self, RequestKey};
use crate::store::sessions::{self, SessionRow};
use crate::store::{Result, cages, events, grants, ptys, runs};
use crate::supervisor_link::{Connection, Reply, RequestError, unavailable};
use link::failpoint;
use rusqlite::Connection as Database;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use wire::api::{
    ExecRequest, GrantedJob, JobRequest, PlanRequest, PtyView, RunKind, RunState, RunView, Started,
};
use wire::supervisor::{Phase, Spawned, SupervisorRequest};
use wire::{
    ARGV_BYTES_MAX, CageId, ENV_BYTES_MAX, ErrorCode, ExecSpec, GrantKey, GrantState, PolicySource,
    PtyId, RunId, SessionId, SpawnSpec, WireError,
};

/// How long a start may be undecided (its link broke under way) before we say so.
const DECIDED: Duration = Duration::from_secs(15);

/// The ids of what a start makes: in the rows before anything is asked of the supervisor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Made {
    session: SessionId,
    run: RunId,
    cage: CageId,
    pty: PtyId,
}

enum Begun {
    New(SessionRow),
    /// The same `client_request_id` came before.
    Again(Made),
}

/// Starts a run.
///
/// # Errors
/// What is wrong with the request, the session's state, or what the supervisor says.
pub async fn start(
    app: Arc<App>,
    caller: Caller,
    session: SessionId,
    job: JobRequest,
) -> Result<Started, WireError> {
    check(&job.exec)?;
    if job.kind == RunKind::Agent {
        return Err(WireError::new(
            ErrorCode::ValidationFailed,
            "A run of kind 'agent' starts with a message; a command is a 'job' or a 'shell'.",
        ));
    }
    let link = app.link.current()?;
    let starter = Starter { who: caller.operator, caller, grant: None };
    in_background(start_on(app, starter, link, session, job)).await
}

/// A grant that its key has opened.
#[derive(Debug)]
pub struct Opened {
    key: GrantKey,
    state: GrantState,
}

/// Before there is any row: who has no key leaves no trace in the session.
///
/// # Errors
/// It is no key of a grant that can be used.
pub async fn open(app: &App, caller: &Caller, key: GrantKey) -> Result<Opened, WireError> {
    let request = SupervisorRequest::Grant { grant: key.clone() };
    let reply = app.link.current()?.request(&request, vec![caller.authority()?]).await?;
    Ok(Opened { key, state: reply.typed()? })
}

/// Starts a run by a grant: as whose grant it is, with what that was made for.
///
/// # Errors
/// As for [`start`].
pub async fn start_granted(
    app: Arc<App>,
    caller: Caller,
    opened: Opened,
    asked: GrantedJob,
) -> Result<Started, WireError> {
    check(&asked.exec)?;
    let link = app.link.current()?;
    let Opened { key, state } = opened;
    in_background(async move {
        let row = app.store.read(move |db| grants::get(db, state.id)).await?;
        let row = row.filter(|row| row.made && row.session == state.session).ok_or_else(|| {
            let words = "The session of this grant has ended; who gave it makes a new one.";
            WireError::new(ErrorCode::Gone, words)
        })?;
        let GrantedJob { exec, client_request_id } = asked;
        let job = JobRequest {
            kind: RunKind::Job,
            policy: row.policy,
            overrides: row.overrides,
            // Nobody is there to wait for, and nobody to send its input.
            exec: ExecSpec { hold: false, stdin: false, ..exec },
            client_request_id,
        };
        // As an operator of their own session, whatever else they may.
        let who = access::Operator { uid: state.uid, is_admin: false };
        let session = state.session;
        let starter = Starter { caller, who, grant: Some((key, state)) };
        start_on(app, starter, link, session, job).await
    })
    .await
}

/// Whether [`start`] would be let through now; nothing is changed.
///
/// # Errors
/// What the supervisor would refuse it for.
pub async fn would_start(
    app: &App,
    caller: &Caller,
    session: &SessionRow,
    job: &JobRequest,
) -> Result<(), WireError> {
    let asked = PlanRequest {
        folder: session.folder.clone(),
        policy: job.policy.clone(),
        overrides: job.overrides.clone(),
        exec: job.exec.clone(),
    };
    explained(app, caller, asked).await.map(drop)
}

/// What a run would be, in the supervisor's own words.
///
/// # Errors
/// What the supervisor would refuse it for.
pub async fn explained(app: &App, caller: &Caller, asked: PlanRequest) -> Result<Reply, WireError> {
    check(&asked.exec)?;
    let fds = vec![caller.authority()?, memfd("dry run", &asked.spec()).map_err(WireError::from)?];
    let reply = app.link.current()?.request(&SupervisorRequest::DryRun, fds).await;
    reply.map_err(WireError::from)
}

/// Who starts something, and by what right.
struct Starter {
    /// Whose connection it is.
    caller: Caller,
    /// Whose run it will be.
    who: access::Operator,
    grant: Option<(GrantKey, GrantState)>,
}

async fn start_on(
    app: Arc<App>,
    starter: Starter,
    link: Connection,
    session: SessionId,
    job: JobRequest,
) -> Result<Started, WireError> {
    let made = Made { session, run: RunId::new(), cage: CageId::new(), pty: PtyId::new() };
    let (row, operator) = (job.clone(), starter.who);
    let grant = starter.grant.as_ref().map(|(_key, state)| state.clone());
    let can_repeat = job.client_request_id.is_some();
    let begun = app
        .store
        .write(move |db| begin(db, (operator, grant), made, &row))
        .await
        .map_err(WireError::from);
    if let Err(error) = &begun {
        audit::refused(&app, operator, "spawn", session, error).await;
    }
    let begun = begun?;
    failpoint::reach("run.rows");
    let row = match begun {
        Begun::Again(earlier) => return decided(&app, earlier).await,
        Begun::New(row) => row,
    };
    let spec = SpawnSpec {
        session,
        run: made.run,
        cage: made.cage,
        pty: made.pty,
        name: row.name,
        policy: job.policy,
        overrides: job.overrides,
        workspace: row.folder.into(),
        exec: job.exec,
    };
    match spawn(&starter, &link, &spec).await {
        Ok(spawned) => {
            failpoint::reach("run.answered");
            app.store.write(move |db| went(db, made, &spawned)).await.map_err(WireError::from)?;
            failpoint::reach("run.went");
            decided(&app, made).await
        }
        Err(RequestError::Refused(error)) => {
            failpoint::reach("run.refused");
            let told = error.clone();
            app.store
                .write(move |db| ledger::cage_failed(db, made.cage, &told, now_ms()))
                .await
                .map_err(WireError::from)?;
            Err(error)
        }
        Err(RequestError::NotSent) => {
            app.store
                .write(move |db| ledger::cage_failed(db, made.cage, &unavailable(), now_ms()))
                .await
                .map_err(WireError::from)?;
            Err(unavailable())
        }
        // It may live: the next reconciliation knows. A client that can ask again is told at once,
        // because it is the one that starts a supervisor to reconcile with.
        Err(RequestError::Lost) if can_repeat => Err(unavailable()),
        Err(RequestError::Lost) => decided(&app, made).await,
    }
}

/// The rows of a run that is about to start.
fn begin(
    db: &Database,
    (who, grant): (access::Operator, Option<GrantState>),
    made: Made,
    job: &JobRequest,
) -> Result<Begun> {
    let now = now_ms();
    let session = sessions::get(db, made.session)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, Verb::Start, session.uid, "session")?;
    let key = job.client_request_id.clone();
    let key = key.map(|key| RequestKey::new(who.uid, format!("jobs:{}", made.session), key, job));
    let key = key.transpose()?;
    if let Some(key) = &key {
        if let Some(earlier) = requests::made(db, key, now)? {
            return Ok(Begun::Again(earlier));
        }
        requests::remember(db, key, &made, now)?;
    }
    // One that is over starts nothing more, and still answers for what it has started.
    grant.map_or(Ok(()), |grant| grant.usable(now))?;
    ledger::move_session(db, session.id, state::Event::Command(Room::Free), now)?;
    let argv: Vec<String> = job.exec.argv.iter().map(wire::Arg::lossy).collect();
    runs::insert(db, &new_run(made, job, argv.clone(), now))?;
    cages::insert(db, made.cage, made.session, made.run)?;
    ptys::insert(
        db,
        &new_pty(made.session, made.cage, made.pty, (argv.clone(), job.exec.tty, true)),
    )?;
    sessions::touch(db, session.id, now)?;
    let data = json!({ "kind": job.kind, "argv": argv, "cage": made.cage, "pty": made.pty });
    let told = Told { kind: "run.created", data, at_ms: now };
    ledger::note(db, made.session, Some(made.run), told)?;
    Ok(Begun::New(session))
}

fn new_run(made: Made, job: &JobRequest, argv: Vec<String>, now: i64) -> RunView {
    RunView {
        id: made.run,
        session: made.session,
        kind: job.kind,
        state: RunState::Pending,
        argv,
        policy: match &job.policy {
            PolicySource::Name(name) => name.clone(),
            PolicySource::File { path, .. } => path.clone(),
        },
        created_at_ms: now,
        started_at_ms: None,
        ended_at_ms: None,
        exit: None,
        error: None,
    }
}

fn new_pty(
    session: SessionId,
    cage: CageId,
    id: PtyId,
    form: (Vec<String>, Option<wire::Size>, bool),
) -> PtyView {
    let (argv, size, main) = form;
    PtyView {
        id,
        cage,
        session,
        argv,
        tty: size.is_some(),
        main,
        size,
        viewers: 0,
        started_at_ms: None,
        ended_at_ms: None,
        exit: None,
        bytes: None,
    }
}

async fn spawn(
    starter: &Starter,
    link: &Connection,
    spec: &SpawnSpec,
) -> Result<Spawned, RequestError> {
    let authority = starter.caller.authority().map_err(RequestError::Refused)?;
    let fds = vec![authority, memfd("spawn", spec)?];
    let request = SupervisorRequest::Spawn {
        cage: spec.cage,
        grant: starter.grant.as_ref().map(|(key, _state)| key.clone()),
    };
    let reply = link.request(&request, fds).await?;
    reply.typed().map_err(RequestError::Refused)
}

/// The supervisor's answer; its events may have told the same before, or more.
fn went(db: &Database, made: Made, spawned: &Spawned) -> Result<()> {
    let now = now_ms();
    cages::set_plan(db, made.cage, &spawned.plan_hash)?;
    cages::set_enforced(db, made.cage, &spawned.enforced)?;
    cages::set_started(db, made.cage, None, now)?;
    ledger::run_started(db, made.run, now)
}

/// Waits until a start has succeeded or failed, and says which.
async fn decided(app: &App, made: Made) -> Result<Started, WireError> {
    let outcome = app.within(DECIDED, move |db| {
        let Some(run) = runs::get(db, made.run)? else {
            return Ok(Some(Err(access::not_found("run"))));
        };
        if run.state == RunState::Pending {
            return Ok(None);
        }
        if let Some(error) = run.error {
            return Ok(Some(Err(error)));
        }
        if run.started_at_ms.is_none() {
            return Ok(Some(Err(never_started())));
        }
        started(db, made).map(|started| Some(Ok(started)))
    });
    outcome.await?.unwrap_or_else(|| Err(unavailable()))
}

fn never_started() -> WireError {
    WireError::new(
        ErrorCode::SupervisorUnavailable,
        "The daemons were restarted before the command began; nothing ran. Type it again.",
    )
}

fn started(db: &Database, made: Made) -> Result<Started> {
    let session = sessions::get(db, made.session)?.ok_or_else(|| access::not_found("session"))?;
    let cage = cages::bare(db, made.cage)?.ok_or_else(|| access::not_found("cage"))?;
    Ok(Started {
        session: made.session,
        name: session.name,
        run: made.run,
        cage: made.cage,
        pty: made.pty,
        enforced: cage.enforced,
    })
}

/// One more command in a living cage.
///
/// # Errors
/// What is wrong with the request, the cage has ended, or what the supervisor says.
pub async fn exec(
    app: Arc<App>,
    caller: Caller,
    place: (SessionId, CageId),
    request: ExecRequest,
) -> Result<Started, WireError> {
    check(&request.exec)?;
    let link = app.link.current()?;
    in_background(exec_on(app, caller, link, place, request)).await
}

async fn exec_on(
    app: Arc<App>,
    caller: Caller,
    link: Connection,
    place: (SessionId, CageId),
    request: ExecRequest,
) -> Result<Started, WireError> {
    let (operator, pty) = (caller.operator, PtyId::new());
    let key = request.client_request_id.clone();
    let can_repeat = key.is_some();
    let scope = format!("exec:{}", place.1);
    let key = key.map(|key| RequestKey::new(operator.uid, scope, key, &request)).transpose()?;
    let exec = request.exec;
    let argv: Vec<String> = exec.argv.iter().map(wire::Arg::lossy).collect();
    let size = exec.tty;
    let begun = app.store.write(move |db| {
        let (session, id) = place;
        let now = now_ms();
        if let Some(key) = &key
            && let Some(earlier) = requests::made::<Made>(db, key, now)?
        {
            return Ok((earlier, false));
        }
        let run = living_cage(db, operator, place)?;
        let made = Made { session, run, cage: id, pty };
        if let Some(key) = &key {
            requests::remember(db, key, &made, now)?;
        }
        ptys::insert(db, &new_pty(session, id, pty, (argv, size, false)))?;
        sessions::touch(db, session, now)?;
        Ok((made, true))
    });
    let (made, is_new) = begun.await.map_err(WireError::from)?;
    if !is_new {
        return exec_decided(&app, made).await;
    }
    failpoint::reach("exec.rows");
    let fds = vec![caller.authority()?, memfd("exec", &exec).map_err(WireError::from)?];
    let request = SupervisorRequest::Exec { cage: made.cage, pty };
    let answer = link.request(&request, fds).await;
    failpoint::reach("exec.answered");
    match answer {
        Ok(_done) => app.store.read(move |db| started(db, made)).await.map_err(WireError::from),
        Err(error) => {
            // What may have started stays in the rows: its events or the snapshot tell its end. As
            // for a run, a client that can ask again is told at once.
            if matches!(error, RequestError::Lost) && can_repeat {
                return Err(unavailable());
            }
            if !matches!(error, RequestError::Lost) {
                let removed = app.store.write(move |db| ptys::delete(db, pty)).await;
                removed.map_err(WireError::from)?;
            }
            Err(error.into())
        }
    }
}

/// Waits until an exec has begun, or is known never to begin.
async fn exec_decided(app: &App, made: Made) -> Result<Started, WireError> {
    let outcome = app.within(DECIDED, move |db| {
        let Some(row) = ptys::get(db, made.pty)? else { return Ok(Some(Err(never_started()))) };
        let begun = row.started_at_ms.is_some()
            || events::names_pty(db, made.session, "pty.allocated", made.pty)?;
        match row.exit {
            _ if begun => started(db, made).map(|started| Some(Ok(started))),
            Some(_never) => Ok(Some(Err(never_started()))),
            None => Ok(None),
        }
    });
    outcome.await?.unwrap_or_else(|| Err(unavailable()))
}

/// The run of a cage in which something can be started.
fn living_cage(db: &Database, who: access::Operator, place: (SessionId, CageId)) -> Result<RunId> {
    let (session, id) = place;
    let owner = sessions::get(db, session)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, Verb::Change, owner.uid, "session")?;
    let cage = cages::bare(db, id)?.filter(|cage| cage.session == session);
    let cage = cage.ok_or_else(|| access::not_found("cage"))?;
    if matches!(cage.phase, Phase::Ending | Phase::Gone) {
        let gone = WireError::new(ErrorCode::Gone, "This cage has ended; start a new run.");
        return Err(gone.with(json!({ "exit": cage.exit })).into());
    }
    Ok(cage.run)
}

fn check(exec: &ExecSpec) -> Result<(), WireError> {
    if exec.argv.first().is_none_or(|program| program.as_bytes().is_empty()) {
        return Err(WireError::new(
            ErrorCode::ValidationFailed,
            "There is no command: 'exec.argv' needs a program as its first part.",
        ));
    }
    let argv: usize = exec.argv.iter().map(|arg| arg.as_bytes().len() + 1).sum();
    let env: usize =
        exec.env.iter().map(|(k, v)| k.as_bytes().len() + v.as_bytes().len() + 2).sum();
    let by_file = "Hand it over in a file";
    let by_less = "Start mews with less of it: env -u NAME mews …";
    for (what, bytes, max, way) in [
        ("command line", argv, ARGV_BYTES_MAX, by_file),
        ("environment", env, ENV_BYTES_MAX, by_less),
    ] {
        if bytes > max {
            return Err(WireError::new(
                ErrorCode::PayloadTooLarge,
                format!("The {what} has {bytes} bytes; at most {max} are taken. {way}."),
            ));
        }
    }
    let has_nul = |arg: &wire::Arg| arg.as_bytes().contains(&0);
    let pairs = exec.env.iter().flat_map(|(key, value)| [key, value]);
    if exec.argv.iter().chain(pairs).chain(&exec.cwd).any(has_nul) {
        return Err(WireError::new(
            ErrorCode::ValidationFailed,
            "Arguments, environment and folder cannot hold a NUL byte.",
        ));
    }
    Ok(())
}

fn memfd(name: &str, spec: &impl Serialize) -> Result<OwnedFd, RequestError> {
    let internal = |why: String| RequestError::Refused(WireError::new(ErrorCode::Internal, why));
    let bytes = serde_json::to_vec(spec).map_err(|error| internal(error.to_string()))?;
    link::memfd::sealed(name, &bytes).map_err(|error| internal(format!("memfd: {error}")))
}

/// A client that goes away must not stop what it has begun.
///
/// # Errors
/// What the work says.
pub async fn in_background<T: Send + 'static>(
    work: impl Future<Output = Result<T, WireError>> + Send + 'static,
) -> Result<T, WireError> {
    tokio::spawn(work).await.unwrap_or_else(|error| {
        Err(WireError::new(ErrorCode::Internal, format!("the task of this request: {error}")))
    })
}
