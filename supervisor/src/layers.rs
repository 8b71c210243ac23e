//! Workspace layers (CAGE.md 7): what a session's programs change, apart from the operator's folder.
//!
//! ```text
//! <state>/layers/<session>/layer.json        what it is
//!                          live/             the cage's uid's: upper and work, or tree
//!                          checkpoints/<id>/ the cage's uid's: the same as it was
//! ```
//! A layer belongs to its session: the next cage of the session goes on with it, under the same uid.
//! One cage at a time has it. What is done to its files is done by `mews-layer`, with the cage's
//! identity: here only folders of our own are made and removed.

mod record;
mod worker;

pub(crate) use record::Layer;
pub(crate) use worker::Places;

use crate::admission::Operator;
use crate::cage::Cage;
use crate::files;
use crate::spawn::Failure;
use crate::supervisor::Supervisor;
use ::cage::plan::{CagePlan, Role};
use ::layer::{Measured, Report, Work};
use link::failpoint;
use record::Facts;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wire::supervisor::{LayerRequest, LayerState};
use wire::{CheckpointId, Copied, ErrorCode, EventBody, SessionId, WireError, WorkspaceMode};

/// The layer that a cage of this plan works in: the session's, made if there is none yet.
pub(crate) async fn for_cage(
    supervisor: &Supervisor,
    cage: &Cage,
    plan: &CagePlan,
) -> Result<Option<Layer>, Failure> {
    let mode = plan.workspace.mode;
    let works_there = plan.sources.iter().any(|source| source.role == Role::Workspace);
    if mode == WorkspaceMode::Direct || !works_there {
        return Ok(None);
    }
    let wrong = |error: &dyn std::fmt::Display| Failure::new("workspace", error);
    let session = cage.record().session;
    let _turn = supervisor.layer_turn(session).await;
    let layer = match Layer::find(&supervisor.host.dirs, session).map_err(|error| wrong(&error))? {
        Some(layer) => {
            fits(supervisor, cage, plan, &layer)?;
            layer
        }
        None => make(supervisor, cage, plan).map_err(|error| wrong(&error))?,
    };
    let layer = filled(supervisor, layer).await.map_err(|error| wrong(&error.message))?;
    layer.check_parts().map_err(|error| wrong(&error))?;
    Ok(Some(layer))
}

/// Whether an earlier cage's layer is what this one asks for, and free.
fn fits(
    supervisor: &Supervisor,
    cage: &Cage,
    plan: &CagePlan,
    layer: &Layer,
) -> Result<(), Failure> {
    let refused = |words: String| Err(Failure::new("workspace", words));
    let record = cage.record();
    if (layer.facts.operator, layer.facts.uid) != (record.operator, record.uid) {
        return refused("the layer of this session belongs to somebody else".to_owned());
    }
    if layer.mode() != plan.workspace.mode || layer.facts.workspace != plan.workspace.host {
        return refused(format!(
            "this session keeps the changes to {} in {}; this run asks for another workspace. Start \
             a session of its own for it",
            layer.facts.workspace,
            words(layer.mode())
        ));
    }
    match holder(supervisor, layer.facts.session, Some(cage)) {
        None => Ok(()),
        Some(other) => refused(format!(
            "the layer of this session is in use by its cage {}; wait for its end, or start a session \
             of its own",
            other.id.short()
        )),
    }
}

fn words(mode: WorkspaceMode) -> &'static str {
    match mode {
        WorkspaceMode::Direct => "the folder itself",
        WorkspaceMode::Overlay => "an overlay",
        WorkspaceMode::Copy => "a copy",
    }
}

/// The living cage that works in a session's layer.
fn holder(supervisor: &Supervisor, session: SessionId, but: Option<&Cage>) -> Option<Rc<Cage>> {
    let mut living = supervisor.living().into_iter();
    living.find(|cage| {
        cage.record().session == session
            && but.is_none_or(|but| but.id != cage.id)
            && cage.plan().is_none_or(|plan| plan.workspace.mode != WorkspaceMode::Direct)
    })
}

