//! Kill and end: from a request to nothing left.

use crate::cage::phase::Moment;
use crate::cage::{Cage, driver};
use std::time::Duration;
use wire::broker::BrokerRequest;
use wire::supervisor::Phase;
use wire::{Cause, ErrorCode, WireError};

/// A broker that does not take the cause in this time does not hold up a kill.
const TELL_BROKER: Duration = Duration::from_millis(500);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// SIGKILL works or the kernel is stuck (a process in uninterruptible sleep).
const KILL_DEADLINE: Duration = Duration::from_secs(30);

/// SIGKILL until nothing is left.
pub(crate) async fn kill(cage: &Cage, cause: Cause) -> Result<(), WireError> {
    if cage.phase() == Phase::Gone {
        return Ok(());
    }
    announce(cage, cause).await;
    finish(cage).await
}

/// SIGTERM, 5 s, SIGKILL.
pub(crate) async fn end(cage: &Cage, cause: Cause) -> Result<(), WireError> {
    if cage.phase() == Phase::Gone {
        return Ok(());
    }
    announce(cage, cause).await;
    if let Ok(broker) = cage.broker() {
        let request = BrokerRequest::Signal { pty: None, signal: libc::SIGTERM };
        let asked = broker.call(&request, &[]);
        let _late = tokio::time::timeout(TELL_BROKER, asked).await;
        let _left = tokio::time::timeout(GRACE, cage.gone()).await;
    }
    finish(cage).await
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
    }
    tokio::time::timeout(KILL_DEADLINE, cage.gone()).await.map_err(|_late| {
        let words = "SIGKILL was sent, but something of the cage is still there after 30 s; \
                     it is stuck in the kernel. `mews inspect` shows its pid";
        WireError::new(ErrorCode::Internal, words)
    })
}
