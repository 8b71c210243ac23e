//! Agents from npm, installed once, outside of the repository.

use super::programs::{AGENTS, Agent};
use crate::runner::skip;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;
use testkit::process;

/// npm on a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// Where an agent is.
pub(super) fn installed(agent: &Agent) -> anyhow::Result<PathBuf> {
    static TOGETHER: Once = Once::new();
    if is_ci() {
        // All will be asked for: side by side they take the time of the slowest.
        TOGETHER.call_once(|| {
            std::thread::scope(|scope| {
                for agent in AGENTS {
                    // Whoever asks for it tries again, and says why.
                    scope.spawn(|| install(agent).ok());
                }
            });
        });
    }
    let package = agent.package;
    match install(agent) {
        Ok(prefix) => Ok(prefix),
        Err(error) if is_ci() => Err(error.context(format!("npm install {package}"))),
        Err(error) => Err(skip(&format!("{package} could not be installed: {error}"))),
    }
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some()
}

fn install(agent: &Agent) -> anyhow::Result<PathBuf> {
    let name = format!("{}-{}", agent.name, agent.version);
    let prefix = cache().join(&name);
    if prefix.join(agent.program).exists() {
        return Ok(prefix);
    }
    let part = cache().join(format!("{name}.part-{}", std::process::id()));
    std::fs::create_dir_all(&part)?;
    let mut npm = Command::new("npm");
    // No script of a package runs: what it would link is started by its own name.
    npm.args(["install", "--global", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"]);
    npm.arg(&part).arg(format!("{}@{}", agent.package, agent.version)).current_dir(&part);
    let done = process::run(&mut npm, b"", INSTALL_LIMIT).and_then(|npm| npm.expect(0));
    let moved = done.and_then(|_npm| Ok(std::fs::rename(&part, &prefix)?));
    if moved.is_err() {
        // Nothing is left to do for one that stays.
        std::fs::remove_dir_all(&part).ok();
    }
    match moved {
        // Another one was faster.
        Err(_) if prefix.join(agent.program).exists() => Ok(prefix),
        other => other.map(|()| prefix),
    }
}

pub(crate) fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    // Everybody's, if root runs the tests: other uids read it.
    let shared = testkit::caller::is_root().then(|| PathBuf::from("/var/cache"));
    shared.or(base).or_else(home).unwrap_or_else(std::env::temp_dir).join("mews-agents")
}
