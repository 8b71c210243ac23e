//! Work on a workspace layer: what a session's programs have changed, apart from the operator's
//! folder.
//!
//! The supervisor starts `mews-layer` for one [`Order`], with the identity of the cage and folders as
//! descriptors, and reads one [`Report`]. Everything here is hostile input: names, links, modes, FIFOs
//! and depths are a caged program's. So: descriptor-relative, never following a link, never
//! blocking on a FIFO, iterative, and nothing is run.
//!
//! | folder | descriptor | holds |
//! | --- | --- | --- |
//! | origin | [`ORIGIN_FD`] | the operator's folder |
//! | layer | [`LAYER_FD`] | `upper` and `work` of an overlay, or the `tree` of a copy, and our notes |
//! | saved | [`SAVED_FD`] | a checkpoint: `upper` or `tree` as they were |

#![deny(unsafe_code)]

mod applied;
mod apply;
mod compare;
mod content;
mod copy;
mod diff;
mod discard;
mod entry;
mod judge;
mod manifest;
mod measure;
mod notes;
mod path;
mod problem;
mod program;
mod remove;
mod report;
mod selection;
mod store;
mod swap;
#[expect(unsafe_code, reason = "system calls that nix does not wrap")]
mod sys;
mod tree;
mod xattr;

pub use problem::Problem;
pub use program::{Folders, perform, run};
pub use report::REPORT_BYTES_MAX;

use serde::{Deserialize, Serialize};
use wire::{Arg, Changes, Copied, WireError, WorkspaceMode};

/// The order, as JSON, in a memfd.
pub const ORDER_FD: i32 = 3;
/// The report, as JSON, into this memfd; then exit 0, also when the report is an error.
pub const REPORT_FD: i32 = 4;
pub const ORIGIN_FD: i32 = 5;
pub const LAYER_FD: i32 = 6;
pub const SAVED_FD: i32 = 7;

/// When a layer was made, by the clock that the kernel stamps files with: what changed in the
/// operator's folder after it (ctime, which no program can set) has changed on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    pub seconds: i64,
    pub nanoseconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub mode: WorkspaceMode,
    pub made: Stamp,
    pub work: Work,
}

/// What to do, and which descriptors beside [`LAYER_FD`] it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// origin. The first content: an empty `upper` and `work`, or a copy of the folder.
    Fill,
    /// saved (emptied first). Copies the layer, and has it on the disk before it reports. Nothing may
    /// write to the layer meanwhile.
    Save,
    /// saved. Puts it back, as one step: another process sees the old layer or the new one. Nobody may
    /// have the layer mounted. What was applied stays applied.
    Restore,
    /// origin. What the layer has changed, and what of it collides.
    Diff,
    /// origin, saved. What a restore would change in the workspace as the cage sees it: kinds tell
    /// what the restore does (a file that would vanish is `deleted`).
    Preview,
    /// origin. Brings changes to the operator's folder; those that collide stay as they are.
    /// No paths: all. A path stands for everything below it; new folders above it come too. Where
    /// `done` is truncated, another apply brings more.
    Apply { paths: Vec<Arg> },
    /// origin. Takes changes back, so that the folder's own state is seen again. Nobody may have the
    /// layer mounted.
    Discard { paths: Vec<Arg> },
    /// How much of the disk it takes. Programs may be at work in it.
    Measure,
    /// Empties the layer (or whatever folder it is given), whatever modes its folders have.
    Remove,
}

/// What a layer takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Of blocks: a hole takes none.
    pub bytes: u64,
    /// Entries of any kind; one with several names is one.
    pub inodes: u64,
}

/// Written as sessiond is answered: see [`Report::has_lists`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Report {
    Done,
    Copied(Copied),
    Measured(Measured),
    Changes(Changes),
    /// What was done, and what is left because it collides or could not be done (with the reason in
    /// `conflict`).
    Applied {
        done: Changes,
        left: Changes,
    },
    Failed(WireError),
}
