//! What has to hold before a change goes in.

use crate::build::{Profile, Scope, build};
use crate::steps::cargo;
use crate::tally::Tally;
use crate::test::{hermetic, integration};
use std::process::Command;

/// A fixed one, so that what fails here fails again; `cargo xtask nemesis --seed S` tries another.
const NEMESIS: &[&str] = &["nemesis", "--minutes", "2", "--seed", "1"];

/// # Errors
/// A step could not be started.
pub(crate) fn ci() -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    tally.step(&mut cargo(["fmt", "--all", "--check"]))?;
    let deny = ["--", "-D", "warnings"];
    let inside = ["-p", "cage", "--lib", "--bins", "--no-default-features", "--features", "init"];
    tally.step(cargo(["clippy", "--locked", "--workspace", "--all-targets"]).args(deny))?;
    tally.step(cargo(["clippy", "--locked"]).args(inside).args(deny))?;
    build(Profile::Dev, Scope::Workspace)?;
    hermetic(&mut tally)?;
    integration(&mut tally, &[])?;
    tally.step(Command::new(Profile::Dev.folder().join("mews-integration")).args(NEMESIS))?;
    println!("{tally}");
    Ok(tally.all_passed())
}
