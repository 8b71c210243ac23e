//! One policy file, as written. Everything is optional here; merging makes it whole.

use super::paths::{self, Connect, EnvName, EnvSet, Loopback, PathRule};
use super::values::{Bytes, Count, CpuMilli, Grace, Home, Millis, Name, Requirement, Speed};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wire::WorkspaceMode;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub(super) version: Option<i64>,
    pub(super) name: Option<Name>,
    pub(super) extends: Option<Name>,
    /// Where it stands, for what is found out only when it is followed.
    #[serde(skip)]
    pub(super) extends_line: Option<usize>,
    /// Every value, one list for each file: filled in by the parser, the last word last.
    #[serde(skip)]
    pub(super) leaves: Vec<Arc<Vec<Leaf>>>,
    pub(super) require: Vec<Requirement>,
    pub(super) fs: FsFile,
    pub(super) net: NetFile,
    pub(super) limits: LimitsFile,
    pub(super) process: ProcessFile,
    pub(super) env: EnvFile,
    pub(super) terminal: TerminalFile,
    pub(super) suspend: SuspendFile,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FsFile {
    pub(super) read: Vec<PathRule>,
    pub(super) write: Vec<PathRule>,
    pub(super) tmpfs: Vec<TmpfsFile>,
    #[serde(deserialize_with = "paths::guarded")]
    pub(super) hide: Vec<PathRule>,
    #[serde(deserialize_with = "paths::guarded")]
    pub(super) protect: Vec<PathRule>,
    pub(super) missing: Option<Missing>,
    pub(super) workspace: Option<WorkspaceMode>,
    pub(super) home: Option<Home>,
    /// Where each path of these lists stands; filled in by the parser.
    #[serde(skip)]
    pub(super) said: Vec<Said>,
}

/// One value of a file, or one item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Dotted: `limits.memory`.
    pub key: String,
    /// As people read it.
    pub value: String,
    pub file: String,
    pub line: usize,
}

/// Where a path was said, and whether it must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub rule: PathRule,
    pub list: Listed,
    pub file: String,
    pub line: usize,
    /// `missing = "error"` holds for it.
    pub required: bool,
}

impl Said {
    /// By a shipped policy, whose lists are for many hosts and folders.
    #[must_use]
    pub fn is_preset(&self) -> bool {
        self.file.starts_with(PRESET)
    }
}

/// What people call a shipped policy begins with this; a path does not.
pub(super) const PRESET: &str = "preset ";

/// The lists of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    Read,
    Write,
    Hide,
    Protect,
}

impl Listed {
    pub(super) const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Hide, Self::Protect];

    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Read => "fs.read",
            Self::Write => "fs.write",
            Self::Hide => "fs.hide",
            Self::Protect => "fs.protect",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmpfsFile {
    pub path: PathRule,
    pub size: Option<Bytes>,
}

/// What to do about a path that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    #[default]
    Ignore,
    Error,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NetFile {
    pub(super) mode: Option<NetMode>,
    pub(super) socket: Vec<SocketRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NetMode {
    None,
}

/// A host Unix socket made reachable on loopback inside.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketRule {
    pub listen: Loopback,
    pub connect: Connect,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsFile {
    pub(super) memory: Option<Bytes>,
    pub(super) swap: Option<Bytes>,
    pub(super) pids: Option<Count<8, 4_194_304>>,
    pub(super) cpu: Option<CpuMilli>,
    pub(super) nofile: Option<Count<16, 1_048_576>>,
    pub(super) fsize: Option<Bytes>,
    pub(super) core: Option<Bytes>,
    pub(super) ptys: Option<Count<1, 4096>>,
    pub(super) walltime: Option<Millis>,
    pub(super) idle: Option<Millis>,
    pub(super) output_bytes: Option<Bytes>,
    pub(super) workspace_bytes: Option<Bytes>,
    pub(super) workspace_inodes: Option<Count<1, 4_294_967_295>>,
    pub(super) io: Option<Speed>,
    pub(super) oom: Option<OomMode>,
}

impl LimitsFile {
    /// By the name of the limit; of what is no amount, none.
    pub(super) fn amount(&self, limit: &str) -> Option<u64> {
        let bytes = |size: Option<Bytes>| size.map(|Bytes(bytes)| bytes);
        let time = |time: Option<Millis>| time.map(|Millis(ms)| ms);
        match limit {
            "memory" => bytes(self.memory),
            "swap" => bytes(self.swap),
            "pids" => self.pids.map(|count| count.0),
            "cpu" => self.cpu.map(|cpu| cpu.0),
            "nofile" => self.nofile.map(|count| count.0),
            "fsize" => bytes(self.fsize),
            "core" => bytes(self.core),
            "ptys" => self.ptys.map(|count| count.0),
            "walltime" => time(self.walltime),
            "idle" => time(self.idle),
            "output_bytes" => bytes(self.output_bytes),
            "workspace_bytes" => bytes(self.workspace_bytes),
            "workspace_inodes" => self.workspace_inodes.map(|count| count.0),
            "io" => self.io.map(|speed| speed.0),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OomMode {
    Group,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProcessFile {
    pub(super) seccomp: Option<SeccompMode>,
    pub(super) landlock: Option<LandlockMode>,
    pub(super) user: Option<UserMode>,
    pub(super) hostname: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SeccompMode {
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LandlockMode {
    Require,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UserMode {
    Operator,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EnvFile {
    pub(super) pass: Vec<EnvName>,
    pub(super) set: EnvSet,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TerminalFile {
    pub(super) enabled: Option<bool>,
    pub(super) cols: Option<Count<2, 500>>,
    pub(super) rows: Option<Count<2, 300>>,
    pub(super) scrollback_lines: Option<Count<0, 1_000_000>>,
    pub(super) scrollback_bytes: Option<Bytes>,
    pub(super) record: Option<bool>,
    pub(super) record_bytes: Option<Bytes>,
    pub(super) flow: Option<FlowMode>,
    pub(super) filter: Option<FilterMode>,
    pub(super) record_input: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FlowMode {
    Resync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FilterMode {
    Default,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SuspendFile {
    pub(super) grace: Option<Grace>,
    pub(super) on_refuse: Option<OnRefuse>,
}

/// What to do when a program does not stop by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefuse {
    /// The freezer holds it.
    #[default]
    Freeze,
    /// The cage is not suspended and runs on.
    Fail,
}
