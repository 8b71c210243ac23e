//! A plan as people read it: which walls stand, and by what.

use crate::plan::{
    CagePlan, Controller, Enforcement, Guard, Guards, HostFacts, Limit, Limits, NO_DISK,
    ProjectFile, Unguarded, resource,
};
use crate::policy::{Bytes, Listed, Millis, Tightened, limit_words};
use wire::limits::Unit;
use wire::{Enforced, WallState, WorkspaceMode};

impl ProjectFile {
    fn words(&self) -> String {
        let Self { file, tightened } = self;
        let each = |one: &Tightened| {
            let Tightened { key, value, line } = one;
            format!("{key} {value} (line {line})")
        };
        match tightened.is_empty() {
            true => format!("{file} is as tight as the policy"),
            false => {
                let words: Vec<String> = tightened.iter().map(each).collect();
                format!("{file} tightens {}", some(&words))
            }
        }
    }
}

/// As many as people read, and a packet holds: the plan has all of them.
const WORDS_CHARS: usize = 1000;

fn some<T: AsRef<str>>(words: &[T]) -> String {
    let mut text = String::new();
    for (number, word) in words.iter().map(AsRef::as_ref).enumerate() {
        if text.len() + word.len() > WORDS_CHARS {
            let more = words.len() - number;
            return match text.is_empty() {
                true => format!("{} paths", words.len()),
                false => format!("{text} and {more} more"),
            };
        }
        let comma = if number == 0 { "" } else { ", " };
        text.push_str(comma);
        text.push_str(word);
    }
    text
}

impl CagePlan {
    /// In the order in which they are put up. True once the attestation matched.
    #[must_use]
    pub fn enforced(&self, facts: &HostFacts) -> Enforced {
        let mut walls = Enforced::default();
        let on = WallState::Enforced;
        walls.push("user", on, format!("uid {}, never 0", self.user.uid));
        walls.push("userns", on, "own user, mount, pid, network, ipc, uts and cgroup namespaces");
        let lent = self.sources.len();
        walls.push(
            "files",
            on,
            format!("root built from nothing, {lent} of the host's paths lent"),
        );
        match self.workspace.mode {
            WorkspaceMode::Direct => {}
            WorkspaceMode::Overlay => {
                walls.push("workspace", on, "overlay: writes land in a layer of the session");
            }
            WorkspaceMode::Copy => walls.push("workspace", on, "a private copy"),
        }
        self.guards(&mut walls);
        if let Some(project) = &self.project {
            walls.push("project", on, project.words());
        }
        walls.push("network", on, self.network());
        let bytes = |value| Bytes(value).to_string();
        for (name, limit) in [
            ("cgroup.memory", self.limits.memory),
            ("cgroup.swap", self.limits.swap),
            ("cgroup.pids", self.limits.pids),
            ("cgroup.cpu", self.limits.cpu_milli),
            ("cgroup.io", self.limits.io),
        ] {
            let value = limit_words(unit(name), limit.value);
            let (state, how) = by(name, limit, &self.limits, facts);
            let how = match state {
                WallState::Enforced | WallState::Emulated => format!("{how}, {value}"),
                WallState::Absent => format!("{value} asked for, but {how}"),
                WallState::Off => how,
            };
            walls.push(name, state, how);
        }
        walls.push("ptys", on, format!("at most {} terminals", self.limits.ptys));
        for limit in &self.rlimits {
            let name = format!("rlimit.{}", resource::name(limit.resource));
            walls.push(&name, on, limit.hard.to_string());
        }
        let time = |ms: u64| Millis(ms).to_string();
        push_clock(&mut walls, "walltime", self.limits.walltime_ms.map(time));
        push_clock(&mut walls, "idle", self.limits.idle_ms.map(time));
        push_clock(&mut walls, "output_bytes", self.limits.output_bytes.map(bytes));
        push_measured(&mut walls, "workspace_bytes", self.limits.workspace_bytes.map(bytes));
        let count = |count: u64| count.to_string();
        push_measured(&mut walls, "workspace_inodes", self.limits.workspace_inodes.map(count));
        walls.push("capabilities", on, "none");
        walls.push("no_new_privs", on, "set");
        let rules = self.landlock.rules.len();
        walls.push("landlock", on, format!("ABI {}, {rules} rules", facts.landlock_abi));
        walls.push("seccomp", on, "allow list, profile default");
        walls
    }

