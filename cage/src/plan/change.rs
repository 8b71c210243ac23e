//! Limits of a living cage: how they are shown, and what an operator may make of them.

use super::{CagePlan, Controller, Enforcement, HostFacts, Limit, Limits, NO_LAYER, resource};
use crate::cgroup::{self, CageCgroup, Version};
use crate::enforced::{NOT_ASKED, by, by_broker, by_measure};
use crate::policy::{BadValue, limit_asked, limit_words as words};
use serde_json::{Value, json};
use wire::limits::{LimitChange, LimitView, LimitsAsked, Unit};
use wire::{ErrorCode, WallState, WireError, WorkspaceMode};

/// Those that can change while a cage lives, in the order of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Memory,
    Swap,
    Pids,
    Cpu,
    Io,
    Walltime,
    Idle,
    OutputBytes,
    WorkspaceBytes,
    WorkspaceInodes,
}

const RLIMIT: &str = "every process got it as an rlimit when it started, and may not raise it";
/// Known, and set for good when the cage is made.
const FIXED: [(&str, &str); 5] = [
    ("nofile", RLIMIT),
    ("fsize", RLIMIT),
    ("core", RLIMIT),
    ("ptys", "the cage's own devpts was mounted with it"),
    ("oom", "the kernel and the broker were told when the cage was made"),
];

/// Which controllers have a group in one living cage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub memory: Controller,
    pub swap: Controller,
    pub pids: Controller,
    pub cpu: Controller,
    pub io: Controller,
}

impl Carried {
    #[must_use]
    pub fn of(cgroup: &CageCgroup, facts: &HostFacts) -> Self {
        let by = |controller| match cgroup.carries(controller) {
            None => Controller::Absent,
            Some(Version::V1) => Controller::V1,
            Some(Version::V2) => Controller::V2,
        };
        let memory = by(cgroup::Controller::Memory);
        Self {
            memory,
            // It is set in the group of memory, where the kernel counts it.
            swap: if memory == Controller::Absent { memory } else { facts.swap },
            pids: by(cgroup::Controller::Pids),
            cpu: by(cgroup::Controller::Cpu),
            io: by(cgroup::Controller::Io),
        }
    }

    fn by(&self, name: Name) -> Controller {
        match name {
            Name::Memory => self.memory,
            Name::Swap => self.swap,
            Name::Pids => self.pids,
            Name::Cpu => self.cpu,
            Name::Io => self.io,
            Name::Walltime
            | Name::Idle
            | Name::OutputBytes
            | Name::WorkspaceBytes
            | Name::WorkspaceInodes => Controller::Absent,
        }
    }
}

impl Name {
    const ALL: [Self; 10] = [
        Self::Memory,
        Self::Swap,
        Self::Pids,
        Self::Cpu,
        Self::Io,
        Self::Walltime,
        Self::Idle,
        Self::OutputBytes,
        Self::WorkspaceBytes,
        Self::WorkspaceInodes,
    ];

    const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::Walltime => "walltime",
            Self::Idle => "idle",
            Self::OutputBytes => "output_bytes",
            Self::WorkspaceBytes => "workspace_bytes",
            Self::WorkspaceInodes => "workspace_inodes",
        }
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Memory | Self::Swap | Self::OutputBytes | Self::WorkspaceBytes => Unit::Bytes,
            Self::Io => Unit::BytesPerSecond,
            Self::Pids | Self::WorkspaceInodes => Unit::Count,
            Self::Cpu => Unit::MilliCpu,
            Self::Walltime | Self::Idle => Unit::Ms,
        }
    }
}