fn make(supervisor: &Supervisor, cage: &Cage, plan: &CagePlan) -> io::Result<Layer> {
    if plan.workspace.mode == WorkspaceMode::Overlay {
        refuse_mounts_below(&plan.workspace.host)?;
    }
    let record = cage.record();
    let facts = Facts {
        session: record.session,
        operator: record.operator,
        uid: record.uid,
        gid: plan.user.gid,
        mode: plan.workspace.mode,
        workspace: plan.workspace.host.clone(),
        made: None,
    };
    let layer = Layer::make(&supervisor.host, facts)?;
    supervisor.layer_uids.borrow_mut().insert(layer.facts.session, layer.facts.uid);
    Ok(layer)
}

/// An overlay shows one file system: what is mounted below the folder would be missing in the cage.
fn refuse_mounts_below(folder: &str) -> io::Result<()> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let below = table.lines().filter_map(mount_point).find(|place| {
        Path::new(place).strip_prefix(folder).is_ok_and(|rest| !rest.as_os_str().is_empty())
    });
    match below {
        None => Ok(()),
        Some(place) => Err(io::Error::other(format!(
            "{place} is a mount of its own below the workspace, which an overlay would not show; use \
             workspace = \"copy\", or run in a folder without it"
        ))),
    }
}

/// Where it is, of a line of mountinfo.
pub(crate) fn mount_point(line: &str) -> Option<String> {
    mount_field(line, 4)
}

/// A field of a line of mountinfo, from 0, without its escapes.
pub(crate) fn mount_field(line: &str, number: usize) -> Option<String> {
    let field = line.split(' ').nth(number)?;
    let mut plain = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let Some(code) = code else { return Some(field.to_owned()) };
        plain.push(char::from(code));
        rest = after.get(3..).unwrap_or_default();
    }
    plain.push_str(rest);
    Some(plain)
}

/// Its first content, where it has none (or a supervisor died while it was made).
async fn filled(supervisor: &Supervisor, mut layer: Layer) -> Result<Layer, WireError> {
    if layer.facts.made.is_some() {
        return Ok(layer);
    }
    let made = layer.stamp().map_err(internal)?;
    worker::run(supervisor, &layer, made, Work::Fill, None).await?;
    layer.facts.made = Some(made);
    layer.save().map_err(internal)?;
    Ok(layer)
}

/// Whose a session's layer is.
pub(crate) fn owner(supervisor: &Supervisor, session: SessionId) -> Option<u32> {
    let layer = Layer::find(&supervisor.host.dirs, session).ok()??;
    Some(layer.facts.operator)
}

/// What an operator asks of the layer of a session of theirs: a memfd with a
/// [`wire::supervisor::LayerAnswer`].
pub(crate) async fn work(
    supervisor: &Supervisor,
    session: SessionId,
    operator: &Operator,
    request: LayerRequest,
) -> Result<OwnedFd, WireError> {
    let _turn = supervisor.layer_turn(session).await;
    let layer = Layer::find(&supervisor.host.dirs, session).map_err(internal)?;
    let layer = layer.ok_or_else(no_layer)?;
    if operator.uid != layer.facts.operator {
        if !operator.is_admin {
            return Err(no_layer());
        }
        record(supervisor, session, operator)?;
    }
    let made = layer.facts.made.ok_or_else(no_layer)?;
    let (work, checkpoint) = match request {
        LayerRequest::Diff => (Work::Diff, None),
        LayerRequest::Preview { checkpoint } => (Work::Preview, Some(checkpoint)),
        LayerRequest::Apply { paths } => (Work::Apply { paths }, None),
        LayerRequest::Discard { paths } => {
            must_be_free(supervisor, session)?;
            layer.clear_work(&supervisor.host).map_err(storage)?;
            (Work::Discard { paths }, None)
        }
        LayerRequest::Restore { checkpoint } => {
            must_be_free(supervisor, session)?;
            layer.clear_work(&supervisor.host).map_err(storage)?;
            (Work::Restore, Some(checkpoint))
        }
    };
    let saved = checkpoint.map(|id| layer.checkpoint(id));
    if saved.as_ref().is_some_and(|path| !path.exists()) {
        let words = "the files of this checkpoint are not kept any more";
        return Err(WireError::new(ErrorCode::Gone, words));
    }
    worker::answer(supervisor, &layer, made, work, saved.as_deref()).await
}

