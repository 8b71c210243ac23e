//! [`resolve`]: the one way to make a plan.

use super::limits::{NO_DISK, NO_LAYER, resource};
use super::mounts::{self, Tree, utf8};
use super::{
    CagePlan, Controller, Enforcement, EnvRules, HostFacts, HostPaths, Limit, Limits, MountKind,
    PathKind, PlanError, ProjectFile, Request, Seccomp, Terminal, User, guards, landlock,
    workspace,
};
use crate::cgroup::Disk;
use crate::orders::{Forwarder, Rlimit};
use crate::policy::{Connect, Policy, PolicyLimits, Requirement};
use std::path::Path;
use wire::WorkspaceMode;

/// The smallest memory in which a cage can start at all.
pub(super) const MEMORY_BYTES_MIN: u64 = 8 << 20;

/// Policy, facts and request → plan. Nothing is changed and nothing is opened.
pub fn resolve(
    policy: &Policy,
    facts: &HostFacts,
    request: &Request,
    tree: &dyn HostPaths,
) -> Result<CagePlan, PlanError> {
    plan(&settle(policy, request)?, facts, request, tree)
}

/// A policy with all that is laid over it.
pub(super) struct Settled {
    pub(super) policy: Policy,
    /// As it was before the host's ceilings.
    pub(super) asked: PolicyLimits,
    project: Option<ProjectFile>,
    notes: Vec<String>,
}

/// Flags may widen, the project file tightens what then is, the host's ceilings go over all.
pub(super) fn settle(policy: &Policy, request: &Request) -> Result<Settled, PlanError> {
    let mut settled = policy
        .clone()
        .with_overrides(&request.overrides)
        .map_err(|bad| PlanError::Flag { flag: bad.flag.to_owned(), why: bad.why })?;
    let mut said = None;
    if let Some(project) = &request.project {
        let (tighter, tightened) = settled.tightened(project, policy)?;
        settled = tighter;
        settled.protect_project(project);
        said = Some(ProjectFile { file: project.file.clone(), tightened });
    }
    let asked = settled.limits.clone();
    let (policy, notes) = settled.below(&request.ceiling);
    Ok(Settled { policy, asked, project: said, notes })
}

pub(super) fn plan(
    settled: &Settled,
    facts: &HostFacts,
    request: &Request,
    tree: &dyn HostPaths,
) -> Result<CagePlan, PlanError> {
    let Settled { policy, project, notes: lowered, .. } = settled;
    check_walls(policy, facts)?;
    let user = user(request, tree);
    let workspace = workspace::resolve(request, &user.home, policy.workspace, tree)?;
    let mut places = Tree::new(policy, request, &workspace, &user, tree);
    places.grow(policy)?;
    let guards = guards::lay(policy, &mut places)?;
    let forwarders = forwarders(policy, request, &mut places, tree)?;
    let (mounts, sources, mut notes) = places.finish();
    notes.extend(lowered.iter().cloned());
    let binds = mounts
        .iter()
        .filter(|mount| {
            matches!(
                mount.kind,
                MountKind::Bind { .. } | MountKind::Tmpfs { .. } | MountKind::Hidden { .. }
            )
        })
        .count();
    if binds > mounts::MOUNTS_MANY {
        notes.push(format!(
            "{binds} mounts: each costs about 0.2 ms at every start; lend whole folders where you can"
        ));
    }
    let disk = tree.disk(Path::new(&workspace.host));
    let limits = limits(policy, facts, disk)?;
    Ok(CagePlan {
        version: CagePlan::VERSION,
        policy: policy.name.clone(),
        policy_hash: policy.hash.clone(),
        project: project.clone(),
        landlock: landlock::program(facts.landlock_abi, &mounts, &sources),
        user,
        hostname: policy.hostname.clone(),
        workspace,
        sources,
        mounts,
        guards,
        masked: facts.telling.clone(),
        seccomp: Seccomp::Default,
        rlimits: rlimits(&policy.limits, facts),
        limits,
        forwarders,
        env: EnvRules { pass: policy.env_pass.clone(), set: policy.env_set.clone() },
        terminal: terminal(policy),
        suspend: policy.suspend.clone(),
        require: policy.require.iter().map(ToString::to_string).collect(),
        notes,
    })
}