impl Limits {
    /// What is asked for, laid over what is in effect, and what that changes. Nothing is done.
    ///
    /// # Errors
    /// A key that is none or cannot change on this cage, a bad value; all by name.
    pub fn changed(
        &self,
        asked: &LimitsAsked,
        carried: &Carried,
        mode: WorkspaceMode,
    ) -> Result<(Self, Vec<LimitChange>), WireError> {
        let mut next = self.clone();
        for (key, value) in asked {
            let name = named(key)?;
            let value = parsed(name, value)?;
            if value == self.value(name) {
                continue;
            }
            if name.is_measured() && mode == WorkspaceMode::Direct {
                return Err(cannot_change(key, NO_LAYER));
            }
            if let Some(why) = self.fixed(name, carried) {
                return Err(cannot_change(key, &why));
            }
            next.set(name, value, carried.by(name));
        }
        next.check()?;
        let changes = Name::ALL.into_iter().filter_map(|name| {
            let (from, to) = (self.value(name), next.value(name));
            let (limit, unit) = (name.key().to_owned(), name.unit());
            (from != to).then_some(LimitChange { limit, unit, from, to })
        });
        let changes = changes.collect();
        Ok((next, changes))
    }

    /// The one that a cgroup or an rlimit holds; the broker's are none of these.
    fn limit(&self, name: Name) -> Option<Limit> {
        match name {
            Name::Memory => Some(self.memory),
            Name::Swap => Some(self.swap),
            Name::Pids => Some(self.pids),
            Name::Cpu => Some(self.cpu_milli),
            Name::Io => Some(self.io),
            Name::Walltime
            | Name::Idle
            | Name::OutputBytes
            | Name::WorkspaceBytes
            | Name::WorkspaceInodes => None,
        }
    }

    fn value(&self, name: Name) -> Option<u64> {
        match name {
            Name::Walltime => self.walltime_ms,
            Name::Idle => self.idle_ms,
            Name::OutputBytes => self.output_bytes,
            Name::WorkspaceBytes => self.workspace_bytes,
            Name::WorkspaceInodes => self.workspace_inodes,
            Name::Memory | Name::Swap | Name::Pids | Name::Cpu | Name::Io => {
                self.limit(name).and_then(|limit| limit.value)
            }
        }
    }

    fn set(&mut self, name: Name, value: Option<u64>, controller: Controller) {
        let limit = Limit::by_cgroup(value, controller);
        match name {
            Name::Memory => self.memory = limit,
            Name::Swap => self.swap = limit,
            Name::Pids => self.pids = limit,
            Name::Cpu => self.cpu_milli = limit,
            Name::Io => self.io = limit,
            Name::Walltime => self.walltime_ms = value,
            Name::Idle => self.idle_ms = value,
            Name::OutputBytes => self.output_bytes = value,
            Name::WorkspaceBytes => self.workspace_bytes = value,
            Name::WorkspaceInodes => self.workspace_inodes = value,
        }
    }

    fn fixed(&self, name: Name, carried: &Carried) -> Option<String> {
        let limit = self.limit(name)?;
        if name == Name::Io && carried.io != Controller::Absent && self.io_disk.is_none() {
            return Some(super::limits::NO_DISK.to_owned());
        }
        if carried.by(name) != Controller::Absent {
            return None;
        }
        Some(match limit.by {
            Enforcement::Rlimit => RLIMIT.to_owned(),
            Enforcement::Absent => {
                "this host has no cgroup controller for it that we may write to".to_owned()
            }
            Enforcement::CgroupV1 | Enforcement::CgroupV2 | Enforcement::Off => {
                let key = name.key();
                format!("the cage has no cgroup for it; start it with limits.{key} in its policy")
            }
        })
    }

    fn check(&self) -> Result<(), WireError> {
        if self.swap.value.is_some() && self.memory.value.is_none() {
            let words = "swap is counted on top of memory: set memory too, or say swap=none";
            return Err(
                WireError::new(ErrorCode::ValidationFailed, words).with(json!({ "limit": "swap" }))
            );
        }
        Ok(())
    }
}

