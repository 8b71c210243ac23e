//! One terminal: one task that owns the master, the stores and the viewers.
//!
//! ```text
//! master ──▶ sequence ──▶ ring ──▶ recording ──▶ screen ──▶ viewers
//!    ▲                                              │
//!    └── keys, answers to queries ◀─────────────────┘
//! ```
//! The task is one `poll`: every source is looked at, what can go on goes on, until nothing does.
//! After [`tty::READ_BYTES`] the other terminals have their turn. It goes on serving viewers after
//! its program's end, until the broker ends.

pub mod picture;
pub mod record;
mod showing;
pub mod store;
mod talk;
pub mod tty;
pub mod watching;

pub use talk::{Attach, Command, Output, Shared, Status, TerminalEvent, answer_bytes, json};

use crate::broker::Happening;
use crate::queue::{Pushed, Tick};
use crate::quiet::Quiet;
use crate::state::{self, Action, Event, State};
use crate::viewer::crowd::{Crowd, Wish};
use crate::viewer::outbox::Outbox;
use bytes::Bytes;
use serde_json::Value;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::Store;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tty::{READ_BYTES, Taken, Tty};
use watching::{Kind, Scene, Watchers};
use wire::frame::{Close, CloseReason, Frame, Hello, Mode, Others};
use wire::typing::{Typed, Typing};
use wire::{
    ErrorCode, EventBody, History, PtyId, Role, ScrollbackForm, Size, View, WireError, control,
};

/// A payload that is held for its viewer starts without one after this.
pub const HOLD_MS: u64 = 10_000;
/// `pty.idle` is told after this.
const IDLE_MS: u64 = 30 * 60 * 1000;
/// A terminal that everybody let go of while its program runs is looked at again this often.
const HUNG_UP_LOOK_MS: u64 = 250;
/// Keys over the control link that may wait, in bytes.
const INPUT_WAITING_MAX: usize = 1 << 20;
/// While somebody waits for a line, output is taken in pieces of so many bytes: no more lines at once
/// than are kept.
const WATCHED_BYTES: usize = 8 * 1024;

/// Starts the task of a terminal.
pub fn start(
    pty: PtyId,
    size: Size,
    status: Rc<Status>,
    shared: &Shared,
) -> mpsc::UnboundedSender<Command> {
    let (sender, commands) = mpsc::unbounded_channel();
    let now_ms = shared.now_ms();
    status.size.set(Some(size));
    let mut terminal = Terminal {
        pty,
        store: Store::new(&shared.bounds, &shared.folder, pty, size, now_ms),
        crowd: Crowd::new(pty, Rc::clone(&status), shared.inbox.clone()),
        status,
        shared: shared.clone(),
        commands,
        tty: None,
        state: State::Detached,
        hold_until: None,
        drain_until: None,
        look_at: None,
        quiet: Quiet::new(now_ms),
        idle_told: false,
        closed: None,
        watchers: Watchers::default(),
        timer: Box::pin(tokio::time::sleep_until(shared.epoch)),
    };
    tokio::task::spawn_local(async move { poll_fn(|context| terminal.poll(context)).await });
    sender
}

#[derive(Debug)]
struct Terminal {
    pty: PtyId,
    store: Store,
    crowd: Crowd,
    status: Rc<Status>,
    shared: Shared,
    commands: mpsc::UnboundedReceiver<Command>,
    tty: Option<Tty>,
    state: State,
    hold_until: Option<u64>,
    drain_until: Option<u64>,
    look_at: Option<u64>,
    quiet: Quiet,
    idle_told: bool,
    closed: Option<Close>,
    watchers: Watchers,
    timer: Pin<Box<Sleep>>,
}

impl Terminal {
    /// Ends with the broker's end of `commands`.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut taken = 0;
        loop {
            let now_ms = self.shared.now_ms();
            let mut progress = false;
            while let Poll::Ready(command) = self.commands.poll_recv(context) {
                let Some(command) = command else { return Poll::Ready(()) };
                progress = true;
                self.obey(command, now_ms);
            }
            self.tick(now_ms);
            self.watchers.poll_gone(context);
            progress |= self.turn_viewers(context, now_ms);
            progress |= self.write(context);
            let read = self.read(context, now_ms);
            taken += read;
            progress |= read > 0;
            progress |= self.refill(now_ms);
            if taken >= READ_BYTES {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !progress && !self.timer_rang(context, now_ms) {
                return Poll::Pending;
            }
        }
    }