/// An act of an admin on what is another's is never without a trace: an event of the session's newest
/// cage.
fn record(
    supervisor: &Supervisor,
    session: SessionId,
    operator: &Operator,
) -> Result<(), WireError> {
    let uid = operator.uid;
    tracing::info!(uid, %session, "an admin acts on a layer");
    let cages = supervisor.cages();
    let cage = cages.iter().rev().find(|cage| cage.record().session == session);
    let told = cage.map(|cage| cage.tell(&EventBody::CageAdmin { uid, verb: "layer".to_owned() }));
    match told {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) | None => Err(WireError::new(
            ErrorCode::StorageUnavailable,
            "an admin's act could not be recorded, so it is not done",
        )),
    }
}

/// What the layer of a session takes on the disk. Absent: it has none. Whatever the operator does to
/// hold it up: there is an answer within minutes.
pub(crate) async fn measure(
    supervisor: &Supervisor,
    session: SessionId,
) -> Result<Option<Measured>, WireError> {
    let _turn = worker::soon(supervisor.layer_turn(session)).await?;
    let layer = Layer::find(&supervisor.host.dirs, session).map_err(internal)?;
    let Some((layer, made)) = layer.and_then(|layer| layer.facts.made.map(|made| (layer, made)))
    else {
        return Ok(None);
    };
    match worker::run(supervisor, &layer, made, Work::Measure, None).await? {
        Report::Measured(measured) => Ok(Some(measured)),
        Report::Failed(error) => Err(error),
        Report::Done | Report::Copied(_) | Report::Changes(_) | Report::Applied { .. } => {
            Err(internal("mews-layer measured nothing"))
        }
    }
}

fn must_be_free(supervisor: &Supervisor, session: SessionId) -> Result<(), WireError> {
    match holder(supervisor, session, None) {
        None => Ok(()),
        Some(_living) => Err(WireError::new(
            ErrorCode::Conflict,
            "a program of this session is living and works in these files; end it first: `mews kill`",
        )),
    }
}

/// Keeps the layer of a cage that stands still. Absent: it has none.
pub(crate) async fn save(
    supervisor: &Supervisor,
    session: SessionId,
    checkpoint: CheckpointId,
) -> Result<Option<(WorkspaceMode, Copied)>, WireError> {
    let _turn = supervisor.layer_turn(session).await;
    let Some(layer) = Layer::find(&supervisor.host.dirs, session).map_err(internal)? else {
        return Ok(None);
    };
    let made = layer.facts.made.ok_or_else(no_layer)?;
    let growing = layer.growing(checkpoint);
    layer.make_folder(&supervisor.host, &growing).map_err(storage)?;
    let saved = worker::run(supervisor, &layer, made, Work::Save, Some(&growing)).await;
    match saved {
        Ok(Report::Copied(copied)) => {
            failpoint::reach("checkpoint.unnamed");
            std::fs::rename(&growing, layer.checkpoint(checkpoint)).map_err(storage)?;
            files::sync_folder(&layer.checkpoints()).map_err(storage)?;
            failpoint::reach("checkpoint.named");
            Ok(Some((layer.mode(), copied)))
        }
        other => {
            remove(supervisor, &layer, &growing).await?;
            Err(other.err().unwrap_or_else(|| internal("mews-layer saved nothing")))
        }
    }
}

