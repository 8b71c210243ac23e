//! Policy → plan: everything that one cage will be, as a pure value.
//!
//! `mews policy check`, `run --dry-run`, the spawn itself and the record of a cage all read the same
//! [`CagePlan`]. It is made by [`resolve`] from a checked policy, the facts of this host and one
//! request; whether a path exists is asked through [`HostPaths`], so that nothing here touches the
//! file system. What the plan does not know: cgroup paths, descriptors, and which throw-away mount
//! point stands for a source (see [`crate::bwrap`]).

mod change;
mod error;
mod expected;
mod explain;
mod facts;
mod guards;
mod landlock;
mod limits;
mod mounts;
mod paths;
mod patterns;
mod resolve;
mod workspace;

pub use change::{Carried, change_words};
pub use error::PlanError;
pub use expected::{Expected, WallMismatch};
pub use explain::{Explained, Value, explain};
pub use facts::{Controller, HostFacts, HostPaths, Operator, PathKind, RealPaths, Request};
pub use limits::{Enforcement, Limit, Limits, resource};
pub(crate) use limits::{NO_DISK, NO_LAYER};
pub use resolve::resolve;

use crate::hash::sha256;
use crate::orders::{Forwarder, LandlockProgram, Program, Rlimit};
use crate::policy::{Suspend, Tightened};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::WorkspaceMode;

/// One cage, resolved. Serialised as JSON it is what `plan.json` and `--dry-run` show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CagePlan {
    /// The shape of this value: [`CagePlan::VERSION`].
    pub version: u32,
    /// The policy's name.
    pub policy: String,
    /// SHA-256 over the texts that it is made of.
    #[serde(default)]
    pub policy_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectFile>,
    pub user: User,
    pub hostname: String,
    pub workspace: Workspace,
    /// What the host lends. [`MountKind::Bind`] and forwarders name these by index.
    pub sources: Vec<Source>,
    /// In the order in which they are put up: parents before children.
    pub mounts: Vec<Mount>,
    /// What is hidden and protected by some of these mounts, and what could not be.
    #[serde(default)]
    pub guards: Guards,
    /// Files of /proc that are hidden behind `/dev/null`.
    pub masked: Vec<String>,
    pub landlock: LandlockProgram,
    pub seccomp: Seccomp,
    pub rlimits: Vec<Rlimit>,
    pub limits: Limits,
    pub forwarders: Vec<Forwarder>,
    pub env: EnvRules,
    pub terminal: Terminal,
    #[serde(default)]
    pub suspend: Suspend,
    /// What the policy requires of the host, as written: `landlock>=2`. All of it was met.
    pub require: Vec<String>,
    /// For people: what was left out, and what costs time.
    pub notes: Vec<String>,
}

/// Who the payload is, inside. The cage's uid is the same number inside and outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
    pub home: String,
    pub shell: String,
}

/// The folder that the operator works in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Canonical path on the host.
    pub host: String,
    /// The same path wherever the cage does not need it for itself, else `/workspace`.
    pub inside: String,
    /// What the cage sees there, and where its writes go.
    #[serde(default)]
    pub mode: WorkspaceMode,
}

/// One thing of the host that is lent to the cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Canonical path on the host.
    pub host: String,
    pub kind: SourceKind,
    pub writable: bool,
    /// What it is for: `workspace`, `home`, `fs.read`, `fs.write`, `net.socket`.
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    Folder,
    File,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Workspace,
    /// A persistent home below `<state>/homes`; made by whoever starts the cage if it is not there.
    Home,
    Read,
    Write,
    Socket,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// As seen inside, absolute, without `.`, `..` or a slash at the end.
    pub dest: String,
    #[serde(flatten)]
    pub kind: MountKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MountKind {
    Proc,
    Dev,
    /// An empty folder of the root, which is read-only in the end.
    Dir,
    Symlink {
        target: String,
    },
    Tmpfs {
        size_bytes: Option<u64>,
        mode: u32,
    },
    /// Index into [`CagePlan::sources`].
    Bind {
        source: usize,
        writable: bool,
    },
    /// Empty and read-only, over something of the host's.
    Hidden {
        folder: bool,
    },
    /// A synthetic file: its contents come from [`crate::bwrap::data_files`], by this mount's `dest`.
    Data,
}

/// The project file that was found in the workspace, and what it has tightened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectFile {
    pub file: String,
    pub tightened: Vec<Tightened>,
}

/// What `fs.hide` and `fs.protect` came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guards {
    pub hidden: Vec<Guard>,
    pub protected: Vec<Guard>,
    /// Asked for, and not guarded.
    pub open: Vec<Unguarded>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// As the policy names it.
    pub rule: String,
    /// Canonical path on the host.
    pub host: String,
    /// Where it is seen inside; nowhere if it is not lent.
    pub places: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unguarded {
    /// `fs.hide`, `fs.protect`.
    pub key: String,
    /// As the policy names it.
    pub path: String,
    /// Words that follow the path.
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seccomp {
    Default,
}

/// Which environment a payload gets: `set` over `pass` over the cage's own defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvRules {
    /// Names, or beginnings of names with a `*` at the end, that pass from the caller.
    pub pass: Vec<String>,
    pub set: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    pub enabled: bool,
    pub size: wire::Size,
    pub scrollback_lines: u32,
    pub scrollback_bytes: u64,
    pub record: bool,
    pub record_bytes: u64,
}

impl CagePlan {
    pub const VERSION: u32 = 1;

    /// SHA-256 over the plan as JSON, in hex. The uid that this one cage was lent is left out: two
    /// runs of the same request have the same hash.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut plan = self.clone();
        plan.user.uid = 0;
        plan.user.gid = 0;
        sha256(&[&serde_json::to_vec(&plan).unwrap_or_default()])
    }

    /// What the cage's pid 1 puts up.
    #[must_use]
    pub fn inner_program(&self) -> Program {
        Program {
            rlimits: self.rlimits.clone(),
            landlock: Some(self.landlock.clone()),
            seccomp: true,
            forwarders: self.forwarders.clone(),
        }
    }

    /// The clocks that the broker keeps.
    #[must_use]
    pub fn clocks(&self) -> crate::launch::Clocks {
        self.limits.clocks()
    }

    /// What the broker keeps of each terminal.
    #[must_use]
    pub fn terminal(&self) -> crate::launch::Terminal {
        crate::launch::Terminal {
            scrollback_lines: self.terminal.scrollback_lines,
            scrollback_bytes: self.terminal.scrollback_bytes,
            record: self.terminal.record,
            record_bytes: self.terminal.record_bytes,
            ..crate::launch::Terminal::default()
        }
    }
}
