//! The bodies of the HTTP API, as sessiond sends and clients read them. Base: `/api/v1`.
//!
//! | method, path | body → answer |
//! | --- | --- |
//! | GET `/healthz` | → `{"status": "ok"}`: the process answers |
//! | GET `/readyz` | → [`Ready`], 503 unless all is there |
//! | GET `/versions` | → [`Versions`] |
//! | POST `projects` | [`CreateProject`] → [`Project`] (the one of that folder, made on first use) |
//! | GET `projects` | → `{"projects": [Project]}` |
//! | POST `projects/:p/sessions` | [`CreateSession`] → 201 [`SessionView`] |
//! | GET `sessions?all=&state=&label=&project=&source=&name=&limit=&after=` | → [`Sessions`]: the living and the last ten, or all; oldest first, a page at a time |
//! | GET `sessions/:s` | → [`SessionView`] |
//! | PATCH `sessions/:s` | [`PatchSession`] → [`SessionView`]: rename, label, archive |
//! | DELETE `sessions/:s?confirm=true` | end: → [`SessionView`], when its cages are gone |
//! | DELETE `sessions/:s?confirm=true&purge=true` | remove an ended one: → 204 |
//! | POST `sessions/:s/pause`, `…/resume` | all its cages or none: → [`SessionView`] |
//! | POST `sessions/:s/checkpoints` | [`TakeCheckpoint`] → 201 [`CheckpointView`], when everything stands still and is kept |
//! | GET `sessions/:s/checkpoints` | → `{"checkpoints": [CheckpointView]}`, oldest first, without screens and processes |
//! | GET `sessions/:s/checkpoints/:c` | → [`CheckpointView`] |
//! | GET `sessions/:s/checkpoints/:c/diff` | → [`crate::Changes`]: what a rollback would do to the files |
//! | POST `sessions/:s/checkpoints/:c/rollback` | [`Rollback`] → [`RolledBack`] |
//! | GET `sessions/:s/diff` | → [`crate::Changes`]: the layer against the operator's folder |
//! | POST `sessions/:s/apply`, `…/discard` | [`LayerPaths`] → [`LayerDone`] |
//! | POST `sessions/:s/jobs` | [`JobRequest`] → 201 [`Started`] |
//! | POST `sessions/:s/grants` | [`MakeGrant`] → 201 [`GrantMade`]: the only time that its key is told |
//! | GET `audit?session=&since_ms=&limit=` | → `{"entries": [`[`crate::audit::AuditView`]`]}`: the newest so many, the oldest first |
//! | GET `grants` | → `{"grants": [GrantView]}` |
//! | DELETE `grants/:n` | revoke: → [`GrantView`] |
//! | POST `grants/:n/jobs` | `Authorization: Bearer KEY`, [`GrantedJob`] → 201 [`Started`] |
//! | GET `sessions/:s/runs`, `sessions/:s/runs/:r` | → `{"runs": [RunView]}`, [`RunView`] |
//! | POST `sessions/:s/runs/:r/cancel` | → [`RunView`] |
//! | GET `sessions/:s/cages`, `sessions/:s/cages/:g` | → `{"cages": [CageView]}`, [`CageView`] |
//! | POST `sessions/:s/cages/:g/exec` | [`ExecRequest`] → 201 [`Started`] |
//! | POST `sessions/:s/cages/:g/signal` | [`SignalRequest`] → 204 |
//! | POST `sessions/:s/cages/:g/suspend`, `…/resume` | → [`CageView`], when it stands still, or goes on |
//! | GET `sessions/:s/cages/:g/stats` | → [`crate::stats::Stats`] |
//! | GET `sessions/:s/cages/:g/limits` | → [`crate::limits::LimitsView`] |
//! | PATCH `sessions/:s/cages/:g/limits` | [`crate::limits::LimitsAsked`] → [`crate::limits::LimitsView`], when all of it is in effect |
//! | POST `sessions/:s/cages/:g/kill` | → 204, when the cage is gone |
//! | GET `sessions/:s/cages/:g/plan` | → the plan as JSON |
//! | GET `sessions/:s/ptys` | → `{"ptys": [PtyView]}` |
//! | GET `ptys/:t` | → [`PtyView`] |
//! | GET `ptys/:t/attach?options=JSON` | upgrade to [`UPGRADE`]: the viewer stream; `options`: [`crate::AttachOptions`] |
//! | POST `ptys/:t/input` | raw bytes → 204 |
//! | POST `ptys/:t/type` | [`crate::typing::Typing`] → [`crate::typing::Typed`]; 409 with `details.writer` while a viewer has the keyboard, unless `force` |
//! | GET `ptys/:t/screen` | → [`crate::screen::ScreenView`] of now, or of its end |
//! | POST `ptys/:t/resize` | [`crate::Size`] → 204 |
//! | GET `ptys/:t/scrollback?form=rendered\|raw&since_ms=` | → bytes, also after the end; `since_ms`: lines that were printed since then |
//! | POST `ptys/:t/wait?timeout_ms=` | → `{"exit": Exit}` when it ended; `{"exit": null}` after the time |
//! | POST `ptys/:t/wait?for=REGEX&idle_ms=&after=SEQ&timeout_ms=` | → `{"met": "for"\|"idle"\|"ended"\|null, "line", "seq", "exit"}`: [`crate::watch::Watch`] |
//! | GET `sessions/:s/events?after=N&limit=&wait_ms=` | → [`Events`]; `wait_ms`: wait so long for the first new one |
//! | GET `sessions/:s/events/stream?after=N` | → [`SessionEvent`]s as server-sent events; the header `Last-Event-ID` counts more |
//! | GET `openapi.json` | → all of this, as OpenAPI 3.1 |
//! | GET `resolve?id=TEXT` | → [`Resolved`]; 404, or 409 with `details.candidates` |
//! | POST `shutdown` | [`Shutdown`] → [`crate::supervisor::ShutdownAnswer`] |
//!
//! Errors: `{"error": WireError}`. Another operator's object is `not_found`.

