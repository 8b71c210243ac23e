//! What a run takes along from where it was typed: command, environment, folder, umask, terminal.

use crate::failure::Failure;
use crate::terminal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use wire::{Arg, AttachOptions, ExecSpec, History, Join, PolicySource, Size, View};

/// Whether a command gets a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// A terminal; a detached one has the size of ours, or the usual one.
    Terminal(Size),
    Pipes,
}

impl Streams {
    /// A terminal where the operator has one, and for what runs detached.
    pub(crate) fn choose(no_tty: bool, detached: bool) -> Self {
        if no_tty || !(detached || terminal::is_interactive()) {
            return Self::Pipes;
        }
        Self::Terminal(terminal::size().unwrap_or(Size::DEFAULT).clamped())
    }

    pub(crate) fn size(self) -> Option<Size> {
        match self {
            Self::Terminal(size) => Some(size),
            Self::Pipes => None,
        }
    }
}

/// `attended`: a viewer comes at once, and the command waits for it.
pub(crate) fn exec_spec(command: &[OsString], streams: Streams, attended: bool) -> ExecSpec {
    let argv = if command.is_empty() { vec![shell().into()] } else { args(command) };
    ExecSpec {
        argv,
        env: std::env::vars_os().map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: std::env::current_dir().ok().map(|path| path.into_os_string().into()),
        umask: umask(),
        tty: streams.size(),
        hold: attended,
        stdin: attended && streams == Streams::Pipes,
    }
}

fn args(words: &[OsString]) -> Vec<Arg> {
    words.iter().map(|word| word.as_os_str().into()).collect()
}

/// The caller's `$SHELL` may be anything; the cage has what is below /usr.
pub(crate) fn shell() -> &'static str {
    let there = |path: &str| Path::new(path).exists();
    if ["/usr/bin/bash", "/bin/bash"].into_iter().any(there) { "bash" } else { "sh" }
}

/// Whether a command is somebody's shell, not a script or another program.
pub(crate) fn is_shell(command: &[Arg]) -> bool {
    const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "tcsh", "csh"];
    let words: Vec<String> = command.iter().map(Arg::lossy).collect();
    let Some((program, options)) = words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_plain =
        |word: &String| word.starts_with("--") || (word.starts_with('-') && !word.contains('c'));
    SHELLS.contains(&name) && options.iter().all(is_plain)
}

/// Reading it by umask(2) would change it for a moment.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// A folder that is there, by its real path.
pub(crate) fn folder(given: Option<&Path>) -> Result<String, Failure> {
    let path = given.unwrap_or(Path::new("."));
    let real = std::fs::canonicalize(path).map_err(|error| {
        Failure::usage(format!("the workspace {} cannot be used: {error}", path.display()))
            .next("mews run -w FOLDER -- CMD")
    })?;
    if !real.is_dir() {
        return Err(Failure::usage(format!("the workspace {} is not a folder", real.display()))
            .next("mews run -w FOLDER -- CMD"));
    }
    real.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("the workspace {} is not UTF-8", path.to_string_lossy()))
    })
}

/// A path as the daemons understand it: absolute.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_empty| path.to_owned())
}

/// A name, or a file where it looks like one: the operator's own client reads it.
pub(crate) fn policy(text: &str) -> Result<PolicySource, Failure> {
    if !text.contains('/') && !text.ends_with(".toml") {
        return Ok(PolicySource::Name(text.to_owned()));
    }
    let read = std::fs::read_to_string(text).map_err(|error| {
        let mut failure = Failure::new(format!("the policy file {text} cannot be read: {error}"));
        failure.error.code = wire::ErrorCode::PolicyInvalid;
        failure.next("mews policy list")
    })?;
    Ok(PolicySource::File { path: absolute(Path::new(text)).display().to_string(), text: read })
}

/// How the runner joins what it has started.
pub(crate) fn runner(streams: Streams) -> AttachOptions {
    AttachOptions {
        join: Join::Auto,
        view: View::Screen,
        history: History::All,
        size: streams.size(),
        viewer: viewer_name(),
        remote: false,
        runner: true,
        tell_still: true,
        tell_others: true,
    }
}

/// As others see this viewer: `alice@pts/3`.
pub(crate) fn viewer_name() -> String {
    let uid = nix::unistd::getuid();
    let user = match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    };
    let place = match nix::unistd::ttyname(std::io::stdin()) {
        Ok(path) => path.strip_prefix("/dev").unwrap_or(&path).display().to_string(),
        Err(_no_terminal) => format!("pid {}", std::process::id()),
    };
    format!("{user}@{}", place.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_one_without_a_script() {
        for (words, want) in [
            ("bash", true),
            ("/usr/bin/zsh -l", true),
            ("bash --norc -i", true),
            ("sh -c ls", false),
            ("bash -lc ls", false),
            ("sh script.sh", false),
            ("ls", false),
            ("vim bash", false),
        ] {
            let words: Vec<Arg> = words.split(' ').map(Arg::from).collect();
            assert_eq!(is_shell(&words), want, "{words:?}");
        }
        assert!(!is_shell(&[]));
    }

    #[test]
    fn a_policy_with_a_slash_or_toml_is_a_file() {
        assert_eq!(policy("ci").unwrap(), PolicySource::Name("ci".into()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        std::fs::write(&file, "version = 1\n").unwrap();
        let text = file.display().to_string();
        let want = PolicySource::File { path: text.clone(), text: "version = 1\n".into() };
        assert_eq!(policy(&text).unwrap(), want);
        assert!(policy("./none").is_err());
    }

    #[test]
    fn what_is_taken_along_is_what_this_process_has() {
        let spec = exec_spec(&[], Streams::Pipes, true);
        assert!(spec.stdin && spec.hold && spec.tty.is_none());
        assert!(spec.umask.is_some() && spec.cwd.is_some() && !spec.argv.is_empty());
    }
}
