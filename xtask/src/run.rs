//! From a fresh clone to a caged program with one command.

use crate::build::{Profile, Scope, build};
use crate::steps::{must, succeeds};
use std::path::Path;
use std::process::{Command, ExitCode};

/// `args`: options of `mews run`, then `--` and the command.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match prepare().and_then(|()| start(args)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> anyhow::Result<()> {
    need_bwrap()?;
    build(Profile::Dev, Scope::Programs)
}

fn need_bwrap() -> anyhow::Result<()> {
    if Path::new("/usr/bin/bwrap").exists() {
        return Ok(());
    }
    let line = "apt-get update && apt-get install --yes --no-install-recommends bubblewrap";
    if is_root() && has("apt-get") {
        return must(Command::new("sh").args(["-c", line]));
    }
    anyhow::bail!("bubblewrap is not installed. Type: sudo sh -c '{line}'")
}

fn start(args: &[String]) -> anyhow::Result<u8> {
    let mut command = Command::new(Profile::Dev.folder().join("mews"));
    let status = command.arg("run").args(args).status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n"))
}

fn has(program: &str) -> bool {
    let find = format!("command -v {program} >/dev/null");
    succeeds(Command::new("sh").args(["-c", &find])).unwrap_or(false)
}
