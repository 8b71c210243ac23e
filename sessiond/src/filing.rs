//! When a cage is gone: what was on its terminals goes into the database, and a missing exit is
//! asked for.

use crate::app::App;
use crate::clock::now_ms;
use crate::ledger;
use crate::store::{Result, cages, ptys};
use crate::supervisor_link::{Connection, RequestError, document};
use link::failpoint;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::api::CageView;
use wire::screen::Last;
use wire::supervisor::SupervisorRequest;
use wire::{CageId, Cause, PtyId, ScrollbackForm, WireError};

/// Files in the background; what fails now is tried again after the next reconnect, and on demand.
pub fn spawn(app: &Arc<App>, connection: &Connection, cage: CageId) {
    let (app, connection) = (Arc::clone(app), connection.clone());
    tokio::spawn(async move {
        // A host that ends a hundred cages at once must not hold all their scrollback in memory.
        let Ok(_turn) = app.filing.acquire().await else { return };
        if let Err(error) = file(&app, &connection, cage).await {
            tracing::warn!(%error, %cage, "filing");
        }
    });
}

async fn file(app: &App, connection: &Connection, cage: CageId) -> Result<()> {
    let read = app.store.read(move |db| {
        let Some(view) = cages::get(db, cage)? else { return Ok(None) };
        let mut missing = Vec::new();
        for pty in &view.ptys {
            if ptys::kept(db, pty.id)?.is_none() {
                missing.push(pty.id);
            }
        }
        Ok(Some((view, missing)))
    });
    let Some((view, missing)) = read.await? else { return Ok(()) };
    for pty in missing {
        match fetch(connection, cage, pty, || Ok(Vec::new())).await {
            Ok(kept) => {
                failpoint::reach("filing.read");
                app.store.write(move |db| ptys::keep(db, pty, &kept)).await?;
            }
            Err(error) => tracing::debug!(%error, %pty, "no scrollback to file"),
        }
    }
    failpoint::reach("filing.stored");
    find_exit(app, connection, view).await
}

/// What is kept of a terminal that has closed.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Its lines.
    pub rendered: Vec<u8>,
    /// Absent where an older broker wrote none.
    pub last: Option<Last>,
}

/// From the files of an ended cage. `authority`: of whoever asks, none for sessiond itself.
///
/// # Errors
/// Its lines are not to be had.
pub async fn fetch(
    connection: &Connection,
    cage: CageId,
    pty: PtyId,
    authority: impl Fn() -> std::result::Result<Vec<OwnedFd>, WireError>,
) -> std::result::Result<Kept, WireError> {
    let of = async |form| {
        let request = SupervisorRequest::Scrollback { cage, pty, form };
        document(connection.request(&request, authority()?).await?).await
    };
    let rendered = of(ScrollbackForm::Rendered).await?;
    let last = of(ScrollbackForm::Last).await.ok();
    Ok(Kept { rendered, last: last.and_then(|text| serde_json::from_slice(&text).ok()) })
}

/// `cage.gone` came, and no source told an exit: the snapshot has it, or nobody has.
async fn find_exit(app: &App, connection: &Connection, cage: CageView) -> Result<()> {
    if cage.exit.is_some() {
        return Ok(());
    }
    let known = match connection.list().await {
        Ok(states) => states.into_iter().find(|state| state.cage == cage.id),
        Err(RequestError::Refused(_)) => None,
        // The next reconciliation decides.
        Err(RequestError::NotSent | RequestError::Lost) => return Ok(()),
    };
    let exit = known.and_then(|state| state.exit);
    let exit = exit.unwrap_or_else(|| ledger::lost(Cause::StatusLost));
    app.store.write(move |db| ledger::cage_exited(db, cage.id, &exit, now_ms())).await
}