impl CagePlan {
    /// Every limit of the cage, with those in effect.
    #[must_use]
    pub fn limit_views(
        &self,
        limits: &Limits,
        carried: &Carried,
        facts: &HostFacts,
    ) -> Vec<LimitView> {
        let changing = Name::ALL.into_iter().map(|name| {
            let (state, how) = match limits.limit(name) {
                Some(limit) => by(name.wall(), limit, limits, facts),
                None if name.is_measured() => by_measure(limits.value(name).is_some()),
                None => by_broker(limits.value(name).is_some()),
            };
            let (limit, unit) = (name.key().to_owned(), name.unit());
            let value = limits.value(name);
            let no_layer = name.is_measured() && self.workspace.mode == WorkspaceMode::Direct;
            let no_layer = no_layer.then(|| NO_LAYER.to_owned());
            let fixed = no_layer.or_else(|| limits.fixed(name, carried));
            LimitView { limit, unit, value, state, how, fixed }
        });
        let fixed = FIXED.into_iter().filter_map(|(key, why)| self.fixed_view(key, why));
        changing.chain(fixed).collect()
    }

    fn fixed_view(&self, key: &str, why: &str) -> Option<LimitView> {
        let (unit, resource) = match key {
            "nofile" => (Unit::Count, resource::NOFILE),
            "fsize" => (Unit::Bytes, resource::FSIZE),
            "core" => (Unit::Bytes, resource::CORE),
            "ptys" => {
                let how = "the cage's own devpts, and the broker".to_owned();
                let (limit, fixed) = (key.to_owned(), Some(why.to_owned()));
                let (unit, value) = (Unit::Count, Some(u64::from(self.limits.ptys)));
                let state = WallState::Enforced;
                return Some(LimitView { limit, unit, value, state, how, fixed });
            }
            // It is no number, and told with memory.
            _ => return None,
        };
        let rlimit = self.rlimits.iter().find(|limit| limit.resource == resource);
        let (state, how) = match rlimit {
            Some(_) => (WallState::Enforced, "rlimit"),
            None => (WallState::Off, NOT_ASKED),
        };
        Some(LimitView {
            limit: key.to_owned(),
            unit,
            value: rlimit.map(|limit| limit.hard),
            state,
            how: how.to_owned(),
            fixed: Some(why.to_owned()),
        })
    }
}

impl Name {
    const fn is_measured(self) -> bool {
        matches!(self, Self::WorkspaceBytes | Self::WorkspaceInodes)
    }

    const fn wall(self) -> &'static str {
        match self {
            Self::Memory => "cgroup.memory",
            Self::Swap => "cgroup.swap",
            Self::Pids => "cgroup.pids",
            Self::Cpu => "cgroup.cpu",
            Self::Io => "cgroup.io",
            Self::Walltime => "walltime",
            Self::Idle => "idle",
            Self::OutputBytes => "output_bytes",
            Self::WorkspaceBytes => "workspace_bytes",
            Self::WorkspaceInodes => "workspace_inodes",
        }
    }
}

/// `memory`, or `limits.memory` as policies call it.
fn named(key: &str) -> Result<Name, WireError> {
    let word = key.strip_prefix("limits.").unwrap_or(key);
    if let Some(name) = Name::ALL.into_iter().find(|name| name.key() == word) {
        return Ok(name);
    }
    if let Some((_, why)) = FIXED.iter().find(|(known, _)| *known == word) {
        return Err(cannot_change(word, why));
    }
    let known: Vec<&str> = Name::ALL.into_iter().map(Name::key).collect();
    let words =
        format!("there is no limit {word:?} that could change; known are {}", known.join(", "));
    Err(WireError::new(ErrorCode::ValidationFailed, words).with(json!({ "limit": word })))
}

fn parsed(name: Name, value: &Value) -> Result<Option<u64>, WireError> {
    let value = limit_asked(name.key(), name.unit(), value);
    let value = value.map_err(|BadValue(why)| bad(name, &why))?;
    if name == Name::Memory && value.is_some_and(|bytes| bytes < super::resolve::MEMORY_BYTES_MIN) {
        return Err(bad(name, "no cage can live in so little; give it 8M or more"));
    }
    Ok(value)
}

