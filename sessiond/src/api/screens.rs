//! For scripts: type on a terminal, see its screen, wait for something on it.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::{Ids, Large};
use super::ptys::{found, kept, open};
use crate::access::{self, Verb};
use crate::app::App;
use crate::filing::Kept;
use crate::store::ptys;
use crate::supervisor_link::{RequestError, document};
use axum::Json;
use axum::extract::State;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use wire::api::{PtyView, Waited};
use wire::screen::ScreenView;
use wire::supervisor::SupervisorRequest;
use wire::typing::{Typed, Typing};
use wire::watch::{Met, Pattern, Watch, Watched};
use wire::{ErrorCode, ScrollbackForm, WireError};

/// Of what is typed at once, in bytes.
const TYPING_BYTES_MAX: usize = 1024 * 1024;
/// How long the end of a program may take to be told here when its broker has told it already.
const END_DUE: Duration = Duration::from_secs(5);
/// Of a broker's answer to a watch.
const WATCHED_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn type_keys(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
    Large(typing): Large<Typing>,
) -> Answer<Json<Typed>> {
    let pty = open(found(&app, &caller, Verb::Attach, ids.pty()?).await?)?;
    if typing.bytes(wire::typing::Modes::default()).len() > TYPING_BYTES_MAX {
        let words = format!("More than {TYPING_BYTES_MAX} bytes cannot be typed at once.");
        return Err(WireError::new(ErrorCode::PayloadTooLarge, words).into());
    }
    let internal = |why: String| WireError::new(ErrorCode::Internal, why);
    let text = serde_json::to_vec(&typing).map_err(|error| internal(error.to_string()))?;
    let memfd = link::memfd::sealed("typing", &text)
        .map_err(|error| internal(format!("memfd: {error}")))?;
    let request = SupervisorRequest::Type { cage: pty.cage, pty: pty.id };
    let link = app.link.current()?;
    let reply = link.request(&request, vec![caller.authority()?, memfd]).await;
    Ok(Json(reply.map_err(WireError::from)?.typed()?))
}

pub(super) async fn screen(
    State(app): Shared,
    caller: Caller,
    ids: Ids,
) -> Answer<Json<ScreenView>> {
    let pty = found(&app, &caller, Verb::Read, ids.pty()?).await?;
    if !pty.tty {
        let words = "This command has no terminal (it was started on pipes), and so no screen; \
                     `mews logs` shows what it has printed.";
        return Err(WireError::new(ErrorCode::Conflict, words).into());
    }
    let filed = {
        let id = pty.id;
        app.store.read(move |db| ptys::kept(db, id)).await?
    };
    let kept = match filed {
        Some(filed) => filed,
        None => {
            let form = ScrollbackForm::Screen;
            let request = SupervisorRequest::Scrollback { cage: pty.cage, pty: pty.id, form };
            let link = app.link.current()?;
            match link.request(&request, vec![caller.authority()?]).await {
                Ok(reply) => {
                    let text = document(reply).await?;
                    return Ok(Json(serde_json::from_slice(&text).map_err(|error| {
                        WireError::new(ErrorCode::Internal, format!("the screen: {error}"))
                    })?));
                }
                Err(RequestError::Refused(error)) if error.code == ErrorCode::Gone => {
                    kept(&app, &caller, &pty).await?
                }
                Err(error) => return Err(WireError::from(error).into()),
            }
        }
    };
    let none = || {
        let words = "The last screen of this command was not kept; `mews logs` shows its lines.";
        WireError::new(ErrorCode::NotFound, words)
    };
    Ok(Json(kept.last.and_then(|last| last.screen).ok_or_else(none)?))
}

/// Until something is there to be seen, or the time is over.
pub(super) async fn watch(
    app: &App,
    caller: &Caller,
    pty: PtyView,
    watch: Watch,
    patience: Duration,
) -> Answer<Json<Waited>> {
    let pattern = watch.pattern.as_deref().map(Pattern::new).transpose()?;
    let until = Instant::now() + patience;
    let Some(pty) = begun(app, pty, patience).await? else {
        return Ok(Json(Waited::default()));
    };
    let patience = until.saturating_duration_since(Instant::now());
    let seen = match asked(app, caller, &pty, &watch, patience).await {
        Ok(None) => return Ok(Json(Waited::default())),
        Ok(Some(watched)) => watched,
        Err(error) => match after_end(app, caller, &pty, pattern.as_ref(), watch.after).await? {
            Some(watched) => watched,
            None => return Err(error.into()),
        },
    };
    let exit = match seen.met {
        Met::For | Met::Idle => None,
        Met::Ended => {
            let id = pty.id;
            app.within(END_DUE, move |db| Ok(ptys::get(db, id)?.and_then(|row| row.exit))).await?
        }
    };
    let Watched { met, line, seq } = seen;
    Ok(Json(Waited { met: Some(met), line, seq: Some(seq), exit }))
}

