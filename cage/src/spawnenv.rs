//! One command of a living plan: which environment and which folder it gets.

use crate::plan::{CagePlan, MountKind, Terminal};
use std::collections::BTreeMap;
use wire::broker::BrokerExec;
use wire::{ARGV_BYTES_MAX, Arg, ENV_BYTES_MAX, ErrorCode, ExecSpec, WireError};

/// Where programs are, after those folders of the caller's PATH that are in the cage.
const PATH_DEFAULT: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The cage says these itself; a caller's would name things that are not there.
const OWN: &[&[u8]] = &[b"HOME", b"USER", b"LOGNAME", b"SHELL", b"PWD", b"OLDPWD", b"TMPDIR"];
const UMASK_DEFAULT: u32 = 0o022;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    #[error("there is no command; name one after --")]
    NoCommand,
    #[error("{0} has a NUL byte in it")]
    Nul(&'static str),
    #[error("the arguments are {0} bytes long; at most {ARGV_BYTES_MAX} fit")]
    ArgvTooLong(usize),
    #[error("the environment is {0} bytes long; at most {ENV_BYTES_MAX} fit")]
    EnvTooLong(usize),
    #[error("policy {0} gives no terminal; say --no-tty")]
    NoTerminal(String),
}

impl From<ExecError> for WireError {
    fn from(error: ExecError) -> Self {
        let code = match error {
            ExecError::NoCommand | ExecError::Nul(_) => ErrorCode::BadRequest,
            ExecError::ArgvTooLong(_) | ExecError::EnvTooLong(_) => ErrorCode::PayloadTooLarge,
            ExecError::NoTerminal(_) => ErrorCode::Forbidden,
        };
        Self::new(code, error.to_string())
    }
}

impl CagePlan {
    /// The command as this plan allows it, seen from inside.
    pub fn exec(&self, spec: &ExecSpec) -> Result<BrokerExec, ExecError> {
        check_argv(&spec.argv)?;
        let Terminal { enabled, .. } = self.terminal;
        if spec.tty.is_some() && !enabled {
            return Err(ExecError::NoTerminal(self.policy.clone()));
        }
        Ok(BrokerExec {
            argv: spec.argv.clone(),
            env: self.environment(spec)?,
            cwd: self.folder(spec.cwd.as_ref()),
            umask: spec.umask.unwrap_or(UMASK_DEFAULT) & 0o777,
            tty: spec.tty.map(wire::Size::clamped),
            hold: spec.hold,
            stdin: spec.stdin,
        })
    }

    /// `env.set` over what `env.pass` lets through over the cage's own.
    fn environment(&self, spec: &ExecSpec) -> Result<Vec<(Arg, Arg)>, ExecError> {
        let mut env: BTreeMap<Arg, Arg> = BTreeMap::new();
        let mut put = |name: &str, value: &str| env.insert(Arg::from(name), Arg::from(value));
        put("HOME", &self.user.home);
        put("USER", &self.user.name);
        put("LOGNAME", &self.user.name);
        put("SHELL", &self.user.shell);
        put("PATH", &PATH_DEFAULT.join(":"));
        if spec.tty.is_some() {
            put("TERM", "xterm-256color");
        }
        for (name, value) in &spec.env {
            if !self.passes(name.as_bytes()) {
                continue;
            }
            let value = match name.as_bytes() {
                b"PATH" => self.path(value),
                _ => value.clone(),
            };
            env.insert(name.clone(), value);
        }
        let set = self.env.set.iter();
        env.extend(set.map(|(name, value)| (Arg::from(name.as_str()), Arg::from(value.as_str()))));
        check_env(&env)?;
        Ok(env.into_iter().collect())
    }

    /// Of a caller's environment what a command of this plan may see.
    #[must_use]
    pub fn passed(&self, env: &[(Arg, Arg)]) -> Vec<(Arg, Arg)> {
        env.iter().filter(|(name, _value)| self.passes(name.as_bytes())).cloned().collect()
    }

    fn passes(&self, name: &[u8]) -> bool {
        let given = self.env.pass.iter().any(|rule| match rule.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning.as_bytes()),
            None => name == rule.as_bytes(),
        });
        given && !OWN.contains(&name) && !name.is_empty() && !name.contains(&b'=')
    }

    /// The caller's folders that are lent, in the caller's order, then the usual ones.
    fn path(&self, callers: &Arg) -> Arg {
        let callers = callers.lossy();
        let lent = callers.split(':').filter(|folder| self.shows(folder));
        let mut folders: Vec<&str> = Vec::new();
        for folder in lent.chain(PATH_DEFAULT.iter().copied()) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Arg::from(folders.join(":"))
    }

    /// Is this absolute path of the host the same thing inside?
    fn shows(&self, path: &str) -> bool {
        let nearest = self
            .mounts
            .iter()
            .filter(|mount| is_within(path, &mount.dest))
            .max_by_key(|mount| mount.dest.len());
        nearest.is_some_and(|mount| match &mount.kind {
            MountKind::Bind { source, .. } => {
                self.sources.get(*source).is_some_and(|source| source.host == mount.dest)
            }
            // `/bin` → `usr/bin`, as on the host.
            MountKind::Symlink { .. } => true,
            MountKind::Proc
            | MountKind::Dev
            | MountKind::Dir
            | MountKind::Tmpfs { .. }
            | MountKind::Hidden { .. }
            | MountKind::Data => false,
        })
    }

    /// The caller's folder where it is in the workspace, else the workspace, else home.
    fn folder(&self, callers: Option<&Arg>) -> Arg {
        let workspace = &self.workspace;
        let callers = callers.and_then(|cwd| std::str::from_utf8(cwd.as_bytes()).ok());
        let rest = callers.and_then(|cwd| {
            let is_clean = !cwd.split('/').any(|part| part == "..") && !cwd.contains('\0');
            (is_clean && is_within(cwd, &workspace.host))
                .then(|| cwd.get(workspace.host.len()..))?
        });
        let is_seen = self.mounts.iter().any(|mount| mount.dest == workspace.inside);
        match (rest, is_seen) {
            (Some(rest), true) => Arg::from(format!("{}{rest}", workspace.inside)),
            (None, true) => Arg::from(workspace.inside.as_str()),
            (_, false) => Arg::from(self.user.home.as_str()),
        }
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_argv(argv: &[Arg]) -> Result<(), ExecError> {
    if argv.first().is_none_or(|program| program.as_bytes().is_empty()) {
        return Err(ExecError::NoCommand);
    }
    if argv.iter().any(|arg| arg.as_bytes().contains(&0)) {
        return Err(ExecError::Nul("an argument"));
    }
    let bytes = argv.iter().map(|arg| arg.as_bytes().len() + 1).sum();
    if bytes > ARGV_BYTES_MAX { Err(ExecError::ArgvTooLong(bytes)) } else { Ok(()) }
}

fn check_env(env: &BTreeMap<Arg, Arg>) -> Result<(), ExecError> {
    if env.iter().any(|(name, value)| name.0.contains(&0) || value.0.contains(&0)) {
        return Err(ExecError::Nul("a variable"));
    }
    let bytes = env.iter().map(|(name, value)| name.0.len() + value.0.len() + 2).sum();
    if bytes > ENV_BYTES_MAX { Err(ExecError::EnvTooLong(bytes)) } else { Ok(()) }
}
