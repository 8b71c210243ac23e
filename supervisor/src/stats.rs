//! What a cage uses: the kernel's counts and its broker's.

use crate::cage::Cage;
use crate::clock;
use ::cage::cgroup::CageCgroup;
use std::time::Duration;
use wire::broker::{BrokerRequest, BrokerState};
use wire::control;
use wire::stats::{OutputUse, Stats};

/// A broker that does not answer in this time is left out.
const SOON: Duration = Duration::from_secs(1);
const SILENT: &str = "the cage's broker does not answer";

/// Now. Never fails: what cannot be told is named in `absent`.
pub(crate) async fn of(cage: &Cage) -> Stats {
    let cgroup = cage.handles().cgroup.clone();
    let mut stats = match cgroup {
        Some(cgroup) => cgroup.measure(),
        None => CageCgroup::default().measure(),
    };
    stats.at_ms = clock::now_ms();
    let limit_bytes = cage.limits().and_then(|limits| limits.output_bytes);
    match broker_state(cage, SOON)
        .await
        .map(|state| (state.ran_ms, state.output_bytes))
        .or_else(|| last(cage))
    {
        Some((ran_ms, bytes)) => {
            stats.ran_ms = Some(ran_ms);
            stats.output = Some(OutputUse { bytes, limit_bytes });
        }
        None => {
            for name in ["ran", "output"] {
                stats.absent.insert(name.to_owned(), SILENT.to_owned());
            }
        }
    }
    stats
}

/// How long it ran and what it printed, of a cage whose broker has nothing left to do and may be gone.
fn last(cage: &Cage) -> Option<(u64, u64)> {
    let record = cage.record();
    let ran_ms = record.exit?.usage.wall_ms;
    Some((ran_ms, record.ptys.iter().map(|pty| pty.seq).sum()))
}

/// How long it ran, by its broker's clock, if that answers.
pub(crate) async fn ran(cage: &Cage, deadline: Duration) -> Option<Duration> {
    broker_state(cage, deadline).await.map(|state| Duration::from_millis(state.ran_ms))
}

async fn broker_state(cage: &Cage, deadline: Duration) -> Option<BrokerState> {
    let broker = cage.broker().ok()?;
    let asked = broker.call(&BrokerRequest::State, &[]);
    let (value, _fds) = tokio::time::timeout(deadline, asked).await.ok()?.ok()?;
    control::typed(value).ok()
}
