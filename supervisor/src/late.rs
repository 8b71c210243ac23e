//! What a full disk did not take: records and events that tell of what has happened. Tried again until
//! it does, as nobody tells when there is room.

use crate::supervisor::Supervisor;
use std::rc::Rc;
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(1);

/// Runs until the supervisor ends.
pub(crate) async fn write(supervisor: Rc<Supervisor>) {
    loop {
        supervisor.dirty.something_late().await;
        while !all_written(&supervisor) {
            tokio::time::sleep(AGAIN).await;
        }
        tracing::info!("the disk takes everything again");
    }
}

fn all_written(supervisor: &Supervisor) -> bool {
    let mut all = true;
    for cage in supervisor.cages() {
        if cage.record_is_late() {
            all &= supervisor.try_save(&cage).is_ok();
        }
        if cage.events_are_late() {
            all &= cage.write_late_events().is_ok();
        }
    }
    all
}
