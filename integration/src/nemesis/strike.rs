//! What dies, and when.

use super::schedule::Strike;
use crate::talk::{daemon_pids, finish};
use link::PidFd;
use std::process::Stdio;
use testkit::process::LIMIT;
use testkit::{Finished, Sandbox, pause};

pub(super) fn kill(pid: i32) -> anyhow::Result<()> {
    let handle = PidFd::open(pid)?;
    handle.signal(libc::SIGKILL)?;
    pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))
}

/// `(sessiond, supervisor)`, from the moment when both are there.
fn daemons(sandbox: &Sandbox) -> anyhow::Result<(i32, i32)> {
    sandbox.mews(["ls"])?.expect(0)?;
    pause::until("both daemons are there", LIMIT, || daemon_pids(sandbox).ok())
}

pub(super) fn before(sandbox: &Sandbox, strike: Strike) -> anyhow::Result<bool> {
    match strike {
        Strike::None | Strike::SessiondUnder | Strike::SupervisorUnder => return Ok(false),
        Strike::At(step) => {
            sandbox.arm(step, testkit::Act::Kill)?;
            return Ok(false);
        }
        Strike::Sessiond => kill(daemons(sandbox)?.0)?,
        Strike::Supervisor => kill(daemons(sandbox)?.1)?,
        Strike::Both => {
            let (sessiond, supervisor) = daemons(sandbox)?;
            kill(supervisor)?;
            kill(sessiond)?;
        }
    }
    Ok(true)
}

/// Nobody dies there any more; whether somebody did.
pub(super) fn disarm(sandbox: &Sandbox, strike: Strike) -> anyhow::Result<bool> {
    let Strike::At(step) = strike else { return Ok(false) };
    let folder = sandbox.root().join("steps");
    // Gone: it was reached, now or before.
    std::fs::remove_file(folder.join(step)).ok();
    Ok(std::fs::remove_file(folder.join(format!("{step}.met"))).is_ok())
}

/// Who is to die as soon as the act's client runs.
pub(super) fn under(sandbox: &Sandbox, strike: Strike) -> anyhow::Result<Option<i32>> {
    match strike {
        Strike::SessiondUnder => Ok(Some(daemons(sandbox)?.0)),
        Strike::SupervisorUnder => Ok(Some(daemons(sandbox)?.1)),
        Strike::None | Strike::Sessiond | Strike::Supervisor | Strike::Both | Strike::At(_) => {
            Ok(None)
        }
    }
}

/// Sends it, and strikes while it is under way.
pub(super) fn ask(
    sandbox: &Sandbox,
    words: &[String],
    strike: Strike,
) -> anyhow::Result<(Finished, bool)> {
    let under = under(sandbox, strike)?;
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    if let Some(pid) = under {
        kill(pid)?;
    }
    let client = finish(child)?;
    // From here on nobody dies: what follows must find everything again.
    let at_step = disarm(sandbox, strike)?;
    Ok((client, under.is_some() || strike.is_before() || at_step))
}
