//! From a request to a payload: the numbered recipe.
//!
//!  1. A place below the host's caps; policy, facts and request → plan (`planning.rs`). Nothing is
//!     changed if there is none.
//!  2. A use of the grant, where it is by one. A uid for the cage, and the record: from here on whatever is found has an owner.
//!  3. The broker's folder, the run folder, the plan on disk; event `cage.planned`.
//!  4. cgroup with limits, read back: before there is a process that could outgrow them.
//!  5. The listening socket: bound by us in our own folder, so that a later supervisor finds it.
//!  6. The workspace's layer; sources: opened as the operator, cloned, idmapped.
//!  7. Everything for the child is prepared: memfds, numbers, bwrap's arguments.
//!  8. Fork; the child drops what it has and becomes the broker (`sys/child.rs`).
//!  9. The broker's link; it builds the cage up to the gate and sends the zygote's word.
//! 10. That word against the plan; then our own look at pid 1 from outside.
//! 11. `go`: the tether may end, the cage needs no supervisor any more.
//! 12. The first command.
//!
//! A failure from 3 on kills and removes what there is, tells `cage.failed` and `cage.gone`, and is
//! answered with the wall's name: nothing ran.

mod boot;
mod gate;
mod places;

use crate::admission::Operator;
use crate::cage::phase::Moment;
use crate::cage::record::{Process, Record};
use crate::cage::{Cage, driver};
use crate::clock;
use crate::files;
use crate::grants::{ByGrant, Terms};
use crate::host::{Ids, Mode};
use crate::launch;
use crate::layers;
use crate::outbox::Journal;
use crate::planning::{self, Identity};
use crate::requests::write_json;
use crate::supervisor::Supervisor;
use crate::uids::Uids;
use ::cage::cgroup::{CageCgroup, Limits};
use ::cage::plan::{CagePlan, Role};
use gate::Gate;
use link::{Listener, failpoint};
use nix::unistd::{Gid, Uid, chown};
use places::Place;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::rc::Rc;
use wire::broker::{BrokerExec, BrokerRequest};
use wire::supervisor::{Phase, Spawned};
use wire::{Enforced, ErrorCode, EventBody, ExecSpec, SessionId, SpawnSpec, WireError};

/// Why a cage could not be built, by the wall or step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) wall: String,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(wall: &str, message: impl std::fmt::Display) -> Self {
        Self { wall: wall.to_owned(), message: message.to_string() }
    }
}

impl From<Failure> for WireError {
    fn from(failure: Failure) -> Self {
        let Failure { wall, message } = &failure;
        // The words of whoever failed may begin with it.
        let named = message.to_lowercase().contains(&wall.to_lowercase());
        let name = if named { String::new() } else { format!("{wall}: ") };
        Self::wall(wall, format!("the cage could not be built: {name}{message}"))
    }
}

/// Builds a cage and starts its first command.
pub(crate) async fn recipe(
    supervisor: Rc<Supervisor>,
    spec: SpawnSpec,
    operator: Operator,
    by: Option<ByGrant>,
) -> Result<Spawned, WireError> {
    if supervisor.is_stopping() {
        return Err(WireError::new(ErrorCode::Conflict, "mews is stopping; it takes no new runs"));
    }
    failpoint::reach("spawn.asked");
    let place = Place::take(&supervisor, &operator)?;
    let identity = identity_of(&supervisor, &operator, || take_uid(&supervisor, spec.session))?;
    // 1. and 2.
    let planned = planning::plan_for(&supervisor, &spec, &operator, identity).await;
    let prepared = planned
        .and_then(|plan| Ok((plan.exec(&spec.exec).map_err(WireError::from)?, plan)))
        .and_then(|(exec, plan)| {
            if let Some(by) = by {
                supervisor.grants.count(by.grant, spec.cage, &Terms::of(&spec, &plan))?;
            }
            let plan = Rc::new(plan);
            let who = (operator.uid, by);
            let cage = register(&supervisor, &spec, who, identity, &plan).map_err(storage)?;
            Ok((exec, plan, cage))
        });
    let (exec, plan, cage) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            supervisor.free_uid(identity.uid);
            return Err(error);
        }
    };
    // From here on it is counted as a cage.
    drop(place);
    match build(&supervisor, &cage, &plan, &spec, &exec).await {
        Ok(spawned) => Ok(spawned),
        Err(failure) => {
            abandon(&supervisor, &cage, &failure).await;
            Err(failure.into())
        }
    }
}

