//! Starting `mews-layer` for one order, with the identity of the session's cages.
//!
//! That identity is the operator's, who can stop the process or hold it up, and what it reads is made by
//! a caged program. So it has bounds of its own: memory, time, and few at once for one operator. What it
//! reports is read as if they had written it.

mod places;

pub(crate) use places::{Places, soon};

use super::Layer;
use crate::files;
use crate::launch;
use crate::mounts;
use crate::requests::write_json;
use crate::supervisor::Supervisor;
use crate::sys::child::Prepared;
use ::layer::{
    LAYER_FD, ORDER_FD, ORIGIN_FD, Order, REPORT_BYTES_MAX, REPORT_FD, Report, SAVED_FD, Stamp,
    Work,
};
use link::memfd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use wire::supervisor::LayerAnswer;
use wire::{ErrorCode, WireError};

/// Of its address space. A private copy of a million files takes most of that; lists are cut long
/// before.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The kernel's choice before anything else of the host's.
const OOM_SCORE_ADJ: &CStr = c"1000";
/// A test's other deadline, for any order, in a debug build.
const DEADLINE_MS: &str = "MEWS_LAYER_DEADLINE_MS";

/// Carries out one order on a layer; an error that the worker reports is an error here.
pub(super) async fn run(
    supervisor: &Supervisor,
    layer: &Layer,
    made: Stamp,
    work: Work,
    saved: Option<&Path>,
) -> Result<Report, WireError> {
    parsed(&report(supervisor, layer, made, work, saved).await?)
}

/// The same for sessiond: a memfd with a [`LayerAnswer`]. Lists are handed on unread.
pub(super) async fn answer(
    supervisor: &Supervisor,
    layer: &Layer,
    made: Stamp,
    work: Work,
    saved: Option<&Path>,
) -> Result<OwnedFd, WireError> {
    let bytes = report(supervisor, layer, made, work, saved).await?;
    if Report::has_lists(&bytes) {
        return memfd::sealed("answer", &bytes).map_err(|error| failed("memory", error));
    }
    match parsed(&bytes)? {
        Report::Done | Report::Copied(_) | Report::Measured(_) => write_json(&LayerAnswer::Done),
        Report::Changes(_) | Report::Applied { .. } | Report::Failed(_) => {
            Err(failed("its report", "it is not written as we write it"))
        }
    }
}

async fn report(
    supervisor: &Supervisor,
    layer: &Layer,
    made: Stamp,
    work: Work,
    saved: Option<&Path>,
) -> Result<Vec<u8>, WireError> {
    let mut fds = vec![(open(&layer.live())?, LAYER_FD)];
    if wants_origin(&work) {
        let facts = &layer.facts;
        let ids = (facts.uid, facts.gid);
        let origin = mounts::origin(supervisor, &facts.workspace, ids, facts.operator);
        fds.push((origin.map_err(|error| failed("the workspace", error))?, ORIGIN_FD));
    }
    if let Some(saved) = saved {
        fds.push((open(saved)?, SAVED_FD));
    }
    let order = Order { mode: layer.mode(), made, work };
    start(supervisor, layer, &order, fds).await
}

/// Empties a folder that belongs to the layer's uid.
pub(super) async fn empty(
    supervisor: &Supervisor,
    layer: &Layer,
    folder: &Path,
) -> Result<(), WireError> {
    let made = Stamp { seconds: 0, nanoseconds: 0 };
    let order = Order { mode: layer.mode(), made, work: Work::Remove };
    let done = start(supervisor, layer, &order, vec![(open(folder)?, LAYER_FD)]).await?;
    parsed(&done).map(|_done| ())
}

fn parsed(bytes: &[u8]) -> Result<Report, WireError> {
    match serde_json::from_slice(bytes).map_err(|error| failed("its report", error))? {
        Report::Failed(error) => Err(error),
        report @ (Report::Done
        | Report::Copied(_)
        | Report::Measured(_)
        | Report::Changes(_)
        | Report::Applied { .. }) => Ok(report),
    }
}