    fn obey(&mut self, command: Command, now_ms: u64) {
        match command {
            Command::Hold => self.hold_until = Some(now_ms + HOLD_MS),
            Command::Master(master) => {
                self.tty = Tty::new(master).ok();
                if let Some(tty) = &mut self.tty {
                    tty.stand_still(self.quiet.is_still());
                }
                // The viewer may have changed its window meanwhile.
                let size = self.status.size.get();
                if let (Some(tty), Some(size)) = (&mut self.tty, size) {
                    tty.want_size(size);
                }
            }
            Command::PayloadEnded => {
                if let Some(tty) = &mut self.tty {
                    tty.look_again();
                }
                self.step(Event::PayloadEnded, now_ms);
                if self.tty.is_none() {
                    self.step(Event::HoldersGone, now_ms);
                }
            }
            Command::Attach(attach) => self.attach(attach, now_ms),
            Command::Dismiss(uid) => self.dismiss(uid, now_ms),
            Command::Input(bytes, reply) => reply.result(self.input(&bytes, now_ms)),
            Command::Type(typing, reply) => {
                reply.result_value(self.type_keys(&typing, now_ms));
            }
            Command::Watch(watch, stream, reply) => {
                let (store, kind) = (&self.store, Kind::Terminal(self.store.size()));
                self.watchers.join((watch, stream), kind, |seq| store.from(seq), reply, now_ms);
            }
            Command::Resize(size, reply) => {
                self.want_size(size.clamped());
                reply.done();
            }
            Command::Scrollback(form, reply) => {
                let bytes = match form {
                    ScrollbackForm::Rendered => self.store.rendered(),
                    ScrollbackForm::Raw => self.store.raw(&self.shared.folder),
                    ScrollbackForm::Since(at_ms) => self.store.since(at_ms),
                    ScrollbackForm::Screen => json(&self.store.screen()),
                    ScrollbackForm::Last => self.store.last(),
                };
                answer_bytes(reply, &bytes);
            }
            Command::Close(close) => {
                self.crowd.close_all(&close);
                self.closed = Some(close);
            }
            Command::Still(still) => {
                self.stand_still(still, now_ms);
                self.crowd.tell_still(still, now_ms);
            }
            Command::Pipes(_) => {}
        }
    }

    fn stand_still(&mut self, still: bool, now_ms: u64) {
        self.quiet.stand_still(still, now_ms);
        if let Some(tty) = &mut self.tty {
            tty.stand_still(still);
        }
    }

    fn step(&mut self, event: Event, now_ms: u64) {
        let (state, action) = state::step(self.state, event);
        self.state = state;
        match action {
            Action::None => {}
            Action::StartDrainClock => self.drain_until = Some(now_ms + state::DRAIN_MS),
            Action::Finish => self.finish(now_ms),
        }
    }

    fn finish(&mut self, now_ms: u64) {
        self.drain_until = None;
        self.tty = None;
        self.store.finish(&self.shared.folder, self.pty, now_ms);
        self.look_for_watchers(now_ms);
        let event = TerminalEvent::Drained { bytes: self.store.seq(), lines: self.store.lines() };
        self.tell(event);
    }

    fn attach(&mut self, attach: Attach, now_ms: u64) {
        let Attach { stream, read, options, reply } = attach;
        if self.crowd.is_full() {
            let words = "this terminal has as many viewers as it may have";
            return reply.error(WireError::new(ErrorCode::LimitReached, words));
        }
        // Before the first frame goes: the answer then is the last word on this stream's way down.
        reply.done();
        let outbox = match options.view {
            View::Screen => Outbox::live(now_ms),
            View::Lines | View::Bytes => Outbox::pull(),
        };
        let (pty, size, seq) = (self.pty, self.store.size(), self.store.seq());
        let greet = |role, others: Others| {
            let Others { writer, observers: others } = others;
            let (proto, mode) = (wire::PROTO, Mode::Terminal);
            Frame::Hello(Hello { proto, pty, mode, size, seq, role, others, writer })
        };
        let was_empty = self.crowd.is_empty();
        let Ok(viewer) = self.crowd.join(stream, &read, options, outbox, now_ms, greet) else {
            return;
        };
        viewer.closing.clone_from(&self.closed);
        let lines = match viewer.options.history {
            History::None => 0,
            History::Lines(lines) => lines as usize,
            History::All => usize::MAX,
        };
        let wanted_size = viewer.size.filter(|_| viewer.role == Role::Writer);
        showing::show(viewer, &mut self.store, lines, now_ms);
        if let Some(size) = wanted_size {
            self.want_size(size);
        }
        if was_empty {
            self.step(Event::FirstViewerCame, now_ms);
        }
        if self.hold_until.take().is_some() {
            self.tell(TerminalEvent::Ready { size: wanted_size });
        }
    }