/// What every cage needs, then what this policy requires.
fn check_walls(policy: &Policy, facts: &HostFacts) -> Result<(), PlanError> {
    let always = [Requirement::Userns, Requirement::Seccomp, Requirement::Landlock(1)];
    for requirement in always.iter().chain(&policy.require) {
        let (met, mend) = standing(*requirement, facts);
        if met {
            continue;
        }
        let wall = requirement.wall().to_owned();
        let message = format!(
            "policy {} requires {requirement}, which this host cannot enforce: {mend}; see: mews doctor",
            policy.name
        );
        return Err(PlanError::Wall { wall, message });
    }
    Ok(())
}

fn standing(requirement: Requirement, facts: &HostFacts) -> (bool, String) {
    let cgroup = |controller: Controller, name: &str| {
        let mend = format!(
            "no {name} cgroup that we may write to (run as root, or in a delegated subtree)"
        );
        (controller != Controller::Absent, mend)
    };
    match requirement {
        Requirement::Userns => {
            (facts.userns, "unprivileged user namespaces are switched off".to_owned())
        }
        Requirement::Seccomp => (facts.seccomp, "the kernel has no seccomp filters".to_owned()),
        Requirement::Landlock(abi) => {
            (facts.landlock_abi >= abi, format!("the kernel has ABI {}", facts.landlock_abi))
        }
        Requirement::CgroupMemory => cgroup(facts.memory, "memory"),
        Requirement::CgroupSwap => cgroup(facts.swap, "swap"),
        Requirement::CgroupPids => cgroup(facts.pids, "pids"),
        Requirement::CgroupCpu => cgroup(facts.cpu, "cpu"),
        Requirement::CgroupIo => cgroup(facts.io, "io"),
    }
}

/// Node, screen and git want an account with a name and a home.
fn user(request: &Request, tree: &dyn HostPaths) -> User {
    let fine = |name: &&String| {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        name.len() <= 32
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(letters)
    };
    // A payload called root that is not root would mislead it and its reader.
    let own = request.operator.name.as_ref().filter(|name| request.uid != 0 && *name != "root");
    let name = own.filter(fine).cloned().unwrap_or_else(|| "caged".to_owned());
    let has_bash = tree.kind(Path::new("/bin/bash")) == Some(PathKind::File);
    User {
        uid: request.uid,
        gid: request.gid,
        home: format!("/home/{name}"),
        shell: if has_bash { "/bin/bash" } else { "/bin/sh" }.to_owned(),
        name,
    }
}

fn forwarders(
    policy: &Policy,
    request: &Request,
    places: &mut Tree<'_>,
    tree: &dyn HostPaths,
) -> Result<Vec<Forwarder>, PlanError> {
    if request.overrides.provider.is_some()
        && !policy.sockets.iter().any(|socket| socket.connect == Connect::Provider)
    {
        return Err(PlanError::Flag {
            flag: "--provider".to_owned(),
            why: format!(
                "policy {} has no [[net.socket]] with \"unix:$PROVIDER\"; use -p agent-offline",
                policy.name
            ),
        });
    }
    let mut forwarders = Vec::new();
    for (number, socket) in policy.sockets.iter().enumerate() {
        let host = socket_path(&socket.connect, policy, request, tree)?;
        let connect = places.put_socket(host, number);
        forwarders.push(Forwarder { listen: socket.listen.0, connect });
    }
    Ok(forwarders)
}

fn socket_path(
    connect: &Connect,
    policy: &Policy,
    request: &Request,
    tree: &dyn HostPaths,
) -> Result<String, PlanError> {
    let (key, path) = match connect {
        Connect::Unix(path) => ("net.socket", path.clone()),
        Connect::Provider => {
            let flag = |why: String| PlanError::Flag { flag: "--provider".to_owned(), why };
            let Some(provider) = &request.overrides.provider else {
                return Err(flag(format!(
                    "policy {} reaches its provider through a Unix socket; say --provider unix:/path/to/socket",
                    policy.name
                )));
            };
            let path = match Connect::parse(provider) {
                Ok(Connect::Unix(path)) => path,
                Ok(Connect::Provider) => return Err(flag("name a socket: unix:/path".to_owned())),
                Err(bad) => return Err(flag(bad.to_string())),
            };
            ("--provider", path)
        }
    };
    let refused = |why: &str| PlanError::Path {
        key: key.to_owned(),
        path: path.clone(),
        why: why.to_owned(),
    };
    let canonical = tree
        .canonical(Path::new(&path))
        .ok_or_else(|| refused("there is no such socket; start what listens there first"))?;
    if tree.kind(&canonical) != Some(PathKind::Socket) {
        return Err(refused("is not a Unix socket"));
    }
    let canonical = utf8(&canonical, key)?;
    match super::paths::meets(&canonical, &request.never) {
        Some(_ours) => Err(refused("is one of mews's own sockets; no cage may reach those")),
        None => Ok(canonical),
    }
}

