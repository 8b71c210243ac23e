//! sessiond → supervisor: requests, and what comes back unasked.
//!
//! Descriptors beside a request are listed with it, in order. `authority` is the operator's own
//! accepted connection: the supervisor reads SO_PEERCRED from it itself.

use crate::limits::LimitsAsked;
use crate::watch::Watch;
use crate::{
    Arg, AttachOptions, CageId, Cause, Changes, CheckpointId, Enforced, Event, Exit, GrantId,
    GrantKey, GrantState, PtyId, RunId, ScrollbackForm, SessionId, Size, Source,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum SupervisorRequest {
    /// Whether this operator is served at all. fds: authority. Ok: [`Admitted`]; else `forbidden`.
    Admit,
    /// By the operator's own connection, or by a grant: then it is whose grant it is, and the authority
    /// is whoever asks. fds: authority, memfd with a `SpawnSpec`. Ok: [`Spawned`].
    Spawn {
        cage: CageId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantKey>,
    },
    /// A new grant for as many cages as the spec would start, in its session. fds: authority, memfd
    /// with a `SpawnSpec`. Ok: [`Minted`]: the only time that its key is told.
    Mint { grant: GrantId, cages: u32, for_ms: u64 },
    /// A grant by its key, if it can be used. fds: authority of whoever asks. Ok: [`GrantState`].
    Grant { grant: GrantKey },
    /// It can be used no more. fds: authority of whose it is, or an admin. Ok: [`GrantState`].
    Revoke { grant: GrantId },
    /// All grants that are kept. Ok: null, with a memfd: JSON array of [`GrantState`].
    Grants,
    /// The journal of who asked for what, after a line; as much as fits. Ok: null, with a memfd:
    /// [`crate::audit::AuditPage`], empty at the end.
    Audit { after: u64 },
    /// The session of a grant is no more. Ok: null, also if there is none.
    ForgetGrant { grant: GrantId },
    /// Resolve as a spawn would, change nothing. fds: authority, memfd with a `SpawnSpec`.
    /// Ok: null, with a memfd: as JSON the plan, what would be enforced, and who said each value.
    DryRun,
    /// fds: authority, memfd with an `ExecSpec`. Ok: null.
    Exec { cage: CageId, pty: PtyId },
    /// fds: authority, the viewer's stream, memfd with bytes already read from it (may be empty).
    /// Ok: null, sent before the broker writes its first frame. The stream is then the broker's.
    Attach { cage: CageId, pty: PtyId, options: AttachOptions },
    /// fds: authority, memfd with the bytes. Ok: null.
    Input { cage: CageId, pty: PtyId },
    /// fds: authority, memfd with a [`crate::typing::Typing`]. Ok: [`crate::typing::Typed`].
    Type { cage: CageId, pty: PtyId },
    /// fds: authority, a stream that gets a JSON [`crate::watch::Watched`] and its end. Ok: null, when
    /// the broker has the stream.
    Watch { cage: CageId, pty: PtyId, watch: Watch },
    /// fds: authority. Ok: null.
    Resize { cage: CageId, pty: PtyId, size: Size },
    /// To the foreground group of one terminal, or to every payload. fds: authority. Ok: null.
    Signal { cage: CageId, pty: Option<PtyId>, signal: i32 },
    /// All processes stand still when it is answered. fds: authority. Ok: [`crate::Suspension`]; of
    /// one that stands still already, the one that it has.
    Suspend { cage: CageId },
    /// They go on. fds: authority. Ok: null, also if it was not suspended.
    Resume { cage: CageId },
    /// What it uses now. fds: authority. Ok: [`crate::stats::Stats`].
    Stats { cage: CageId },
    /// Its limits. fds: authority. Ok: [`crate::limits::LimitsView`].
    Limits { cage: CageId },
    /// All of it or nothing. fds: authority. Ok: [`crate::limits::LimitsView`], when it is in effect.
    SetLimits { cage: CageId, set: LimitsAsked },
    /// SIGKILL until nothing is left. fds: authority. Ok: null, when the cage is gone.
    Kill { cage: CageId, cause: Cause },
    /// SIGTERM, 5 s, SIGKILL. fds: authority. Ok: null, when the cage is gone.
    End { cage: CageId, cause: Cause },
    /// fds: authority. Ok: null, with a memfd or file: the plan as JSON.
    Plan { cage: CageId },
    /// Of a living or ended cage. fds: authority; without one it is sessiond itself that files
    /// what an ended cage left (allowed for ended cages only). Ok: null, with a memfd or file.
    Scrollback { cage: CageId, pty: PtyId, form: ScrollbackForm },
    /// Suspends the cage where it is not yet, and keeps its state: it stands still afterwards. Of a
    /// failure nothing is left, and the cage goes on if it did before. fds: authority. Ok: null,
    /// with a memfd: [`crate::checkpoint::CageCheckpoint`].
    Checkpoint { cage: CageId, checkpoint: CheckpointId },
    /// Work on a session's workspace layer. fds: authority, memfd with a [`LayerRequest`]. Ok: null,
    /// with a memfd: [`LayerAnswer`].
    Layer { session: SessionId },
    /// Layers that are kept. Ok: null, with a memfd: JSON array of [`LayerState`].
    Layers,
    /// A checkpoint's files may go; without one, the layer and all its checkpoints, once no cage of
    /// the session lives. Ok: null, also if there is none.
    ForgetLayer { session: SessionId, checkpoint: Option<CheckpointId> },
    /// All cages that are known, living or ended and not yet forgotten. Ok: null, with a memfd:
    /// JSON array of [`CageState`].
    List,
    /// Events of this cage and source up to `seq` are stored; the source may drop them. Ok: null.
    Ack { cage: CageId, source: Source, seq: u64 },
    /// The files of an ended cage may go: sessiond has what it wants of them. Ok: null.
    Forget { cage: CageId },
    /// Stop the daemons: for the operator of a user's own, for root where there are many. fds:
    /// authority. Ok: [`ShutdownAnswer`], then the supervisor ends itself and sessiond.
    Shutdown { cages: ShutdownCages },
}

/// What to do with a workspace layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum LayerRequest {
    /// Against the operator's folder.
    Diff,
    /// What a rollback would change.
    Preview { checkpoint: CheckpointId },
    /// No paths: all changes. A path stands for everything below it.
    Apply { paths: Vec<Arg> },
    /// The same; only while no cage of the session lives.
    Discard { paths: Vec<Arg> },
    /// Puts a checkpoint's layer back; only while no cage of the session lives.
    Restore { checkpoint: CheckpointId },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LayerAnswer {
    Done,
    Changes(Changes),
    Applied { done: Changes, left: Changes },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    pub session: SessionId,
    pub checkpoints: Vec<CheckpointId>,
}

/// A grant that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minted {
    pub grant: GrantState,
    pub key: GrantKey,
}

