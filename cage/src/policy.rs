//! Policy files: TOML, strict. From text to a checked, merged [`Policy`].
//!
//! `parse` knows lines, `schema` knows every key, `values` and `paths` know what a value may be,
//! `merge` knows `extends`. Nothing here knows the host.

mod ceiling;
mod error;
mod file;
mod limit;
mod load;
mod merge;
mod overrides;
mod parse;
mod paths;
mod preset;
mod project;
mod schema;
mod values;

/// Most lines of `fs.hide` or `fs.protect`, and most mounts that they may cost: every one is a descriptor of
/// the supervisor's while the cage is built, and a project file is written by whoever writes the project.
pub(crate) const GUARDS_MAX: usize = 256;

pub use ceiling::Ceiling;
pub use error::{PolicyError, Problem};
pub use file::{Leaf, Listed, Missing, OnRefuse, Said, SocketRule, TmpfsFile as TmpfsRule};
pub use limit::{limit_asked, limit_words};
pub use load::load;
pub use overrides::BadFlag;
pub use paths::{Base, Connect, EnvName, PathRule};
pub use preset::{preset_names, preset_text};
pub use project::{PROJECT_FILE, Project, Tightened, read_project};
use values::Grace;

pub use values::{BadValue, Bytes, Home, Millis, Name, Requirement};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::WorkspaceMode;
use wire::limits::Unit;

/// A policy as a spawn uses it: merged, checked, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    /// The files it came from, the last word first.
    pub files: Vec<String>,
    /// SHA-256 over their texts, in hex.
    pub hash: String,
    pub require: Vec<Requirement>,
    pub read: Vec<PathRule>,
    pub write: Vec<PathRule>,
    pub tmpfs: Vec<TmpfsRule>,
    /// Seen as empty.
    pub hide: Vec<PathRule>,
    /// Cannot be changed, though it lies in what can be written.
    pub protect: Vec<PathRule>,
    /// Where the paths of these lists stand; the last word on a path is the last in here.
    pub said: Vec<Said>,
    /// Every value of every file, one list for each, the last word last.
    pub leaves: Vec<Arc<Vec<Leaf>>>,
    pub workspace: WorkspaceMode,
    pub home: Home,
    pub sockets: Vec<SocketRule>,
    pub limits: PolicyLimits,
    pub hostname: String,
    pub env_pass: Vec<String>,
    pub env_set: BTreeMap<String, String>,
    pub terminal: PolicyTerminal,
    pub suspend: Suspend,
}

/// Absent: not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyLimits {
    pub memory_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub pids: Option<u64>,
    pub cpu_milli: Option<u64>,
    pub nofile: Option<u64>,
    pub fsize_bytes: Option<u64>,
    pub core_bytes: u64,
    pub ptys: u32,
    pub walltime_ms: Option<u64>,
    pub idle_ms: Option<u64>,
    pub output_bytes: Option<u64>,
    /// What the session's layer may take on the disk.
    pub workspace_bytes: Option<u64>,
    pub workspace_inodes: Option<u64>,
    /// Bytes a second, each way.
    pub io_bytes: Option<u64>,
    pub oom_group: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTerminal {
    pub enabled: bool,
    pub cols: u16,
    pub rows: u16,
    pub scrollback_lines: u32,
    pub scrollback_bytes: u64,
    pub record: bool,
    pub record_bytes: u64,
}

/// How a cage is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspend {
    /// For a program to obey SIGTSTP.
    pub grace_ms: u64,
    pub on_refuse: OnRefuse,
}

impl Default for Suspend {
    fn default() -> Self {
        Self { grace_ms: 500, on_refuse: OnRefuse::Freeze }
    }
}

impl Suspend {
    fn from_file(file: &file::SuspendFile) -> Self {
        let default = Self::default();
        Self {
            grace_ms: file.grace.map_or(default.grace_ms, |Grace(Millis(ms))| ms),
            on_refuse: file.on_refuse.unwrap_or(default.on_refuse),
        }
    }
}

const PTYS_DEFAULT: u32 = 16;
const BYTES: Unit = Unit::Bytes;

