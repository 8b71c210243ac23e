//! A living cage whose broker this supervisor cannot talk to, found at its start.
//!
//! It lives on: the broker serves the viewers that it has, keeps clocks and exit status, and needs
//! nobody for that. From here it can be killed, by cgroup and pidfd; everything else is refused with
//! the reason. Its end is read from the files that the broker writes.
//!
//! ```text
//! foreign build ─┐                ┌─ a broker that was only slow answers ─▶ adopted
//! no answer yet ─┴─▶ unreachable ─┼─ pid 1 ends ─▶ exit.json ─▶ gone
//!                                 └─ broker dies ─▶ killed, broker_lost
//! ```

use crate::broker_link::{BrokerLink, BrokerLinkError};
use crate::cage::phase::Moment;
use crate::cage::{Cage, driver};
use crate::launch;
use crate::reconcile;
use crate::supervisor::Supervisor;
use crate::{suspend, viewers};
use link::nonblocking::watch_input;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::Receiver;
use wire::broker::BrokerNotice;
use wire::hello::Hello;
use wire::{Cause, ErrorCode, Event, EventBody, Exit, WireError};

/// After pid 1 is dead the broker has this long to write the exit; it drains for 250 ms at most.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) type Notices = Receiver<BrokerNotice>;
/// A hello that is still waited for.
pub(crate) type Opening =
    Pin<Box<dyn Future<Output = Result<(Rc<BrokerLink>, Notices), BrokerLinkError>>>>;

/// Why nobody can talk to a cage's broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreachable {
    pub(crate) build: Option<String>,
    /// For people, with what can be done.
    pub(crate) message: String,
}

impl From<Unreachable> for WireError {
    fn from(why: Unreachable) -> Self {
        let details = serde_json::json!({ "build": why.build });
        Self::new(ErrorCode::Unreachable, why.message).with(details)
    }
}

/// Its build and ours speak no version in common.
pub(crate) fn foreign(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>, theirs: Hello) {
    let message = format!(
        "the cage runs on, started by {theirs}, which this {} does not speak; stop it with \
         `mews kill`, or start the mews that began it",
        supervisor.host.hello
    );
    hold(supervisor, cage, Unreachable { build: Some(theirs.build), message });
    tokio::task::spawn_local(watch(Rc::clone(supervisor), Rc::clone(cage)));
}

/// It may be stopped, or the machine slow beyond measure: a cage is not killed for that.
pub(crate) fn silent(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>, opening: Opening) {
    let message = "the cage runs on, but its broker does not answer yet; wait for it, or stop the \
                   cage with `mews kill`"
        .to_owned();
    hold(supervisor, cage, Unreachable { build: None, message });
    let (supervisor, cage) = (Rc::clone(supervisor), Rc::clone(cage));
    tokio::task::spawn_local(async move {
        let answer = tokio::select! {
            answer = opening => answer,
            () = ended(&cage) => return finish(&supervisor, &cage).await,
        };
        match answer {
            Ok((link, notices)) => {
                cage.set_unreachable(None);
                cage.set_broker(Some(link));
                tracing::info!(cage = %cage.id, "a silent broker answers");
                reconcile::adopt(&supervisor, &cage, notices).await;
                viewers::compare(&supervisor, &cage).await;
            }
            Err(BrokerLinkError::Foreign { theirs, .. }) => foreign(&supervisor, &cage, theirs),
            Err(error) => {
                tracing::warn!(cage = %cage.id, %error, "a silent broker is lost");
                kill_broker(&cage);
                finish(&supervisor, &cage).await;
            }
        }
    });
}

fn hold(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>, why: Unreachable) {
    tracing::warn!(cage = %cage.id, why = why.message, "unreachable");
    cage.set_unreachable(Some(why.clone()));
    if !cage.told_unreachable() {
        let Unreachable { build, message } = why;
        cage.tell_end(&EventBody::CageUnreachable { build, message });
    }
    let stands = cage.record().suspended.is_some_and(|suspended| suspended.suspension.is_some());
    if stands && suspend::stands_still(cage, true) {
        cage.step(Moment::Suspended);
    }
    reconcile::carry_out(supervisor, cage);
}