/// # Errors
/// The folder of layers cannot be read.
pub(crate) fn list(supervisor: &Supervisor) -> io::Result<Vec<LayerState>> {
    let layers = Layer::all(&supervisor.host.dirs)?.into_iter();
    let states = layers
        .map(|layer| Ok(LayerState { session: layer.facts.session, checkpoints: layer.saved()? }));
    states.collect()
}

/// Removes a checkpoint's files, or the layer with all of them.
pub(crate) async fn forget(
    supervisor: &Supervisor,
    session: SessionId,
    checkpoint: Option<CheckpointId>,
) -> Result<(), WireError> {
    let _turn = supervisor.layer_turn(session).await;
    let Some(layer) = Layer::find(&supervisor.host.dirs, session).map_err(internal)? else {
        return Ok(());
    };
    if let Some(checkpoint) = checkpoint {
        return remove(supervisor, &layer, &layer.checkpoint(checkpoint)).await;
    }
    must_be_free(supervisor, session)?;
    for saved in layer.saved().map_err(internal)? {
        remove(supervisor, &layer, &layer.checkpoint(saved)).await?;
    }
    for unfinished in layer.half_saved().map_err(internal)? {
        remove(supervisor, &layer, &unfinished).await?;
    }
    layer.clear_work(&supervisor.host).map_err(storage)?;
    remove(supervisor, &layer, &layer.live()).await?;
    // The record goes last: while it is there, everything else has an owner.
    files::remove_any(layer.folder()).map_err(storage)?;
    supervisor.layer_is_gone(session, layer.facts.uid);
    Ok(())
}

/// All of them: a one-shot keeps nothing.
pub(crate) async fn forget_all(supervisor: &Supervisor) {
    for layer in Layer::all(&supervisor.host.dirs).unwrap_or_default() {
        if let Err(error) = forget(supervisor, layer.facts.session, None).await {
            tracing::error!(%error, "a layer is left");
        }
    }
}

/// What an earlier supervisor left: uids in use, checkpoints that were never whole. Those are removed by
/// and by: an operator can hold that up, and everybody else waits for us.
///
/// # Errors
/// The folder of layers cannot be read.
pub(crate) fn take_over(supervisor: &Rc<Supervisor>) -> io::Result<()> {
    for layer in Layer::all(&supervisor.host.dirs)? {
        supervisor.layer_uids.borrow_mut().insert(layer.facts.session, layer.facts.uid);
        if let Some(uids) = supervisor.uids.borrow_mut().as_mut() {
            uids.adopt(layer.facts.uid);
        }
        let half_saved = layer.half_saved()?;
        if !half_saved.is_empty() {
            tokio::task::spawn_local(clear_up(Rc::clone(supervisor), layer, half_saved));
        }
    }
    Ok(())
}

async fn clear_up(supervisor: Rc<Supervisor>, layer: Layer, half_saved: Vec<PathBuf>) {
    let _turn = supervisor.layer_turn(layer.facts.session).await;
    for path in half_saved {
        tracing::info!(path = %path.display(), "a checkpoint that was never whole");
        if let Err(error) = remove(&supervisor, &layer, &path).await {
            tracing::error!(%error, "it is left");
        }
    }
}

async fn remove(supervisor: &Supervisor, layer: &Layer, folder: &Path) -> Result<(), WireError> {
    if !folder.exists() {
        return Ok(());
    }
    worker::empty(supervisor, layer, folder).await?;
    files::remove_any(folder).map_err(storage)
}

fn no_layer() -> WireError {
    WireError::new(
        ErrorCode::NotFound,
        "this session has no layer: its programs work in the folder itself. Start it with --overlay \
         or --copy to keep changes apart",
    )
}

fn storage(error: io::Error) -> WireError {
    WireError::new(ErrorCode::StorageUnavailable, format!("the layer's files: {error}"))
}

fn internal(error: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_lose_their_escapes() {
        let line = r"36 25 0:31 / /a\040b\134c rw shared:1 - tmpfs tmpfs rw";
        assert_eq!(mount_point(line).as_deref(), Some(r"/a b\c"));
        assert_eq!(mount_point("junk"), None);
    }
}
