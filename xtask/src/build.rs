//! The programs, side by side in one folder: where they look for each other.

use crate::steps::{cargo, must, succeeds, target};
use anyhow::Context as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const INIT: &str = "mews-cage-init";
/// As `packaging/install.sh` has them: what runs under an operator's uid cannot be looked into by it. A
/// supervisor that finds them readable keeps a copy that is not, in memory.
const CLOSED: [&str; 2] = ["mews-ptybroker", "mews-layer"];
const EXECUTE_ONLY: u32 = 0o711;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    pub(crate) fn folder(self) -> PathBuf {
        target().join(self.name())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }

    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Release => &["--release"],
        }
    }
}

/// What is built, and so with which features of the libraries: each choice compiles them anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What people run.
    Programs,
    /// The same and the suites of the real kernel.
    Guest,
    /// The same and all tests, as `cargo test --workspace` wants them.
    Workspace,
}

/// # Errors
/// The first step that failed.
pub(crate) fn build(profile: Profile, scope: Scope) -> anyhow::Result<()> {
    let programs = [
        "--bin",
        "mews",
        "--bin",
        "mews-sessiond",
        "--bin",
        "mews-supervisor",
        "--bin",
        "mews-ptybroker",
        "--bin",
        "mews-layer",
    ];
    let with_suites = [&["--workspace"], &programs[..], &["--bin", "mews-integration"]].concat();
    let what: &[&str] = match scope {
        Scope::Programs => &programs,
        Scope::Guest => &with_suites,
        Scope::Workspace => &["--workspace", "--all-targets"],
    };
    must(cargo(["build", "--locked"]).args(profile.flags()).args(what))?;
    for name in CLOSED {
        let path = profile.folder().join(name);
        std::fs::set_permissions(&path, Permissions::from_mode(EXECUTE_ONLY))
            .with_context(|| path.display().to_string())?;
    }
    let made = build_init(profile)?;
    put(&made, &profile.folder().join(INIT))
}

/// Pid 1 of a cage runs before anything is mounted there, so it must be static.
fn build_init(profile: Profile) -> anyhow::Result<PathBuf> {
    let bin = ["-p", "cage", "--bin", INIT, "--no-default-features", "--features", "init"];
    if let Some(musl) = musl_target() {
        must(cargo(["build", "--locked", "--target", &musl]).args(bin).args(profile.flags()))?;
        return Ok(target().join(musl).join(profile.name()).join(INIT));
    }
    let gnu = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let flags = ["--", "-C", "target-feature=+crt-static"];
    must(
        cargo(["rustc", "--locked", "--target", &gnu]).args(bin).args(profile.flags()).args(flags),
    )?;
    Ok(target().join(gnu).join(profile.name()).join(INIT))
}

/// The musl target, if rustup has it or gets it within a minute.
pub(crate) fn musl_target() -> Option<String> {
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let has = || {
        let list = Command::new("rustup")
            .args(["target", "list", "--installed"])
            .stderr(Stdio::null())
            .output();
        list.is_ok_and(|list| String::from_utf8_lossy(&list.stdout).lines().any(|it| it == musl))
    };
    if has() {
        return Some(musl);
    }
    let added = succeeds(Command::new("timeout").args(["60", "rustup", "target", "add", &musl]));
    (added.unwrap_or(false) && has()).then_some(musl)
}

/// Whole or not at all: a cage may be starting from the old one.
fn put(from: &Path, to: &Path) -> anyhow::Result<()> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new)
        .and_then(|_bytes| std::fs::rename(&new, to))
        .with_context(|| format!("cannot put {} at {}", from.display(), to.display()))
}
