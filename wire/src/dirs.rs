//! Where the files of mews are: PROTOCOL.md 2. Pure: the caller brings uid and environment.

use std::path::{Path, PathBuf};

/// The three folders, and every path below them that two processes must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Sockets and what ends with the daemons: `$XDG_RUNTIME_DIR/mews`, `/run/mews`.
    pub run: PathBuf,
    /// What lasts: `$XDG_STATE_HOME/mews`, `/var/lib/mews`.
    pub state: PathBuf,
    /// What people write: `$XDG_CONFIG_HOME/mews`, `/etc/mews`.
    pub config: PathBuf,
    /// `run` is the fallback below the temp folder and must be checked (owner, 0700, no link).
    pub run_is_fallback: bool,
}

impl Dirs {
    /// The folders of a caller with this effective uid; `env` reads one variable.
    #[must_use]
    pub fn resolve(uid: u32, env: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| env(name).filter(|value| value.starts_with('/')).map(PathBuf::from);
        let home = || set("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let (run, run_is_fallback) = match set("MEWS_RUN_DIR") {
            Some(run) => (run, false),
            None if uid == 0 => (PathBuf::from("/run/mews"), false),
            None => match set("XDG_RUNTIME_DIR") {
                Some(base) => (base.join("mews"), false),
                None => (PathBuf::from(format!("/tmp/mews-{uid}")), true),
            },
        };
        let state = set("MEWS_STATE_DIR").unwrap_or_else(|| {
            if uid == 0 {
                PathBuf::from("/var/lib/mews")
            } else {
                set("XDG_STATE_HOME").unwrap_or_else(|| home().join(".local/state")).join("mews")
            }
        });
        let config = set("MEWS_CONFIG_DIR").unwrap_or_else(|| {
            if uid == 0 {
                PathBuf::from("/etc/mews")
            } else {
                set("XDG_CONFIG_HOME").unwrap_or_else(|| home().join(".config")).join("mews")
            }
        });
        Self { run, state, config, run_is_fallback }
    }

    /// Those of the system's daemons, which serve many operators.
    #[must_use]
    pub fn system() -> Self {
        Self::resolve(0, |_unset| None)
    }

    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.run.join("lock")
    }

    #[must_use]
    pub fn api_socket(&self) -> PathBuf {
        self.run.join("api.sock")
    }

    #[must_use]
    pub fn supervisor_socket(&self) -> PathBuf {
        self.run.join("supervisor.sock")
    }

    /// The supervisor's own run folder: a socket and a folder for each cage.
    #[must_use]
    pub fn sup_run(&self) -> PathBuf {
        self.run.join("sup")
    }

    /// Empty: mount points in each broker's own mount namespace.
    #[must_use]
    pub fn mnt(&self) -> PathBuf {
        self.run.join("mnt")
    }

    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.state.join("db/mews.db")
    }

    #[must_use]
    pub fn sup_state(&self) -> PathBuf {
        self.state.join("sup")
    }

    /// The supervisor's table of grants, a file each.
    #[must_use]
    pub fn grants(&self) -> PathBuf {
        self.sup_state().join("grants")
    }

    /// Who asked the supervisor for what.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.sup_state().join("journal")
    }

    #[must_use]
    pub fn homes(&self) -> PathBuf {
        self.state.join("homes")
    }

    /// A folder for each cage, given to its broker by descriptor.
    #[must_use]
    pub fn cages(&self) -> PathBuf {
        self.state.join("cages")
    }

    /// A folder for each session whose workspace has a layer; the supervisor's.
    #[must_use]
    pub fn layers(&self) -> PathBuf {
        self.state.join("layers")
    }

    /// Policies that an operator or admin wrote: `NAME.toml`.
    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.config.join("policies")
    }

    /// Where the daemons write their logs.
    #[must_use]
    pub fn log(&self, program: &str) -> PathBuf {
        self.state.join("log").join(Path::new(program).with_extension("log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let vars: Vec<(String, String)> =
            vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        move |name| vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn folders_follow_uid_and_environment() {
        let root = Dirs::resolve(0, env(&[("XDG_RUNTIME_DIR", "/run/user/0")]));
        assert_eq!(root.api_socket(), Path::new("/run/mews/api.sock"));
        let user = Dirs::resolve(1000, env(&[("HOME", "/home/a")]));
        assert_eq!(user.run, Path::new("/tmp/mews-1000"));
        assert!(user.run_is_fallback);
        assert_eq!(user.state, Path::new("/home/a/.local/state/mews"));
        let moved =
            Dirs::resolve(1000, env(&[("MEWS_RUN_DIR", "/t/r"), ("MEWS_STATE_DIR", "/t/s")]));
        assert_eq!((moved.run, moved.state), ("/t/r".into(), "/t/s".into()));
    }
}
