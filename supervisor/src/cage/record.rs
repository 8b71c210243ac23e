//! What is on disk about a cage: `<state>/sup/<id>.json`.
//!
//! Written before anything of the cage exists, so that whatever is found after a crash has an owner;
//! rewritten at each step; removed when the cage is forgotten.

use crate::files;
use crate::limits::Meant;
use ::cage::cgroup::CgroupPaths;
use ::cage::plan::Limits;
use link::pidfd::start_time_of;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use wire::supervisor::PtyState;
use wire::{CageId, Cause, Enforced, Exit, RunId, SessionId, Suspension};

/// A pid that means the same process after its number was used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// `/proc/PID/stat` field 22.
    pub(crate) start_time: u64,
}

impl Process {
    /// # Errors
    /// It is gone.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start_time: start_time_of(pid)? })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suspended {
    pub(crate) at_ms: i64,
    /// Absent while that is only meant.
    pub(crate) suspension: Option<Suspension>,
}

/// What was asked for and is not done until nothing of the cage is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doomed {
    pub(crate) cause: Cause,
    /// SIGTERM and five seconds first.
    pub(crate) gently: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `wire::PROTO` of the broker.
    pub(crate) wire: u32,
    pub(crate) cage: CageId,
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    /// Whose it is.
    pub(crate) operator: u32,
    /// As whom it runs.
    pub(crate) uid: u32,
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) plan_hash: String,
    pub(crate) started_at_ms: i64,
    pub(crate) enforced: Enforced,
    pub(crate) cgroup: Option<CgroupPaths>,
    pub(crate) broker: Option<Process>,
    pub(crate) init: Option<Process>,
    /// `go` was said: from then on the cage needs no supervisor.
    pub(crate) went: bool,
    /// Nothing of it is left but files.
    pub(crate) gone: bool,
    pub(crate) exit: Option<Exit>,
    /// From the intent to suspend it until it goes on.
    #[serde(default)]
    pub(crate) suspended: Option<Suspended>,
    /// Those in effect, if they are no more those of the plan.
    #[serde(default)]
    pub(crate) limits: Option<Limits>,
    /// From the intent to change them until that is done or undone.
    #[serde(default)]
    pub(crate) limits_meant: Option<Meant>,
    /// From the order to end it.
    #[serde(default)]
    pub(crate) doomed: Option<Doomed>,
    /// As last asked for.
    pub(crate) ptys: Vec<PtyState>,
}

impl Record {
    /// # Errors
    /// The disk is full, or the folder is not ours.
    pub(crate) fn save(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        files::write_whole(&Self::path(folder, self.cage), &bytes)
    }

    pub(crate) fn path(folder: &Path, cage: CageId) -> PathBuf {
        folder.join(format!("{cage}.json"))
    }

    /// All records in `<state>/sup`; what is not one is left alone.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn load_all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(Ok(cage)) = name.strip_suffix(".json").map(str::parse::<CageId>) else {
                continue;
            };
            let text = std::fs::read(Self::path(folder, cage))?;
            match serde_json::from_slice::<Self>(&text) {
                Ok(record) if record.cage == cage => records.push(record),
                Ok(_) | Err(_) => tracing::warn!(%cage, "a cage's record is not understood"),
            }
        }
        records.sort_by_key(|record| record.cage);
        Ok(records)
    }
}