fn bad(name: Name, why: &str) -> WireError {
    WireError::new(ErrorCode::ValidationFailed, format!("{}: {why}", name.key()))
        .with(json!({ "limit": name.key() }))
}

fn cannot_change(key: &str, why: &str) -> WireError {
    let words = format!("limits.{key} cannot change while the cage lives: {why}");
    WireError::new(ErrorCode::Conflict, words).with(json!({ "limit": key }))
}

/// `memory 2G → 4G`.
#[must_use]
pub fn change_words(change: &LimitChange) -> String {
    let LimitChange { limit, unit, from, to } = change;
    format!("{limit} {} → {}", words(*unit, *from), words(*unit, *to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Disk;

    fn before() -> Limits {
        let limit = |value| Limit { value, by: Enforcement::CgroupV1 };
        Limits {
            memory: limit(Some(1 << 30)),
            swap: limit(Some(0)),
            pids: Limit { value: Some(64), by: Enforcement::Rlimit },
            cpu_milli: Limit { value: None, by: Enforcement::Off },
            io: limit(Some(1 << 20)),
            io_disk: Some(Disk { major: 8, minor: 0 }),
            oom_group: true,
            walltime_ms: None,
            idle_ms: Some(1000),
            output_bytes: None,
            workspace_bytes: None,
            workspace_inodes: None,
            ptys: 16,
        }
    }

    const CARRIED: Carried = Carried {
        memory: Controller::V1,
        swap: Controller::V1,
        pids: Controller::Absent,
        cpu: Controller::Absent,
        io: Controller::V1,
    };

    fn change(asked: Value) -> Result<(Limits, Vec<String>), WireError> {
        let Value::Object(asked) = asked else { panic!("no object") };
        let (limits, changes) = before().changed(&asked, &CARRIED, WorkspaceMode::Overlay)?;
        Ok((limits, changes.iter().map(change_words).collect()))
    }

    #[test]
    fn what_changes_is_told_and_nothing_else() {
        let asked = json!({
            "limits.memory": "2G", "swap": 0, "walltime": "1h", "idle": null, "io": "50M",
            "output_bytes": "none",
        });
        let (limits, changes) = change(asked).unwrap();
        let told = ["memory 1G → 2G", "io 1M/s → 50M/s", "walltime none → 1h", "idle 1s → none"];
        assert_eq!(changes, told);
        assert_eq!(limits.memory.for_cgroup(), Some(2 << 30));
        assert_eq!(limits.clocks().walltime_ms, Some(3_600_000));
        let same = change(json!({ "memory": 1_u64 << 30 })).unwrap();
        assert_eq!((same.0, same.1.len()), (before(), 0));
    }

    #[test]
    fn what_cannot_change_is_refused_by_name_with_the_reason() {
        for (asked, code, words) in [
            (json!({ "pids": 70 }), ErrorCode::Conflict, "rlimit"),
            (json!({ "cpu": 1.5 }), ErrorCode::Conflict, "limits.cpu in its policy"),
            (json!({ "nofile": 70 }), ErrorCode::Conflict, "limits.nofile"),
            (json!({ "ptys": 70 }), ErrorCode::Conflict, "devpts"),
            (json!({ "memroy": 70 }), ErrorCode::ValidationFailed, "known are memory, swap"),
            (json!({ "memory": "lots" }), ErrorCode::ValidationFailed, "512M"),
            (json!({ "memory": "1M" }), ErrorCode::ValidationFailed, "8M or more"),
            (json!({ "memory": true }), ErrorCode::ValidationFailed, "true"),
            (json!({ "memory": "none" }), ErrorCode::ValidationFailed, "swap=none"),
            (json!({ "walltime": "5" }), ErrorCode::ValidationFailed, "30s"),
        ] {
            let error = change(asked.clone()).unwrap_err();
            assert_eq!(error.code, code, "{asked} {error}");
            assert!(error.message.contains(words), "{asked} {error}");
        }
    }
}
