//! What this host can do, found by doing, each with a time limit.
//!
//! [`facts`] is what a spawn needs (well below a millisecond; the supervisor asks once), [`report`]
//! is what `mews doctor` prints: everything, in words, with what to do about it. Neither says that a
//! wall stands: that is what the cage's own attestation is for.

mod bwrap;
mod facts;
mod kernel;
mod program;
mod surroundings;
#[expect(unsafe_code, reason = "landlock_create_ruleset(2) as a question has no safe wrapper")]
mod sys;
mod timed;

pub use bwrap::{BWRAP, BwrapError, open as open_bwrap};
pub use facts::{facts, telling};
pub use program::is_static;
pub use sys::landlock_abi;

use crate::cgroup::{GroupPath, Layout, LimitFacts, Version};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    /// A cage can be had, but something that a policy may ask for is missing.
    Warn,
    /// No cage can be had.
    Fail,
}

/// One line of `mews doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub state: State,
    pub what: String,
    /// What to type or to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Check {
    fn new(name: &str, state: State, what: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state, what: what.into(), mend: None }
    }

    fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

/// Everything but a real cage. `cage_init` is the program that would be pid 1, as it was found.
#[must_use]
pub fn report(cage_init: Option<&Path>, cgroup_setting: &str) -> Vec<Check> {
    let mut checks = bwrap::checks();
    checks.extend(kernel::checks());
    checks.extend(surroundings::checks());
    checks.push(program::check(cage_init));
    checks.extend(cgroup_checks(cgroup_setting));
    checks
}

fn cgroup_checks(setting: &str) -> Vec<Check> {
    match Layout::probe(setting) {
        Ok(layout) => {
            let mut checks = vec![delegation(&layout)];
            checks.extend(limit_checks(&layout.facts()));
            checks
        }
        Err(error) => vec![Check::new("cgroups", State::Fail, error.to_string())],
    }
}

const DELEGATE: &str =
    "run as root, or in a delegated cgroup: systemd-run --user --scope -p Delegate=yes";

/// Where groups for cages can be made.
fn delegation(layout: &Layout) -> Check {
    let places: Vec<String> = layout.bases().iter().map(place).collect();
    if places.is_empty() {
        return Check::new("delegation", State::Warn, "no cgroup here that we may make groups in")
            .mend(DELEGATE);
    }
    Check::new("delegation", State::Ok, format!("cages get groups in {}", places.join(", ")))
}

fn place(group: &GroupPath) -> String {
    format!("{} ({})", group.path.display(), group.version.how())
}

fn limit_checks(facts: &LimitFacts) -> Vec<Check> {
    let limit = |name: &str, version: Option<Version>, without: &str| match version {
        Some(version) => Check::new(name, State::Ok, version.how()),
        None => {
            Check::new(name, State::Warn, format!("no cgroup of ours: {without}")).mend(DELEGATE)
        }
    };
    let kill = if facts.kill {
        Check::new("cgroup.kill", State::Ok, "cgroup v2: a cage is killed as one")
    } else {
        Check::new("cgroup.kill", State::Warn, "no v2 tree of ours: cages are ended by pid 1 alone")
    };
    let freezer = if facts.kill {
        Check::new("freezer", State::Ok, "cgroup v2: a paused cage stands, whatever it does")
    } else {
        let what = "no v2 tree of ours: `mews pause` stops each process by signals";
        Check::new("freezer", State::Warn, what).mend(DELEGATE)
    };
    vec![
        limit("cgroup.memory", facts.memory, "memory limits are absent; policy `ci` refuses"),
        limit("cgroup.swap", facts.swap, "swap limits are absent"),
        limit("cgroup.pids", facts.pids, "pids limits become an rlimit; policy `ci` refuses"),
        limit("cgroup.cpu", facts.cpu, "cpu limits are absent"),
        limit("cgroup.io", facts.io, "io limits are absent"),
        kill,
        freezer,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_thing_once_and_every_trouble_in_words() {
        let setting = format!("/mews-unit-{}-report", std::process::id());
        let checks = report(None, &setting);
        let mut names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for check in &checks {
            assert!(!check.what.is_empty(), "{check:?}");
        }
        let init = checks.iter().find(|check| check.name == "cage-init").unwrap();
        assert_eq!(init.state, State::Fail);
        assert!(init.mend.is_some());
    }

    #[test]
    fn absent_limits_are_warnings_with_a_way_out() {
        for check in limit_checks(&LimitFacts::default()) {
            assert_eq!(check.state, State::Warn, "{check:?}");
        }
    }
}