/// A command that is being started has no terminal yet at which its broker could look.
async fn begun(app: &App, pty: PtyView, patience: Duration) -> Answer<Option<PtyView>> {
    let is_begun = |pty: &PtyView| pty.started_at_ms.is_some() || pty.exit.is_some();
    if is_begun(&pty) {
        return Ok(Some(pty));
    }
    let id = pty.id;
    let begun = app.within(patience, move |db| {
        let pty = ptys::get(db, id)?.ok_or_else(|| access::not_found("terminal"))?;
        Ok(Some(pty).filter(is_begun))
    });
    Ok(begun.await?)
}

/// The broker tells it over a stream of its own: no other daemon need live for that. `None`: the time
/// is over.
async fn asked(
    app: &App,
    caller: &Caller,
    pty: &PtyView,
    watch: &Watch,
    patience: Duration,
) -> Result<Option<Watched>, WireError> {
    let internal = |error: std::io::Error| WireError::new(ErrorCode::Internal, error.to_string());
    let (ours, theirs) = UnixStream::pair().map_err(internal)?;
    ours.set_nonblocking(true).map_err(internal)?;
    let ours = tokio::net::UnixStream::from_std(ours).map_err(internal)?;
    let watch = watch.clone();
    let request = SupervisorRequest::Watch { cage: pty.cage, pty: pty.id, watch };
    let link = app.link.current()?;
    link.request(&request, vec![caller.authority()?, theirs.into()]).await?;
    let mut text = Vec::new();
    let mut answer = ours.take(WATCHED_BYTES_MAX);
    match tokio::time::timeout(patience, answer.read_to_end(&mut text)).await {
        Err(_elapsed) => Ok(None),
        Ok(read) => {
            read.map_err(internal)?;
            serde_json::from_slice(&text).map(Some).map_err(|_nothing| {
                let words = "The cage's broker is gone, and with it whoever could see it.";
                WireError::new(ErrorCode::Gone, words)
            })
        }
    }
}

/// What is there already counts, also when all of it is over. `None`: it is not.
async fn after_end(
    app: &App,
    caller: &Caller,
    pty: &PtyView,
    pattern: Option<&Pattern>,
    after: Option<u64>,
) -> Answer<Option<Watched>> {
    let id = pty.id;
    let ended =
        app.within(END_DUE, move |db| Ok(ptys::get(db, id)?.filter(|pty| pty.exit.is_some())));
    let ended = if pty.exit.is_some() { Some(pty.clone()) } else { ended.await? };
    let Some(pty) = ended else { return Ok(None) };
    let seq = pty.bytes.unwrap_or(0);
    let text = match (pattern, after) {
        (None, _) => Vec::new(),
        (Some(_), None) => visible(kept(app, caller, &pty).await?),
        (Some(_), Some(after)) => tail(raw(app, caller, &pty).await?, seq, after),
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = pattern.and_then(|pattern| lines.find_map(|line| pattern.find(line)));
    let met = if line.is_some() { Met::For } else { Met::Ended };
    Ok(Some(Watched { met, line, seq }))
}

/// The lines that were kept, and what stood on the screen at the end.
fn visible(kept: Kept) -> Vec<u8> {
    let mut text = kept.rendered;
    let screen = kept.last.and_then(|last| last.screen).filter(|screen| screen.alternate);
    for row in screen.map(|screen| screen.rows).unwrap_or_default() {
        text.push(b'\n');
        text.extend_from_slice(row.as_bytes());
    }
    text
}

/// Of what is recorded (of a long output the newest), what came after so many bytes.
fn tail(raw: Vec<u8>, seq: u64, after: u64) -> Vec<u8> {
    let wanted = usize::try_from(seq.saturating_sub(after)).unwrap_or(usize::MAX);
    let skip = raw.len().saturating_sub(wanted);
    raw.get(skip..).unwrap_or_default().to_vec()
}

async fn raw(app: &App, caller: &Caller, pty: &PtyView) -> Result<Vec<u8>, WireError> {
    let form = ScrollbackForm::Raw;
    let request = SupervisorRequest::Scrollback { cage: pty.cage, pty: pty.id, form };
    let link = app.link.current()?;
    document(link.request(&request, vec![caller.authority()?]).await?).await
}
