//! All suites, one tally.

use crate::build::{Profile, Scope, build, musl_target};
use crate::steps::{cargo, must};
use crate::tally::Tally;
use std::process::Command;

/// Unit and hermetic suites, then integration: all, or the named suites of it alone.
///
/// # Errors
/// Something could not be built or started.
pub(crate) fn test(suites: &[String]) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    build(Profile::Dev, Scope::Workspace)?;
    if suites.is_empty() {
        hermetic(&mut tally)?;
    }
    integration(&mut tally, suites)?;
    println!("{tally}");
    Ok(tally.all_passed())
}

pub(crate) fn hermetic(tally: &mut Tally) -> anyhow::Result<()> {
    tally.suite(&mut cargo(["test", "--locked", "--workspace", "--no-fail-fast"]))?;
    // The inside of the cage is its own build; in its own folder, so that it does not overwrite the
    // static program that other suites use.
    let target =
        musl_target().unwrap_or_else(|| format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let inside = ["-p", "cage", "--lib", "--no-default-features", "--features", "init"];
    tally.suite(cargo(["test", "--locked", "--no-fail-fast", "--target", &target]).args(inside))
}

pub(crate) fn integration(tally: &mut Tally, suites: &[String]) -> anyhow::Result<()> {
    tally.suite(Command::new(Profile::Dev.folder().join("mews-integration")).args(suites))
}

/// A seeded run of everything; two minutes, unless told otherwise.
///
/// # Errors
/// Something could not be built or started.
pub(crate) fn nemesis(args: &[String]) -> anyhow::Result<bool> {
    build(Profile::Dev, Scope::Workspace)?;
    let program = Profile::Dev.folder().join("mews-integration");
    crate::steps::succeeds(Command::new(program).arg("nemesis").args(args))
}

/// What is shipped, measured beside its peers.
///
/// # Errors
/// Something could not be built or started.
pub(crate) fn bench(rows: &[String]) -> anyhow::Result<bool> {
    build(Profile::Release, Scope::Programs)?;
    must(&mut cargo(["build", "--locked", "--release", "-p", "mews-integration"]))?;
    let program = Profile::Release.folder().join("mews-integration");
    crate::steps::succeeds(Command::new(program).arg("bench").args(rows))
}
