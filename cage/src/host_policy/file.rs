//! The text of `host.toml`, strict: an unknown key or a bad value refuses the whole file.

use super::{HostPolicy, Pattern, People, Rule};
use crate::policy::{Ceiling, Name, PolicyError, Problem};
use nix::unistd::{Group, User};
use serde::Deserialize;

/// Largest file, in bytes.
pub(super) const BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    version: i64,
    #[serde(default)]
    admins: PeopleFile,
    #[serde(default)]
    cages: Option<u32>,
    #[serde(default)]
    allow: Vec<RuleFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PeopleFile {
    users: Vec<Id>,
    groups: Vec<Id>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    users: Vec<Id>,
    #[serde(default)]
    groups: Vec<Id>,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default = "yes")]
    widen: bool,
    #[serde(default = "yes")]
    grants: bool,
    #[serde(default)]
    cages: Option<u32>,
    #[serde(default)]
    limits: Ceiling,
}

/// An account or group by name, or by number where it has none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a name in quotes, or a number")]
enum Id {
    Number(u32),
    Name(String),
}

fn yes() -> bool {
    true
}

/// How names become numbers: the host's databases, or a test's.
pub(super) trait Accounts {
    /// `Ok(None)`: there is no such user.
    fn user(&self, name: &str) -> nix::Result<Option<u32>>;
    fn group(&self, name: &str) -> nix::Result<Option<u32>>;
}

pub(super) struct HostAccounts;

impl Accounts for HostAccounts {
    fn user(&self, name: &str) -> nix::Result<Option<u32>> {
        Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
    }

    fn group(&self, name: &str) -> nix::Result<Option<u32>> {
        Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
    }
}

pub(super) fn parse(
    file: &str,
    text: &str,
    accounts: &dyn Accounts,
) -> Result<HostPolicy, PolicyError> {
    let wrong = |problem, line, key: Option<&str>, message: String| PolicyError {
        problem,
        file: file.to_owned(),
        line,
        key: key.map(str::to_owned),
        message,
    };
    let read: HostFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        let message = error.message().trim_end().replace('\n', "; ");
        wrong(Problem::BadValue, line, None, message)
    })?;
    if read.version != 1 {
        let message = format!("version {} is not known here; write version = 1", read.version);
        return Err(wrong(Problem::Version, None, Some("version"), message));
    }
    let mut unknown = Vec::new();
    let mut rules = Vec::new();
    let mut people = |users: &[Id], groups: &[Id]| {
        resolve(users, groups, accounts, &mut unknown).map_err(|(name, errno)| {
            let message = format!("'{name}' cannot be looked up: {errno}");
            wrong(Problem::BadValue, None, None, message)
        })
    };
    let admins = people(&read.admins.users, &read.admins.groups)?;
    for (number, rule) in read.allow.into_iter().enumerate() {
        let refused = |message: &str| {
            let message = format!("rule {}: {message}", number + 1);
            wrong(Problem::BadValue, None, Some("allow"), message)
        };
        if rule.users.is_empty() && rule.groups.is_empty() {
            return Err(refused("it names nobody; write users = [\"…\"] or groups = [\"…\"]"));
        }
        let who = people(&rule.users, &rule.groups)?;
        let policies = rule.policies.iter().map(|text| pattern(text));
        let policies = policies.collect::<Result<_, _>>().map_err(|why| refused(&why))?;
        if rule.limits.is_swap_alone() {
            return Err(refused(
                "limits.swap is counted on top of memory: write limits.memory, too",
            ));
        }
        let RuleFile { widen, grants, limits: ceiling, cages: cages_max, .. } = rule;
        rules.push(Rule { who, policies, widen, grants, ceiling, cages_max });
    }
    Ok(HostPolicy { admins, cages_max: read.cages, rules, unknown })
}

fn resolve(
    users: &[Id],
    groups: &[Id],
    accounts: &dyn Accounts,
    unknown: &mut Vec<String>,
) -> Result<People, (String, nix::Error)> {
    let mut people = People::default();
    for user in users {
        let uid = match user {
            Id::Number(uid) => Some(*uid),
            Id::Name(name) => accounts.user(name).map_err(|errno| (name.clone(), errno))?,
        };
        match (uid, user) {
            (Some(uid), _) => drop(people.uids.insert(uid)),
            (None, Id::Name(name)) => unknown.push(format!("user {name}")),
            (None, Id::Number(_)) => {}
        }
    }
    for group in groups {
        let gid = match group {
            Id::Number(gid) => Some(*gid),
            Id::Name(name) => accounts.group(name).map_err(|errno| (name.clone(), errno))?,
        };
        match (gid, group) {
            (Some(gid), _) => drop(people.gids.insert(gid)),
            (None, Id::Name(name)) => unknown.push(format!("group {name}")),
            (None, Id::Number(_)) => {}
        }
    }
    Ok(people)
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let (stem, is_prefix) = match text.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (text, false),
    };
    if !(is_prefix && stem.is_empty()) {
        Name::parse(stem).map_err(|error| format!("policies: {error}"))?;
    }
    let stem = stem.to_owned();
    Ok(if is_prefix { Pattern::Prefix(stem) } else { Pattern::Name(stem) })
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
