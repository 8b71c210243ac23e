//! Pause and resume: of one cage, and of a session, whose cages stand still together or not at all.

use crate::access::{self, Verb};
use crate::api::caller::Caller;
use crate::app::App;
use crate::store::{Result as StoreResult, cages, sessions};
use link::failpoint;
use rusqlite::Connection as Database;
use std::time::Duration;
use wire::api::{SessionState, SessionView};
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{CageId, ErrorCode, SessionId, WireError};

/// How long the events may lag behind the supervisor's answer.
const TOLD: Duration = Duration::from_secs(10);

/// What a cage is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    Suspend,
    Resume,
}

impl Motion {
    fn verb(self) -> &'static str {
        match self {
            Self::Suspend => "pause",
            Self::Resume => "unpause",
        }
    }
}

/// Answered when the rows say so.
///
/// # Errors
/// The supervisor is away or refuses.
pub async fn move_cage(
    app: &App,
    caller: &Caller,
    cage: CageId,
    motion: Motion,
) -> Result<(), WireError> {
    let request = match motion {
        Motion::Suspend => SupervisorRequest::Suspend { cage },
        Motion::Resume => SupervisorRequest::Resume { cage },
    };
    let link = app.link.current()?;
    failpoint::reach_in(motion.verb(), "asked");
    link.request(&request, vec![caller.authority()?]).await.map_err(WireError::from)?;
    failpoint::reach_in(motion.verb(), "answered");
    told(app, cage, motion).await
}

/// Waits until the rows say so.
///
/// # Errors
/// They do not within 10 s.
pub async fn told(app: &App, cage: CageId, motion: Motion) -> Result<(), WireError> {
    let told = app.within(TOLD, move |db| {
        let phase = cages::bare(db, cage)?.map(|row| row.phase);
        let so = match motion {
            Motion::Suspend => phase != Some(Phase::Running),
            Motion::Resume => phase != Some(Phase::Suspended),
        };
        Ok(so.then_some(()))
    });
    told.await?.ok_or_else(|| {
        WireError::new(ErrorCode::Conflict, "It is done, but was not told yet; look again.")
    })
}

/// # Errors
/// It has no running cage (`conflict`), or as for [`move_cage`]; then what was suspended goes on.
pub async fn pause_session(
    app: &App,
    caller: &Caller,
    session: SessionId,
) -> Result<SessionView, WireError> {
    let cages = cages_of(app, caller, session).await?;
    if cages.is_empty() {
        let words = "Nothing runs in this session, so there is nothing to pause.";
        return Err(WireError::new(ErrorCode::Conflict, words));
    }
    let mut done: Vec<CageId> = Vec::new();
    for cage in cages {
        if let Err(error) = move_cage(app, caller, cage, Motion::Suspend).await {
            for cage in done {
                let undone = move_cage(app, caller, cage, Motion::Resume).await;
                undone.unwrap_or_else(|error| tracing::error!(%cage, %error, "undoing a pause"));
            }
            return Err(error);
        }
        done.push(cage);
    }
    view(app, session).await
}

/// # Errors
/// It is not paused (`conflict`), or as for [`move_cage`].
pub async fn resume_session(
    app: &App,
    caller: &Caller,
    session: SessionId,
) -> Result<SessionView, WireError> {
    let cages = cages_of(app, caller, session).await?;
    let before = view(app, session).await?;
    let is_paused = before.state == SessionState::Paused
        || before.cages.iter().any(|cage| cage.phase == Phase::Suspended);
    if !is_paused {
        return Err(WireError::new(ErrorCode::Conflict, "This session is not paused."));
    }
    for cage in cages {
        move_cage(app, caller, cage, Motion::Resume).await?;
    }
    view(app, session).await
}

async fn cages_of(app: &App, caller: &Caller, id: SessionId) -> Result<Vec<CageId>, WireError> {
    let who = caller.operator;
    let living = app.store.read(move |db: &Database| -> StoreResult<Vec<CageId>> {
        let row = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
        access::may(who, Verb::Change, row.uid, "session")?;
        if row.state == SessionState::Ended {
            return Err(WireError::new(ErrorCode::Gone, "This session has ended.").into());
        }
        cages::living_of_session(db, id)
    });
    Ok(living.await?)
}

/// # Errors
/// The database, or it is gone.
pub async fn view(app: &App, id: SessionId) -> Result<SessionView, WireError> {
    let view = app.store.read(move |db| {
        let row = sessions::get(db, id)?.ok_or_else(|| access::not_found("session"))?;
        sessions::view(db, row)
    });
    Ok(view.await?)
}