    fn input(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), WireError> {
        let gone = || WireError::new(ErrorCode::Gone, "the program on this terminal has ended");
        let tty = self.tty.as_mut().ok_or_else(gone)?;
        if bytes.len() > INPUT_WAITING_MAX || !tty.takes_input() {
            let words = "the program does not read its input; earlier keys still wait";
            return Err(WireError::new(ErrorCode::LimitReached, words));
        }
        tty.queue(bytes);
        self.note_activity(now_ms);
        Ok(())
    }

    /// By somebody who is no viewer: with the rights of an observer while a viewer has the keyboard.
    fn type_keys(&mut self, typing: &Typing, now_ms: u64) -> Result<Value, WireError> {
        if let Some(writer) = self.crowd.writer().filter(|_| !typing.force) {
            let words = format!("{writer} has the keyboard");
            let error = WireError::new(ErrorCode::Conflict, words);
            return Err(error.with(serde_json::json!({ "writer": writer })));
        }
        let seq = self.store.seq();
        let bytes = typing.bytes(self.store.picture.typing_modes());
        self.input(&bytes, now_ms)?;
        control::value(&Typed { seq, paused: self.quiet.is_still() })
    }

    fn want_size(&mut self, size: Size) {
        match &mut self.tty {
            Some(tty) => tty.want_size(size),
            // It starts with this size.
            None => self.status.size.set(Some(size)),
        }
    }

    fn apply_size(&mut self, now_ms: u64) {
        let Some(size) = self.tty.as_mut().and_then(|tty| tty.resize_if_due(now_ms)) else {
            return;
        };
        if size != self.store.size() {
            self.store.resize(size, now_ms);
            self.crowd.tell_observers(&Frame::Resize(size), now_ms);
        }
        self.status.size.set(Some(size));
    }

    fn turn_viewers(&mut self, context: &mut Context<'_>, now_ms: u64) -> bool {
        let takes_input = self.tty.as_ref().is_none_or(Tty::takes_input);
        let was_empty = self.crowd.is_empty();
        let round = self.crowd.turn(context, now_ms, takes_input);
        for wish in round.wishes {
            match wish {
                Wish::Input(bytes) => {
                    if let Some(tty) = &mut self.tty {
                        tty.queue(&bytes);
                        self.note_activity(now_ms);
                    }
                }
                Wish::Resize(size) => self.want_size(size),
                Wish::Stdin(_) | Wish::StdinEof | Wish::RunnerLeft => {}
            }
        }
        self.apply_size(now_ms);
        self.tell_if_left(was_empty, now_ms);
        round.progress
    }

    fn dismiss(&mut self, uid: u32, now_ms: u64) {
        let was_empty = self.crowd.is_empty();
        let _what_a_runner_would_end = self.crowd.dismiss(uid);
        self.tell_if_left(was_empty, now_ms);
    }

