//! The handlers of the permit table; each gets a [`Call`] that passed it.

use crate::admission::Operator;
use crate::cage::Cage;
use crate::checkpoint;
use crate::ending;
use crate::files::{self, FileError};
use crate::grants::{self, Terms};
use crate::host::Mode;
use crate::layers;
use crate::limits;
use crate::permit::{Call, Reply};
use crate::planning::{self, Identity};
use crate::spawn::recipe;
use crate::stats;
use crate::supervisor::{Stop, Supervisor};
use crate::suspend;
use ::cage::plan::CagePlan;
use link::{failpoint, memfd};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use wire::broker::{BrokerExec, BrokerRequest, BrokerState};
use wire::screen::last_name;
use wire::supervisor::{
    Admitted, CageState, LayerRequest, Phase, ShutdownAnswer, ShutdownCages, SupervisorRequest,
};
use wire::{
    ARGV_BYTES_MAX, ENV_BYTES_MAX, ErrorCode, ExecSpec, PtyId, ScrollbackForm, SpawnSpec,
    WireError, control,
};

/// Argv, environment and the little beside them; JSON may write a byte as four.
const SPEC_BYTES_MAX: usize = 4 * (ARGV_BYTES_MAX + ENV_BYTES_MAX) + (256 << 10);

pub(crate) async fn admit(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let operator = call.operator.ok_or_else(mixed_up)?;
    Ok((control::value(&Admitted { admin: operator.is_admin })?, Vec::new()))
}

pub(crate) async fn spawn(supervisor: Rc<Supervisor>, mut call: Call) -> Reply {
    let spec: SpawnSpec = read_json(call.take_fd()?)?;
    let SupervisorRequest::Spawn { cage, .. } = call.request else { return Err(mixed_up()) };
    if spec.cage != cage {
        return Err(WireError::new(ErrorCode::BadRequest, "the spawn names two cages"));
    }
    let operator = call.operator.ok_or_else(mixed_up)?;
    if let Some(by) = &call.by {
        supervisor.grants.check(by.grant)?;
    }
    let spawned = recipe(supervisor, spec, operator, call.by).await?;
    Ok((control::value(&spawned)?, Vec::new()))
}

pub(crate) async fn dry_run(supervisor: Rc<Supervisor>, mut call: Call) -> Reply {
    let spec: SpawnSpec = read_json(call.take_fd()?)?;
    let operator = call.operator.ok_or_else(mixed_up)?;
    let identity = stand_in(&supervisor, &operator)?;
    let explained = planning::explain_for(&supervisor, &spec, &operator, identity).await?;
    explained.plan.exec(&spec.exec).map_err(WireError::from)?;
    Ok((Value::Null, vec![write_json(&explained)?]))
}

/// What a spawn would be, without a uid of its own.
async fn planned_dry(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    operator: &Operator,
) -> Result<CagePlan, WireError> {
    let identity = stand_in(supervisor, operator)?;
    planning::plan_for(supervisor, spec, operator, identity).await
}

/// As whom a cage would run, where none is made.
fn stand_in(supervisor: &Supervisor, operator: &Operator) -> Result<Identity, WireError> {
    let throw_away = || match supervisor.host.mode {
        Mode::Root(range) => Ok(range.first),
        Mode::User => Ok(supervisor.host.uid),
    };
    crate::spawn::identity_of(supervisor, operator, throw_away)
}

pub(crate) async fn mint(supervisor: Rc<Supervisor>, mut call: Call) -> Reply {
    let spec: SpawnSpec = read_json(call.take_fd()?)?;
    let SupervisorRequest::Mint { grant, cages, for_ms } = call.request else {
        return Err(mixed_up());
    };
    let operator = call.operator.ok_or_else(mixed_up)?;
    grants::check_allowed(&supervisor, &operator)?;
    let plan = planned_dry(&supervisor, &spec, &operator).await?;
    let terms = Terms::of(&spec, &plan);
    let minted = supervisor.grants.mint(grant, (cages, for_ms), terms, &operator)?;
    Ok((control::value(&minted)?, Vec::new()))
}

/// What is left of a grant, for whoever has its key: it was opened on the way here.
pub(crate) async fn grant(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Grant { grant } = &call.request else { return Err(mixed_up()) };
    let (state, _operator) = supervisor.grants.opened(grant)?;
    Ok((control::value(&state)?, Vec::new()))
}

pub(crate) async fn grants(supervisor: Rc<Supervisor>, _call: Call) -> Reply {
    Ok((Value::Null, vec![write_json(&supervisor.grants.list())?]))
}

