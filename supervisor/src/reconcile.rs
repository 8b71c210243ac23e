//! What an earlier supervisor left: records, run folders, cgroups. Compared with what lives, never
//! guessed.
//!
//! | the record says | and | then |
//! | --- | --- | --- |
//! | gone | a group of its name is there | remove that, then the same as: |
//! | gone | – | keep its files for lists and logs until it is forgotten |
//! | went | its broker lives | adopt it, and carry out what it was told to do |
//! | went | its broker lives, and cannot be talked to | it lives on, and can be killed (`unreachable.rs`) |
//! | went | its broker never had a command | nothing ran: as below |
//! | went | its broker is dead | kill what is left, write the exit that nobody wrote |
//! | not went | – | nothing ran: kill what is left, say that it failed |
//!
//! A cgroup or run folder of a cage without a record does not exist: the record is written first and
//! removed last.

use crate::broker_link::{BrokerLink, BrokerLinkError};
use crate::cage::phase::Moment;
use crate::cage::record::Record;
use crate::cage::{Cage, driver};
use crate::ending;
use crate::files;
use crate::launch;
use crate::layers;
use crate::limits;
use crate::outbox::Journal;
use crate::supervisor::Supervisor;
use crate::suspend;
use crate::unreachable::{self, Notices, Opening};
use ::cage::cgroup::{self, CageCgroup};
use ::cage::plan::CagePlan;
use link::{LinkError, Packets, failpoint};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use wire::broker::{BrokerRequest, BrokerState};
use wire::hello::Hello;
use wire::supervisor::Phase;
use wire::{CageId, Cause, EventBody, Exit, control};

/// A living broker says hello at once; one that does not in this time is waited for on the side, so that
/// a few that are stopped do not hold up the start.
const HELLO_DEADLINE: Duration = Duration::from_secs(2);
/// One that has said hello has this long to tell its state.
const ADOPT_DEADLINE: Duration = Duration::from_secs(5);

/// Descriptors may be there again by then: nobody tells.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    /// It is gone, but whoever wrote that died before its groups were removed.
    Sweep,
    Adopt,
    /// It ran, and nobody is there to tell how it ended.
    Bury,
    /// It never ran.
    Discard,
}

fn fate(record: &Record, broker_lives: bool, group_found: bool) -> Fate {
    match (record.gone, record.went, broker_lives) {
        (true, _, _) if group_found => Fate::Sweep,
        (true, _, _) => Fate::Keep,
        (false, true, true) => Fate::Adopt,
        (false, true, false) => Fate::Bury,
        (false, false, _) => Fate::Discard,
    }
}

