//! Starting `mews-layer` for one order, with the identity of the session's cages.

use super::Layer;
use crate::files;
use crate::launch;
use crate::mounts;
use crate::supervisor::Supervisor;
use crate::sys::child::Prepared;
use ::layer::{LAYER_FD, ORDER_FD, ORIGIN_FD, Order, REPORT_FD, Report, SAVED_FD, Stamp, Work};
use link::memfd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::{ErrorCode, WireError};

/// A report: at most so many changes, and paths are long at most.
const REPORT_BYTES_MAX: usize = 256 << 20;

/// Carries out one order on a layer; an error that the worker reports is an error here.
pub(super) async fn run(
    supervisor: &Supervisor,
    layer: &Layer,
    made: Stamp,
    work: Work,
    saved: Option<&Path>,
) -> Result<Report, WireError> {
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
    start(supervisor, layer, &order, vec![(open(folder)?, LAYER_FD)]).await.map(|_done| ())
}

fn wants_origin(work: &Work) -> bool {
    match work {
        Work::Fill | Work::Diff | Work::Preview | Work::Apply { .. } | Work::Discard { .. } => true,
        Work::Save | Work::Restore | Work::Measure | Work::Remove => false,
    }
}

async fn start(
    supervisor: &Supervisor,
    layer: &Layer,
    order: &Order,
    mut fds: Vec<(OwnedFd, i32)>,
) -> Result<Report, WireError> {
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
        limits: Vec::new(),
        oom_score_adj: None,
    };
    let mut started = launch::start(prepared).map_err(|error| failed("mews-layer", error))?;
    let executed = started.executed().await;
    launch::ended(&started.handle, started.pid).await;
    executed.map_err(|error| failed("mews-layer", error))?;
    let bytes =
        memfd::read(report, REPORT_BYTES_MAX).map_err(|error| failed("its report", error))?;
    if bytes.is_empty() {
        return Err(failed("mews-layer", "it ended without a report"));
    }
    match serde_json::from_slice(&bytes).map_err(|error| failed("its report", error))? {
        Report::Failed(error) => Err(error),
        report @ (Report::Done
        | Report::Copied(_)
        | Report::Measured(_)
        | Report::Changes(_)
        | Report::Applied { .. }) => Ok(report),
    }
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
