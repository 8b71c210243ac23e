//! What is around us: a container, and a clock.

use super::kernel::read;
use super::{Check, State};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// 2025-01-01: before this nobody had a mews.
const OLDEST: u64 = 1_735_689_600;

pub(super) fn checks() -> Vec<Check> {
    vec![nesting(), clock()]
}

/// Walls of an outer container may keep ours from being put up; the other checks say which.
fn nesting() -> Check {
    let container = container(|path| Path::new(path).exists(), read);
    let is_whole = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    match (container, is_whole) {
        (Some(kind), true) => Check::new(
            "nesting",
            State::Ok,
            format!("inside a container ({kind}): what it forbids fails above by name"),
        ),
        (Some(kind), false) => Check::new(
            "nesting",
            State::Warn,
            format!("inside a container ({kind}) with a user namespace: not every uid is there"),
        ),
        (None, true) => Check::new("nesting", State::Ok, "not inside a container"),
        (None, false) => {
            Check::new("nesting", State::Warn, "inside a user namespace: not every uid is there")
        }
    }
}

/// Who says what it is, if it is one.
fn container(exists: impl Fn(&str) -> bool, read: impl Fn(&str) -> String) -> Option<String> {
    // systemd and podman write its kind there; both for whoever is inside.
    let said = read("/run/systemd/container");
    if !said.trim().is_empty() {
        return Some(said.trim().to_owned());
    }
    for (file, kind) in [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")] {
        if exists(file) {
            return Some(kind.to_owned());
        }
    }
    let groups = read("/proc/1/cgroup");
    let kinds = ["kubepods", "docker", "lxc", "containerd", "libpod"];
    kinds.into_iter().find(|kind| groups.contains(kind)).map(str::to_owned)
}

/// Ids sort by it, and times in events are read by people.
fn clock() -> Check {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    clock_at(now)
}

fn clock_at(now: u64) -> Check {
    if now >= OLDEST {
        return Check::new("clock", State::Ok, "set");
    }
    Check::new("clock", State::Warn, "it is before 2025: ids and times would be out of order")
        .mend("timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_what_they_leave_inside() {
        let nothing = |_path: &str| String::new();
        assert_eq!(container(|_path| false, nothing), None);
        assert_eq!(container(|path| path == "/.dockerenv", nothing).as_deref(), Some("docker"));
        let said = |path: &str| match path {
            "/run/systemd/container" => "lxc\n".to_owned(),
            _other => String::new(),
        };
        assert_eq!(container(|_path| true, said).as_deref(), Some("lxc"));
        let groups = |path: &str| match path {
            "/proc/1/cgroup" => "0::/kubepods/besteffort/pod1\n".to_owned(),
            _other => String::new(),
        };
        assert_eq!(container(|_path| false, groups).as_deref(), Some("kubepods"));
    }

    #[test]
    fn a_clock_that_was_never_set_is_a_warning() {
        assert_eq!(clock_at(0).state, State::Warn);
        assert_eq!(clock_at(OLDEST).state, State::Ok);
    }
}
