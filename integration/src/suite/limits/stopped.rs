//! Processes that keep a limit run under the operator's uid: one that the operator stops does not take
//! the limit away.

use super::{ended, limits_met, met, policy};
use crate::suite::stopper::{Stopper, children_of};
use crate::suite::terminal::broker;
use crate::talk::{daemon_pids, start, text};
use anyhow::ensure;
use link::PidFd;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, pause};

/// A megabyte and another one.
const GROWS: &str =
    "i=0; while :; do head -c 1000000 /dev/urandom > f$i; i=$((i+1)); sleep 0.5; done";

/// The cage and its broker are gone all the same, for the reason that there is: a limit that came later,
/// and a pause in between.
pub(super) fn walltime(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "walltime = \"10h\"")?;
    let run = start(sandbox, &["-p", &policy], &["sleep", "1000"])?;
    sandbox.mews(["limits", &run.session, "walltime=5s"])?.expect(0)?;
    sandbox.mews(["pause", &run.session])?.expect(0)?;
    sandbox.mews(["resume", &run.session])?.expect(0)?;
    let broker = PidFd::open(broker(sandbox)?)?;
    broker.signal(libc::SIGSTOP)?;
    met(&ended(sandbox, &run.session)?, "walltime", "walltime")?;
    ensure!(limits_met(sandbox, &run.session)? == ["walltime"], "the event");
    pause::until("its broker is gone", LIMIT, || (!broker.is_alive()).then_some(()))
}

pub(super) fn workspace(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "workspace_bytes = \"10M\"")?;
    let run = start(sandbox, &["-p", &policy, "--overlay"], &["sh", "-c", GROWS])?;
    PidFd::open(broker(sandbox)?)?.signal(libc::SIGSTOP)?;
    met(&ended(sandbox, &run.session)?, "limit", "workspace_bytes")?;
    ensure!(limits_met(sandbox, &run.session)? == ["workspace_bytes"], "the event");
    Ok(())
}

/// A supervisor that comes later cannot talk to it.
pub(super) fn unreachable(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "workspace_bytes = \"15M\"")?;
    let run = start(sandbox, &["-p", &policy, "--overlay"], &["sh", "-c", GROWS])?;
    PidFd::open(broker(sandbox)?)?.signal(libc::SIGSTOP)?;
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    PidFd::open(supervisor)?.signal(libc::SIGKILL)?;
    met(&ended(sandbox, &run.session)?, "limit", "workspace_bytes")
}

/// What measures is stopped each time: it is ended after its time, and the cage after the third.
pub(super) fn measuring(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut daemons = sandbox.command(["daemon", "start"])?;
    process::run(daemons.env("MEWS_LAYER_DEADLINE_MS", "2000"), b"", LIMIT)?.expect(0)?;
    let policy = policy(sandbox, "workspace_bytes = \"1G\"")?;
    // So many files that a look takes its time: one that is over at once is not met.
    let script = "seq -f f%.0f 20000 | xargs touch; echo made; exec sleep 1000";
    let run = start(sandbox, &["-p", &policy, "--overlay"], &["sh", "-c", script])?;
    sandbox.mews(["wait", &run.session, "--for", "^made$", "--timeout", "60"])?.expect(0)?;
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    let stopper = Stopper::start(move || children_of(supervisor));
    let exit = ended(sandbox, &run.session)?;
    met(&exit, "limit", "workspace_bytes")?;
    let said = text(&exit, "/message")?;
    ensure!(said.contains("cannot be measured") && said.contains("not done after 2 s"), "{said}");
    let bounds = stopper.bounds();
    ensure!(bounds.len() >= 3, "{} were stopped", bounds.len());
    for [limits, oom] in bounds {
        let memory = limits.lines().find(|line| line.starts_with("Max address space"));
        let memory = memory.unwrap_or_default().split_whitespace().nth(3);
        ensure!(memory == Some("1073741824"), "{limits}");
        ensure!(oom.trim() == "1000", "the kernel takes others first: {oom}");
    }
    Ok(())
}