/// An operator that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Sees and acts on what others own.
    pub admin: bool,
}

/// What becomes of living cages when the daemons stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShutdownCages {
    /// Do not stop if there are any (`conflict`, with their number).
    Refuse,
    /// They run on; the next start finds them.
    Leave,
    Kill,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownAnswer {
    pub living: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    pub cage: CageId,
    pub plan_hash: String,
    pub enforced: Enforced,
    /// The workspace as the payload sees it.
    pub workspace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Between the request and `go`.
    Starting,
    Running,
    Suspended,
    /// Told to end, or its first payload has ended; something is still there.
    Ending,
    /// Pid 1 is reaped and the cgroup is empty.
    Gone,
}

/// One cage as the supervisor sees it: the truth that a snapshot is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CageState {
    pub cage: CageId,
    pub session: SessionId,
    pub run: RunId,
    /// The operator.
    pub uid: u32,
    pub name: String,
    pub policy: String,
    pub plan_hash: String,
    pub phase: Phase,
    /// pid 1 of the cage, in the host's numbering; a hint for people, never a handle.
    pub pid: Option<i32>,
    pub started_at_ms: i64,
    pub enforced: Enforced,
    pub exit: Option<Exit>,
    pub ptys: Vec<PtyState>,
    /// The version of its broker, where that has said it.
    #[serde(default)]
    pub build: Option<String>,
    /// Why nobody can talk to its broker. It lives, and what is said of its terminals is old.
    #[serde(default)]
    pub unreachable: Option<String>,
    /// Newest event sequence of each source, so that sessiond sees what it lacks.
    pub broker_seq: u64,
    pub supervisor_seq: u64,
}

/// One terminal, or the pipe streams of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PtyState {
    pub pty: PtyId,
    pub argv: Vec<String>,
    pub tty: bool,
    pub size: Option<Size>,
    pub viewers: u32,
    pub has_writer: bool,
    /// Bytes of output so far.
    pub seq: u64,
    /// The payload's own pid as the cage sees it.
    pub pid: Option<i32>,
    pub exit: Option<Exit>,
}

/// What the supervisor tells unasked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum SupervisorNotice {
    /// To be stored, then acknowledged with `ack`. Sent again after a reconnect until it is.
    Event { event: Event },
    /// The journal of who asked for what has grown, up to this line: to be fetched with `audit`.
    Audit { newest: u64 },
    /// The host's policy was read again: what was said to `admit` is to be asked anew.
    Rules,
}
