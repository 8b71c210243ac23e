//! A workspace layer: what the programs of a session have changed, apart from the operator's folder.

use crate::Arg;
use serde::{Deserialize, Serialize};

/// How a cage sees the folder that the operator works in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// The folder itself.
    #[default]
    Direct,
    /// The folder, with writes landing in a layer.
    Overlay,
    /// A private copy.
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Folder,
    Symlink,
    Fifo,
}

/// One path of the workspace that is other than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Below the workspace.
    pub path: Arg,
    pub kind: ChangeKind,
    /// What it is now; of a deleted one, what it was.
    pub entry: EntryKind,
    /// Size of the file as it is now.
    pub bytes: Option<u64>,
    /// Permission bits, where they changed: before and after.
    pub mode: Option<(u32, u32)>,
    /// Why it is not applied: the operator's side has changed too, and how.
    pub conflict: Option<String>,
}

/// Sorted by path; a folder before what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changes {
    pub changes: Vec<Change>,
    /// More than [`CHANGES_MAX`], or longer than a report may be: the rest is not listed.
    pub truncated: bool,
}

/// Most changes in one list.
pub const CHANGES_MAX: usize = 100_000;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copied {
    /// Entries of any kind.
    pub entries: u64,
    /// Bytes of the files, as they appear.
    pub bytes: u64,
    /// Files that share their blocks with the original.
    pub shared: u64,
}
