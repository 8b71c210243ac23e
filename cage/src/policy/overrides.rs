//! What the operator says on the command line, laid over the policy. It may widen.

use super::limit::checked_pids;
use super::paths::is_env_name;
use super::values::{BadValue, Bytes, Home, Millis, Name};
use super::{PathRule, Policy};
use wire::{Arg, Overrides};

/// A flag with a bad value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct BadFlag {
    pub flag: &'static str,
    pub why: String,
}

impl Policy {
    /// `--provider` is not here: it is a host path, which the plan resolves.
    pub fn with_overrides(mut self, overrides: &Overrides) -> Result<Self, BadFlag> {
        let flag = |flag| move |BadValue(why)| BadFlag { flag, why };
        for path in &overrides.read {
            self.read.push(path_rule(path).map_err(flag("--read"))?);
        }
        for path in &overrides.write {
            self.write.push(path_rule(path).map_err(flag("--write"))?);
        }
        for (name, value) in &overrides.env {
            self.override_env(name, value.as_deref()).map_err(flag("--env"))?;
        }
        if let Some(text) = &overrides.memory {
            self.limits.memory_bytes = Some(Bytes::parse(text).map_err(flag("--memory"))?.0);
        }
        if let Some(pids) = overrides.pids {
            self.limits.pids = Some(checked_pids(pids).map_err(flag("--pids"))?);
        }
        if let Some(text) = &overrides.walltime {
            self.limits.walltime_ms = Some(Millis::parse(text).map_err(flag("--timeout"))?.0);
        }
        self.limits.set(&overrides.limits).map_err(flag("--limit"))?;
        if let Some(text) = &overrides.home {
            self.home = Home::Persistent(Name::parse(text).map_err(flag("--home"))?);
        }
        if let Some(mode) = overrides.workspace_mode {
            self.workspace = mode;
        }
        match overrides.net.as_deref() {
            None | Some("none") => Ok(self),
            Some(other) => Err(BadFlag {
                flag: "--net",
                why: format!("{other:?} is not supported by this version; write none"),
            }),
        }
    }

    fn override_env(&mut self, name: &str, value: Option<&str>) -> Result<(), BadValue> {
        if !is_env_name(name) {
            return Err(BadValue(format!("{name:?} is not the name of a variable")));
        }
        match value {
            None => self.env_pass.push(name.to_owned()),
            Some(value) if value.contains('\0') => {
                return Err(BadValue(format!("the value of {name} has a NUL in it")));
            }
            Some(value) => {
                self.env_set.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(())
    }
}

fn path_rule(path: &Arg) -> Result<PathRule, BadValue> {
    let Ok(text) = std::str::from_utf8(path.as_bytes()) else {
        return Err(BadValue(format!("{:?} is not UTF-8; rename it to lend it", path.lossy())));
    };
    PathRule::literal(text)
}