fn wants_origin(work: &Work) -> bool {
    match work {
        Work::Fill | Work::Diff | Work::Preview | Work::Apply { .. } | Work::Discard { .. } => true,
        Work::Save | Work::Restore | Work::Measure | Work::Remove => false,
    }
}

/// After this it is stopped, or stuck: it is killed, and the next order clears up. Whoever waits for one
/// that looks or removes has others to see to; what is copied may be large.
fn deadline(work: &Work) -> Duration {
    let minutes = match work {
        Work::Measure => 1,
        Work::Diff | Work::Preview | Work::Remove => 5,
        Work::Fill | Work::Save | Work::Restore | Work::Apply { .. } | Work::Discard { .. } => 60,
    };
    let other = link::failpoint::variable(DEADLINE_MS).and_then(|text| text.parse().ok());
    other.map_or(Duration::from_secs(60 * minutes), Duration::from_millis)
}

async fn start(
    supervisor: &Supervisor,
    layer: &Layer,
    order: &Order,
    mut fds: Vec<(OwnedFd, i32)>,
) -> Result<Vec<u8>, WireError> {
    let _place = supervisor.layer_places.take(layer.facts.operator, &order.work).await?;
    let deadline = deadline(&order.work);
    let report = memfd_create("report", MFdFlags::MFD_CLOEXEC).map_err(|e| failed("memory", e))?;
    let text = serde_json::to_vec(order).map_err(|error| failed("the order", error))?;
    let order = memfd::sealed("order", &text).map_err(|error| failed("memory", error))?;
    fds.push((order, ORDER_FD));
    fds.push((report.try_clone().map_err(|error| failed("descriptors", error))?, REPORT_FD));
    fds.extend(standard().map_err(|error| failed("descriptors", error))?);
    let program = supervisor.programs.layer.try_clone();
    let prepared = Prepared {
        program: program.map_err(|error| failed("descriptors", error))?,
        argv: vec![c"mews-layer".to_owned()],
        env: Vec::new(),
        fds,
        mounts: None,
        identity: supervisor.host.is_root().then_some((layer.facts.uid, layer.facts.gid)),
        limits: vec![(libc::RLIMIT_AS, MEMORY_BYTES_MAX), (libc::RLIMIT_CORE, 0)],
        oom_score_adj: Some(OOM_SCORE_ADJ.to_owned()),
    };
    let mut started = launch::start(prepared).map_err(|error| failed("mews-layer", error))?;
    let pid = started.pid;
    let executed = async {
        let executed = started.executed().await;
        launch::wait_for(&started.handle).await;
        executed
    };
    let executed = tokio::time::timeout(deadline, executed).await;
    if executed.is_err() {
        // ESRCH: it ended this moment.
        let _dead = started.handle.signal(libc::SIGKILL);
    }
    launch::ended(&started.handle, pid).await;
    let executed = executed.map_err(|_late| {
        tracing::warn!(pid, session = %layer.facts.session, "a mews-layer has taken too long");
        failed(
            "mews-layer",
            format!("it was not done after {} s, and was ended", deadline.as_secs()),
        )
    })?;
    executed.map_err(|error| failed("mews-layer", error))?;
    let bytes =
        memfd::read(report, REPORT_BYTES_MAX).map_err(|error| failed("its report", error))?;
    if bytes.is_empty() {
        let words = "it ended without a report; it may take 1 GiB of memory at most";
        return Err(failed("mews-layer", words));
    }
    Ok(bytes)
}

/// Nothing to read, nowhere to write; what it says in its last breath goes where we say ours.
fn standard() -> io::Result<[(OwnedFd, i32); 3]> {
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let words = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned()?;
    Ok([(null()?, 0), (null()?, 1), (words, 2)])
}

fn open(folder: &Path) -> Result<OwnedFd, WireError> {
    files::open_folder(folder).map_err(|error| failed(&folder.display().to_string(), error))
}

fn failed(what: &str, error: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, format!("work on the layer failed: {what}: {error}"))
}
