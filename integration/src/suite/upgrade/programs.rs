//! What really happens: other files take the place of the programs that run.

use super::*;
use crate::suite::terminal::pids_of;
use std::path::PathBuf;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("upgrade.replaced_then_restarted", |s| replaced(s, Way::Restart)),
        Test::new("upgrade.replaced_then_stopped_and_started", |s| replaced(s, Way::Leave)),
        Test::new("upgrade.replaced_then_killed", |s| replaced(s, Way::Kill)),
        Test::new("upgrade.replaced_while_all_run", |s| replaced(s, Way::Nothing)),
        Test::new("upgrade.an_installation_that_is_not_whole", not_whole),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Restart,
    Leave,
    Kill,
    /// The old daemons go on, from files that are deleted.
    Nothing,
}

/// Programs of the sandbox's own.
fn installed(sandbox: &Sandbox) -> anyhow::Result<PathBuf> {
    let folder = sandbox.root().join("bin");
    testkit::programs::install(testkit::programs::folder()?, &folder)?;
    sandbox.use_programs(folder.clone());
    Ok(folder)
}

fn replaced(sandbox: &Sandbox, way: Way) -> anyhow::Result<()> {
    let folder = installed(sandbox)?;
    let mut cages = Cages::begin(sandbox)?;
    if way == Way::Leave {
        sandbox.mews(["daemon", "stop", "--leave"])?.expect(0)?;
    }
    testkit::programs::install(testkit::programs::folder()?, &folder)?;
    for broker in pids_of(sandbox, "mews-ptybroker") {
        let runs = std::fs::read_link(format!("/proc/{broker}/exe"))?;
        ensure!(runs.to_string_lossy().ends_with(" (deleted)"), "{}", runs.display());
    }
    match way {
        Way::Restart => {
            let (sessiond, supervisor) = daemon_pids(sandbox)?;
            let said = sandbox.mews(["daemon", "restart"])?.expect(0)?;
            ensure!(said.err().contains("4 cages ran on"), "{}", said.err());
            let (new_sessiond, new_supervisor) = daemon_pids(sandbox)?;
            ensure!(sessiond != new_sessiond && supervisor != new_supervisor, "not restarted");
        }
        Way::Kill => kill_both(sandbox)?,
        Way::Leave | Way::Nothing => {}
    }
    cages.go_on(sandbox)?;
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    let runs = std::fs::read_link(format!("/proc/{supervisor}/exe"))?;
    let deleted = runs.to_string_lossy().ends_with(" (deleted)");
    ensure!(deleted == (way == Way::Nothing), "{}", runs.display());
    // A supervisor whose files are deleted still starts cages, and its sessiond again.
    let (sessiond, _supervisor) = daemon_pids(sandbox)?;
    kill(sessiond)?;
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    cages.end(sandbox)
}

/// Nothing is stopped where there is nothing to start instead.
fn not_whole(sandbox: &Sandbox) -> anyhow::Result<()> {
    let folder = installed(sandbox)?;
    flow::begin(sandbox, PRINTS)?;
    let before = daemon_pids(sandbox)?;
    std::fs::remove_file(folder.join("mews-sessiond"))?;
    let refused = sandbox.mews(["daemon", "restart"])?.expect(1)?;
    ensure!(refused.err().contains("mews-sessiond is not beside"), "{}", refused.err());
    ensure!(daemon_pids(sandbox)? == before, "they were stopped");
    testkit::programs::install(testkit::programs::folder()?, &folder)?;
    flow::stop(sandbox, PRINTS)
}
