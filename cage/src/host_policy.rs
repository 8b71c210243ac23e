//! `host.toml`: whom the admin of a shared host lets in, with which policies and limits.
//!
//! Strict as a policy file, and pure but for [`open`] (one descriptor, checked before it is believed)
//! and the names of users and groups, which are looked up once, when it is read. The first
//! `[[allow]]` that names an operator is theirs; who is named by none is not served.

mod file;
mod open;

pub use open::{HostPolicyError, open};

use crate::policy::Ceiling;
use std::collections::BTreeSet;
use wire::{ErrorCode, Overrides, PolicySource, WireError, WorkspaceMode};

/// Its name in the configuration folder.
pub const FILE_NAME: &str = "host.toml";

/// Who asks: uid and groups as the kernel tells them of the operator's own connection.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPolicy {
    admins: People,
    /// Living cages of the whole host.
    pub cages_max: Option<u32>,
    rules: Vec<Rule>,
    /// Users and groups that this host does not have: they match nobody.
    pub unknown: Vec<String>,
}

/// One `[[allow]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    who: People,
    /// Empty: all of the host's and the shipped ones.
    policies: Vec<Pattern>,
    widen: bool,
    /// They may grant cages to who asks when they are not there.
    grants: bool,
    pub ceiling: Ceiling,
    /// Living cages of each operator.
    pub cages_max: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct People {
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
}

/// A policy's name, or the beginning of names (`team-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Prefix(String),
}

impl People {
    fn include(&self, who: Who<'_>) -> bool {
        let mut gids = who.groups.iter().chain(std::iter::once(&who.gid));
        self.uids.contains(&who.uid) || gids.any(|gid| self.gids.contains(gid))
    }
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

impl HostPolicy {
    /// Sees and acts on everything, and is told of in the record.
    #[must_use]
    pub fn is_admin(&self, who: Who<'_>) -> bool {
        who.uid == 0 || self.admins.include(who)
    }

    /// The rule that holds for this operator; `None`: not admitted by any.
    #[must_use]
    pub fn rule_for(&self, who: Who<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.who.include(who))
    }
}

impl Rule {
    /// Whether a run may use this policy with these flags. Numbers are not asked here: the ceiling
    /// lowers them.
    ///
    /// # Errors
    /// `forbidden`, with what is allowed instead.
    pub fn admits(&self, source: &PolicySource, overrides: &Overrides) -> Result<(), WireError> {
        let refused = |words: String| Err(WireError::new(ErrorCode::Forbidden, words));
        match source {
            PolicySource::Name(name) if !self.admits_name(name) => refused(format!(
                "the admin of this host does not let you use policy '{name}'; yours are: {}",
                self.names()
            )),
            PolicySource::File { path, .. } if !self.widen => refused(format!(
                "the admin of this host does not let you use policy files of your own ({path}); \
                 yours are: {}",
                self.names()
            )),
            PolicySource::Name(_) | PolicySource::File { .. } => match widening(overrides) {
                Some(flag) if !self.widen => refused(format!(
                    "the admin of this host does not let you widen a policy: leave {flag} out"
                )),
                Some(_) | None => Ok(()),
            },
        }
    }

    /// # Errors
    /// `forbidden`.
    pub fn admits_grants(&self) -> Result<(), WireError> {
        if self.grants {
            return Ok(());
        }
        let words =
            "the admin of this host does not let you grant cages (grants = false in host.toml)";
        Err(WireError::new(ErrorCode::Forbidden, words))
    }

    fn admits_name(&self, name: &str) -> bool {
        self.policies.is_empty() || self.policies.iter().any(|pattern| pattern.matches(name))
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.policies.iter().map(ToString::to_string).collect();
        if names.is_empty() { "all that `mews policy list` shows".into() } else { names.join(", ") }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// The first flag that gives a cage more than its policy does.
fn widening(overrides: &Overrides) -> Option<&'static str> {
    let Overrides { read, write, env, provider, home, net, workspace_mode, .. } = overrides;
    [
        (!read.is_empty(), "--read"),
        (!write.is_empty(), "--write"),
        (!env.is_empty(), "--env"),
        (provider.is_some(), "--provider"),
        (home.is_some(), "--home"),
        (net.as_deref().is_some_and(|net| net != "none"), "--net"),
        // Writes that the policy keeps apart would land in the folder.
        (*workspace_mode == Some(WorkspaceMode::Direct), "workspace_mode"),
    ]
    .into_iter()
    .find_map(|(is_there, flag)| is_there.then_some(flag))
}

#[cfg(test)]
mod tests;
