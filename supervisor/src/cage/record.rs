//! What is on disk about a cage: `<state>/sup/<id>.json`.
//!
//! Written before anything of the cage exists, so that whatever is found after a crash has an owner;
//! rewritten at each step; removed when the cage is forgotten.

use crate::files;
use crate::limits::Meant;
use ::cage::cgroup::CgroupPaths;
use ::cage::plan::Limits;
use link::PidFd;
use link::pidfd::start_time_of;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wire::supervisor::PtyState;
use wire::{CageId, Cause, Enforced, Exit, RunId, SessionId, Suspension};

/// A pid that means the same process after its number was used again, also by another boot of the host,
/// whose clock begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// `/proc/PID/stat` field 22.
    start_time: u64,
    /// Absent: an earlier build wrote it.
    #[serde(default)]
    boot: Option<u64>,
}

impl Process {
    /// # Errors
    /// It is gone.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start_time: start_time_of(pid)?, boot: this_boot() })
    }

    /// `None`: it is gone.
    pub(crate) fn handle(&self) -> Option<PidFd> {
        let same_boot = self.boot.is_none() || self.boot == this_boot();
        same_boot.then(|| PidFd::open_same(self.pid, self.start_time).ok())?
    }
}

/// Half of the kernel's random id of this boot.
fn this_boot() -> Option<u64> {
    static ID: OnceLock<Option<u64>> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).ok()
    };
    *ID.get_or_init(read)
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
    #[serde(default, deserialize_with = "understood")]
    pub(crate) enforced: Enforced,
    /// Absent or not understood: it is looked for by the cage's name.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) cgroup: Option<CgroupPaths>,
    pub(crate) broker: Option<Process>,
    pub(crate) init: Option<Process>,
    /// `go` was said: from then on the cage needs no supervisor.
    pub(crate) went: bool,
    /// Nothing of it is left but files.
    pub(crate) gone: bool,
    #[serde(default, deserialize_with = "understood")]
    pub(crate) exit: Option<Exit>,
    /// From the intent to suspend it until it goes on.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) suspended: Option<Suspended>,
    /// How long it did not run: while it was built, and suspended.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) stood_ms: u64,
    /// Those in effect, if they are no more those of the plan.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) limits: Option<Limits>,
    /// From the intent to change them until that is done or undone.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) limits_meant: Option<Meant>,
    /// From the order to end it.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) doomed: Option<Doomed>,
    /// As last asked for.
    #[serde(default, deserialize_with = "understood")]
    pub(crate) ptys: Vec<PtyState>,
}

/// What another build wrote in a form of its own is as if it were not there: a cage that lives is
/// found all the same, by what no build may change (who it is, its processes, how far it came).
fn understood<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + serde::de::DeserializeOwned,
    D: serde::Deserializer<'de>,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_else(|error| {
        tracing::warn!(%error, "a part of a cage's record is of another build");
        T::default()
    }))
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
            let path = Self::path(folder, cage);
            match serde_json::from_slice::<Self>(&std::fs::read(&path)?) {
                Ok(record) if record.cage == cage => records.push(record),
                Ok(_other) => tracing::error!(path = %path.display(), "the record of another cage"),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a cage's record is not understood");
                }
            }
        }
        records.sort_by_key(|record| record.cage);
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As a build of long ago, or of one to come, may have written it.
    #[test]
    fn records_of_other_builds_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let cage = CageId::new();
        let core = json!({
            "wire": 1, "cage": cage, "session": SessionId::new(), "run": RunId::new(),
            "operator": 1, "uid": 2, "name": "n", "policy": "p", "plan_hash": "h",
            "started_at_ms": 3, "broker": {"pid": 4, "start_time": 5, "new": 1},
            "init": {"pid": 6, "start_time": 7}, "went": true, "gone": false,
        });
        let mut newer = core.clone();
        for (name, value) in [
            ("wire", json!(9)),
            ("enforced", json!({"walls": [{"name": "x", "state": "half", "how": ""}]})),
            ("cgroup", json!("somewhere")),
            ("exit", json!({"code": "x"})),
            ("suspended", json!({"at": "noon"})),
            ("limits", json!([1])),
            ("limits_meant", json!(1)),
            ("doomed", json!({"cause": 3})),
            ("ptys", json!({})),
            ("brand_new", json!({"a": 1})),
        ] {
            newer[name] = value;
        }
        for text in [core, newer] {
            std::fs::write(Record::path(folder.path(), cage), text.to_string()).unwrap();
            let [record] = &Record::load_all(folder.path()).unwrap()[..] else { panic!("lost") };
            assert_eq!((record.cage, record.went, record.gone), (cage, true, false));
            assert_eq!(record.broker, Some(Process { pid: 4, start_time: 5, boot: None }));
            assert_eq!((&record.exit, &record.cgroup, record.doomed), (&None, &None, None));
        }
        // Without what no build may leave out it is none, and is left where it is.
        std::fs::write(Record::path(folder.path(), cage), "{}").unwrap();
        assert!(Record::load_all(folder.path()).unwrap().is_empty());
        assert!(Record::path(folder.path(), cage).exists());
    }
}
