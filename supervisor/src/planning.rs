//! A plan, made with the eyes of whoever asks for it.
//!
//! For an operator who is not the supervisor's own uid a child of theirs reads the policy's text and
//! looks at the paths: what they cannot see is not there, a file system of theirs that does not answer
//! holds up nobody else, and no line that they wrote is parsed by root.

use crate::admission::Operator;
use crate::launch;
use crate::supervisor::Supervisor;
use crate::sys::apart;
use ::cage::host_policy::Rule;
use ::cage::plan::{
    self, CagePlan, Explained, HostFacts, HostPaths, PlanError, RealPaths, Request,
};
use ::cage::policy::{self, Policy};
use link::PidFd;
use nix::unistd::{Uid, User};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use wire::{ErrorCode, SpawnSpec, WireError};

/// Longest that paths and policy may take to be looked at.
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest plan.
const PLAN_BYTES_MAX: usize = 4 << 20;

/// As whom a cage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Resolves a request as a spawn does.
///
/// # Errors
/// The policy is not for this operator, or wrong, or this host cannot enforce it, or a path cannot be
/// lent.
pub(crate) async fn plan_for(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    operator: &Operator,
    identity: Identity,
) -> Result<CagePlan, WireError> {
    resolved(supervisor, spec, operator, identity, plan::resolve).await
}

/// The same plan, with what would stand here and who said each value of it.
///
/// # Errors
/// As [`plan_for`].
pub(crate) async fn explain_for(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    operator: &Operator,
    identity: Identity,
) -> Result<Explained, WireError> {
    resolved(supervisor, spec, operator, identity, plan::explain).await
}

/// What is made of policy, facts, request and the operator's files.
type Resolve<T> = fn(&Policy, &HostFacts, &Request, &dyn HostPaths) -> Result<T, PlanError>;

async fn resolved<T: Serialize + DeserializeOwned>(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    operator: &Operator,
    identity: Identity,
    resolve: Resolve<T>,
) -> Result<T, WireError> {
    let rule = supervisor.admission.rule_for(operator);
    if let Some(rule) = &rule {
        rule.admits(&spec.policy, &spec.overrides)?;
    }
    let make = || make(supervisor, spec, operator, identity, (rule.as_ref(), resolve));
    if operator.uid == 0 || !supervisor.host.is_root() {
        return make();
    }
    as_operator(operator, make).await
}

fn make<T>(
    supervisor: &Supervisor,
    spec: &SpawnSpec,
    operator: &Operator,
    identity: Identity,
    (rule, resolve): (Option<&Rule>, Resolve<T>),
) -> Result<T, WireError> {
    let dirs = &supervisor.host.dirs;
    let policy = policy::load(&spec.policy, &[dirs.policies()]).map_err(WireError::from)?;
    let workspace = PathBuf::from(spec.workspace.to_os_string());
    let project = policy::read_project(&workspace).map_err(WireError::from)?;
    let account = User::from_uid(Uid::from_raw(operator.uid)).ok().flatten();
    let request = Request {
        operator: plan::Operator {
            uid: operator.uid,
            gid: operator.gid,
            name: account.as_ref().map(|user| user.name.clone()),
            home: account.map(|user| user.dir),
        },
        uid: identity.uid,
        gid: identity.gid,
        workspace,
        overrides: spec.overrides.clone(),
        project,
        ceiling: rule.map(|rule| rule.ceiling.clone()).unwrap_or_default(),
        homes: supervisor.host.homes.join(operator.uid.to_string()),
        never: vec![dirs.run.clone(), dirs.state.clone()],
        never_write: vec![dirs.config.clone()],
    };
    Ok(resolve(&policy, &supervisor.facts, &request, &RealPaths::default())?)
}

async fn as_operator<T: Serialize + DeserializeOwned>(
    operator: &Operator,
    make: impl FnOnce() -> Result<T, WireError>,
) -> Result<T, WireError> {
    let failed = |error: io::Error| {
        WireError::new(ErrorCode::Internal, format!("nobody could look at your files: {error}"))
    };
    let (answer, theirs) = io::pipe().map_err(failed)?;
    let theirs = OwnedFd::from(theirs);
    let work = || serde_json::to_vec(&make()).unwrap_or_default();
    let pid = apart::fork_as((operator.uid, operator.gid), &theirs, work).map_err(failed)?;
    drop(theirs);
    let child = PidFd::open(pid).map_err(failed)?;
    let answer = tokio::time::timeout(DEADLINE, read(answer.into())).await;
    // ESRCH: it has ended. SIGKILL also where it only sleeps: it holds nothing that must be whole.
    let _ended = child.signal(libc::SIGKILL);
    launch::reap_later(child, pid);
    let bytes = answer.map_err(|_late| {
        let words = "your files and policy could not be looked at within 5 s: a file system that they \
                     are on does not answer";
        WireError::new(ErrorCode::CageUnavailable, words)
    })?;
    let bytes = bytes.map_err(failed)?;
    // Killed from outside, or its answer is not ours.
    serde_json::from_slice::<Result<T, WireError>>(&bytes)
        .map_err(|error| failed(io::Error::other(error)))?
}

async fn read(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let pipe = link::nonblocking::watch_input(pipe)?;
    let mut bytes = Vec::new();
    let mut buffer = vec![0_u8; 16 << 10];
    loop {
        let mut ready = pipe.readable().await?;
        match nix::unistd::read(pipe.get_ref().as_fd(), &mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(nix::Error::EAGAIN) => ready.clear_ready(),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if bytes.len() > PLAN_BYTES_MAX {
            return Err(io::Error::other("the plan is too large"));
        }
    }
}
