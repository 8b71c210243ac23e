//! From `go` to nothing left: the one task that moves a cage on.
//!
//! ```text
//! exited (broker tells)  ─┐
//! broker lost (link ends) ─┴─▶ pid 1 reaped, monitor gone, cgroup empty ─▶ gone ─▶ broker ends
//! ```

use super::Cage;
use super::phase::Moment;
use super::record::Process;
use crate::launch;
use crate::reconcile;
use crate::stats;
use crate::supervisor::Supervisor;
use crate::{walltime, workspace};
use link::{PidFd, failpoint};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;
use wire::broker::{BrokerNotice, BrokerRequest, BrokerState};
use wire::{Cause, EventBody, Exit, Usage, control};

/// After pid 1 is dead the broker has this long to tell the exit; it drains for 250 ms at most.
const TELL_DEADLINE: Duration = Duration::from_secs(10);
/// After SIGKILL to every process of a cgroup, the kernel has this long to empty it.
const EMPTY_DEADLINE: Duration = Duration::from_secs(2);
/// A broker ends by itself ten minutes after nobody needs it; one that does not is stuck.
const BROKER_DEADLINE: Duration = Duration::from_secs(660);

/// Drives one cage to its end. `notices` end with the broker's link.
pub(crate) async fn run(
    supervisor: Rc<Supervisor>,
    cage: Rc<Cage>,
    notices: Receiver<BrokerNotice>,
) {
    watch_limits(&supervisor, &cage);
    run_adopted(supervisor, cage, notices, None).await;
}

/// The limits that are looked after from here, whether or not its broker can be talked to. Until the cage
/// is gone.
pub(crate) fn watch_limits(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    tokio::task::spawn_local(workspace::watch(Rc::clone(supervisor), Rc::clone(cage)));
    tokio::task::spawn_local(walltime::watch(Rc::clone(supervisor), Rc::clone(cage)));
}

/// The same for a cage that was found; its broker may have told the exit to an earlier supervisor.
pub(crate) async fn run_adopted(
    supervisor: Rc<Supervisor>,
    cage: Rc<Cage>,
    mut notices: Receiver<BrokerNotice>,
    state: Option<BrokerState>,
) {
    let told = match state.and_then(|state| state.exit) {
        Some(exit) => Some(exit),
        None => exit_told(&supervisor, &cage, &mut notices).await,
    };
    failpoint::reach("exit.heard");
    cage.step(Moment::Ending);
    match told {
        Some(exit) => {
            remember_terminals(&cage).await;
            cage.update(|record| record.exit = Some(exit));
        }
        None => broker_lost(&cage).await,
    }
    emptied(&cage).await;
    failpoint::reach("exit.emptied");
    tell_stats(&cage).await;
    announce_gone(&supervisor, &cage);
    let end = cage.handles().broker.clone();
    if let (Some(handle), Some(process)) = (end, cage.record().broker) {
        broker_ended(&cage, &handle, process.pid).await;
    }
    failpoint::reach("exit.broker_ended");
    cage.set_broker(None);
    supervisor.remove_run_files(cage.id);
}

/// While its groups are there.
pub(crate) async fn tell_stats(cage: &Cage) {
    if !cage.has_told("cage.stats") {
        let stats = Box::new(stats::of(cage).await);
        cage.tell_end(&EventBody::CageStats { stats });
    }
}

/// The broker's word on the exit, over as many links as it takes, or `None` when it is lost. Notices that tell nothing new pass.
async fn exit_told(
    supervisor: &Supervisor,
    cage: &Rc<Cage>,
    notices: &mut Receiver<BrokerNotice>,
) -> Option<Exit> {
    let init = cage.handles().init.clone();
    let deadline = async {
        if let Some(init) = &init {
            launch::wait_for(init).await;
        }
        tokio::time::sleep(TELL_DEADLINE).await;
    };
    let told = async {
        loop {
            match notices.recv().await {
                Some(BrokerNotice::Exited { exit }) => return Some(exit),
                Some(BrokerNotice::Failed { wall, message }) => {
                    tracing::warn!(cage = %cage.id, wall, message, "a broker failed after go");
                }
                Some(BrokerNotice::Attested { .. } | BrokerNotice::Event { .. }) => {}
                None => *notices = reconcile::reconnect(supervisor, cage).await?,
            }
        }
    };
    tokio::select! {
        told = told => told,
        () = deadline => {
            tracing::warn!(cage = %cage.id, "the cage is dead and its broker tells no exit");
            None
        }
    }
}

/// Terminals as they ended, for lists after the broker is gone.
async fn remember_terminals(cage: &Cage) {
    let Ok(broker) = cage.broker() else { return };
    let asked = broker.call(&BrokerRequest::State, &[]);
    let Ok(Ok((state, _fds))) = tokio::time::timeout(TELL_DEADLINE, asked).await else { return };
    if let Ok(state) = control::typed::<BrokerState>(state) {
        cage.learn_broker_seq(state.seq);
        cage.update(|record| record.ptys = state.ptys);
    }
}

