//! A plan, what it enforces here, and who said each value that it was made from: `mews policy explain`
//! and `mews run --dry-run`.

use super::resolve::{Settled, plan, settle};
use super::{CagePlan, HostFacts, HostPaths, PlanError, Request};
use crate::policy::{Leaf, Listed, Policy, Project, limit_words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Enforced, Overrides, WorkspaceMode};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    pub plan_hash: String,
    /// What would stand, wall by wall.
    pub enforced: Enforced,
    /// In the order of the keys; of a list, one for each item.
    pub values: Vec<Value>,
    pub plan: CagePlan,
}

/// One value that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Dotted: `limits.memory`.
    pub key: String,
    pub value: String,
    /// `preset base:13`, `/ws/.mews.toml:4`, `--memory`, `the ceiling of this host`.
    pub by: String,
}

/// These are appended to, the others replaced.
const LISTS: &[&str] = &[
    "require",
    "fs.read",
    "fs.write",
    "fs.tmpfs",
    "fs.hide",
    "fs.protect",
    "net.socket",
    "env.pass",
];
/// Relative paths in these lie in the workspace.
const GUARDED: [&str; 2] = [Listed::Hide.key(), Listed::Protect.key()];
/// About the file, not the cage.
const OF_THE_FILE: &[&str] = &["version", "name", "extends"];
const CEILING: &str = "the ceiling of this host";

/// As [`super::resolve`], with the reasons.
///
/// # Errors
/// As [`super::resolve`].
pub fn explain(
    policy: &Policy,
    facts: &HostFacts,
    request: &Request,
    tree: &dyn HostPaths,
) -> Result<Explained, PlanError> {
    let settled = settle(policy, request)?;
    let plan = plan(&settled, facts, request, tree)?;
    let mut said = Said::default();
    said.chain(policy);
    said.flags(&request.overrides);
    said.project(&plan, request.project.as_ref());
    said.ceiling(settled);
    let (plan_hash, enforced) = (plan.hash(), plan.enforced(facts));
    Ok(Explained { plan_hash, enforced, values: said.values(), plan })
}

/// What an item of a list of tables is known by.
fn named<'a>(key: &str, value: &'a str) -> Option<&'a str> {
    let name = match key {
        "fs.tmpfs" => "path = ",
        "net.socket" => "listen = ",
        _ => return None,
    };
    value.split(", ").find(|pair| pair.starts_with(name))
}

/// By key; of a list, each item once.
#[derive(Default)]
struct Said(BTreeMap<String, Vec<(String, String)>>);

impl Said {
    fn say(&mut self, key: &str, value: &str, by: &str) {
        let is_relative = GUARDED.contains(&key) && !value.starts_with(['/', '$', '~']);
        let value = if is_relative { format!("$WORKSPACE/{value}") } else { value.to_owned() };
        let said = self.0.entry(key.to_owned()).or_default();
        if !LISTS.contains(&key) {
            said.clear();
        }
        // Of these the later one with the same name replaces the earlier.
        if let Some(name) = named(key, &value) {
            said.retain(|(known, _by)| named(key, known) != Some(name));
        }
        if said.iter().all(|(known, _)| *known != value) {
            said.push((value, by.to_owned()));
        }
    }

    fn chain(&mut self, policy: &Policy) {
        for Leaf { key, value, file, line } in policy.leaves.iter().flat_map(|of| of.iter()) {
            if !OF_THE_FILE.contains(&key.as_str()) && value != "[]" {
                self.say(key, value, &format!("{file}:{line}"));
            }
        }
    }

    fn flags(&mut self, flags: &Overrides) {
        let mut set = |key: &str, value: Option<String>, by: &str| {
            value.into_iter().for_each(|value| self.say(key, &value, by));
        };
        flags.read.iter().for_each(|path| set("fs.read", Some(path.lossy()), "--read"));
        flags.write.iter().for_each(|path| set("fs.write", Some(path.lossy()), "--write"));
        for (name, value) in &flags.env {
            match value {
                Some(value) => set(&format!("env.set.{name}"), Some(value.clone()), "--env"),
                None => set("env.pass", Some(name.clone()), "--env"),
            }
        }
        set("limits.memory", flags.memory.clone(), "--memory");
        set("limits.pids", flags.pids.map(|pids| pids.to_string()), "--pids");
        set("limits.walltime", flags.walltime.clone(), "--timeout");
        for (key, value) in &flags.limits {
            let key = format!("limits.{}", key.trim_start_matches("limits."));
            let words = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            set(&key, Some(words), "--limit");
        }
        set("fs.home", flags.home.as_ref().map(|name| format!("persistent:{name}")), "--home");
        let mode = flags.workspace_mode.map(|mode| match mode {
            WorkspaceMode::Direct => ("direct", "the request"),
            WorkspaceMode::Overlay => ("overlay", "--overlay"),
            WorkspaceMode::Copy => ("copy", "--copy"),
        });
        if let Some((mode, by)) = mode {
            set("fs.workspace", Some(mode.to_owned()), by);
        }
        set("net.mode", flags.net.clone(), "--net");
        set("$PROVIDER", flags.provider.clone(), "--provider");
    }

    fn project(&mut self, plan: &CagePlan, file: Option<&Project>) {
        let Some(file) = file else { return };
        let tightened = plan.project.iter().flat_map(|project| &project.tightened);
        for one in tightened {
            self.say(&one.key, &one.value, &format!("{}:{}", file.file, one.line));
        }
        // Unless somebody has said so already.
        self.say("fs.protect", "$WORKSPACE/.mews.toml", "every project file");
    }

    fn ceiling(&mut self, settled: Settled) {
        // Those that nobody has said yet.
        for wall in &settled.policy.require {
            self.say("require", &wall.to_string(), CEILING);
        }
        let mut before = BTreeMap::new();
        let (mut asked, mut held) = (settled.asked, settled.policy.limits);
        asked.each(|key, _unit, value| {
            before.insert(key, *value);
        });
        held.each(|key, unit, value| {
            if before.get(key).copied().flatten() != *value {
                self.say(&format!("limits.{key}"), &limit_words(unit, *value), CEILING);
            }
        });
    }

    fn values(self) -> Vec<Value> {
        let each = |(key, said): (String, Vec<(String, String)>)| {
            said.into_iter().map(move |(value, by)| Value { key: key.clone(), value, by })
        };
        self.0.into_iter().flat_map(each).collect()
    }
}
