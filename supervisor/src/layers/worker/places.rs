//! How many `mews-layer` of one operator run at once: the others wait for their turn, and nobody waits
//! for those of another operator.

use ::layer::Work;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::{ErrorCode, WireError};

/// Whoever measures does not wait longer for other work: a limit that is not looked at does not hold.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// Each has places of its own: one that hangs holds up its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// What an operator or a spawn asks for.
    Asked,
    Measured,
    Removed,
}

impl Kind {
    fn of(work: &Work) -> Self {
        match work {
            Work::Measure => Self::Measured,
            Work::Remove => Self::Removed,
            Work::Fill
            | Work::Save
            | Work::Restore
            | Work::Diff
            | Work::Preview
            | Work::Apply { .. }
            | Work::Discard { .. } => Self::Asked,
        }
    }

    fn places(self) -> usize {
        match self {
            Self::Asked => 2,
            Self::Measured | Self::Removed => 1,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Places(RefCell<BTreeMap<(u32, Kind), Arc<Semaphore>>>);

impl Places {
    /// A place for one order, free again when it is dropped.
    ///
    /// # Errors
    /// For a measurement there was none for [`WAIT`].
    pub(super) async fn take(
        &self,
        operator: u32,
        work: &Work,
    ) -> Result<OwnedSemaphorePermit, WireError> {
        let kind = Kind::of(work);
        let places = {
            let mut all = self.0.borrow_mut();
            // Those that nobody has or waits for any more.
            all.retain(|_, places| Arc::strong_count(places) > 1);
            let places = all.entry((operator, kind));
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(kind.places()))))
        };
        let taken = match kind {
            Kind::Measured => soon(places.acquire_owned()).await?,
            Kind::Asked | Kind::Removed => places.acquire_owned().await,
        };
        taken.map_err(|closed| WireError::new(ErrorCode::Internal, closed.to_string()))
    }
}

/// What is waited for so that something can be measured.
///
/// # Errors
/// It takes longer than [`WAIT`].
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> Result<T, WireError> {
    tokio::time::timeout(WAIT, what).await.map_err(|_late| {
        let words = format!("other work on it has not ended for {} s", WAIT.as_secs());
        WireError::new(ErrorCode::Conflict, words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Whether there is a place right now.
    fn taken(places: &Places, operator: u32, work: &Work) -> Option<OwnedSemaphorePermit> {
        let mut waits = pin!(places.take(operator, work));
        match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => Some(taken.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_operators_work_waits_for_their_own_and_for_nobody_elses() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let places = Places::default();
        for (work, others, at_once) in [
            (Work::Diff, Work::Save, 2),
            (Work::Measure, Work::Measure, 1),
            (Work::Remove, Work::Remove, 1),
        ] {
            let held: Vec<_> = (0..at_once).map(|_| taken(&places, 1, &work).unwrap()).collect();
            assert!(taken(&places, 1, &others).is_none(), "{work:?}");
            assert!(taken(&places, 2, &others).is_some(), "{work:?}");
            drop(held);
            assert!(taken(&places, 1, &others).is_some(), "{work:?}");
        }
        assert!(places.0.borrow().len() <= 2, "nobody's places are kept");
    }
}