/// The broker died, or hangs, or speaks nonsense: its cage ends with it.
pub(crate) async fn broker_lost(cage: &Cage) {
    let broker = cage.handles().broker.clone();
    if let Some(broker) = broker {
        // ESRCH: it is dead already.
        let _dead = broker.signal(libc::SIGKILL);
        launch::wait_for(&broker).await;
    }
    kill_now(cage);
    let exit = cage.exit_on_disk().unwrap_or_else(|| lost_exit(cage));
    cage.update(|record| record.exit = Some(exit));
    tell_exit_of_files(cage);
}

/// What the broker wrote and could not tell goes up from its file; the exit is told by us where that
/// has none. sessiond takes whichever comes first.
pub(crate) fn tell_exit_of_files(cage: &Cage) {
    learn_written(cage);
    let Some(exit) = cage.record().exit else { return };
    let told = EventBody::CageExited { exit };
    let by_broker = cage.broker_events().iter().any(|event| event.body().as_ref() == Some(&told));
    if !by_broker && !cage.has_told("cage.exited") {
        cage.tell_end(&told);
    }
}

fn learn_written(cage: &Cage) {
    if let Some(newest) = cage.broker_events().last().map(|event| event.seq) {
        cage.learn_broker_seq(newest);
    }
}

/// A broker writes down a command before it starts it: without that, nothing ran.
fn lost_exit(cage: &Cage) -> Exit {
    let ending = cage.ending();
    if !cage.broker_events().iter().any(|event| event.kind == "pty.allocated") {
        let words = "the cage ended before its first command was started; nothing ran".to_owned();
        return Exit::not_started(125, ending.unwrap_or(Cause::CageSetup), words);
    }
    Exit {
        code: None,
        signal: Some(9),
        core: false,
        cause: ending.unwrap_or(Cause::BrokerLost),
        message: Some(
            cage.ending_words()
                .unwrap_or_else(|| "the cage's broker died; the cage was killed".to_owned()),
        ),
        usage: Usage::default(),
    }
}

/// SIGKILL to everything, once: by cgroup where there is one, and to pid 1, whose death takes the
/// rest of its namespace with it.
pub(crate) fn kill_now(cage: &Cage) {
    let handles = cage.handles();
    if let Some(cgroup) = handles.cgroup.as_ref().filter(|cgroup| !cgroup.is_absent())
        && let Err(error) = cgroup.kill()
    {
        tracing::warn!(cage = %cage.id, %error, "the cgroup could not be killed at once");
    }
    if let Some(init) = &handles.init {
        // ESRCH: it is dead already.
        let _dead = init.signal(libc::SIGKILL);
    }
}

/// Returns when pid 1 is reaped (its namespace is empty then) and the cgroup is empty.
pub(crate) async fn emptied(cage: &Cage) {
    let (init, cgroup) = {
        let handles = cage.handles();
        (handles.init.clone(), handles.cgroup.clone())
    };
    if let Some(init) = init {
        launch::wait_for(&init).await;
    }
    let Some(cgroup) = cgroup.filter(|cgroup| !cgroup.is_absent()) else { return };
    for member in cgroup.members() {
        // bwrap's monitor ends by itself when pid 1 has; whatever else is there gets the signal below.
        if let Ok(handle) = PidFd::open(member) {
            let _late = tokio::time::timeout(EMPTY_DEADLINE, launch::wait_for(&handle)).await;
        }
    }
    if !cgroup.is_empty()
        && let Err(error) = cgroup.kill_all(Instant::now() + EMPTY_DEADLINE)
    {
        tracing::error!(cage = %cage.id, %error, "the cgroup does not get empty");
    }
}

/// The end in the records, then in the events, then the groups; in this order, so that a death in
/// between is found and finished by the next start.
pub(crate) fn announce_gone(supervisor: &Supervisor, cage: &Cage) {
    // An earlier supervisor may have died right after it.
    if !cage.has_told("cage.gone") {
        cage.tell_end(&EventBody::CageGone {});
    }
    failpoint::reach("exit.gone_told");
    cage.update(|record| {
        record.gone = true;
        record.cgroup = None;
    });
    supervisor.save(cage);
    failpoint::reach("exit.gone_recorded");
    remove_groups(cage);
    failpoint::reach("exit.groups_removed");
    cage.step(Moment::Emptied);
}

pub(crate) fn remove_groups(cage: &Cage) {
    if let Some(cgroup) = cage.handles().cgroup.clone()
        && let Err(error) = cgroup.remove()
    {
        tracing::warn!(cage = %cage.id, %error, "a cgroup is left");
    }
}

/// Returns when the broker of a cage that is gone has ended: it still serves viewers.
pub(crate) async fn broker_ended(cage: &Cage, handle: &PidFd, pid: i32) {
    if tokio::time::timeout(BROKER_DEADLINE, launch::ended(handle, pid)).await.is_err() {
        tracing::warn!(cage = %cage.id, pid, "a broker that nobody needs does not end; it is killed");
        // ESRCH: it ended this moment.
        let _dead = handle.signal(libc::SIGKILL);
        launch::ended(handle, pid).await;
    }
}

/// A process that can be waited for, from its record.
pub(crate) fn handle_of(process: Option<Process>) -> Option<Rc<PidFd>> {
    process?.handle().map(Rc::new)
}
