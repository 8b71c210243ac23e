//! The frames that wait, in the order they are written: the one that is partly written, control
//! frames, data, the last frame.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;
use wire::Size;
use wire::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES, output_header};

/// Bytes of a snapshot or of history in one frame. Smaller than what a frame may hold, so that a
/// control frame never waits behind much.
const PIECE_BYTES: usize = 32 * 1024;
const _: () = assert!(PIECE_BYTES < FRAME_BYTES_MAX);
/// Slices for one write.
const SLICES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Control,
    Output { seq: u64 },
    Snapshot,
    History,
    Last,
}

/// One frame: its head, and a body that may be shared.
#[derive(Debug)]
pub(super) struct Item {
    kind: Kind,
    head: Vec<u8>,
    body: Bytes,
}

impl Item {
    /// A whole frame.
    pub(super) fn framed(kind: Kind, frame: Vec<u8>) -> Self {
        Self { kind, head: frame, body: Bytes::new() }
    }

    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    fn output_bytes(&self) -> usize {
        match self.kind {
            Kind::Output { .. } => self.body.len(),
            Kind::Control | Kind::Snapshot | Kind::History | Kind::Last => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The frame that is being written, and how much of it is.
    current: Option<Item>,
    sent: usize,
    control: VecDeque<Item>,
    data: VecDeque<Item>,
    last: Option<Item>,
    closed: bool,
    bytes: usize,
    control_bytes: usize,
    output_bytes: usize,
}

impl Pending {
    pub(super) fn push(&mut self, item: Item) {
        if self.closed {
            return;
        }
        self.bytes += item.len();
        self.output_bytes += item.output_bytes();
        match item.kind {
            Kind::Control => {
                self.control_bytes += item.len();
                self.control.push_back(item);
            }
            Kind::Last => {
                self.last = Some(item);
                self.closed = true;
            }
            Kind::Output { .. } | Kind::Snapshot | Kind::History => self.data.push_back(item),
        }
    }

    pub(super) fn push_output(&mut self, seq: u64, bytes: &Bytes) {
        let mut at = seq;
        for body in pieces(bytes) {
            let head = output_header(at, body.len()).to_vec();
            at += body.len() as u64;
            self.push(Item { kind: Kind::Output { seq: at - body.len() as u64 }, head, body });
        }
    }

    pub(super) fn push_history(&mut self, bytes: &Bytes) {
        for body in pieces(bytes) {
            let head = head_of(&Frame::History(Vec::new()), body.len());
            self.push(Item { kind: Kind::History, head, body });
        }
    }

    pub(super) fn push_snapshot(&mut self, seq: u64, size: Size, bytes: &Bytes) {
        for body in pieces(bytes) {
            let head = head_of(&Frame::Snapshot { seq, size, bytes: Vec::new() }, body.len());
            self.push(Item { kind: Kind::Snapshot, head, body });
        }
    }

    /// Drops output and snapshots that are not begun. Gives the first sequence that is lost and
    /// how many bytes of output are.
    pub(super) fn drop_screen(&mut self) -> Option<(u64, u64)> {
        let mut lost: Option<(u64, u64)> = None;
        let data = std::mem::take(&mut self.data);
        for item in data {
            match item.kind {
                Kind::Output { seq } => {
                    let (_, dropped) = lost.get_or_insert((seq, 0));
                    *dropped += item.body.len() as u64;
                    self.forget(&item);
                }
                Kind::Snapshot => self.forget(&item),
                Kind::History | Kind::Control | Kind::Last => self.data.push_back(item),
            }
        }
        lost
    }

    pub(super) fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        let mut skip = self.sent;
        let items = self.current.iter().chain(&self.control).chain(&self.data).chain(&self.last);
        for part in items.flat_map(|item| [item.head.as_slice(), item.body.as_ref()]) {
            if out.len() == SLICES_MAX {
                return;
            }
            let rest = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            if !rest.is_empty() {
                out.push(IoSlice::new(rest));
            }
        }
    }

    pub(super) fn written(&mut self, bytes: usize) {
        self.sent += bytes;
        while self.current.is_some() || self.sent > 0 {
            if self.current.is_none() {
                self.current = self.take_next();
            }
            let Some(item) = &self.current else { break };
            if self.sent < item.len() {
                return;
            }
            self.sent -= item.len();
            if let Some(item) = self.current.take() {
                self.bytes -= item.len();
                self.output_bytes -= item.output_bytes();
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes - self.sent
    }

    pub(super) fn control_bytes(&self) -> usize {
        self.control_bytes
    }

    pub(super) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    fn take_next(&mut self) -> Option<Item> {
        if let Some(item) = self.control.pop_front() {
            self.control_bytes -= item.len();
            return Some(item);
        }
        self.data.pop_front().or_else(|| self.last.take())
    }

    fn forget(&mut self, item: &Item) {
        self.bytes -= item.len();
        self.output_bytes -= item.output_bytes();
    }
}

fn pieces(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    (0..bytes.len())
        .step_by(PIECE_BYTES)
        .map(|start| bytes.slice(start..bytes.len().min(start + PIECE_BYTES)))
}

/// The head of a frame like `empty`, with a body of `body` bytes behind it.
fn head_of(empty: &Frame, body: usize) -> Vec<u8> {
    let mut head = empty.to_bytes();
    let fields = head.len() - HEADER_BYTES;
    let length = u32::try_from(fields + body).unwrap_or(u32::MAX).to_le_bytes();
    for (place, byte) in head.iter_mut().skip(1).zip(length) {
        *place = byte;
    }
    head
}
