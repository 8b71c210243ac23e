//! What a viewer is given of the stores: at first, after a loss, line by line or byte by byte, and its
//! last frame.

use super::store::Store;
use crate::viewer::outbox::{Outbox, PullQueue};
use crate::viewer::{ScreenTold, Viewer};
use bytes::Bytes;
use wire::frame::{CloseReason, Frame};
use wire::{EventBody, PtyId, View};

/// Lines of one history frame for a viewer of lines.
const LINES_AT_ONCE: usize = 500;
/// Bytes of one output frame for a viewer of raw bytes.
const RAW_AT_ONCE: usize = 64 * 1024;

/// What a new viewer sees first.
pub(super) fn show(viewer: &mut Viewer, store: &mut Store, lines: usize, now_ms: u64) {
    match &mut viewer.outbox {
        Outbox::Live(queue) => {
            queue.push_history(store.picture.scrollback().history(lines), now_ms);
            let snapshot = store.picture.snapshot();
            // A first snapshot ends no time of lagging.
            let _none = queue.push_snapshot(store.seq(), store.size(), snapshot, now_ms);
        }
        Outbox::Pull(_) => {
            viewer.cursor = match viewer.options.view {
                View::Lines => {
                    let kept = store.picture.scrollback().len().min(lines) as u64;
                    store.picture.scrollback().lines_total() - kept
                }
                View::Screen | View::Bytes => 0,
            };
        }
    }
}

/// A viewer that missed bytes and has room again gets the screen.
pub(super) fn resync(
    viewer: &mut Viewer,
    store: &mut Store,
    now_ms: u64,
    pty: PtyId,
    logs: &mut Vec<EventBody>,
) -> bool {
    let Outbox::Live(queue) = &mut viewer.outbox else { return false };
    if !queue.wants_snapshot() {
        return false;
    }
    let snapshot = store.picture.snapshot();
    if let Some(episode) = queue.push_snapshot(store.seq(), store.size(), snapshot, now_ms) {
        logs.push(EventBody::PtyOutputThrottled {
            pty,
            viewer: viewer.name(),
            dropped_bytes: episode.dropped,
            episode_ms: episode.lasted_ms,
        });
    }
    true
}

/// Lines that have left the screen, then those on it that the program has gone on from; at the end
/// all of it. None twice: what is redrawn after it was told, or leaves later, is the same line.
pub(super) fn pull_lines(viewer: &mut Viewer, store: &mut Store, finished: bool) -> bool {
    let Outbox::Pull(queue) = &mut viewer.outbox else { return false };
    let total = store.picture.scrollback().lines_total();
    let mut progress = false;
    while viewer.cursor < total && queue.has_room() {
        let missing = usize::try_from(total - viewer.cursor).unwrap_or(usize::MAX);
        // Lines that the scrollback has dropped since are passed over.
        let kept = missing.min(store.picture.scrollback().len());
        let lines = store.picture.scrollback().last(kept).take(LINES_AT_ONCE);
        let (text, count) = joined(lines);
        viewer.cursor = total - kept as u64 + count;
        push_history(queue, text);
        progress = true;
        if count == 0 {
            break;
        }
    }
    let now = if finished { ScreenTold::All } else { ScreenTold::At(store.seq()) };
    if viewer.cursor < total || viewer.screen_told == now || !queue.has_room() {
        return progress;
    }
    viewer.screen_told = now;
    let lines = if finished { store.picture.lines() } else { store.picture.settled_lines() };
    let told = usize::try_from(viewer.cursor - total).unwrap_or(usize::MAX);
    let (text, count) = joined(lines.iter().skip(told).map(Vec::as_slice));
    viewer.cursor += count;
    push_history(queue, text);
    progress || finished || count > 0
}

fn push_history(queue: &mut PullQueue, text: Vec<u8>) {
    let text = Bytes::from(text);
    for start in (0..text.len()).step_by(wire::frame::FRAME_BYTES_MAX) {
        let end = text.len().min(start + wire::frame::FRAME_BYTES_MAX);
        queue.push_shared(4, text.slice(start..end));
    }
}

fn joined<'a>(lines: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, u64) {
    let mut text = Vec::new();
    let mut count = 0;
    for line in lines {
        text.extend_from_slice(line);
        text.extend_from_slice(b"\r\n");
        count += 1;
    }
    (text, count)
}

/// Raw bytes from the oldest that is kept.
pub(super) fn pull_bytes(viewer: &mut Viewer, store: &Store, now_ms: u64) -> bool {
    let mut progress = false;
    while let Outbox::Pull(queue) = &mut viewer.outbox
        && queue.has_room()
        && viewer.cursor < store.seq()
    {
        progress = true;
        match store.ring.read(viewer.cursor) {
            crate::ring::Read::Gap { oldest } => {
                let gap = Frame::Gap { from: viewer.cursor, to: oldest };
                viewer.tell(&gap, now_ms);
                viewer.cursor = oldest;
            }
            crate::ring::Read::Bytes([first, second]) => {
                let piece = if first.is_empty() { second } else { first };
                let piece = piece.get(..RAW_AT_ONCE.min(piece.len())).unwrap_or_default();
                let frame = Frame::Output { seq: viewer.cursor, bytes: piece.to_vec() };
                queue.push(&frame);
                viewer.cursor += piece.len() as u64;
            }
        }
    }
    progress
}

/// The last frame, once everything before it was given.
pub(super) fn close_if_complete(viewer: &mut Viewer, store: &Store, now_ms: u64) -> bool {
    let Some(close) = viewer.closing.clone().filter(|_| !viewer.told_last) else { return false };
    let complete = match (&viewer.outbox, viewer.options.view) {
        (Outbox::Live(queue), _) => queue.open_episode(now_ms).is_none(),
        (Outbox::Pull(_), View::Lines) => viewer.screen_told == ScreenTold::All,
        (Outbox::Pull(_), View::Screen | View::Bytes) => viewer.cursor >= store.seq(),
    };
    // Who leaves by himself does not wait for the rest.
    let leaves = !matches!(close.reason, CloseReason::Exited | CloseReason::SessionEnded);
    if complete || leaves {
        viewer.told_last = true;
        viewer.outbox.last(&Frame::Close(close), now_ms);
    }
    complete || leaves
}