/// As whom a cage of this operator runs: their own uid, never 0. `throw_away` gives root's.
pub(crate) fn identity_of(
    supervisor: &Supervisor,
    operator: &Operator,
    throw_away: impl FnOnce() -> Result<u32, WireError>,
) -> Result<Identity, WireError> {
    let host = &supervisor.host;
    if !host.is_root() {
        return Ok(Identity { uid: host.uid, gid: host.gid });
    }
    if operator.uid != 0 {
        let gid = if operator.gid == 0 { operator.uid } else { operator.gid };
        return Ok(Identity { uid: operator.uid, gid });
    }
    let uid = throw_away()?;
    Ok(Identity { uid, gid: uid })
}

/// The operator whose cages have uids of their own.
const ROOT: u32 = 0;

/// A session's layer belongs to one uid: its next cage is of the same.
fn take_uid(supervisor: &Supervisor, session: SessionId) -> Result<u32, WireError> {
    let of_layer = supervisor.layer_uids.borrow().get(&session).copied();
    if let Some(uid) = of_layer {
        // Whose session it is, sessiond says; whose layer, we know.
        if layers::owner(supervisor, session) == Some(ROOT) {
            return Ok(uid);
        }
        let words = "the layer of this session belongs to somebody else";
        return Err(WireError::new(ErrorCode::Forbidden, words));
    }
    let taken = supervisor.uids.borrow_mut().as_mut().and_then(Uids::take);
    taken.ok_or_else(|| {
        let words = "no uid is free for a cage of root; `mews rm` old sessions";
        WireError::new(ErrorCode::LimitReached, words)
    })
}

/// Record, folders and journal: steps 2 and 3, or nothing of them.
fn register(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    (operator, by): (u32, Option<ByGrant>),
    identity: Identity,
    plan: &Rc<CagePlan>,
) -> io::Result<Rc<Cage>> {
    let record = Record {
        wire: wire::PROTO,
        cage: spec.cage,
        session: spec.session,
        run: spec.run,
        operator,
        uid: identity.uid,
        name: spec.name.clone(),
        policy: plan.policy.clone(),
        plan_hash: plan.hash(),
        started_at_ms: clock::now_ms(),
        enforced: Enforced::default(),
        cgroup: None,
        broker: None,
        init: None,
        went: false,
        gone: false,
        exit: None,
        suspended: None,
        stood_ms: 0,
        limits: None,
        limits_meant: None,
        doomed: None,
        ptys: Vec::new(),
    };
    record.save(&supervisor.host.dirs.sup_state())?;
    failpoint::reach("spawn.recorded");
    let made = make_files(supervisor, spec, record, plan, by);
    if made.is_err() {
        // There is no cage yet that could own them.
        let _full = supervisor.remove_files(spec.cage);
    }
    made
}