    fn tell_if_left(&mut self, was_empty: bool, now_ms: u64) {
        if !was_empty && self.crowd.is_empty() {
            self.step(Event::LastViewerLeft, now_ms);
            self.tell(TerminalEvent::Left);
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> bool {
        self.tty.as_mut().is_some_and(|tty| tty.poll_write(context))
    }

    /// Reads unless a viewer that fell behind was given time. Bytes taken.
    fn read(&mut self, context: &mut Context<'_>, now_ms: u64) -> usize {
        let time_is_over = self.drain_until.is_some_and(|until| until <= now_ms);
        let paused = self.crowd.iter().any(|viewer| match &viewer.outbox {
            Outbox::Live(queue) => queue.paused(),
            Outbox::Pull(_) => false,
        });
        if paused && !time_is_over {
            return 0;
        }
        let Some(tty) = &mut self.tty else { return 0 };
        let buffer = Rc::clone(&self.shared.buffer);
        let mut buffer = buffer.borrow_mut();
        let taken = tty.poll_read(context, &mut buffer);
        let count = match taken {
            Taken::Bytes(count) => {
                self.take(buffer.get(..count).unwrap_or_default(), now_ms);
                count
            }
            Taken::Blocked => 0,
            Taken::HungUp => {
                let alive = matches!(self.state, State::Detached | State::Active);
                self.look_at = alive.then_some(now_ms + HUNG_UP_LOOK_MS);
                self.step(Event::HoldersGone, now_ms);
                0
            }
        };
        if time_is_over {
            self.step(Event::DrainTimeOver, now_ms);
        }
        count
    }

    fn take(&mut self, chunk: &[u8], now_ms: u64) {
        let pieces = if self.watchers.share_picture() { WATCHED_BYTES } else { chunk.len() };
        let seq = self.store.seq();
        for piece in chunk.chunks(pieces.max(1)) {
            let at = self.store.seq();
            self.store.take(piece, now_ms);
            self.watchers.output(piece, at, now_ms);
            if self.watchers.share_picture() {
                let end = self.store.seq();
                self.watchers.lines(self.store.picture.scrollback(), end);
            }
        }
        self.status.seq.set(self.store.seq());
        self.note_activity(now_ms);
        if self.status.output.add(chunk.len()) {
            self.tell(TerminalEvent::OverLimit);
        }
        let mut shared: Option<Bytes> = None;
        for viewer in self.crowd.iter_mut() {
            if let Outbox::Live(queue) = &mut viewer.outbox {
                let bytes = shared.get_or_insert_with(|| Bytes::copy_from_slice(chunk));
                match queue.push_output(seq, bytes, now_ms) {
                    Pushed::Queued | Pushed::Pause | Pushed::Dropped => {}
                }
            }
        }
        // A viewer's own terminal answers the program's questions.
        let unanswered = !self.crowd.has_writer();
        let replies = self.store.take_replies(unanswered, now_ms);
        if let Some(tty) = &mut self.tty {
            tty.queue(&replies);
        }
    }

    /// Gives viewers what they have room for, and those that have everything their last frame.
    fn refill(&mut self, now_ms: u64) -> bool {
        let mut progress = false;
        let finished = self.closed.is_some();
        let mut logs = Vec::new();
        for viewer in self.crowd.iter_mut() {
            progress |= match viewer.options.view {
                View::Screen => {
                    showing::resync(viewer, &mut self.store, now_ms, self.pty, &mut logs)
                }
                View::Lines => showing::pull_lines(viewer, &mut self.store, finished),
                View::Bytes => showing::pull_bytes(viewer, &self.store, now_ms),
            };
            progress |= showing::close_if_complete(viewer, &self.store, now_ms);
        }
        for body in logs {
            self.crowd.log(body);
        }
        progress
    }

    fn tick(&mut self, now_ms: u64) {
        self.store.tick(now_ms);
        self.look_for_watchers(now_ms);
        self.apply_size(now_ms);
        if self.look_at.is_some_and(|at| at <= now_ms) {
            self.look_at = None;
            if let Some(tty) = &mut self.tty {
                tty.look_again();
            }
        }
        if self.hold_until.is_some_and(|until| until <= now_ms) {
            self.hold_until = None;
            self.tell(TerminalEvent::Ready { size: None });
        }
        if let Some(idle_ms) = self.quiet.for_ms(now_ms).filter(|ms| *ms >= IDLE_MS)
            && self.may_be_idle()
        {
            self.idle_told = true;
            self.crowd.log(EventBody::PtyIdle { pty: self.pty, idle_ms });
        }
        let was_empty = self.crowd.is_empty();
        self.crowd.drop_where(|viewer| match &mut viewer.outbox {
            Outbox::Live(queue) => {
                (queue.tick(now_ms) == Tick::TooSlow).then_some(CloseReason::TooSlow)
            }
            Outbox::Pull(_) => None,
        });
        self.tell_if_left(was_empty, now_ms);
    }

    /// Sets the timer for whatever is due next. Whether it is due already.
    fn timer_rang(&mut self, context: &mut Context<'_>, now_ms: u64) -> bool {
        let quiet = self.quiet.since_ms();
        let idle = quiet.filter(|_| self.may_be_idle()).map(|since_ms| since_ms + IDLE_MS);
        let viewers = self.crowd.iter().filter_map(|viewer| match &viewer.outbox {
            Outbox::Live(queue) => queue.deadline_ms(),
            Outbox::Pull(_) => None,
        });
        let next = [
            self.store.deadline_ms(),
            self.tty.as_ref().and_then(Tty::deadline_ms),
            self.hold_until,
            self.drain_until,
            self.look_at,
            idle,
            quiet.and_then(|since_ms| self.watchers.deadline_ms(since_ms, self.store.seq())),
        ];
        let Some(next) = next.into_iter().flatten().chain(viewers).min() else { return false };
        let at = self.shared.epoch + Duration::from_millis(next.max(now_ms));
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(context).is_ready()
    }

    fn look_for_watchers(&mut self, now_ms: u64) {
        let scene = Scene {
            seq: self.store.seq(),
            quiet_ms: self.quiet.for_ms(now_ms),
            ended: self.state == State::Closed,
        };
        self.watchers.look(Some(&mut self.store.picture), &scene);
    }

    /// Once; and a program that stands still is not idle.
    fn may_be_idle(&self) -> bool {
        !self.idle_told && self.tty.is_some()
    }

    fn note_activity(&mut self, now_ms: u64) {
        self.quiet.breaks(now_ms);
        self.idle_told = false;
        self.status.active_at.set(Instant::now());
    }

    fn tell(&self, event: TerminalEvent) {
        drop(self.shared.inbox.send(Happening::Terminal { pty: self.pty, event }));
    }
}
