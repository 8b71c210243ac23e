//! What each shipped policy would enforce on this host: the plan that a cage would have, made as the
//! supervisor makes it, and not carried out.

use super::super::run::tempdir;
use super::word;
use crate::escape::escape;
use crate::failure::Failure;
use crate::place;
use cage::cgroup::Layout;
use cage::plan::{HostFacts, Operator, PlanError, RealPaths, Request, resolve};
use cage::policy::{Ceiling, load, preset_names};
use cage::probe::{State, facts};
use nix::unistd::{Uid, User, getegid, geteuid};
use serde::Serialize;
use std::os::unix::net::UnixListener;
use std::path::Path;
use wire::{Enforced, Overrides, PolicySource, Wall, WallState};

/// The first uid of those that cages of root get, as no cage runs as root.
const THROW_AWAY: u32 = 0x7000_0000;

#[derive(Debug, Serialize)]
pub(super) struct Planned {
    name: String,
    policy: &'static str,
    state: State,
    what: String,
    /// None: it would refuse to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    walls: Option<Vec<Wall>>,
}

/// For an empty folder.
pub(super) fn all(setting: &str) -> Result<Vec<Planned>, Failure> {
    let layout = Layout::probe(setting).unwrap_or_default();
    let facts = facts(&layout);
    let folder = tempdir()?;
    let one = |name| planned(name, plan(name, &folder.0, &facts));
    Ok(preset_names().into_iter().map(one).collect())
}

fn plan(name: &str, folder: &Path, facts: &HostFacts) -> Result<Enforced, String> {
    // What is shipped, also where somebody has a file of that name.
    let policy = load(&PolicySource::Name(name.to_owned()), &[]);
    let policy = policy.map_err(|error| error.to_string())?;
    let resolve = |overrides: Overrides| {
        let request = request(folder, overrides);
        resolve(&policy, facts, &request, &RealPaths::default())
    };
    let plan = match resolve(Overrides::default()) {
        // One that lends a socket is looked at with one.
        Err(PlanError::Flag { flag, .. }) if flag == "--provider" => {
            let path = folder.join("provider.sock");
            let _stands_in = UnixListener::bind(&path);
            let provider = Some(format!("unix:{}", path.display()));
            resolve(Overrides { provider, ..Overrides::default() })
        }
        other => other,
    };
    let mut enforced = plan.map_err(|error| error.to_string())?.enforced(facts);
    // What is not in an empty folder says nothing about this host.
    enforced.walls.retain(|wall| !wall.name.ends_with(".open"));
    Ok(enforced)
}

/// As whoever asks would start it.
fn request(folder: &Path, overrides: Overrides) -> Request {
    let dirs = place::dirs();
    let account = User::from_uid(geteuid()).ok().flatten();
    let (uid, gid) = match geteuid().is_root() {
        true => (THROW_AWAY, THROW_AWAY),
        false => (geteuid().as_raw(), getegid().as_raw()),
    };
    Request {
        operator: Operator {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            name: account.as_ref().map(|user| user.name.clone()),
            home: account.map(|user| user.dir),
        },
        uid,
        gid,
        workspace: folder.to_owned(),
        overrides,
        project: None,
        ceiling: Ceiling::default(),
        homes: dirs.homes().join(Uid::effective().to_string()),
        never: vec![dirs.run.clone(), dirs.state.clone()],
        never_write: vec![dirs.config.clone()],
    }
}

fn planned(policy: &'static str, plan: Result<Enforced, String>) -> Planned {
    let name = format!("policy {policy}");
    let walls = match plan {
        Ok(enforced) => enforced.walls,
        Err(why) => {
            let what = format!("would refuse to start: {why}");
            return Planned { name, policy, state: State::Warn, what, walls: None };
        }
    };
    let count = |state| walls.iter().filter(|wall| wall.state == state).count();
    let up = count(WallState::Enforced);
    let (weaker, absent) = (count(WallState::Emulated), count(WallState::Absent));
    let what = match (weaker, absent) {
        (0, 0) => format!("all {up} walls that it asks for"),
        (weaker, absent) => format!("{up} walls; {weaker} by weaker means, {absent} ABSENT"),
    };
    let state = if absent == 0 { State::Ok } else { State::Warn };
    Planned { name, policy, state, what, walls: Some(walls) }
}

impl Planned {
    /// A line, and one for each wall that is less than what was asked for.
    pub(super) fn lines(&self, colours: bool) -> String {
        let word = word(self.state, colours);
        let mut lines = format!("{word}  {:<20} {}\n", escape(self.policy), escape(&self.what));
        let less = self.walls.iter().flatten().filter_map(|wall| match wall.state {
            WallState::Emulated => Some(("weaker", wall)),
            WallState::Absent => Some(("ABSENT", wall)),
            WallState::Enforced | WallState::Off => None,
        });
        for (how, wall) in less {
            let (name, why) = (escape(&wall.name), escape(&wall.how));
            lines.push_str(&format!("      {:<20} {how}  {name}: {why}\n", ""));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_or_weaker_is_named_and_a_refusal_says_why() {
        let mut enforced = Enforced::default();
        enforced.push("landlock", WallState::Enforced, "ABI 7");
        let good = planned("shell", Ok(enforced.clone()));
        assert_eq!(good.state, State::Ok);
        assert!(good.lines(false).ends_with("all 1 walls that it asks for\n"));
        enforced.push("cgroup.pids", WallState::Emulated, "rlimit NPROC, 256");
        enforced.push("cgroup.memory", WallState::Absent, "2G asked for, but no cgroup");
        let less = planned("shell", Ok(enforced));
        let shown = less.lines(false);
        assert_eq!(less.state, State::Warn);
        assert!(shown.contains("weaker  cgroup.pids: rlimit NPROC, 256\n"), "{shown}");
        assert!(shown.contains("ABSENT  cgroup.memory: 2G asked for"), "{shown}");
        let refused = planned("ci", Err("cgroup.memory is required".to_owned()));
        assert!(refused.walls.is_none() && refused.what.contains("is required"), "{refused:?}");
    }

    /// Every shipped policy on a host that has all, and on one that has no cgroups.
    #[test]
    fn shipped_policies_are_planned_as_they_would_be() {
        use cage::plan::Controller;
        let kernel =
            HostFacts { userns: true, seccomp: true, landlock_abi: 6, ..HostFacts::default() };
        let all = HostFacts {
            memory: Controller::V2,
            swap: Controller::V2,
            pids: Controller::V2,
            cpu: Controller::V2,
            ..kernel.clone()
        };
        let folder = tempdir().unwrap();
        for name in preset_names() {
            let whole = plan(name, &folder.0, &all).unwrap();
            assert!(whole.walls.iter().all(|wall| wall.state != WallState::Absent), "{whole:?}");
        }
        assert!(plan("shell", &folder.0, &kernel).is_ok());
        let refused = plan("ci", &folder.0, &kernel).unwrap_err();
        assert!(refused.contains("cgroup"), "{refused}");
    }
}
