//! The program: one order in, one report out.

use crate::apply::Outcome;
use crate::problem::{At, Problem};
use crate::store;
use crate::sys;
use crate::{LAYER_FD, ORDER_FD, ORIGIN_FD, Order, REPORT_FD, Report, SAVED_FD, Work};
use crate::{apply, diff, discard, entry, measure};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

/// Largest order: the paths of an apply or discard.
const ORDER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// It could not even report.
const NO_REPORT: u8 = 70;

/// The folders of an order.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    pub layer: BorrowedFd<'a>,
    pub origin: Option<BorrowedFd<'a>>,
    pub saved: Option<BorrowedFd<'a>>,
}

/// The whole program.
#[must_use]
pub fn run() -> ExitCode {
    // Our starter is the one that wants the report; nobody else would end us.
    let bound = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    umask(Mode::from_bits_truncate(0o077));
    if bound.is_err() || !sys::inherited(REPORT_FD) {
        return ExitCode::from(NO_REPORT);
    }
    let report = match carry_out() {
        Ok(report) => report,
        Err(problem) => Report::Failed(problem.to_wire()),
    };
    let written = serde_json::to_vec(&report)
        .map_err(std::io::Error::from)
        .and_then(|bytes| File::from(sys::own(REPORT_FD)).write_all(&bytes));
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(NO_REPORT) }
}

fn carry_out() -> Result<Report, Problem> {
    let order = inherited(ORDER_FD)
        .ok_or_else(|| Problem::Order(format!("nothing on descriptor {ORDER_FD}")))?;
    let order = link::memfd::read(order, ORDER_BYTES_MAX)
        .map_err(|error| Problem::Order(error.to_string()))?;
    let order: Order =
        serde_json::from_slice(&order).map_err(|error| Problem::Order(error.to_string()))?;
    let layer = inherited(LAYER_FD)
        .ok_or_else(|| Problem::Order(format!("no layer on descriptor {LAYER_FD}")))?;
    let (origin, saved) = (inherited(ORIGIN_FD), inherited(SAVED_FD));
    let folders = Folders {
        layer: layer.as_fd(),
        origin: origin.as_ref().map(AsFd::as_fd),
        saved: saved.as_ref().map(AsFd::as_fd),
    };
    perform(&order, folders)
}

fn inherited(number: i32) -> Option<OwnedFd> {
    sys::inherited(number).then(|| sys::own(number))
}

/// Carries out one order.
///
/// # Errors
/// What could not be done, with its step and path. A layer is then as it was, or, where the order
/// was to fill or remove it, to be filled or removed again.
pub fn perform(order: &Order, folders: Folders<'_>) -> Result<Report, Problem> {
    let Order { mode, made, work } = order;
    let layer = folder(Some(folders.layer), "layer")?;
    let origin = || folder(folders.origin, "origin");
    let saved = || folder(folders.saved, "saved");
    if !matches!(work, Work::Remove) {
        store::top(*mode)?;
        store::recover(layer)?;
    }
    let sides = || diff::Sides::open(*mode, *made, origin()?, layer);
    let report = match work {
        Work::Fill => Report::Copied(store::fill(*mode, origin()?, layer)?),
        Work::Save => Report::Copied(store::save(*mode, layer, saved()?)?),
        Work::Restore => Report::Copied(store::restore(*mode, layer, saved()?)?),
        Work::Remove => {
            crate::remove::empty(layer)?;
            Report::Done
        }
        Work::Measure => Report::Measured(measure::measure(layer, store::top(*mode)?)?),
        Work::Diff => Report::Changes(diff::diff(&sides()?)?),
        Work::Preview => Report::Changes(diff::preview(*mode, origin()?, layer, saved()?)?),
        Work::Apply { paths } => {
            let Outcome { done, left } = apply::apply(&sides()?, paths)?;
            Report::Applied { done, left }
        }
        Work::Discard { paths } => {
            let Outcome { done, left } = discard::discard(&sides()?, paths)?;
            Report::Applied { done, left }
        }
    };
    Ok(report.shortened())
}

fn folder<'a>(fd: Option<BorrowedFd<'a>>, name: &str) -> Result<BorrowedFd<'a>, Problem> {
    let Some(fd) = fd else { return Err(Problem::Order(format!("it needs the folder {name}"))) };
    if entry::of(fd).at("look at", name.as_bytes())?.kind == entry::Kind::Folder {
        return Ok(fd);
    }
    Err(Problem::Order(format!("{name} is no folder")))
}
