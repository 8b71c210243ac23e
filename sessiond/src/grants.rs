//! Grants, asked of the supervisor, whose table is the truth. Here is kept what their cages are started
//! with, which it checks against a hash of its own.
//!
//! Row, then the supervisor's file, then the answer with the key. What dies on the way leaves a row
//! without `made` or a file without a row: nobody has its key, so both are let go.

use crate::access::{self, Operator, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::audit;
use crate::clock::now_ms;
use crate::layers::parsed;
use crate::ledger::{self, Told};
use crate::store::Result as StoreResult;
use crate::store::grants::{self, GrantRow};
use crate::store::requests::{self, RequestKey};
use crate::store::sessions::{self, SessionRow};
use crate::supervisor_link::{Connection, RequestError, document};
use link::failpoint;
use rusqlite::Connection as Database;
use serde_json::json;
use std::sync::Arc;
use wire::api::{GrantMade, GrantView, MakeGrant, SessionState};
use wire::supervisor::{Minted, SupervisorRequest};
use wire::{
    Arg, CageId, ErrorCode, ExecSpec, GrantId, GrantState, PtyId, RunId, SessionId, SpawnSpec,
    WireError,
};

/// # Errors
/// The session is not the caller's own or has ended, or what the supervisor says.
pub async fn mint(
    app: Arc<App>,
    caller: Caller,
    session: SessionId,
    asked: MakeGrant,
) -> Result<GrantMade, WireError> {
    let link = app.link.current()?;
    let (who, id) = (caller.operator, GrantId::new());
    let key = asked.client_request_id.clone();
    let key = key.map(|key| RequestKey::new(who.uid, format!("grants:{session}"), key, &asked));
    let key = key.transpose()?;
    let MakeGrant { cages, for_ms, policy, overrides, client_request_id: _ } = asked;
    let row = GrantRow { id, session, policy, overrides, made: false };
    let (kept, asked_by) = (row.clone(), key.clone());
    let owner = app.store.write(move |db| begin(db, who, &kept, asked_by.as_ref())).await;
    let owner = owner.map_err(WireError::from);
    if let Err(error) = &owner {
        audit::refused(&app, who, "mint", session, error).await;
    }
    let owner = owner?;
    failpoint::reach("mint.rows");
    let spec = spec(&owner, row);
    let spec = serde_json::to_vec(&spec)
        .and_then(|bytes| link::memfd::sealed("mint", &bytes).map_err(serde_json::Error::io))
        .map_err(|error| WireError::new(ErrorCode::Internal, error.to_string()))?;
    let request = SupervisorRequest::Mint { grant: id, cages, for_ms };
    let minted = match caller.authority() {
        Ok(authority) => link.request(&request, vec![authority, spec]).await,
        Err(error) => Err(RequestError::Refused(error)),
    };
    let minted = minted.map_err(WireError::from).and_then(|reply| reply.typed::<Minted>());
    failpoint::reach("mint.answered");
    let Minted { grant, key } = match minted {
        Ok(minted) => minted,
        Err(error) => {
            let undone = app.store.write(move |db| {
                grants::delete(db, id)?;
                key.map_or(Ok(()), |key| requests::forget(db, &key))
            });
            undone.await?;
            return Err(error);
        }
    };
    let expires_at_ms = grant.expires_at_ms;
    app.store
        .write(move |db| {
            grants::set_made(db, id)?;
            let data = json!({
                "grant": id, "cages": cages, "expires_at_ms": expires_at_ms, "uid": who.uid,
            });
            note(db, session, "grant.made", data)
        })
        .await?;
    failpoint::reach("mint.made");
    Ok(GrantMade { grant: view(grant, Some(owner.name)), key })
}

fn begin(
    db: &Database,
    who: Operator,
    row: &GrantRow,
    key: Option<&RequestKey>,
) -> StoreResult<SessionRow> {
    let session = sessions::get(db, row.session)?.ok_or_else(|| access::not_found("session"))?;
    access::may(who, Verb::Start, session.uid, "session")?;
    if matches!(session.state, SessionState::Ended | SessionState::Failed) {
        let words = "This session has ended; a grant needs one that lasts: `mews grants make`.";
        return Err(WireError::new(ErrorCode::Gone, words).into());
    }
    if let Some(key) = key {
        let now = now_ms();
        // One that was being made when a daemon died is gone, and made anew.
        if let Some(earlier) = requests::made::<GrantId>(db, key, now)?
            && grants::get(db, earlier)?.is_some()
        {
            return Err(made_before(earlier).into());
        }
        requests::remember(db, key, &row.id, now)?;
    }
    grants::insert(db, row)?;
    Ok(session)
}

/// The key is told once: whoever could read it here again could start things by it.
fn made_before(id: GrantId) -> WireError {
    let words = "This grant was made already, and its key is told only once. If the answer was lost, \
                 revoke it (`mews grants revoke`) and make another with another client_request_id.";
    WireError::new(ErrorCode::Conflict, words).with(json!({ "grant": id }))
}

/// What would be started by it, but for the command.
fn spec(session: &SessionRow, row: GrantRow) -> SpawnSpec {
    SpawnSpec {
        session: row.session,
        run: RunId::new(),
        cage: CageId::new(),
        pty: PtyId::new(),
        name: session.name.clone(),
        policy: row.policy,
        overrides: row.overrides,
        workspace: session.folder.as_str().into(),
        exec: ExecSpec {
            argv: vec![Arg::from("true")],
            env: Vec::new(),
            cwd: None,
            umask: None,
            tty: None,
            hold: false,
            stdin: false,
        },
    }
}

fn note(db: &Database, session: SessionId, kind: &str, data: serde_json::Value) -> StoreResult<()> {
    ledger::note(db, session, None, Told { kind, data, at_ms: now_ms() })
}

fn view(state: GrantState, name: Option<String>) -> GrantView {
    GrantView { standing: state.standing(now_ms()), left: state.left(), name, state }
}

/// The caller's own; an admin's are all.
///
/// # Errors
/// The supervisor is away.
pub async fn list(app: &App, caller: &Caller) -> Result<Vec<GrantView>, WireError> {
    let states = listed(&app.link.current()?).await?;
    let who = caller.operator;
    let views = app.store.read(move |db| {
        let own = states
            .into_iter()
            .filter(|state| access::scope(who).is_none_or(|uid| uid == state.uid));
        own.map(|state| {
            let session = sessions::get(db, state.session)?;
            Ok(view(state, session.map(|session| session.name)))
        })
        .collect()
    });
    Ok(views.await?)
}

async fn listed(link: &Connection) -> Result<Vec<GrantState>, WireError> {
    let reply = link.request(&SupervisorRequest::Grants, Vec::new()).await?;
    parsed(&document(reply).await?)
}

/// # Errors
/// It is not the caller's, or what the supervisor says.
pub async fn revoke(app: &App, caller: &Caller, id: GrantId) -> Result<GrantView, WireError> {
    let who = caller.operator;
    let row = app.store.read(move |db| grants::get(db, id)).await?;
    let link = app.link.current()?;
    let request = SupervisorRequest::Revoke { grant: id };
    let state: GrantState = link.request(&request, vec![caller.authority()?]).await?.typed()?;
    failpoint::reach("revoke.answered");
    let name = match row {
        None => None,
        Some(row) => {
            let noted = app.store.write(move |db| {
                let data = json!({ "grant": id, "uid": who.uid });
                note(db, row.session, "grant.revoked", data)?;
                Ok(sessions::get(db, row.session)?.map(|session| session.name))
            });
            noted.await?
        }
    };
    Ok(view(state, name))
}

/// Lets go what the supervisor keeps for a session that is over.
pub async fn tidy(app: Arc<App>, link: Connection) {
    let states = match listed(&link).await {
        Ok(states) => states,
        Err(error) => return tracing::debug!(%error, "listing grants"),
    };
    let strangers = app.store.read(move |db| {
        let mut strangers = Vec::new();
        for state in states {
            if grants::get(db, state.id)?.is_none() {
                strangers.push(state.id);
            }
        }
        Ok(strangers)
    });
    match strangers.await {
        Ok(strangers) => {
            for grant in strangers {
                let request = SupervisorRequest::ForgetGrant { grant };
                if let Err(error) = link.request(&request, Vec::new()).await {
                    tracing::debug!(?error, %grant, "forgetting a grant");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "grants"),
    }
}
