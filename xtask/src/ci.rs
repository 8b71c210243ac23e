//! What has to hold before a change goes in.

use crate::build::{Profile, Scope, build};
use crate::steps::cargo;
use crate::tally::Tally;
use crate::test::{hermetic, integration};

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
    println!("{tally}");
    Ok(tally.all_passed())
}