async fn watch(supervisor: Rc<Supervisor>, cage: Rc<Cage>) {
    ended(&cage).await;
    finish(&supervisor, &cage).await;
}

/// Pid 1 or the broker is dead.
async fn ended(cage: &Cage) {
    let (init, broker) = {
        let handles = cage.handles();
        (handles.init.clone(), handles.broker.clone())
    };
    let wait = async |handle: Option<Rc<link::PidFd>>| {
        if let Some(handle) = handle {
            launch::wait_for(&handle).await;
        }
    };
    tokio::select! {
        () = wait(init) => {}
        () = wait(broker), if cage.handles().broker.is_some() => {}
    }
}

async fn finish(supervisor: &Rc<Supervisor>, cage: &Rc<Cage>) {
    cage.step(Moment::Ending);
    // Who killed it could not tell the broker why: its own word on the end is not passed on.
    let killed = cage.ending();
    match (written_exit(cage).await, killed) {
        (Some(exit), Some(cause)) if exit.cause == Cause::StatusLost => {
            let message = cage.ending_words().or(exit.message);
            tell_killed(cage, Exit { cause, message, ..exit });
        }
        (Some(exit), _) => {
            cage.update(|record| record.exit = Some(exit));
            driver::tell_exit_of_files(cage);
        }
        (None, _) => driver::broker_lost(cage).await,
    }
    driver::emptied(cage).await;
    driver::tell_stats(cage).await;
    driver::announce_gone(supervisor, cage);
    let broker = cage.handles().broker.clone();
    if let (Some(handle), Some(process)) = (broker, cage.record().broker) {
        driver::broker_ended(cage, &handle, process.pid).await;
    }
    supervisor.remove_run_files(cage.id);
}

fn tell_killed(cage: &Cage, exit: Exit) {
    let events = cage.broker_events();
    let theirs = events.iter().take_while(|event| event.kind != "cage.exited").last();
    cage.learn_broker_seq(theirs.map_or(0, |event| event.seq));
    cage.update(|record| record.exit = Some(exit.clone()));
    if !cage.has_told("cage.exited") {
        cage.tell_end(&EventBody::CageExited { exit });
    }
}

fn kill_broker(cage: &Cage) {
    if let Some(broker) = cage.handles().broker.clone() {
        // ESRCH: it is dead already.
        let _dead = broker.signal(libc::SIGKILL);
    }
}

/// `exit.json`, as soon as it and the events of the end are written; `None` if the broker dies without
/// it, or does not write.
async fn written_exit(cage: &Cage) -> Option<Exit> {
    let broker = cage.handles().broker.clone();
    let written = async {
        // Before it is looked for: what comes in between wakes us.
        let changes = watch_folder(cage).ok();
        loop {
            // The events come right behind it, and those of its terminals before its own.
            let told = |event: &Event| event.kind == "cage.exited";
            if let Some(exit) = cage.exit_on_disk()
                && cage.broker_events().iter().any(told)
            {
                return Some(exit);
            }
            let Some((changes, watched)) = &changes else { return std::future::pending().await };
            let mut ready = watched.readable().await.ok()?;
            // EAGAIN: all of it is read.
            while changes.read_events().is_ok() {}
            ready.clear_ready();
        }
    };
    let over = async {
        if let Some(broker) = &broker {
            launch::wait_for(broker).await;
        }
    };
    let told = tokio::select! {
        exit = written => exit,
        () = over => None,
        () = tokio::time::sleep(WRITE_DEADLINE) => None,
    };
    told.or_else(|| cage.exit_on_disk())
}

fn watch_folder(cage: &Cage) -> io::Result<(Inotify, AsyncFd<OwnedFd>)> {
    let changes = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let folder = format!("/proc/self/fd/{}", cage.folder().as_raw_fd());
    changes.add_watch(folder.as_str(), AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MODIFY)?;
    let watched = watch_input(changes.as_fd().try_clone_to_owned()?)?;
    Ok((changes, watched))
}