impl Policy {
    /// Fills in what no file of the chain says.
    fn from_file(name: String, files: Vec<String>, hash: String, file: file::PolicyFile) -> Self {
        let limits = PolicyLimits::from_file(&file.limits);
        let terminal = PolicyTerminal::from_file(&file.terminal);
        Self {
            name,
            files,
            hash,
            require: file.require,
            read: file.fs.read,
            write: file.fs.write,
            tmpfs: file.fs.tmpfs,
            hide: file.fs.hide,
            protect: file.fs.protect,
            said: file.fs.said,
            leaves: file.leaves,
            workspace: file.fs.workspace.unwrap_or_default(),
            home: file.fs.home.unwrap_or(Home::Private),
            sockets: file.net.socket,
            limits,
            hostname: file.process.hostname.map_or_else(|| "cage".to_owned(), |Name(name)| name),
            env_pass: file.env.pass.into_iter().map(|EnvName(name)| name).collect(),
            env_set: file.env.set.0,
            terminal,
            suspend: Suspend::from_file(&file.suspend),
        }
    }
}

impl PolicyLimits {
    /// Every limit that is a number, by its key, changed in place.
    pub(crate) fn each(&mut self, mut act: impl FnMut(&'static str, Unit, &mut Option<u64>)) {
        let mut core = Some(self.core_bytes);
        let mut ptys = Some(u64::from(self.ptys));
        for (key, unit, value) in [
            ("memory", BYTES, &mut self.memory_bytes),
            ("swap", BYTES, &mut self.swap_bytes),
            ("pids", Unit::Count, &mut self.pids),
            ("cpu", Unit::MilliCpu, &mut self.cpu_milli),
            ("nofile", Unit::Count, &mut self.nofile),
            ("fsize", BYTES, &mut self.fsize_bytes),
            ("core", BYTES, &mut core),
            ("ptys", Unit::Count, &mut ptys),
            ("walltime", Unit::Ms, &mut self.walltime_ms),
            ("idle", Unit::Ms, &mut self.idle_ms),
            ("output_bytes", BYTES, &mut self.output_bytes),
            ("workspace_bytes", BYTES, &mut self.workspace_bytes),
            ("workspace_inodes", Unit::Count, &mut self.workspace_inodes),
            ("io", Unit::BytesPerSecond, &mut self.io_bytes),
        ] {
            act(key, unit, value);
        }
        self.core_bytes = core.unwrap_or(0);
        self.ptys = ptys.and_then(|ptys| u32::try_from(ptys).ok()).unwrap_or(self.ptys);
    }

    fn from_file(file: &file::LimitsFile) -> Self {
        let bytes = |size: Option<Bytes>| size.map(|Bytes(bytes)| bytes);
        Self {
            memory_bytes: bytes(file.memory),
            swap_bytes: bytes(file.swap),
            pids: file.pids.map(|count| count.0),
            cpu_milli: file.cpu.map(|cpu| cpu.0),
            nofile: file.nofile.map(|count| count.0),
            fsize_bytes: bytes(file.fsize),
            // A core file would land in the workspace; nobody gets one without asking.
            core_bytes: bytes(file.core).unwrap_or(0),
            ptys: narrow(file.ptys.map(|count| count.0), PTYS_DEFAULT),
            walltime_ms: file.walltime.map(|Millis(ms)| ms),
            idle_ms: file.idle.map(|Millis(ms)| ms),
            output_bytes: bytes(file.output_bytes),
            workspace_bytes: bytes(file.workspace_bytes),
            workspace_inodes: file.workspace_inodes.map(|count| count.0),
            io_bytes: file.io.map(|speed| speed.0),
            oom_group: file.oom.is_some(),
        }
    }
}

impl PolicyTerminal {
    fn from_file(file: &file::TerminalFile) -> Self {
        let default = crate::launch::Terminal::default();
        let size = wire::Size::DEFAULT;
        let bytes = |size: Option<Bytes>, default| size.map_or(default, |Bytes(bytes)| bytes);
        Self {
            enabled: file.enabled.unwrap_or(true),
            cols: narrow(file.cols.map(|count| count.0), size.cols),
            rows: narrow(file.rows.map(|count| count.0), size.rows),
            scrollback_lines: narrow(
                file.scrollback_lines.map(|count| count.0),
                default.scrollback_lines,
            ),
            scrollback_bytes: bytes(file.scrollback_bytes, default.scrollback_bytes),
            record: file.record.unwrap_or(default.record),
            record_bytes: bytes(file.record_bytes, default.record_bytes),
        }
    }
}

/// The range was checked by [`values::Count`]; a number that does not fit is the default.
fn narrow<T: TryFrom<u64>>(count: Option<u64>, default: T) -> T {
    count.and_then(|count| T::try_from(count).ok()).unwrap_or(default)
}
