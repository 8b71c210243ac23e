//! How much of memory the bodies of one uid take at a time, from the first byte until what was asked is
//! done: whoever sends more of them waits for their own.

use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Four of the largest bodies.
pub const BYTES_OF_ONE: u32 = 32 * 1024 * 1024;

/// What one request holds of its uid's room; free when all that is done for it has ended.
#[derive(Clone, Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Room {
    pub(super) fn of(all: Arc<Semaphore>) -> Self {
        Self { all, held: Arc::default() }
    }

    /// Of the same uid, for another request.
    pub(super) fn another(&self) -> Self {
        Self::of(Arc::clone(&self.all))
    }

    /// Waits until there is room for a body of so many bytes, at most [`BYTES_OF_ONE`].
    pub(super) async fn take(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(BYTES_OF_ONE).min(BYTES_OF_ONE);
        // A body that is read twice, as it was read once.
        if self.held().as_ref().is_some_and(|held| held.num_permits() >= bytes as usize) {
            return;
        }
        *self.held() = None;
        // Never closed.
        let taken = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok();
        *self.held() = taken;
    }

    /// It was shorter than it might have been.
    pub(super) fn shrink(&self, bytes: usize) {
        if let Some(held) = self.held().as_mut() {
            drop(held.split(held.num_permits().saturating_sub(bytes)));
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_held_is_what_was_read_until_the_last_of_it_has_ended() {
        let all = Arc::new(Semaphore::new(BYTES_OF_ONE as usize));
        let room = Room::of(Arc::clone(&all));
        let left = || BYTES_OF_ONE as usize - all.available_permits();
        room.take(1000).await;
        room.shrink(10);
        assert_eq!(left(), 10);
        room.take(10).await;
        assert_eq!(left(), 10, "the same body");
        let (copy, other) = (room.clone(), room.another());
        drop(room);
        let mut rest = std::pin::pin!(other.take(usize::MAX));
        tokio::select! {
            biased;
            () = rest.as_mut() => panic!("it does not wait"),
            () = std::future::ready(()) => drop(copy),
        }
        rest.await;
    }
}
