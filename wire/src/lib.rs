//! The protocol between the processes of mews: the words that both sides of a border must agree on.
//!
//! No IO, no clock but for new ids, no unsafe. Which border uses what:
//!
//! | border | types |
//! | --- | --- |
//! | sessiond → supervisor | [`control`] envelope, [`supervisor`] requests |
//! | supervisor → broker | [`control`] envelope, [`broker`] requests |
//! | viewer ↔ broker | [`frame`] |
//! | anywhere up | [`event`], [`exit`], [`error`] |
#![forbid(unsafe_code)]

pub mod api;
pub mod arg;
pub mod attach;
pub mod audit;
pub mod broker;
pub mod checkpoint;
pub mod control;
pub mod dirs;
pub mod enforced;
pub mod error;
pub mod event;
pub mod exit;
pub mod frame;
pub mod grant;
pub mod hello;
pub mod ids;
pub mod key;
pub mod layer;
pub mod limits;
pub mod recording;
pub mod screen;
pub mod size;
pub mod spawn;
pub mod stats;
pub mod supervisor;
pub mod suspend;
pub mod typing;
pub mod watch;

pub use arg::Arg;
pub use attach::{AttachOptions, History, Join, Role, ScrollbackForm, View};
pub use checkpoint::{CageCheckpoint, PtyCheckpoint, SavedLayer};
pub use enforced::{Enforced, Wall, WallState};
pub use error::{ErrorCode, WireError};
pub use event::{Event, EventBody, Source};
pub use exit::{Cause, Exit, Usage};
pub use grant::{GrantKey, GrantState, Standing};
pub use ids::{CageId, CheckpointId, GrantId, PtyId, RunId, SessionId};
pub use layer::{Change, ChangeKind, Changes, Copied, EntryKind, WorkspaceMode};
pub use size::Size;
pub use spawn::{ExecSpec, Overrides, PolicySource, SpawnSpec};
pub use suspend::{How, Stilled, Suspension};

/// The newest version of every link that this build speaks.
pub const PROTO: u32 = 1;
/// The oldest: the one before the newest, so that a new build takes over what an old one started.
/// There is none before the first.
pub const PROTO_LOWEST: u32 = if PROTO > 1 { PROTO - 1 } else { 1 };
/// Largest control message, in bytes; what may be larger travels as a descriptor.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Most descriptors beside one control message.
pub const CONTROL_FDS_MAX: usize = 16;
/// Largest argv of one run, in bytes.
pub const ARGV_BYTES_MAX: usize = 1024 * 1024;
/// Largest environment of one run, in bytes.
pub const ENV_BYTES_MAX: usize = 256 * 1024;
