//! The audit trail: the supervisor's journal, line by line, and beside it what only sessiond knows.
//!
//! The journal is fetched, not sent: however long one of the two was away, the next link goes on where
//! the table ends.

use crate::access::Operator;
use crate::app::App;
use crate::clock::now_ms;
use crate::layers::parsed;
use crate::store::sessions::{self, SessionRow};
use crate::store::{Result as StoreResult, audit};
use crate::supervisor_link::{Connection, document};
use rusqlite::Connection as Database;
use std::sync::Arc;
use tokio::sync::watch;
use wire::audit::{Act, AuditPage};
use wire::supervisor::SupervisorRequest;
use wire::{ErrorCode, SessionId, WireError};

/// Takes in what is new, now and whenever the supervisor says that there is more; ends with the link.
pub async fn follow(app: Arc<App>, link: Connection, mut told: watch::Receiver<u64>) {
    loop {
        told.mark_unchanged();
        if let Err(error) = take_in(&app, &link).await {
            // It stays in the journal; the next line or the next link asks again.
            tracing::warn!(%error, "the audit trail");
        }
        if told.changed().await.is_err() {
            return;
        }
    }
}

async fn take_in(app: &App, link: &Connection) -> Result<(), WireError> {
    loop {
        let after = app.store.read(audit::newest).await?;
        let reply = link.request(&SupervisorRequest::Audit { after }, Vec::new()).await?;
        let AuditPage { lines } = parsed(&document(reply).await?)?;
        if lines.is_empty() {
            return Ok(());
        }
        app.store.write(move |db| audit::take_in(db, &lines)).await?;
    }
}

/// What sessiond does by itself, in the transaction that does it.
///
/// # Errors
/// The database.
pub fn done(db: &Database, who: Operator, verb: &str, session: &SessionRow) -> StoreResult<()> {
    audit::note(db, now_ms(), &act(who, verb, session), "done")
}

/// What it does not let through, if that is what became of it. Others' sessions are not there for who
/// is no admin, so nothing is said of those.
pub async fn refused(
    app: &App,
    who: Operator,
    verb: &'static str,
    id: SessionId,
    told: &WireError,
) {
    if told.code != ErrorCode::Forbidden {
        return;
    }
    let noted = app.store.write(move |db| match sessions::get(db, id)? {
        Some(session) => audit::note(db, now_ms(), &act(who, verb, &session), "forbidden"),
        None => Ok(()),
    });
    if let Err(error) = noted.await {
        tracing::warn!(%error, "a refusal is not in the audit trail");
    }
}

fn act(who: Operator, verb: &str, session: &SessionRow) -> Act {
    Act {
        uid: who.uid,
        admin: who.uid != session.uid,
        grant: None,
        verb: verb.to_owned(),
        session: Some(session.id),
        cage: None,
        owner: Some(session.uid),
    }
}