fn limits(policy: &Policy, facts: &HostFacts, disk: Option<Disk>) -> Result<Limits, PlanError> {
    let asked = &policy.limits;
    if disk.is_none() && policy.require.contains(&Requirement::CgroupIo) {
        let message = format!("policy {} requires cgroup.io, but {NO_DISK}", policy.name);
        return Err(PlanError::Wall { wall: "cgroup.io".to_owned(), message });
    }
    for (key, value) in [
        ("limits.workspace_bytes", asked.workspace_bytes),
        ("limits.workspace_inodes", asked.workspace_inodes),
    ] {
        if let (Some(value), WorkspaceMode::Direct) = (value, policy.workspace) {
            return Err(PlanError::Path {
                key: key.to_owned(),
                path: value.to_string(),
                why: NO_LAYER.to_owned(),
            });
        }
    }
    let io = if disk.is_some() { facts.io } else { Controller::Absent };
    if asked.memory_bytes.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        return Err(PlanError::Path {
            key: "limits.memory".to_owned(),
            path: asked.memory_bytes.unwrap_or_default().to_string(),
            why: "no cage can start in so little; give it 8M or more".to_owned(),
        });
    }
    let pids = match (asked.pids, facts.pids) {
        // Counted in the cage's own user namespace, so it counts this cage alone.
        (Some(_), Controller::Absent) => Limit { value: asked.pids, by: Enforcement::Rlimit },
        _ => Limit::by_cgroup(asked.pids, facts.pids),
    };
    // Without a memory limit there is nothing that swap could be counted against.
    let swap = asked.memory_bytes.and(asked.swap_bytes);
    Ok(Limits {
        memory: Limit::by_cgroup(asked.memory_bytes, facts.memory),
        swap: Limit::by_cgroup(swap, facts.swap),
        pids,
        cpu_milli: Limit::by_cgroup(asked.cpu_milli, facts.cpu),
        io: Limit::by_cgroup(asked.io_bytes, io),
        io_disk: disk,
        oom_group: asked.oom_group,
        walltime_ms: asked.walltime_ms,
        idle_ms: asked.idle_ms,
        output_bytes: asked.output_bytes,
        workspace_bytes: asked.workspace_bytes,
        workspace_inodes: asked.workspace_inodes,
        ptys: asked.ptys,
    })
}

fn rlimits(asked: &PolicyLimits, facts: &HostFacts) -> Vec<Rlimit> {
    let nproc = asked.pids.filter(|_| facts.pids == Controller::Absent);
    let wanted = [
        (resource::FSIZE, asked.fsize_bytes),
        (resource::CORE, Some(asked.core_bytes)),
        (resource::NPROC, nproc),
        (resource::NOFILE, asked.nofile),
        (resource::MEMLOCK, Some(8 << 20)),
        (resource::SIGPENDING, Some(1024)),
        (resource::MSGQUEUE, Some(819_200)),
        (resource::NICE, Some(0)),
        (resource::RTPRIO, Some(0)),
    ];
    let set = wanted.iter().filter_map(|(resource, value)| {
        // A hard limit that is inherited cannot be raised; a lower one is a stronger wall.
        let value = (*value)?.min(facts.rlimit_hard(*resource));
        Some(Rlimit { resource: *resource, soft: value, hard: value })
    });
    set.collect()
}

fn terminal(policy: &Policy) -> Terminal {
    let asked = &policy.terminal;
    Terminal {
        enabled: asked.enabled,
        size: wire::Size { cols: asked.cols, rows: asked.rows },
        scrollback_lines: asked.scrollback_lines,
        scrollback_bytes: asked.scrollback_bytes,
        record: asked.record,
        record_bytes: asked.record_bytes,
    }
}
