//! Viewers whom the rules no longer let in. Their streams go to brokers past every daemon, so that
//! nothing but a broker can end them.

use crate::admission::Operator;
use crate::cage::Cage;
use crate::supervisor::Supervisor;
use std::rc::Rc;
use std::time::Duration;
use wire::WireError;
use wire::broker::{BrokerRequest, Came};

const ANSWER: Duration = Duration::from_secs(5);

/// Asks every broker who has come, and sends away who would not be let in today. What cannot be asked
/// (an older build, a broker that is stopped) is told in the log.
pub(crate) async fn dismiss(supervisor: Rc<Supervisor>) {
    if !supervisor.host.is_root() {
        return;
    }
    // Also of those that are gone: their brokers show the last screens for a while.
    let reached = supervisor.cages().into_iter().filter(|cage| cage.broker().is_ok());
    let looks = reached.map(|cage| {
        let supervisor = Rc::clone(&supervisor);
        tokio::task::spawn_local(async move { compare(&supervisor, &cage).await })
    });
    for look in looks.collect::<Vec<_>>() {
        drop(look.await);
    }
}

/// The same of one cage, whose broker answers only now.
pub(crate) async fn compare(supervisor: &Supervisor, cage: &Cage) {
    if !supervisor.host.is_root() {
        return;
    }
    let compared = tokio::time::timeout(ANSWER, dismiss_from(supervisor, cage)).await;
    let why = match compared {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => "its broker does not answer".to_owned(),
    };
    tracing::warn!(cage = %cage.id, why, "its viewers were not compared with the rules");
}

async fn dismiss_from(supervisor: &Supervisor, cage: &Cage) -> Result<(), WireError> {
    let broker = cage.broker()?;
    let (came, _fds) = broker.call(&BrokerRequest::Came, &[]).await?;
    let came: Came = wire::control::typed(came)?;
    for from in came.from {
        let uid = from.uid;
        let operator = Operator::with_groups(uid, from.gid, from.groups);
        let may = supervisor
            .admission
            .admit_known(&supervisor.host, operator)
            .is_ok_and(|it| it.is_admin || it.uid == cage.operator());
        if !may {
            tracing::info!(uid, cage = %cage.id, "viewers sent away: the rules have changed");
            broker.call(&BrokerRequest::Dismiss { uid }, &[]).await?;
        }
    }
    Ok(())
}