use crate::audit::AuditView;
use crate::supervisor::{Phase, ShutdownCages};
use crate::watch::Met;
use crate::{
    Arg, CageCheckpoint, CageId, Changes, CheckpointId, Enforced, ErrorCode, ExecSpec, Exit,
    GrantKey, GrantState, Overrides, PolicySource, PtyId, RunId, SessionId, Size, SpawnSpec,
    Standing, WireError,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub const BASE: &str = "/api/v1";
/// The `Upgrade` token of an attach.
pub const UPGRADE: &str = "mews.v1.viewer";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    pub error: WireError,
}

/// The HTTP status of each code: the only place where they meet.
#[must_use]
pub fn http_status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::BadRequest | ErrorCode::ValidationFailed => 400,
        ErrorCode::Unauthenticated => 401,
        ErrorCode::Forbidden => 403,
        ErrorCode::NotFound => 404,
        ErrorCode::Conflict
        | ErrorCode::RunActive
        | ErrorCode::LimitReached
        | ErrorCode::VersionMismatch
        | ErrorCode::Unreachable => 409,
        ErrorCode::Gone => 410,
        ErrorCode::PayloadTooLarge => 413,
        ErrorCode::PolicyInvalid | ErrorCode::CageUnavailable => 422,
        ErrorCode::RateLimited => 429,
        ErrorCode::Internal | ErrorCode::Unknown => 500,
        ErrorCode::ProviderUnreachable => 502,
        ErrorCode::StorageUnavailable | ErrorCode::SupervisorUnavailable => 503,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ready {
    pub ready: bool,
    pub storage: bool,
    pub supervisor: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Versions {
    pub build: String,
    pub proto: u32,
    /// Of the supervisor, where one is connected.
    pub supervisor: Option<String>,
    /// Processes, for people.
    pub pid: i32,
    pub supervisor_pid: Option<i32>,
    /// Changes with every start of sessiond.
    pub epoch: i64,
    /// The caller's living cages of another build than the supervisor's.
    #[serde(default)]
    pub cages: Vec<CageBuild>,
}

/// Who serves a living cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CageBuild {
    pub cage: CageId,
    pub session: SessionId,
    pub name: String,
    pub build: Option<String>,
    pub unreachable: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateProject {
    /// Absolute.
    pub folder: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    pub slug: String,
    pub folder: String,
    pub created_at_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CreateSession {
    /// Absent: made from the command, as `bash-1`; then `name_hint` is its first half.
    pub name: Option<String>,
    pub name_hint: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// `cli:run`, `api`, `ci:github:build`, …
    pub source: Option<String>,
    /// The session ends with its first run.
    pub end_on_exit: bool,
    pub client_request_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Idle,
    Running,
    Queued,
    Paused,
    Ended,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Pending,
    Running,
    Suspended,
    Done,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    Agent,
    Job,
    Shell,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionView {
    pub id: SessionId,
    pub name: String,
    pub project: String,
    pub folder: String,
    pub state: SessionState,
    pub archived: bool,
    pub labels: BTreeMap<String, String>,
    pub source: String,
    pub end_on_exit: bool,
    /// The operator.
    pub uid: u32,
    pub created_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    /// Newest event.
    pub seq: i64,
    pub runs: Vec<RunView>,
    pub cages: Vec<CageView>,
}

/// One page of sessions, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sessions {
    pub sessions: Vec<SessionView>,
    /// Say it as `after`, and the next page comes; null: this is the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// Most sessions in one page, and as many as come where nobody says how many.
pub const SESSIONS_PAGE: u32 = 200;
pub const LABELS_MAX: usize = 64;
/// Of a key, of a value, of a source.
pub const LABEL_BYTES_MAX: usize = 256;

/// What is to be other than it is; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PatchSession {
    pub name: Option<String>,
    /// Null takes a label away; those that are not named stay.
    pub labels: BTreeMap<String, Option<String>>,
    /// Only of one that has ended: it is left out of plain lists.
    pub archived: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunView {
    pub id: RunId,
    pub session: SessionId,
    pub kind: RunKind,
    pub state: RunState,
    pub argv: Vec<String>,
    pub policy: String,
    pub created_at_ms: i64,
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    pub exit: Option<Exit>,
    /// Why it failed before anything ran.
    pub error: Option<WireError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CageView {
    pub id: CageId,
    pub run: RunId,
    pub session: SessionId,
    pub phase: Phase,
    pub pid: Option<i32>,
    pub plan_hash: String,
    pub enforced: Enforced,
    pub exit: Option<Exit>,
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    pub ptys: Vec<PtyView>,
    /// The version of mews that serves it, where that is another than the supervisor's.
    #[serde(default)]
    pub build: Option<String>,
    /// Why nobody can talk to its broker: it lives and can be killed, nothing else.
    #[serde(default)]
    pub unreachable: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PtyView {
    pub id: PtyId,
    pub cage: CageId,
    pub session: SessionId,
    pub argv: Vec<String>,
    pub tty: bool,
    /// The run's own command, not an exec.
    pub main: bool,
    pub size: Option<Size>,
    pub viewers: u32,
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    pub exit: Option<Exit>,
    /// Bytes of output, when it closed.
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRequest {
    pub kind: RunKind,
    pub policy: PolicySource,
    #[serde(default)]
    pub overrides: Overrides,
    pub exec: ExecSpec,
    #[serde(default)]
    pub client_request_id: Option<String>,
}

/// A run that is only asked about: nothing is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanRequest {
    /// The workspace: absolute.
    pub folder: String,
    pub policy: PolicySource,
    #[serde(default)]
    pub overrides: Overrides,
    pub exec: ExecSpec,
}

impl PlanRequest {
    /// The cage that it would be, under ids that nobody will see again.
    #[must_use]
    pub fn spec(self) -> SpawnSpec {
        SpawnSpec {
            session: SessionId::new(),
            run: RunId::new(),
            cage: CageId::new(),
            pty: PtyId::new(),
            name: "plan".to_owned(),
            policy: self.policy,
            overrides: self.overrides,
            workspace: self.folder.into(),
            exec: self.exec,
        }
    }
}

/// Leave for whoever has the key to start commands in this session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MakeGrant {
    /// How many cages in all.
    pub cages: u32,
    pub for_ms: u64,
    /// What every one of them is started with.
    pub policy: PolicySource,
    #[serde(default)]
    pub overrides: Overrides,
    #[serde(default)]
    pub client_request_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantMade {
    pub grant: GrantView,
    pub key: GrantKey,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantView {
    #[serde(flatten)]
    pub state: GrantState,
    pub standing: Standing,
    /// Cages that it still gives.
    pub left: u32,
    /// The session's name.
    pub name: Option<String>,
}

/// A command by a grant, whose key stands in the header `Authorization: Bearer KEY`; policy, flags and
/// folder are the grant's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedJob {
    pub exec: ExecSpec,
    #[serde(default)]
    pub client_request_id: Option<String>,
}

/// One more command in a living cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecRequest {
    #[serde(flatten)]
    pub exec: ExecSpec,
    #[serde(default)]
    pub client_request_id: Option<String>,
}

/// What a started command is called everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Started {
    pub session: SessionId,
    pub name: String,
    pub run: RunId,
    pub cage: CageId,
    pub pty: PtyId,
    pub enforced: Enforced,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TakeCheckpoint {
    pub note: Option<String>,
    /// Let the session go on at once; otherwise it is paused afterwards.
    pub resume: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// Meant: it is being taken.
    Taking,
    Taken,
    /// Nothing is kept of it.
    Failed,
    /// Its files were let go: a session keeps the newest [`CHECKPOINTS_MAX`].
    Archived,
}

/// Of one session, with their files.
pub const CHECKPOINTS_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointView {
    pub id: CheckpointId,
    pub session: SessionId,
    pub state: CheckpointState,
    pub note: Option<String>,
    /// The operator who asked.
    pub created_by: u32,
    pub created_at_ms: i64,
    pub run: Option<RunId>,
    /// Its cages as they stood, without what started them.
    pub cages: Vec<CageCheckpoint>,
    /// The workspace's files are part of it.
    pub covers_files: bool,
    /// The session was rolled back to an earlier one since.
    pub superseded: bool,
    pub error: Option<WireError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Rollback {
    /// Living cages are killed and later changes to files are lost: must be true.
    pub confirm: bool,
    /// Start the command again that ran at the checkpoint.
    pub restart: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolledBack {
    pub session: SessionView,
    pub started: Option<Started>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LayerPaths {
    /// Below the workspace; a path stands for all below it. Empty: all changes.
    pub paths: Vec<Arg>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerDone {
    pub done: Changes,
    /// What stays, with the reason in `conflict`.
    pub left: Changes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignalRequest {
    pub signal: i32,
    /// One command; absent: all of them.
    #[serde(default)]
    pub pty: Option<PtyId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionEvent {
    /// Per session, from 1, without holes.
    pub seq: i64,
    pub at_ms: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub data: Value,
    pub run: Option<RunId>,
    pub cage: Option<CageId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    pub epoch: i64,
    pub events: Vec<SessionEvent>,
}

/// By slug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Projects {
    pub projects: Vec<Project>,
}

/// The oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runs {
    pub runs: Vec<RunView>,
}

/// The oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cages {
    pub cages: Vec<CageView>,
}

/// The oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ptys {
    pub ptys: Vec<PtyView>,
}

/// The oldest first, without screens and processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checkpoints {
    pub checkpoints: Vec<CheckpointView>,
}

/// The oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grants {
    pub grants: Vec<GrantView>,
}

/// The newest so many, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntries {
    pub entries: Vec<AuditView>,
}

/// Of `wait`. All null: the time is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waited {
    pub exit: Option<Exit>,
    /// What came of a wait for a line or for quiet.
    pub met: Option<Met>,
    /// The line that matches.
    pub line: Option<String>,
    /// Bytes of output until then.
    pub seq: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `ok`
    pub status: String,
}

/// The header of an upgrade by any ID that says, as JSON, what it meant: [`Resolved`].
pub const RESOLVED: &str = "mews-resolved";

/// What an ID argument means: a name, else a unique prefix or suffix (4 characters or more, any
/// case) of a session's, run's, cage's or terminal's id. The fields below it are the newest ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolved {
    pub session: SessionId,
    pub name: String,
    pub run: Option<RunId>,
    pub cage: Option<CageId>,
    pub pty: Option<PtyId>,
    /// The session stands still.
    pub paused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shutdown {
    pub cages: ShutdownCages,
}
