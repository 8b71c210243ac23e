//! What a session's layer may take on the disk.

use super::{Neighbour, ended, limits_met, met, policy};
use crate::talk::{Mode, in_workspace, run_with_status, start, wall};
use anyhow::{Context as _, ensure};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

const FILL: &str =
    "head -c 3000000 /dev/urandom > first; touch one; while [ ! -e go ]; do sleep 0.02; done
    head -c 6000000 /dev/urandom > second; exec sleep 300";

/// What is there is not counted in an overlay; what is written is. The operator's folder is as it was.
pub(super) fn bytes(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    std::fs::write(in_workspace(sandbox, "large"), vec![7; 20_000_000])?;
    let policy = policy(sandbox, "workspace_bytes = \"5M\"")?;
    let script = "head -c 9000000 /dev/urandom > more; exec sleep 300";
    let options = ["-p", &policy, "--overlay"];
    let (finished, status) = run_with_status(sandbox, mode, &options, &["sh", "-c", script])?;
    let finished = finished.expect(137)?;
    ensure!(finished.err().contains("and may take 5M"), "{}", finished.err());
    ensure!(!in_workspace(sandbox, "more").exists(), "it came to the operator's folder");
    let enforced = status.pointer("/enforced").context("enforced")?;
    ensure!(wall(enforced, "workspace_bytes")? == "emulated", "{enforced}");
    met(status.pointer("/exit").context("exit")?, "limit", "workspace_bytes")
}

/// In a private copy what was there counts too.
pub(super) fn copied(sandbox: &Sandbox) -> anyhow::Result<()> {
    std::fs::write(in_workspace(sandbox, "large"), vec![7; 20_000_000])?;
    let near = Neighbour::start(sandbox)?;
    let policy = policy(sandbox, "workspace_bytes = \"5M\"")?;
    let run = start(sandbox, &["-p", &policy, "--copy"], &["sleep", "300"])?;
    met(&ended(sandbox, &run.session)?, "limit", "workspace_bytes")?;
    ensure!(limits_met(sandbox, &run.session)? == ["workspace_bytes"], "the event");
    near.ends_unharmed(sandbox)
}

/// Small files; some in a folder that may not be looked into, some with two names.
pub(super) fn inodes(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "workspace_inodes = 300")?;
    let script = "mkdir closed twice; touch twice/a; for i in $(seq 200); do ln twice/a twice/b$i; done
        for i in $(seq 200); do : > closed/$i; done; chmod 0 closed; touch made
        while [ ! -e go ]; do sleep 0.02; done
        chmod 700 closed; for i in $(seq 200 400); do : > closed/$i; done; chmod 0 closed; exec sleep 300";
    let run =
        start(sandbox, &["-p", &policy, "--overlay", "--name", "many"], &["sh", "-c", script])?;
    let made = || sandbox.mews(["diff", "many"]).is_ok_and(|diff| diff.out().contains("made"));
    pause::until("the first are made", LIMIT, || made().then_some(()))?;
    let view = sandbox.mews(["limits", "many"])?.expect(0)?.out();
    ensure!(view.contains("workspace_inodes"), "{view}");
    // 200 names of one file are one, 200 files in the closed folder are fewer than 300.
    let refused = sandbox.mews(["limits", "many", "workspace_inodes=100"])?.expect(5)?;
    ensure!(refused.err().contains("may keep 100"), "{}", refused.err());
    ensure!(limits_met(sandbox, "many")?.is_empty(), "it ended for fewer");
    sandbox.mews(["exec", "--no-tty", "many", "--", "touch", "go"])?.expect(0)?;
    met(&ended(sandbox, &run.session)?, "limit", "workspace_inodes")
}

/// Set and raised while the cage lives, and kept by a supervisor that comes after.
pub(super) fn living(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--overlay", "--name", "filling"], &["sh", "-c", FILL])?;
    let one = || sandbox.mews(["diff", "filling"]).is_ok_and(|diff| diff.out().contains("one"));
    pause::until("the first file", LIMIT, || one().then_some(()))?;
    let refused = sandbox.mews(["limits", "filling", "workspace_bytes=1M"])?.expect(5)?;
    ensure!(refused.err().contains("may take 1M"), "{}", refused.err());
    sandbox.mews(["limits", "filling", "workspace_bytes=5M"])?.expect(0)?;
    let (_sessiond, supervisor) = crate::talk::daemon_pids(sandbox)?;
    link::PidFd::open(supervisor)?.signal(libc::SIGKILL)?;
    sandbox.mews(["exec", "--no-tty", "filling", "--", "touch", "go"])?.expect(0)?;
    met(&ended(sandbox, &run.session)?, "limit", "workspace_bytes")
}

/// Without a layer there is nothing that could be bounded, and that is said.
pub(super) fn direct(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "workspace_bytes = \"5M\"")?;
    let refused = sandbox.mews(["run", "--no-tty", "-p", &policy, "--", "true"])?;
    ensure!(
        refused.code != 0 && refused.err().contains("--overlay or --copy"),
        "{}",
        refused.err()
    );
    start(sandbox, &["--name", "plain"], &["sleep", "300"])?;
    let refused = sandbox.mews(["limits", "plain", "workspace_inodes=5"])?.expect(5)?;
    ensure!(refused.err().contains("--overlay or --copy"), "{}", refused.err());
    Ok(())
}

/// A file that nobody may read, in a folder that nobody may enter, is as it was after the look.
pub(super) fn modes_stay(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "workspace_bytes = \"50M\"")?;
    let script = "mkdir shut; echo x > shut/file; chmod 0 shut/file shut; touch done
        while [ ! -e go ]; do sleep 0.02; done; stat -c %a shut > mode; exec sleep 300";
    start(sandbox, &["-p", &policy, "--copy", "--name", "shut"], &["sh", "-c", script])?;
    let done = || sandbox.mews(["diff", "shut"]).is_ok_and(|diff| diff.out().contains("done"));
    pause::until("it is shut", LIMIT, || done().then_some(()))?;
    sandbox.mews(["limits", "shut", "workspace_bytes=40M"])?.expect(0)?;
    sandbox.mews(["exec", "--no-tty", "shut", "--", "touch", "go"])?.expect(0)?;
    pause::until("its mode", LIMIT, || {
        let read = ["exec", "--no-tty", "shut", "--", "cat", "mode"];
        let told = sandbox.mews(read).ok()?.out();
        (told.trim() == "0").then_some(())
    })
}