pub(crate) async fn revoke(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Revoke { grant } = call.request else { return Err(mixed_up()) };
    let operator = call.operator.ok_or_else(mixed_up)?;
    let state = supervisor.grants.revoke(grant, &operator)?;
    Ok((control::value(&state)?, Vec::new()))
}

pub(crate) async fn audit(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Audit { after } = call.request else { return Err(mixed_up()) };
    Ok((Value::Null, vec![write_json(&supervisor.audit.after(after))?]))
}

pub(crate) async fn forget_grant(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::ForgetGrant { grant } = call.request else { return Err(mixed_up()) };
    supervisor.grants.forget(grant)?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn exec(_supervisor: Rc<Supervisor>, mut call: Call) -> Reply {
    let spec: ExecSpec = read_json(call.take_fd()?)?;
    let SupervisorRequest::Exec { pty, .. } = call.request else { return Err(mixed_up()) };
    let cage = call.cage()?;
    let plan = cage.plan().ok_or_else(|| {
        WireError::new(ErrorCode::Conflict, "the cage's plan is lost; it takes no new commands")
    })?;
    let exec: BrokerExec = plan.exec(&spec).map_err(WireError::from)?;
    let fd = write_json(&exec)?;
    let request = BrokerRequest::Exec { pty, main: false };
    failpoint::reach("exec.asked");
    cage.broker()?.call(&request, &[fd.as_fd()]).await?;
    failpoint::reach("exec.taken");
    Ok((Value::Null, Vec::new()))
}

/// The viewer's own stream goes down; from then on no daemon is in the path.
pub(crate) async fn attach(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Attach { pty, options, .. } = call.request.clone() else {
        return Err(mixed_up());
    };
    let request = BrokerRequest::Attach { pty, options };
    to_broker(&call, &request).await
}

pub(crate) async fn input(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Input { pty, .. } = call.request else { return Err(mixed_up()) };
    to_broker(&call, &BrokerRequest::Input { pty }).await
}

pub(crate) async fn type_keys(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Type { pty, .. } = call.request else { return Err(mixed_up()) };
    to_broker(&call, &BrokerRequest::Type { pty }).await
}

/// The stream for the answer goes down; whoever holds its other end is told by the broker itself.
pub(crate) async fn watch(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Watch { pty, watch, .. } = call.request.clone() else {
        return Err(mixed_up());
    };
    to_broker(&call, &BrokerRequest::Watch { pty, watch }).await
}

/// Resize and signal: the broker's requests of the same names.
pub(crate) async fn pass(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let request = match call.request {
        SupervisorRequest::Resize { pty, size, .. } => BrokerRequest::Resize { pty, size },
        SupervisorRequest::Signal { pty, signal, .. } if (1..=64).contains(&signal) => {
            BrokerRequest::Signal { pty, signal }
        }
        SupervisorRequest::Signal { signal, .. } => {
            let words = format!("{signal} is no signal");
            return Err(WireError::new(ErrorCode::ValidationFailed, words));
        }
        SupervisorRequest::Admit
        | SupervisorRequest::Spawn { .. }
        | SupervisorRequest::DryRun
        | SupervisorRequest::Mint { .. }
        | SupervisorRequest::Grant { .. }
        | SupervisorRequest::Revoke { .. }
        | SupervisorRequest::Grants
        | SupervisorRequest::Audit { .. }
        | SupervisorRequest::ForgetGrant { .. }
        | SupervisorRequest::Exec { .. }
        | SupervisorRequest::Attach { .. }
        | SupervisorRequest::Input { .. }
        | SupervisorRequest::Type { .. }
        | SupervisorRequest::Watch { .. }
        | SupervisorRequest::Suspend { .. }
        | SupervisorRequest::Resume { .. }
        | SupervisorRequest::Stats { .. }
        | SupervisorRequest::Limits { .. }
        | SupervisorRequest::SetLimits { .. }
        | SupervisorRequest::Kill { .. }
        | SupervisorRequest::End { .. }
        | SupervisorRequest::Plan { .. }
        | SupervisorRequest::Checkpoint { .. }
        | SupervisorRequest::Layer { .. }
        | SupervisorRequest::Layers
        | SupervisorRequest::ForgetLayer { .. }
        | SupervisorRequest::Scrollback { .. }
        | SupervisorRequest::List
        | SupervisorRequest::Ack { .. }
        | SupervisorRequest::Forget { .. }
        | SupervisorRequest::Shutdown { .. } => return Err(mixed_up()),
    };
    to_broker(&call, &request).await
}

pub(crate) async fn suspend(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let suspension = suspend::suspend(&supervisor, &*call.cage()?).await?;
    Ok((control::value(&suspension)?, Vec::new()))
}

pub(crate) async fn resume(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    suspend::resume(&supervisor, &*call.cage()?).await?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn checkpoint(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Checkpoint { checkpoint, .. } = call.request else {
        return Err(mixed_up());
    };
    let taken = checkpoint::take(&supervisor, &*call.cage()?, checkpoint).await?;
    Ok((Value::Null, vec![write_json(&taken)?]))
}

pub(crate) async fn layer(supervisor: Rc<Supervisor>, mut call: Call) -> Reply {
    let SupervisorRequest::Layer { session } = call.request else { return Err(mixed_up()) };
    let request: LayerRequest = read_json(call.take_fd()?)?;
    let operator = call.operator.ok_or_else(mixed_up)?;
    let answer = layers::work(&supervisor, session, &operator, request).await?;
    Ok((Value::Null, vec![answer]))
}

pub(crate) async fn layers(supervisor: Rc<Supervisor>, _call: Call) -> Reply {
    Ok((Value::Null, vec![write_json(&layers::list(&supervisor).map_err(internal)?)?]))
}

pub(crate) async fn forget_layer(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::ForgetLayer { session, checkpoint } = call.request else {
        return Err(mixed_up());
    };
    layers::forget(&supervisor, session, checkpoint).await?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn stats(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let stats = stats::of(&*call.cage()?).await;
    Ok((control::value(&stats)?, Vec::new()))
}

pub(crate) async fn limits(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let view = limits::view(&supervisor, &*call.cage()?)?;
    Ok((control::value(&view)?, Vec::new()))
}

pub(crate) async fn set_limits(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::SetLimits { set, .. } = &call.request else { return Err(mixed_up()) };
    let rule = call.operator.as_ref().and_then(|who| supervisor.admission.rule_for(who));
    let ceiling = rule.map(|rule| rule.ceiling).unwrap_or_default();
    let view = limits::change(&supervisor, &*call.cage()?, set, &ceiling).await?;
    Ok((control::value(&view)?, Vec::new()))
}

pub(crate) async fn kill(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Kill { cause, .. } = call.request else { return Err(mixed_up()) };
    ending::kill(&supervisor, &*call.cage()?, cause).await?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn end(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::End { cause, .. } = call.request else { return Err(mixed_up()) };
    ending::end(&supervisor, &*call.cage()?, cause).await?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn plan(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let cage = call.cage()?;
    let bytes = match cage.plan() {
        Some(plan) => serde_json::to_vec(&*plan).map_err(internal)?,
        None => std::fs::read(supervisor.plan_path(cage.id)).map_err(|error| {
            WireError::new(ErrorCode::NotFound, format!("the cage's plan is not kept: {error}"))
        })?,
    };
    Ok((Value::Null, vec![memfd::sealed("plan", &bytes).map_err(internal)?]))
}

pub(crate) async fn scrollback(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Scrollback { pty, form, .. } = call.request else {
        return Err(mixed_up());
    };
    let cage = call.cage()?;
    if let Ok(broker) = cage.broker() {
        let request = BrokerRequest::Scrollback { pty, form };
        match broker.call(&request, &[]).await {
            // It ended while it was asked: its files are there.
            Err(error) if error.code == ErrorCode::Gone => {}
            Err(error) => return Err(error),
            Ok((value, fds)) => return Ok((value, fds)),
        }
    }
    let kept = stored(&cage, pty, form);
    // Of a cage that lives, that nothing is kept would be no answer.
    let kept = kept.map_err(|nothing| cage.unreachable().map_or(nothing, WireError::from))?;
    Ok((Value::Null, vec![kept]))
}

/// What an ended cage left on disk.
fn stored(cage: &Cage, pty: PtyId, form: ScrollbackForm) -> Result<OwnedFd, WireError> {
    let uid = cage.record().uid;
    let nothing = |error: FileError| {
        WireError::new(ErrorCode::NotFound, format!("nothing is kept of this terminal: {error}"))
    };
    match form {
        ScrollbackForm::Rendered => {
            let name = format!("{pty}.scrollback");
            files::open_hostile(cage.folder(), &name, uid, files::STORE_BYTES_MAX)
                .map(OwnedFd::from)
                .map_err(nothing)
        }
        ScrollbackForm::Last => {
            files::open_hostile(cage.folder(), &last_name(pty), uid, files::STORE_BYTES_MAX)
                .map(OwnedFd::from)
                .map_err(nothing)
        }
        // Made of the two files above by whoever asks for them.
        ScrollbackForm::Since(_) | ScrollbackForm::Screen => {
            let words = "the cage has ended: what is kept of its terminal is its last state";
            Err(WireError::new(ErrorCode::Gone, words))
        }
        ScrollbackForm::Raw => {
            let [whole, a, b] = wire::recording::part_names(pty)
                .map(|name| files::read_hostile(cage.folder(), &name, uid, files::STORE_BYTES_MAX));
            // The parts are there only if the broker died while it wrote.
            let head = whole.map_err(nothing)?;
            let tails = [a.unwrap_or_default(), b.unwrap_or_default()];
            let file = wire::recording::join(&head, [&tails[0], &tails[1]]);
            memfd::sealed("raw", &wire::recording::raw(&file)).map_err(internal)
        }
    }
}

pub(crate) async fn list(supervisor: Rc<Supervisor>, _call: Call) -> Reply {
    let mut states = Vec::new();
    for cage in supervisor.cages() {
        states.push(fresh_state(&cage).await);
    }
    Ok((Value::Null, vec![write_json(&states)?]))
}

/// With the terminals as the broker sees them now, if it answers soon.
async fn fresh_state(cage: &Cage) -> CageState {
    if matches!(cage.phase(), Phase::Running | Phase::Suspended | Phase::Ending)
        && let Ok(broker) = cage.broker()
    {
        let asked = broker.call(&BrokerRequest::State, &[]);
        let soon = std::time::Duration::from_secs(1);
        if let Ok(Ok((state, _fds))) = tokio::time::timeout(soon, asked).await
            && let Ok(state) = control::typed::<BrokerState>(state)
        {
            cage.learn_broker_seq(state.seq);
            cage.update(|record| {
                record.ptys = state.ptys;
                if state.exit.is_some() {
                    record.exit = state.exit;
                }
            });
        }
    }
    cage.state()
}

pub(crate) async fn ack(_supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Ack { source, seq, .. } = call.request else { return Err(mixed_up()) };
    let cage = call.cage()?;
    cage.acknowledge(source, seq);
    if source == wire::Source::Broker
        && let Ok(broker) = cage.broker()
    {
        // A broker that is gone needs none.
        let _gone = broker.call(&BrokerRequest::Ack { seq }, &[]).await;
    }
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn forget(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    supervisor.forget(&*call.cage()?).map_err(internal)?;
    Ok((Value::Null, Vec::new()))
}

pub(crate) async fn shutdown(supervisor: Rc<Supervisor>, call: Call) -> Reply {
    let SupervisorRequest::Shutdown { cages } = call.request else { return Err(mixed_up()) };
    let living = supervisor.living();
    match cages {
        ShutdownCages::Refuse if !living.is_empty() => {
            let words = format!(
                "{} cages are running. `mews daemon stop --leave` lets them run on, --kill ends them",
                living.len()
            );
            return Err(WireError::new(ErrorCode::Conflict, words)
                .with(serde_json::json!({ "living": living.len() })));
        }
        ShutdownCages::Kill => {
            ending::kill_all(&supervisor).await?;
            ending::end_brokers(&supervisor).await;
        }
        ShutdownCages::Refuse => {
            supervisor.refuse_spawns(true);
            ending::end_brokers(&supervisor).await;
        }
        ShutdownCages::Leave => {}
    }
    let living = u32::try_from(supervisor.living().len()).unwrap_or(u32::MAX);
    supervisor.stop(Stop::Asked);
    Ok((control::value(&ShutdownAnswer { living })?, Vec::new()))
}

async fn to_broker(call: &Call, request: &BrokerRequest) -> Reply {
    let fds: Vec<BorrowedFd<'_>> = call.fds.iter().map(AsFd::as_fd).collect();
    let (value, fds) = call.cage()?.broker()?.call(request, &fds).await?;
    Ok((value, fds))
}

/// Only memory files are read: anything else (a pipe, a file of FUSE) could make us wait.
fn read_json<T: DeserializeOwned>(fd: OwnedFd) -> Result<T, WireError> {
    use nix::fcntl::{FcntlArg, fcntl};
    if fcntl(&fd, FcntlArg::F_GET_SEALS).is_err() {
        return Err(WireError::new(ErrorCode::BadRequest, "what came with it is no memory file"));
    }
    let bytes = memfd::read(fd, SPEC_BYTES_MAX).map_err(|error| {
        let code = if error.kind() == io::ErrorKind::InvalidData {
            ErrorCode::PayloadTooLarge
        } else {
            ErrorCode::BadRequest
        };
        WireError::new(code, format!("what came with the request: {error}"))
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|e| WireError::new(ErrorCode::BadRequest, format!("not understood: {e}")))
}

pub(crate) fn write_json(value: &impl Serialize) -> Result<OwnedFd, WireError> {
    let bytes = serde_json::to_vec(value).map_err(internal)?;
    memfd::sealed("mews-json", &bytes).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, error.to_string())
}

/// A handler got another row's request: a mistake in the table.
fn mixed_up() -> WireError {
    WireError::new(ErrorCode::Internal, "the permit table names the wrong handler")
}
