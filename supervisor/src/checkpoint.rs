//! A checkpoint of one cage (CAGE.md 7): everything stands still, then its screens, processes and
//! workspace layer are kept. The cage stands still afterwards.

use crate::cage::Cage;
use crate::layers;
use crate::stats;
use crate::supervisor::Supervisor;
use crate::suspend;
use link::failpoint;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use wire::broker::{BrokerRequest, BrokerState};
use wire::supervisor::{Phase, PtyState};
use wire::{
    CageCheckpoint, CheckpointId, ErrorCode, PtyCheckpoint, SavedLayer, ScrollbackForm, SpawnSpec,
    Suspension, WireError, control,
};

/// Of one screen, in a checkpoint.
const SCREEN_BYTES_MAX: usize = 64 << 10;
/// Of what a broker, which may not be ours any more, says of one screen, from its end: the last lines
/// are in there.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// A broker answers at once; a checkpoint does not wait for one that is stopped.
const DEADLINE: Duration = Duration::from_secs(10);
/// Rows of what has no terminal.
const ROWS: u16 = 24;

pub(crate) async fn take(
    supervisor: &Supervisor,
    cage: &Cage,
    checkpoint: CheckpointId,
) -> Result<CageCheckpoint, WireError> {
    let stood = cage.phase() == Phase::Suspended;
    let suspension = suspend::suspend(supervisor, cage).await?;
    failpoint::reach("checkpoint.suspended");
    let taken = keep(supervisor, cage, checkpoint, suspension).await;
    failpoint::reach("checkpoint.kept");
    if taken.is_err() && !stood {
        let undone = suspend::resume(supervisor, cage).await;
        undone.unwrap_or_else(|error| tracing::warn!(cage = %cage.id, %error, "undoing"));
    }
    taken
}

async fn keep(
    supervisor: &Supervisor,
    cage: &Cage,
    checkpoint: CheckpointId,
    suspension: Suspension,
) -> Result<CageCheckpoint, WireError> {
    let ptys = ptys(cage).await?;
    let has_layer =
        cage.plan().is_some_and(|plan| plan.workspace.mode != wire::WorkspaceMode::Direct);
    let layer = match has_layer {
        true => layers::save(supervisor, cage.record().session, checkpoint).await?,
        false => None,
    };
    Ok(CageCheckpoint {
        cage: cage.id,
        suspension,
        usage: Some(Box::new(stats::of(cage).await)),
        ptys,
        layer: layer.map(|(mode, copied)| SavedLayer { mode, copied }),
        spec: spec(supervisor, cage),
    })
}

/// Absent where an older supervisor started it.
fn spec(supervisor: &Supervisor, cage: &Cage) -> Option<SpawnSpec> {
    let text = std::fs::read(supervisor.spec_path(cage.id)).ok()?;
    serde_json::from_slice(&text).ok()
}

async fn ptys(cage: &Cage) -> Result<Vec<PtyCheckpoint>, WireError> {
    let (state, _fds) = ask(cage, &BrokerRequest::State).await?;
    let state: BrokerState = control::typed(state)?;
    let mut kept = Vec::new();
    for pty in state.ptys.into_iter().filter(|pty| pty.exit.is_none()) {
        let screen = screen(cage, &pty).await?;
        let PtyState { pty, argv, tty, pid, seq, .. } = pty;
        kept.push(PtyCheckpoint { pty, argv, tty, pid, seq, screen });
    }
    Ok(kept)
}

async fn screen(cage: &Cage, pty: &PtyState) -> Result<String, WireError> {
    let request = BrokerRequest::Scrollback { pty: pty.pty, form: ScrollbackForm::Rendered };
    let (_null, fds) = ask(cage, &request).await?;
    let Some(fd) = fds.into_iter().next() else { return Ok(String::new()) };
    let bytes = last_bytes(fd, TEXT_BYTES_MAX).map_err(|error| {
        WireError::new(ErrorCode::Internal, format!("the screen of {}: {error}", pty.pty))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let rows = usize::from(pty.size.map_or(ROWS, |size| size.rows));
    Ok(last_lines(&text, rows))
}

async fn ask(
    cage: &Cage,
    request: &BrokerRequest,
) -> Result<(serde_json::Value, Vec<OwnedFd>), WireError> {
    let broker = cage.broker()?;
    let asked = tokio::time::timeout(DEADLINE, broker.call(request, &[]));
    asked.await.map_err(|_late| {
        WireError::new(ErrorCode::Internal, "the cage's broker does not answer; nothing is kept")
    })?
}

/// Of a memory file. Nothing else is read: a pipe or a file of FUSE could make us wait.
fn last_bytes(fd: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    fcntl(&fd, FcntlArg::F_GET_SEALS)?;
    let file = File::from(fd);
    let length = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(length.min(bytes_max)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, length.saturating_sub(bytes_max))?;
    Ok(bytes)
}

/// The last lines of a text, as far as they fit.
fn last_lines(text: &str, rows: usize) -> String {
    let mut lines: Vec<&str> = text.lines().rev().take(rows).collect();
    lines.reverse();
    let mut bytes = 0;
    let fits = lines.iter().rev().take_while(|line| {
        bytes += line.len() + 1;
        bytes <= SCREEN_BYTES_MAX
    });
    let first = lines.len() - fits.count();
    lines.get(first..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::memfd;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    #[test]
    fn of_a_text_without_end_only_the_end_is_read() {
        let text = memfd::sealed("screen", b"first\nlast").unwrap();
        assert_eq!(last_bytes(text.try_clone().unwrap(), 4).unwrap(), b"last");
        assert_eq!(last_bytes(text, 100).unwrap(), b"first\nlast");
        let file = File::from(memfd_create("screen", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(1 << 40).unwrap();
        assert_eq!(last_bytes(file.into(), 4 << 20).unwrap().len(), 4 << 20);
        // Nobody would ever write to it.
        let (pipe, _theirs) = io::pipe().unwrap();
        assert!(last_bytes(pipe.into(), 4).is_err());
    }

    #[test]
    fn a_screen_is_the_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 24), "");
        let long = format!("{}\nend", "x".repeat(SCREEN_BYTES_MAX));
        assert_eq!(last_lines(&long, 24), "end");
    }
}
