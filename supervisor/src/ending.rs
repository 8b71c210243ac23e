//! Kill and end: from a request to nothing left.
//!
//! The order is recorded first: a supervisor that dies on the way is followed by one that carries it
//! out (`reconcile.rs`).

use crate::cage::phase::Moment;
use crate::cage::record::Doomed;
use crate::cage::{Cage, driver};
use crate::launch;
use crate::supervisor::Supervisor;
use crate::suspend;
use link::failpoint;
use std::rc::Rc;
use std::time::Duration;
use wire::broker::BrokerRequest;
use wire::supervisor::Phase;
use wire::{Cause, ErrorCode, EventBody, WireError};

/// A broker that does not take the cause in this time does not hold up a kill.
const TELL_BROKER: Duration = Duration::from_millis(500);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// SIGKILL works or the kernel is stuck (a process in uninterruptible sleep).
const KILL_DEADLINE: Duration = Duration::from_secs(30);
/// At a shutdown, brokers of ended cages have this long to give viewers their last bytes.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// SIGKILL until nothing is left.
pub(crate) async fn kill(
    supervisor: &Supervisor,
    cage: &Cage,
    cause: Cause,
) -> Result<(), WireError> {
    if cage.phase() == Phase::Gone {
        return Ok(());
    }
    failpoint::reach("kill.asked");
    doom(supervisor, cage, Doomed { cause, gently: false });
    announce(cage, cause).await;
    failpoint::reach("kill.announced");
    finish(cage).await
}

/// A limit that a cage has passed, and its words for people.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) cause: Cause,
    pub(crate) limit: &'static str,
    pub(crate) words: String,
}

/// Kills for a limit that its broker does not enforce, or cannot be told of.
pub(crate) async fn enforce(supervisor: &Supervisor, cage: &Cage, over: Over) {
    if matches!(cage.phase(), Phase::Ending | Phase::Gone) || cage.record().doomed.is_some() {
        return;
    }
    let Over { cause, limit, words } = over;
    tracing::warn!(cage = %cage.id, limit, "its broker does not end it; it is killed");
    cage.set_ending_words(format!("{limit}: {words}"));
    let body = EventBody::CageLimit { limit: limit.to_owned(), message: words };
    if !cage.broker_events().iter().any(|event| event.body().as_ref() == Some(&body)) {
        cage.tell_end(&body);
    }
    if let Err(error) = kill(supervisor, cage, cause).await {
        tracing::error!(cage = %cage.id, %error, "a cage that is to end does not");
    }
}

/// SIGTERM, 5 s, SIGKILL. Who stands still goes on for that.
pub(crate) async fn end(
    supervisor: &Supervisor,
    cage: &Cage,
    cause: Cause,
) -> Result<(), WireError> {
    if cage.phase() == Phase::Gone {
        return Ok(());
    }
    if let Some(why) = cage.unreachable() {
        return Err(why.into());
    }
    failpoint::reach("end.asked");
    doom(supervisor, cage, Doomed { cause, gently: true });
    announce(cage, cause).await;
    failpoint::reach("end.announced");
    if let Err(error) = suspend::resume(supervisor, cage).await {
        tracing::warn!(cage = %cage.id, %error, "it does not go on, and is killed as it is");
    }
    if let Ok(broker) = cage.broker() {
        let request = BrokerRequest::Signal { pty: None, signal: libc::SIGTERM };
        let asked = broker.call(&request, &[]);
        let _late = tokio::time::timeout(TELL_BROKER, asked).await;
        failpoint::reach("end.signalled");
        let _left = tokio::time::timeout(GRACE, cage.gone()).await;
    }
    finish(cage).await
}

/// Kills all that live, also those that are just being built: no new one is begun meanwhile.
pub(crate) async fn kill_all(supervisor: &Supervisor) -> Result<(), WireError> {
    supervisor.refuse_spawns(true);
    for cage in supervisor.living() {
        let killed = kill(supervisor, &cage, Cause::Cancelled).await;
        killed.inspect_err(|_stuck| supervisor.refuse_spawns(false))?;
    }
    Ok(())
}

/// Nobody would wait for these brokers after us: the ones of ended cages end, and nothing of them
/// stays in the run folder. What they have told is in their files.
pub(crate) async fn end_brokers(supervisor: &Supervisor) {
    let deadline = tokio::time::Instant::now() + LAST_BYTES;
    for cage in supervisor.cages().iter().filter(|cage| cage.phase() == Phase::Gone) {
        let broker = cage.handles().broker.clone();
        if let (Some(broker), Some(process)) = (broker, cage.record().broker) {
            let ended = launch::ended(&broker, process.pid);
            if tokio::time::timeout_at(deadline, ended).await.is_err() {
                // ESRCH: it ended this moment.
                let _dead = broker.signal(libc::SIGKILL);
                launch::ended(&broker, process.pid).await;
            }
        }
        supervisor.remove_run_files(cage.id);
    }
}

/// Carries out what an earlier supervisor was told.
pub(crate) async fn carry_out(supervisor: Rc<Supervisor>, cage: Rc<Cage>, order: Doomed) {
    // Nobody can ask it to end; it was to end all the same.
    let gently = order.gently && cage.unreachable().is_none();
    let done = if gently {
        end(&supervisor, &cage, order.cause).await
    } else {
        kill(&supervisor, &cage, order.cause).await
    };
    if let Err(error) = done {
        tracing::error!(cage = %cage.id, %error, "a cage that is to end does not");
    }
}

/// A kill is done also where the disk is full: then only a death in the middle of it is not made up for.
fn doom(supervisor: &Supervisor, cage: &Cage, order: Doomed) {
    cage.update(|record| {
        // One that is to be killed at once is not waited for any more.
        if record.doomed.is_none_or(|earlier| earlier.gently && !order.gently) {
            let cause = record.doomed.map_or(order.cause, |earlier| earlier.cause);
            record.doomed = Some(Doomed { cause, ..order });
        }
    });
    supervisor.save(cage);
}

/// Whoever kills says why first, so that the exit names it.
async fn announce(cage: &Cage, cause: Cause) {
    cage.set_ending(cause);
    if let Ok(broker) = cage.broker() {
        let request = BrokerRequest::Ending { cause };
        let told = broker.call(&request, &[]);
        let _late = tokio::time::timeout(TELL_BROKER, told).await;
    }
}

async fn finish(cage: &Cage) -> Result<(), WireError> {
    if cage.phase() != Phase::Gone {
        driver::kill_now(cage);
        cage.step(Moment::Ending);
        failpoint::reach("kill.signalled");
    }
    tokio::time::timeout(KILL_DEADLINE, cage.gone()).await.map_err(|_late| {
        let words = "SIGKILL was sent, but something of the cage is still there after 30 s; \
                     it is stuck in the kernel. `mews inspect` shows its pid";
        WireError::new(ErrorCode::Internal, words)
    })
}