    /// What is guarded, and what was to be and is not.
    fn guards(&self, walls: &mut Enforced) {
        let Guards { hidden, protected, open } = &self.guards;
        for (name, guards, how) in [
            ("fs.hide", hidden, "seen as empty"),
            ("fs.protect", protected, "read-only where it is lent"),
        ] {
            if !guards.is_empty() {
                let how = format!("{how}: {}", some(&rules(guards)));
                walls.push(name, WallState::Enforced, how);
            }
        }
        for (list, what) in [
            (Listed::Hide, "what comes there is seen"),
            (Listed::Protect, "a program can make them"),
        ] {
            let of_list = open.iter().filter(|open| open.key == list.key());
            let words: Vec<String> =
                of_list.map(|Unguarded { path, why, .. }| format!("{path} {why}")).collect();
            if !words.is_empty() {
                let name = format!("{}.open", list.key());
                let how = format!("not guarded, {what}: {}", some(&words));
                walls.push(&name, WallState::Absent, how);
            }
        }
    }

    fn network(&self) -> String {
        let doors: Vec<String> =
            self.forwarders.iter().map(|door| door.listen.to_string()).collect();
        match doors.is_empty() {
            true => "none but loopback".to_owned(),
            false => format!("none but loopback; {} leads to a lent socket", doors.join(", ")),
        }
    }
}

/// Each once, a pattern with how often it was met.
fn rules(guards: &[Guard]) -> Vec<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for Guard { rule, .. } in guards {
        match counts.iter_mut().find(|(known, _count)| known == rule) {
            Some((_rule, count)) => *count += 1,
            None => counts.push((rule, 1)),
        }
    }
    let words = |(rule, count): (&str, usize)| match count {
        1 => rule.to_owned(),
        _ => format!("{rule} ({count} times)"),
    };
    counts.into_iter().map(words).collect()
}

fn unit(wall: &str) -> Unit {
    match wall {
        "cgroup.pids" => Unit::Count,
        "cgroup.cpu" => Unit::MilliCpu,
        "cgroup.io" => Unit::BytesPerSecond,
        _ => Unit::Bytes,
    }
}

/// What holds a limit of a cgroup, or why nothing does.
pub(crate) fn by(
    wall: &str,
    limit: Limit,
    limits: &Limits,
    facts: &HostFacts,
) -> (WallState, String) {
    let is_io = wall == "cgroup.io";
    let (state, how) = match limit.by {
        // The kernel's own writer of v1 works for nobody's account.
        Enforcement::CgroupV1 if is_io => (
            WallState::Emulated,
            "cgroup v1 (reads and direct writes; not those through the cache)",
        ),
        Enforcement::CgroupV1 => (WallState::Enforced, "cgroup v1"),
        Enforcement::CgroupV2 => (WallState::Enforced, "cgroup v2"),
        Enforcement::Rlimit => (WallState::Emulated, "rlimit NPROC"),
        Enforcement::Absent if is_io && facts.io != Controller::Absent => {
            (WallState::Absent, NO_DISK)
        }
        Enforcement::Absent => (WallState::Absent, "no cgroup here that we may write to"),
        Enforcement::Off => (WallState::Off, NOT_ASKED),
    };
    let dies = wall == "cgroup.memory" && limits.oom_group && state == WallState::Enforced;
    let how = if dies { format!("{how}, the whole cage dies at it") } else { how.to_owned() };
    (state, how)
}

/// A limit that the broker keeps.
pub(crate) fn by_broker(is_set: bool) -> (WallState, String) {
    if is_set {
        (WallState::Enforced, "the broker".to_owned())
    } else {
        (WallState::Off, NOT_ASKED.to_owned())
    }
}

pub(crate) const NOT_ASKED: &str = "no limit asked for";

/// A limit that the supervisor keeps: what is written between two looks is over it for so long.
pub(crate) fn by_measure(is_set: bool) -> (WallState, String) {
    if is_set {
        (WallState::Emulated, "measured by the supervisor every few seconds".to_owned())
    } else {
        (WallState::Off, NOT_ASKED.to_owned())
    }
}

fn push_measured(walls: &mut Enforced, name: &str, value: Option<String>) {
    let (state, how) = by_measure(value.is_some());
    let how = value.map_or_else(|| how.clone(), |value| format!("{how}, {value}"));
    walls.push(name, state, how);
}

/// Kept by the broker.
fn push_clock(walls: &mut Enforced, name: &str, value: Option<String>) {
    let state = if value.is_some() { WallState::Enforced } else { WallState::Off };
    walls.push(name, state, value.unwrap_or_else(|| NOT_ASKED.to_owned()));
}
