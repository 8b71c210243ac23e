//! What must be noticed without a supervisor: walltime, idleness, the cgroup's own alarms.

use crate::boot::{Counter, Counters};
use crate::broker::Happening;
use link::nonblocking::watch_input;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    Walltime,
    /// No key and no byte in the whole cage for as long as the policy allows.
    Idle,
    /// v1: the cage is at its memory limit.
    AtMemoryLimit,
    /// The kernel killed something of the cage for its memory.
    OomKill,
    /// A fork was refused.
    PidsMet,
}

type Inbox = mpsc::UnboundedSender<Happening>;

/// Rings once, after this time.
#[must_use]
pub fn walltime(left: Duration, inbox: Inbox) -> AbortHandle {
    let rings = async move {
        tokio::time::sleep(left).await;
        ring(&inbox, Alarm::Walltime);
    };
    tokio::task::spawn_local(rings).abort_handle()
}

/// Rings once, when nothing was active for so long.
#[must_use]
pub fn idle(limit: Duration, active_at: Rc<Cell<Instant>>, inbox: Inbox) -> AbortHandle {
    let rings = async move {
        while active_at.get().elapsed() < limit {
            tokio::time::sleep_until(active_at.get() + limit).await;
        }
        ring(&inbox, Alarm::Idle);
    };
    tokio::task::spawn_local(rings).abort_handle()
}

/// Watches what the supervisor registered. A file that cannot be watched is read at the end all
/// the same, so its absence costs promptness only.
pub fn watch_cgroup(oom_event: Option<OwnedFd>, counters: &Counters, inbox: &Inbox) {
    if let Some(event) = oom_event.and_then(|event| watch_input(event).ok()) {
        let inbox = inbox.clone();
        tokio::task::spawn_local(async move {
            while wait_for_event(&event).await.is_ok() {
                ring(&inbox, Alarm::AtMemoryLimit);
            }
        });
    }
    watch_counter(counters.memory.as_ref(), Alarm::OomKill, inbox);
    watch_counter(counters.pids.as_ref(), Alarm::PidsMet, inbox);
}

fn watch_counter(counter: Option<&Counter>, alarm: Alarm, inbox: &Inbox) {
    let Some(file) = counter.and_then(|c| c.duplicate().ok()).and_then(|fd| watch_input(fd).ok())
    else {
        return;
    };
    let inbox = inbox.clone();
    tokio::task::spawn_local(async move {
        // The first readiness only says that it is a file.
        while let Ok(mut ready) = file.readable().await {
            ready.clear_ready();
            drop(ready);
            ring(&inbox, alarm);
        }
    });
}

async fn wait_for_event(event: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let mut ready = event.readable().await?;
        let mut count = [0_u8; 8];
        match nix::unistd::read(event.get_ref(), &mut count) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn ring(inbox: &Inbox, alarm: Alarm) {
    // Nobody listens any more when the broker ends.
    drop(inbox.send(Happening::Alarm(alarm)));
}
