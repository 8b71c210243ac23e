//! What the broker and a terminal (or pipe streams) say to each other, and what all of a broker share.

use crate::boot::StateDir;
use crate::broker::Happening;
use crate::control::Reply;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::frame::Close;
use wire::typing::Typing;
use wire::watch::Watch;
use wire::{AttachOptions, ErrorCode, EventBody, ScrollbackForm, Size, WireError};

/// What the broker tells a terminal (or pipe streams).
#[derive(Debug)]
pub enum Command {
    /// Tell [`TerminalEvent::Ready`] when the first viewer is there.
    Hold,
    /// A terminal's payload runs.
    Master(OwnedFd),
    /// The broker's ends of a command's pipes.
    Pipes(crate::pipes::Ends),
    /// The payload ended, or never started.
    PayloadEnded,
    Attach(Attach),
    /// This uid's viewers are to go.
    Dismiss(u32),
    Input(Vec<u8>, Reply),
    Type(Typing, Reply),
    Watch(Watch, OwnedFd, Reply),
    Resize(Size, Reply),
    Scrollback(ScrollbackForm, Reply),
    /// All is known: viewers are told when they have everything.
    Close(Close),
    /// The program stands still: its keys and its size wait.
    Still(bool),
}

#[derive(Debug)]
pub struct Attach {
    pub stream: OwnedFd,
    /// Bytes that were read from it before.
    pub read: Vec<u8>,
    pub options: AttachOptions,
    pub reply: Reply,
}

/// What a terminal (or pipe streams) tells the broker.
#[derive(Debug)]
pub enum TerminalEvent {
    /// The held payload may start, with its viewer's size.
    Ready {
        size: Option<Size>,
    },
    Log(EventBody),
    /// Nothing more is read; the files are written.
    Drained {
        bytes: u64,
        lines: u64,
    },
    /// The cage printed more than it may.
    OverLimit,
    /// Somebody left; `Status` says how many are here.
    Left,
}

/// Seen by the broker without asking.
#[derive(Debug)]
pub struct Status {
    pub viewers: Cell<u32>,
    pub has_writer: Cell<bool>,
    pub seq: Cell<u64>,
    /// Bytes that viewers took.
    pub written: Cell<u64>,
    pub size: Cell<Option<Size>>,
    /// Of the whole cage: the last key or byte.
    pub active_at: Rc<Cell<Instant>>,
    /// Of the whole cage.
    pub output: Rc<Output>,
}

/// How much a cage has printed, and how much it may.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Cell<u64>,
    bytes_max: Cell<Option<u64>>,
}

impl Output {
    #[must_use]
    pub fn limited(bytes_max: Option<u64>) -> Self {
        Self { bytes: Cell::new(0), bytes_max: Cell::new(bytes_max) }
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub fn limit(&self, bytes_max: Option<u64>) {
        self.bytes_max.set(bytes_max);
    }

    /// Counts; whether these bytes are the ones that go beyond the limit.
    #[must_use]
    pub fn add(&self, bytes: usize) -> bool {
        let before = self.bytes.get();
        let after = before.saturating_add(bytes as u64);
        self.bytes.set(after);
        self.bytes_max.get().is_some_and(|max| before <= max && after > max)
    }
}

/// What all terminals of a broker share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub inbox: mpsc::UnboundedSender<Happening>,
    pub folder: Rc<StateDir>,
    pub bounds: Rc<cage::launch::Terminal>,
    /// Reading into one buffer keeps an idle terminal small.
    pub buffer: Rc<RefCell<Vec<u8>>>,
    pub epoch: Instant,
}

impl Shared {
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Answers with a memfd.
pub fn answer_bytes(reply: Reply, bytes: &[u8]) {
    match link::memfd::sealed("mews-scrollback", bytes) {
        Ok(fd) => reply.descriptor(fd),
        Err(error) => {
            let words = format!("no memory file for the scrollback: {error}");
            reply.error(WireError::new(ErrorCode::Internal, words));
        }
    }
}

/// For an answer; our own types always serialise.
#[must_use]
pub fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