/// Takes over everything that is there. Adopted cages are driven on; the rest is brought to its end
/// before this returns.
///
/// # Errors
/// The folder of records cannot be read.
pub(crate) async fn run(supervisor: &Rc<Supervisor>) -> io::Result<()> {
    layers::take_over(supervisor)?;
    files::remove_unfinished(&supervisor.host.dirs.sup_state())?;
    let records = Record::load_all(&supervisor.host.dirs.sup_state())?;
    let mut cgroups: HashMap<CageId, CageCgroup> =
        cgroup::scan(&supervisor.layout).into_iter().collect();
    // Brokers answer when the machine lets them run: all are asked before any is waited for.
    let mut work = JoinSet::new();
    for record in records {
        if let Some(uids) = supervisor.uids.borrow_mut().as_mut() {
            uids.adopt(record.uid);
        }
        let group = cgroups.remove(&record.cage);
        let supervisor = Rc::clone(supervisor);
        work.spawn_local(async move {
            let id = record.cage;
            if let Err(error) = take_over(&supervisor, record, group).await {
                tracing::error!(cage = %id, %error, "a cage of an earlier supervisor is unreadable");
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.map_err(io::Error::other)?;
    }
    Ok(())
}

async fn take_over(
    supervisor: &Rc<Supervisor>,
    record: Record,
    group: Option<CageCgroup>,
) -> io::Result<()> {
    let broker = driver::handle_of(record.broker);
    let fate = fate(&record, broker.is_some(), group.is_some());
    let cage = open(supervisor, record, group, broker)?;
    supervisor.add(Rc::clone(&cage));
    tracing::info!(cage = %cage.id, ?fate, "found");
    match fate {
        Fate::Keep => keep(supervisor, &cage).await,
        Fate::Sweep => {
            driver::emptied(&cage).await;
            driver::remove_groups(&cage);
            keep(supervisor, &cage).await;
        }
        Fate::Adopt => {
            driver::watch_limits(supervisor, &cage);
            match connect(supervisor, &cage).await {
                Ok(notices) => adopt(supervisor, &cage, notices).await,
                Err(Missed::Dead) => bury(supervisor, &cage).await,
                Err(_unheard) if never_began(&cage) => discard(supervisor, &cage).await,
                Err(Missed::Foreign(theirs)) => unreachable::foreign(supervisor, &cage, theirs),
                Err(Missed::Silent(opening)) => unreachable::silent(supervisor, &cage, opening),
            }
        }
        Fate::Bury if never_began(&cage) => discard(supervisor, &cage).await,
        Fate::Bury => bury(supervisor, &cage).await,
        Fate::Discard => discard(supervisor, &cage).await,
    }
    Ok(())
}

fn open(
    supervisor: &Supervisor,
    record: Record,
    group: Option<CageCgroup>,
    broker: Option<Rc<link::PidFd>>,
) -> io::Result<Rc<Cage>> {
    let phase = match (record.gone, record.went) {
        (true, _) => Phase::Gone,
        (false, true) => Phase::Running,
        (false, false) => Phase::Starting,
    };
    let id = record.cage;
    let path = supervisor.cage_folder(id);
    if !path.exists() {
        // It died before it made the folder: an empty one stands in, so that there is one shape.
        std::fs::create_dir(&path)?;
    }
    let folder = files::open_folder(&path)?;
    let journal = Journal::open(&supervisor.journal_path(id), id)?;
    let init = driver::handle_of(record.init);
    let cgroup = group.or_else(|| record.cgroup.as_ref().map(CageCgroup::reopen));
    let cage = Cage::new(record, phase, journal, folder, Rc::clone(&supervisor.dirty));
    cage.set_handles(|handles| {
        handles.broker = broker;
        handles.init = init;
        handles.cgroup = cgroup.map(Rc::new);
    });
    if let Ok(bytes) = std::fs::read(supervisor.plan_path(id))
        && let Ok(plan) = serde_json::from_slice::<CagePlan>(&bytes)
    {
        cage.set_plan(Rc::new(plan));
    }
    if let Some(last) = cage.broker_events().last() {
        cage.learn_broker_seq(last.seq);
    }
    Ok(cage)
}

/// Its broker may still serve viewers, or wait for an acknowledgement.
async fn keep(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    let (Some(handle), Some(process)) = (cage.handles().broker.clone(), cage.record().broker)
    else {
        supervisor.remove_run_files(cage.id);
        return;
    };
    // Whom we cannot talk to ends by itself.
    let notices = connect(supervisor, cage).await.ok();
    let (supervisor, cage) = (Rc::clone(supervisor), Rc::clone(cage));
    tokio::task::spawn_local(async move {
        driver::broker_ended(&cage, &handle, process.pid).await;
        drop(notices);
        cage.set_broker(None);
        supervisor.remove_run_files(cage.id);
    });
}

/// Told to go, and dead before it had a command: the broker writes that down before it starts one.
fn never_began(cage: &Cage) -> bool {
    !cage.has_told("cage.started")
        && !cage.broker_events().iter().any(|event| event.kind == "pty.allocated")
}

/// Why a living broker was not heard.
enum Missed {
    /// It listens no more, or speaks nonsense: its cage ends with it.
    Dead,
    /// It speaks no version of the protocol that we do.
    Foreign(Hello),
    /// It has not answered yet: it is stopped, or the machine is that slow.
    Silent(Opening),
}

/// Drives it on, or, if nobody was left to give it its first command, ends it.
pub(crate) async fn adopt(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>, notices: Notices) {
    let state = ask_state(cage).await;
    if state.as_ref().is_some_and(|state| state.ptys.is_empty() && state.exit.is_none()) {
        return discard(supervisor, cage).await;
    }
    failpoint::reach("adopt.connected");
    if !cage.has_told("cage.started") {
        let pid = cage.record().init.map_or(0, |process| process.pid);
        cage.tell_end(&EventBody::CageStarted { pid });
    }
    cage.tell_end(&EventBody::CageAdopted {});
    failpoint::reach("adopt.told");
    take_over_stillness(supervisor, cage, state.as_ref()).await;
    limits::take_over(supervisor, cage).await;
    let driver = driver::run_adopted(Rc::clone(supervisor), Rc::clone(cage), notices, state);
    tokio::task::spawn_local(driver);
    carry_out(supervisor, cage);
}

/// What an earlier supervisor was told to do with it.
pub(crate) fn carry_out(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    if let Some(order) = cage.record().doomed {
        let carried_out = ending::carry_out(Rc::clone(supervisor), Rc::clone(cage), order);
        tokio::task::spawn_local(carried_out);
    }
}

/// A suspension that was complete stays; one that was only begun, or half undone, is undone.
async fn take_over_stillness(
    supervisor: &Rc<Supervisor>,
    cage: &Rc<Cage>,
    state: Option<&BrokerState>,
) {
    let Some(suspended) = cage.record().suspended else { return suspend::tell_resumed(cage) };
    let stands = suspend::stands_still(cage, state.is_some_and(|state| state.suspended));
    if suspended.suspension.is_some() && stands {
        cage.step(Moment::Suspended);
        return;
    }
    if let Err(error) = suspend::resume(supervisor, cage).await {
        tracing::error!(cage = %cage.id, %error, "a cage that was half suspended does not go on");
    }
}

async fn connect(supervisor: &Supervisor, cage: &Rc<Cage>) -> Result<Notices, Missed> {
    let mut opening = opening(supervisor, cage);
    match tokio::time::timeout(HELLO_DEADLINE, &mut opening).await {
        Ok(Ok((link, notices))) => {
            cage.set_broker(Some(link));
            Ok(notices)
        }
        Ok(Err(BrokerLinkError::Foreign { theirs, .. })) => Err(Missed::Foreign(theirs)),
        Ok(Err(error)) => {
            tracing::warn!(cage = %cage.id, %error, "a broker is lost");
            Err(Missed::Dead)
        }
        Err(_late) => Err(Missed::Silent(opening)),
    }
}

/// Connects, as soon as there are descriptors for it, and hears hello.
fn opening(supervisor: &Supervisor, cage: &Rc<Cage>) -> Opening {
    let (hello, listener) = (supervisor.host.hello.clone(), cage.listener());
    let path = supervisor.socket_path(cage.id);
    Box::pin(async move {
        loop {
            match Packets::connect(&path) {
                Ok(packets) => return BrokerLink::open(packets, &hello, listener).await,
                Err(error) if is_absent(&error) => return Err(BrokerLinkError::Absent(error)),
                Err(error) => tracing::debug!(%error, "a broker cannot be connected to yet"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    })
}

fn is_absent(error: &LinkError) -> bool {
    let LinkError::Io(error) = error else { return false };
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A link that has ended although its broker lives: one side had no descriptors left for what was
/// passed. It is made anew; what was told meanwhile is told again. `None`: the broker is dead, or not
/// ours any more.
pub(crate) async fn reconnect(supervisor: &Supervisor, cage: &Rc<Cage>) -> Option<Notices> {
    let broker = cage.handles().broker.clone()?;
    if cage.broker_broke_rules() {
        return None;
    }
    let again = async {
        // One that lets go of each new link is not to keep us busy.
        tokio::time::sleep(AGAIN).await;
        opening(supervisor, cage).await
    };
    let opened = tokio::select! {
        opened = again => opened,
        () = launch::wait_for(&broker) => return None,
    };
    let opened = opened.inspect_err(|error| tracing::warn!(cage = %cage.id, %error, "broker"));
    let (link, notices) = opened.ok()?;
    tracing::info!(cage = %cage.id, "the link to a broker is made anew");
    cage.set_broker(Some(link));
    Some(notices)
}

async fn ask_state(cage: &Cage) -> Option<BrokerState> {
    let broker = cage.broker().ok()?;
    let asked = broker.call(&BrokerRequest::State, &[]);
    let (value, _fds) = tokio::time::timeout(ADOPT_DEADLINE, asked).await.ok()?.ok()?;
    let state: BrokerState = control::typed(value).ok()?;
    cage.learn_broker_seq(state.seq);
    cage.update(|record| record.ptys.clone_from(&state.ptys));
    Some(state)
}

async fn bury(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    failpoint::reach("bury.found");
    cage.step(Moment::Ending);
    driver::broker_lost(cage).await;
    failpoint::reach("bury.told");
    driver::emptied(cage).await;
    driver::tell_stats(cage).await;
    driver::announce_gone(supervisor, cage);
    supervisor.remove_run_files(cage.id);
}

async fn discard(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    failpoint::reach("discard.found");
    cage.step(Moment::Ending);
    let handles = (cage.handles().broker.clone(), cage.record().broker);
    if let (Some(broker), Some(process)) = handles {
        // ESRCH: the end of its tether was the end of it.
        let _dead = broker.signal(libc::SIGKILL);
        launch::ended(&broker, process.pid).await;
    }
    driver::kill_now(cage);
    driver::emptied(cage).await;
    let message = "the supervisor died while the cage was built; nothing ran".to_owned();
    if !cage.has_told("cage.failed") {
        let (wall, message) = ("supervisor".to_owned(), message.clone());
        cage.tell_end(&EventBody::CageFailed { wall, message });
    }
    failpoint::reach("discard.told");
    cage.update(|record| {
        record.exit = Some(Exit::not_started(125, Cause::CageSetup, message));
    });
    driver::announce_gone(supervisor, cage);
    supervisor.remove_run_files(cage.id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Enforced, RunId, SessionId};

    #[test]
    fn fates() {
        let record = |gone, went| Record {
            wire: wire::PROTO,
            cage: CageId::new(),
            session: SessionId::new(),
            run: RunId::new(),
            operator: 0,
            uid: 1,
            name: String::new(),
            policy: String::new(),
            plan_hash: String::new(),
            started_at_ms: 0,
            enforced: Enforced::default(),
            cgroup: None,
            broker: None,
            init: None,
            went,
            gone,
            exit: None,
            suspended: None,
            stood_ms: 0,
            limits: None,
            limits_meant: None,
            doomed: None,
            ptys: Vec::new(),
        };
        for (gone, went, lives, group, want) in [
            (true, true, true, false, Fate::Keep),
            (true, false, false, false, Fate::Keep),
            (true, true, true, true, Fate::Sweep),
            (true, false, false, true, Fate::Sweep),
            (false, true, true, true, Fate::Adopt),
            (false, true, false, true, Fate::Bury),
            (false, true, false, false, Fate::Bury),
            (false, false, true, true, Fate::Discard),
            (false, false, false, false, Fate::Discard),
        ] {
            let got = fate(&record(gone, went), lives, group);
            assert_eq!(got, want, "{gone} {went} {lives} {group}");
        }
    }
}
