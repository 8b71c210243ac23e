//! What a spawn and an exec ask for.

use crate::limits::LimitsAsked;
use crate::{Arg, CageId, PtyId, RunId, SessionId, Size, WorkspaceMode};
use serde::{Deserialize, Serialize};

/// One command in a cage: the first one, or one more in a living cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecSpec {
    pub argv: Vec<Arg>,
    /// The caller's whole environment; the policy's `env` picks from it.
    #[serde(default)]
    pub env: Vec<(Arg, Arg)>,
    /// The caller's folder; where it is not in the cage, the workspace is used.
    #[serde(default)]
    pub cwd: Option<Arg>,
    #[serde(default)]
    pub umask: Option<u32>,
    /// A terminal of this size; absent: pipes.
    #[serde(default)]
    pub tty: Option<Size>,
    /// Begin only when the first viewer is attached (10 s at most), with its size.
    #[serde(default)]
    pub hold: bool,
    /// Pipes: a viewer will send standard input; otherwise it is empty.
    #[serde(default)]
    pub stdin: bool,
}

/// Where the policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PolicySource {
    /// A file of the policy folder, else a shipped preset.
    Name(String),
    /// A file that the operator's own client read; `path` is for messages only.
    File { path: String, text: String },
}

/// What the operator said on the command line; it may widen (CAGE.md 1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Overrides {
    pub read: Vec<Arg>,
    pub write: Vec<Arg>,
    /// `K` passes it from the caller's environment, `K=V` sets it.
    pub env: Vec<(String, Option<String>)>,
    pub memory: Option<String>,
    pub pids: Option<u64>,
    /// `--timeout`
    pub walltime: Option<String>,
    /// `--limit KEY=VALUE`
    pub limits: LimitsAsked,
    /// `--home NAME`: a persistent home.
    pub home: Option<String>,
    /// `--overlay`, `--copy`
    pub workspace_mode: Option<WorkspaceMode>,
    pub net: Option<String>,
    /// `unix:/path` of the socket that `$PROVIDER` stands for.
    pub provider: Option<String>,
}

/// A cage and its first command. Travels in a memfd beside the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpawnSpec {
    pub session: SessionId,
    pub run: RunId,
    pub cage: CageId,
    /// The id of the first command's terminal or pipe streams.
    pub pty: PtyId,
    /// The session's name, for messages and the cage's own records.
    pub name: String,
    pub policy: PolicySource,
    #[serde(default)]
    pub overrides: Overrides,
    /// Absolute, on the host, as the operator sees it.
    pub workspace: Arg,
    pub exec: ExecSpec,
}