/// Step 3, the record being there.
fn make_files(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    record: Record,
    plan: &Rc<CagePlan>,
    by: Option<ByGrant>,
) -> io::Result<Rc<Cage>> {
    let (id, uid, gid) = (record.cage, record.uid, plan.user.gid);
    let path = supervisor.cage_folder(id);
    std::fs::DirBuilder::new().mode(0o700).create(&path)?;
    let folder = files::open_folder(&path)?;
    if let Mode::Root(_) = supervisor.host.mode {
        chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(supervisor.run_folder(id))?;
    std::fs::write(supervisor.plan_path(id), serde_json::to_vec(&**plan)?)?;
    let passed = plan.passed(&spec.exec.env);
    let exec = ExecSpec { env: passed, ..spec.exec.clone() };
    let kept = SpawnSpec { exec, ..spec.clone() };
    files::write_private(&supervisor.spec_path(id), &serde_json::to_vec(&kept)?)?;
    let journal = Journal::open(&supervisor.journal_path(id), id)?;
    let dirty = Rc::clone(&supervisor.dirty);
    let cage = Cage::new(record, Phase::Starting, journal, folder, dirty);
    cage.set_plan(Rc::clone(plan));
    failpoint::reach("spawn.folders");
    cage.tell(&EventBody::CagePlanned {
        plan_hash: cage.record().plan_hash,
        policy: plan.policy.clone(),
        workspace: plan.workspace.inside.clone(),
    })?;
    if let Some(by) = by {
        cage.tell(&by.told())?;
    }
    supervisor.add(Rc::clone(&cage));
    failpoint::reach("spawn.planned");
    Ok(cage)
}

fn storage(error: io::Error) -> WireError {
    let words = format!("the cage's files could not be made: {error}");
    WireError::new(ErrorCode::StorageUnavailable, words)
}

/// Steps 4 to 12.
async fn build(
    supervisor: &Rc<Supervisor>,
    cage: &Rc<Cage>,
    plan: &Rc<CagePlan>,
    spec: &SpawnSpec,
    exec: &BrokerExec,
) -> Result<Spawned, Failure> {
    make_home(supervisor, cage, plan)?;
    // Found by its name if we die here: the record is there.
    make_cgroup(supervisor, cage, plan)?;
    failpoint::reach("spawn.cgroup");
    let listener = Listener::bind(&supervisor.socket_path(cage.id), 0o600)
        .map_err(|error| Failure::new("socket", error))?;
    failpoint::reach("spawn.socket");
    let layer = layers::for_cage(supervisor, cage, plan).await?;
    failpoint::reach("spawn.layer");
    let boot::Booting { prepared, tether, stderr, named } =
        boot::prepare(supervisor, cage, plan, spec, layer.as_ref(), listener)?;
    failpoint::reach("spawn.lent");
    let mut started = launch::start(prepared).map_err(|error| Failure::new("broker", error))?;
    failpoint::reach("spawn.forked");
    cage.update(|record| record.broker = Process::of(started.pid).ok());
    cage.set_handles(|handles| handles.broker = Some(Rc::clone(&started.handle)));
    supervisor.save(cage);
    failpoint::reach("spawn.fork_recorded");
    started.executed().await.map_err(|error| Failure::new("broker", error))?;
    let gate = Gate::open(supervisor, cage, stderr).await?;
    failpoint::reach("spawn.hello");
    let (enforced, notices) = gate.pass(supervisor, cage, plan, &named).await?;
    failpoint::reach("spawn.attested");
    if cage.phase() != Phase::Starting {
        // Whoever killed it may have done so before there was anything to kill.
        return Err(Failure::new("supervisor", "it was told to end while it was being built"));
    }
    go(supervisor, cage).await?;
    drop(tether);
    let driver = driver::run(Rc::clone(supervisor), Rc::clone(cage), notices);
    first_command(cage, spec, exec).await.inspect_err(|_failure| {
        // The cage went: its driver brings it to its end.
        driver::kill_now(cage);
    })?;
    failpoint::reach("spawn.commanded");
    // Only now may anybody be told that it runs: a supervisor that finds a cage without a command
    // takes it for one that never began.
    cage.step(Moment::Went);
    let pid = cage.record().init.map_or(0, |process| process.pid);
    cage.tell_end(&EventBody::CageStarted { pid });
    failpoint::reach("spawn.started");
    tokio::task::spawn_local(driver);
    Ok(Spawned {
        cage: cage.id,
        plan_hash: cage.record().plan_hash,
        enforced,
        workspace: plan.workspace.inside.clone(),
    })
}

fn make_home(supervisor: &Supervisor, cage: &Cage, plan: &CagePlan) -> Result<(), Failure> {
    for source in plan.sources.iter().filter(|source| source.role == Role::Home) {
        let owner = home_owner(supervisor, cage, plan);
        let made = supervisor.host.make_home(source.host.as_ref(), owner);
        made.map_err(|error| Failure::new("home", error))?;
    }
    Ok(())
}

/// The operator: a home is used again by another cage, which may run under another uid.
fn home_owner(supervisor: &Supervisor, cage: &Cage, plan: &CagePlan) -> Ids {
    let uid = cage.operator();
    let gid = if uid == plan.user.uid { plan.user.gid } else { supervisor.host.gid };
    Ids { uid, gid }
}

fn make_cgroup(supervisor: &Supervisor, cage: &Cage, plan: &CagePlan) -> Result<(), Failure> {
    let share_of = supervisor.admission.is_shared().then(|| cage.operator());
    let limits = Limits { share_of, ..plan.limits.of_cgroup() };
    let cgroup = CageCgroup::create(&supervisor.layout, cage.id, &limits)
        .map_err(|error| Failure::new(error.wall(), &error))?;
    cage.update(|record| record.cgroup = Some(cgroup.paths()));
    cage.set_handles(|handles| handles.cgroup = Some(Rc::new(cgroup)));
    Ok(())
}

/// Step 11. What is recorded first is what a later supervisor believes: a cage that is not known to
/// have gone is killed by it, so the record must not come after the act.
async fn go(supervisor: &Supervisor, cage: &Cage) -> Result<(), Failure> {
    let broker = cage.broker().map_err(|error| Failure::new("broker", error))?;
    cage.update(|record| {
        record.went = true;
        record.stood_ms = u64::try_from(clock::now_ms() - record.started_at_ms).unwrap_or(0);
    });
    supervisor.try_save(cage).map_err(|error| {
        cage.update(|record| record.went = false);
        Failure::new("record", format!("it cannot be written: {error}"))
    })?;
    failpoint::reach("spawn.go_recorded");
    broker
        .call(&BrokerRequest::Go, &[])
        .await
        .map_err(|error| Failure::new("broker", format!("go was not taken: {error}")))?;
    failpoint::reach("spawn.went");
    Ok(())
}

/// Step 12.
async fn first_command(cage: &Cage, spec: &SpawnSpec, exec: &BrokerExec) -> Result<(), Failure> {
    let broker = cage.broker().map_err(|error| Failure::new("broker", error))?;
    let memfd = write_json(exec).map_err(|error| Failure::new("memory", error))?;
    let request = BrokerRequest::Exec { pty: spec.pty, main: true };
    broker
        .call(&request, &[memfd.as_fd()])
        .await
        .map_err(|error| Failure::new("exec", format!("the first command: {error}")))?;
    Ok(())
}

/// Kills and removes what was built; nothing ran.
async fn abandon(supervisor: &Supervisor, cage: &Cage, failure: &Failure) {
    tracing::warn!(cage = %cage.id, wall = failure.wall, error = failure.message, "spawn failed");
    cage.step(Moment::Ending);
    let broker = cage.handles().broker.clone();
    if let (Some(broker), Some(process)) = (broker, cage.record().broker) {
        // ESRCH: it ended by itself.
        let _dead = broker.signal(libc::SIGKILL);
        launch::ended(&broker, process.pid).await;
    }
    cage.set_broker(None);
    driver::kill_now(cage);
    driver::emptied(cage).await;
    cage.tell_end(&EventBody::CageFailed {
        wall: failure.wall.clone(),
        message: failure.message.clone(),
    });
    cage.update(|record| {
        let cause = wire::Cause::CageSetup;
        record.exit = Some(wire::Exit::not_started(125, cause, failure.message.clone()));
    });
    driver::announce_gone(supervisor, cage);
    supervisor.remove_run_files(cage.id);
}
