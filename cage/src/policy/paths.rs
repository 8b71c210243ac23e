//! Paths, variables and addresses of a policy.

use super::values::BadValue;
use crate::glob::Glob;
use serde::{Deserialize, Deserializer, de};
use std::net::SocketAddr;

/// A path as a policy names it: absolute, or beginning with a variable. No `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathRule {
    pub base: Base,
    /// Below the base, without slashes at either end; may be empty.
    pub rest: String,
    /// Stars in `rest` stand for names: only in `fs.hide` and `fs.protect`.
    pub is_pattern: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    Root,
    /// `$WORKSPACE`
    Workspace,
    /// `~`, `$HOME`: the operator's home on the host, seen as the payload's home inside.
    Home,
}

impl PathRule {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let (base, rest) = Self::split(text)?;
        if text.contains(['*', '?', '[', '{']) {
            let why = "is a pattern; paths are taken as they are, so name the folder itself";
            return Err(BadValue(format!("{text:?} {why}")));
        }
        Self::below(base, text, rest)
    }

    fn split(text: &str) -> Result<(Base, &str), BadValue> {
        let refused = |why: &str| Err(BadValue(format!("{text:?} {why}")));
        Ok(match text {
            _ if text.starts_with('/') => (Base::Root, text),
            _ => match text.split_once('/').unwrap_or((text, "")) {
                ("$WORKSPACE", rest) => (Base::Workspace, rest),
                ("~" | "$HOME", rest) => (Base::Home, rest),
                (head, _) if head.starts_with('$') => {
                    return refused(
                        "begins with an unknown variable; known are $WORKSPACE and $HOME",
                    );
                }
                _ => {
                    return refused("is a relative path; begin it with /, $WORKSPACE or ~");
                }
            },
        })
    }

    /// A path of `fs.hide` or `fs.protect`: a relative one lies in the workspace, and it may be a pattern.
    pub(super) fn guarded(text: &str) -> Result<Self, BadValue> {
        let (base, rest) = match text.starts_with(['/', '$', '~']) {
            true => Self::split(text)?,
            false => (Base::Workspace, text),
        };
        let refused = |why: &str| Err(BadValue(format!("{text:?} {why}")));
        if text.contains(['[', '{']) {
            return refused("has [ or { in it; a pattern knows * and ?, so write a line for each");
        }
        let rule = Self { is_pattern: Glob::is_in(rest), ..Self::below(base, text, rest)? };
        if rule.is_pattern && rule.rest.ends_with("**") {
            return refused("means all that is in a folder; name the folder itself");
        }
        Ok(rule)
    }

    /// Of a pattern: the folder that all it can mean lies in, and what it means there.
    pub(crate) fn pattern(&self) -> Option<(Self, Glob)> {
        let parts: Vec<&str> = self.rest.split('/').collect();
        let first = parts.iter().position(|part| Glob::is_in(part)).filter(|_| self.is_pattern)?;
        let (folder, names) = parts.split_at_checked(first)?;
        let folder = Self { base: self.base, rest: folder.join("/"), is_pattern: false };
        Some((folder, Glob::parse(&names.join("/"))?))
    }

    /// A host path as the command line names it: absolute, and its characters are its own.
    pub fn literal(text: &str) -> Result<Self, BadValue> {
        if text.starts_with('/') { Self::below(Base::Root, text, text) } else { Self::parse(text) }
    }

    fn below(base: Base, text: &str, rest: &str) -> Result<Self, BadValue> {
        let refused = |why: &str| Err(BadValue(format!("{text:?} {why}")));
        if text.chars().any(char::is_control) {
            return refused("has control characters in it");
        }
        let parts: Vec<&str> =
            rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return refused("has .. in it; write the path it leads to");
        }
        Ok(Self { base, rest: parts.join("/"), is_pattern: false })
    }
}

impl std::fmt::Display for PathRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let base = match self.base {
            Base::Root => return write!(f, "/{}", self.rest),
            Base::Workspace => "$WORKSPACE",
            Base::Home => "~",
        };
        if self.rest.is_empty() { f.write_str(base) } else { write!(f, "{base}/{}", self.rest) }
    }
}

impl<'de> Deserialize<'de> for PathRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

pub(super) fn guarded<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathRule>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let rules = texts.iter().map(|text| PathRule::guarded(text).map_err(de::Error::custom));
    rules.collect()
}

/// `connect` of `[[net.socket]]`: `unix:$PROVIDER`, `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connect {
    /// What `--provider` names.
    Provider,
    Unix(String),
}

impl Connect {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let refused = |why: &str| Err(BadValue(format!("{text:?} {why}")));
        let Some(path) = text.strip_prefix("unix:") else {
            return refused(
                "is not a socket to connect to; write \"unix:/path\" or \"unix:$PROVIDER\"",
            );
        };
        if path == "$PROVIDER" {
            return Ok(Self::Provider);
        }
        match PathRule::parse(path) {
            Ok(rule) if rule.base == Base::Root => Ok(Self::Unix(rule.to_string())),
            Ok(_) => refused("must be an absolute path"),
            Err(error) => Err(error),
        }
    }
}

impl<'de> Deserialize<'de> for Connect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// `listen` of `[[net.socket]]`: an address on loopback with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loopback(pub SocketAddr);

impl<'de> Deserialize<'de> for Loopback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<SocketAddr>() {
            Ok(addr) if addr.ip().is_loopback() && addr.port() != 0 => Ok(Self(addr)),
            _ => Err(de::Error::custom(format!(
                "{text:?} is not an address on loopback with a port, such as \"127.0.0.1:8399\""
            ))),
        }
    }
}

/// A name in `env.pass`: `LANG`, or a beginning with a star: `LC_*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvName(pub String);

impl EnvName {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let name = text.strip_suffix('*').unwrap_or(text);
        // `*` alone would pass every secret that the caller's shell holds.
        if !is_env_name(name) {
            return Err(BadValue(format!(
                "{text:?} is not the name of a variable; write NAME, or the beginning of a name with a * at the end: \"LC_*\""
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Letters, digits and `_`, not beginning with a digit.
#[must_use]
pub(super) fn is_env_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl<'de> Deserialize<'de> for EnvName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// `env.set`: names that are variables, values without NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EnvSet(pub(super) std::collections::BTreeMap<String, String>);

impl<'de> Deserialize<'de> for EnvSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = std::collections::BTreeMap::<String, String>::deserialize(deserializer)?;
        for (name, value) in &map {
            if !is_env_name(name) {
                return Err(de::Error::custom(format!("{name:?} is not the name of a variable")));
            }
            if value.contains('\0') {
                return Err(de::Error::custom(format!("the value of {name} has a NUL in it")));
            }
        }
        Ok(Self(map))
    }
}
