//! The pipe streams of one command without a terminal: one task that owns their ends.
//!
//! Lossless for a runner (`mews run`): when it takes nothing, the pipes are not read and the
//! program waits, as behind any pipe. Without one they are read and the newest output is kept; a
//! late reader is told the gap.

pub mod kept;

use crate::quiet::Quiet;
use crate::state::{self, Action, Event, State};
use crate::terminal::record::Recording;
use crate::terminal::store::wall_ms;
use crate::terminal::watching::{Kind, Scene, Watchers};
use crate::terminal::{
    Attach, Command, HOLD_MS, Shared, Status, TerminalEvent, answer_bytes, json,
};
use crate::viewer::Viewer;
use crate::viewer::crowd::{Crowd, Wish};
use crate::viewer::outbox::Outbox;
use crate::{broker::Happening, sys};
use kept::{Kept, Stream};
use link::nonblocking::{watch_input, watch_room};
use nix::errno::Errno;
use nix::unistd::{read, write};
use serde_json::Value;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use wire::frame::{Close, CloseReason, Frame, Hello, Mode, Others, STDIN_WINDOW};
use wire::screen::{Last, Times, last_name};
use wire::typing::{Piece, Typed, Typing};
use wire::{ErrorCode, PtyId, ScrollbackForm, Size, WireError, control};

/// What a runner may be behind before the program waits, in bytes.
const RUNNER_BEHIND_MAX: u64 = 256 * 1024;
/// Taken before others have their turn, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Our ends and the cage's ends of the three pipes.
#[derive(Debug)]
pub struct Pipes {
    pub ours: Ends,
    pub theirs: [OwnedFd; 3],
}

#[derive(Debug)]
pub struct Ends {
    stdin: Option<OwnedFd>,
    out: OwnedFd,
    err: OwnedFd,
}

/// `stdin`: whether somebody will send it; else it is at its end.
///
/// # Errors
/// EMFILE.
pub fn make(stdin: bool) -> io::Result<Pipes> {
    use nix::fcntl::OFlag;
    let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC);
    let (in_theirs, in_ours) = pipe()?;
    let (out, out_theirs) = pipe()?;
    let (err, err_theirs) = pipe()?;
    Ok(Pipes {
        ours: Ends { stdin: stdin.then_some(in_ours), out, err },
        theirs: [in_theirs, out_theirs, err_theirs],
    })
}

/// Starts the task of the streams.
pub fn start(pty: PtyId, status: Rc<Status>, shared: &Shared) -> mpsc::UnboundedSender<Command> {
    let (sender, commands) = mpsc::unbounded_channel();
    let now_ms = shared.now_ms();
    let record_bytes = shared.bounds.record.then_some(shared.bounds.record_bytes);
    let recording = Recording::start(&shared.folder, pty, record_bytes, Size::DEFAULT, now_ms);
    let mut streams = Streams {
        pty,
        crowd: Crowd::new(pty, Rc::clone(&status), shared.inbox.clone()),
        status,
        shared: shared.clone(),
        commands,
        kept: Kept::new(usize::try_from(shared.bounds.ring_bytes).unwrap_or(usize::MAX)),
        recording,
        sources: Vec::new(),
        stdin: Stdin { pipe: None, waiting: VecDeque::new(), at_end: false, written: 0 },
        state: State::Detached,
        lines: 0,
        times: Times::default(),
        watchers: Watchers::default(),
        quiet: Quiet::new(now_ms),
        hold_until: None,
        drain_until: None,
        closed: None,
        timer: Box::pin(tokio::time::sleep_until(shared.epoch)),
    };
    tokio::task::spawn_local(async move { poll_fn(|context| streams.poll(context)).await });
    sender
}

#[derive(Debug)]
struct Streams {
    pty: PtyId,
    crowd: Crowd,
    status: Rc<Status>,
    shared: Shared,
    commands: mpsc::UnboundedReceiver<Command>,
    kept: Kept,
    recording: Recording,
    /// Those of out and err that are not at their end.
    sources: Vec<Source>,
    stdin: Stdin,
    state: State,
    lines: u64,
    times: Times,
    watchers: Watchers,
    quiet: Quiet,
    hold_until: Option<u64>,
    drain_until: Option<u64>,
    closed: Option<Close>,
    timer: Pin<Box<Sleep>>,
}

#[derive(Debug)]
struct Source {
    stream: Stream,
    pipe: AsyncFd<OwnedFd>,
    unread: bool,
    /// After the drain time: what it held then is still taken.
    rest: Option<usize>,
}

#[derive(Debug)]
struct Stdin {
    pipe: Option<AsyncFd<OwnedFd>>,
    waiting: VecDeque<u8>,
    at_end: bool,
    written: u64,
}

impl Streams {
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
            progress |= self.write_stdin(context, now_ms);
            let read = self.read(context, now_ms);
            taken += read;
            progress |= read > 0;
            for viewer in self.crowd.iter_mut() {
                progress |= pull(viewer, &mut self.kept, now_ms);
            }
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
            Command::Pipes(ends) => self.open(ends),
            Command::PayloadEnded => {
                for source in &mut self.sources {
                    source.unread = true;
                }
                self.step(Event::PayloadEnded, now_ms);
            }
            Command::Attach(attach) => self.attach(attach, now_ms),
            Command::Dismiss(uid) => self.dismiss(uid, now_ms),
            Command::Input(bytes, reply) => reply.result(self.input(&bytes)),
            Command::Resize(_, reply) => {
                let words = "this command has no terminal (it was started with --no-tty)";
                reply.error(WireError::new(ErrorCode::Conflict, words));
            }
            Command::Type(typing, reply) => reply.result_value(self.type_text(&typing)),
            Command::Watch(watch, stream, reply) => {
                let kept = &self.kept;
                let since = |seq: u64| kept.from(seq);
                self.watchers.join((watch, stream), Kind::Pipes, since, reply, now_ms);
            }
            Command::Scrollback(ScrollbackForm::Screen, reply) => {
                let words = "this command has no terminal (it was started with --no-tty), and so no \
                             screen; `mews logs` shows what it has printed";
                reply.error(WireError::new(ErrorCode::Conflict, words));
            }
            Command::Scrollback(form, reply) => answer_bytes(reply, &self.text(form)),
            Command::Close(close) => {
                self.crowd.close_all(&close);
                self.closed = Some(close);
            }
            // What its standard input has not taken waits in the pipe.
            Command::Still(still) => self.quiet.stand_still(still, now_ms),
            Command::Master(_) => {}
        }
    }

    /// Both streams as they came: for people the newest, raw from the recording if that has more.
    fn text(&mut self, form: ScrollbackForm) -> Vec<u8> {
        let recorded = match form {
            ScrollbackForm::Raw if self.kept.oldest() > 0 => {
                self.recording.raw(&self.shared.folder)
            }
            ScrollbackForm::Raw | ScrollbackForm::Rendered | ScrollbackForm::Screen => None,
            ScrollbackForm::Since(at_ms) => {
                let text = self.kept.to_bytes();
                Some(self.times(&text).cut(&text, at_ms).to_vec())
            }
            ScrollbackForm::Last => Some(self.last(&self.kept.to_bytes())),
        };
        recorded.unwrap_or_else(|| self.kept.to_bytes())
    }

    fn times(&self, text: &[u8]) -> Times {
        let first = self.lines.saturating_sub(newlines(text));
        Times { first, marks: self.times.marks.clone() }
    }

    fn last(&self, text: &[u8]) -> Vec<u8> {
        json(&Last { screen: None, times: self.times(text) })
    }

    /// To its standard input, which has no keys.
    fn type_text(&mut self, typing: &Typing) -> Result<Value, WireError> {
        let mut bytes = Vec::new();
        for piece in &typing.pieces {
            match piece {
                Piece::Text(text) | Piece::Paste(text) => bytes.extend_from_slice(text.as_bytes()),
                Piece::Key(_) => {
                    let words = "this command has no terminal (it was started with --no-tty): it \
                                 takes text, not keys";
                    return Err(WireError::new(ErrorCode::Conflict, words));
                }
            }
        }
        if let Some(writer) = self.crowd.writer().filter(|_| !typing.force) {
            let words = format!("{writer} feeds its standard input");
            let error = WireError::new(ErrorCode::Conflict, words);
            return Err(error.with(serde_json::json!({ "writer": writer })));
        }
        let seq = self.kept.end();
        self.input(&bytes)?;
        control::value(&Typed { seq, paused: self.quiet.is_still() })
    }

    fn input(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if self.state == State::Closed {
            return Err(WireError::new(ErrorCode::Gone, "this command has ended"));
        }
        if !self.stdin.takes_input() || self.stdin.at_end {
            let words = "standard input is closed, or its reader is far behind";
            return Err(WireError::new(ErrorCode::LimitReached, words));
        }
        self.stdin.waiting.extend(bytes);
        self.note_activity();
        Ok(())
    }

    fn note_activity(&mut self) {
        self.quiet.breaks(self.shared.now_ms());
        self.status.active_at.set(Instant::now());
    }

    fn look_for_watchers(&mut self, now_ms: u64) {
        let scene = Scene {
            seq: self.kept.end(),
            quiet_ms: self.quiet.for_ms(now_ms),
            ended: self.state == State::Closed,
        };
        self.watchers.look(None, &scene);
    }

    fn open(&mut self, ends: Ends) {
        let nonblocking = |fd: OwnedFd| {
            use nix::fcntl::{FcntlArg, OFlag, fcntl};
            fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            Ok(fd)
        };
        self.stdin.pipe = ends.stdin.and_then(|fd| nonblocking(fd).and_then(watch_room).ok());
        for (stream, fd) in [(Stream::Out, ends.out), (Stream::Err, ends.err)] {
            if let Ok(pipe) = nonblocking(fd).and_then(watch_input) {
                self.sources.push(Source { stream, pipe, unread: true, rest: None });
            }
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
        self.sources.clear();
        self.stdin.pipe = None;
        self.recording.finish(now_ms);
        let name = format!("{}.scrollback", self.pty);
        let text = self.kept.to_bytes();
        drop(self.shared.folder.write_file(&name, &text));
        drop(self.shared.folder.write_file(&last_name(self.pty), &self.last(&text)));
        self.look_for_watchers(now_ms);
        self.tell(TerminalEvent::Drained { bytes: self.kept.end(), lines: self.lines });
    }

    fn attach(&mut self, attach: Attach, now_ms: u64) {
        let Attach { stream, read, options, reply } = attach;
        if self.crowd.is_full() {
            let words = "this command has as many viewers as it may have";
            return reply.error(WireError::new(ErrorCode::LimitReached, words));
        }
        reply.done();
        let (pty, seq) = (self.pty, self.kept.end());
        let greet = |role, others: Others| {
            let Others { writer, observers: others } = others;
            let (proto, mode, size) = (wire::PROTO, Mode::Pipes, Size::DEFAULT);
            Frame::Hello(Hello { proto, pty, mode, size, seq, role, others, writer })
        };
        let was_empty = self.crowd.is_empty();
        let joined = self.crowd.join(stream, &read, options, Outbox::pull(), now_ms, greet);
        let Ok(viewer) = joined else { return };
        viewer.closing.clone_from(&self.closed);
        if was_empty {
            self.step(Event::FirstViewerCame, now_ms);
        }
        if self.hold_until.take().is_some() {
            self.tell(TerminalEvent::Ready { size: None });
        }
    }

    fn turn_viewers(&mut self, context: &mut Context<'_>, now_ms: u64) -> bool {
        let was_empty = self.crowd.is_empty();
        let round = self.crowd.turn(context, now_ms, self.stdin.takes_input());
        self.grant(round.wishes);
        self.tell_if_left(was_empty, now_ms);
        round.progress
    }

    fn dismiss(&mut self, uid: u32, now_ms: u64) {
        let was_empty = self.crowd.is_empty();
        let wishes = self.crowd.dismiss(uid);
        self.grant(wishes);
        self.tell_if_left(was_empty, now_ms);
    }

    fn grant(&mut self, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Stdin(bytes) | Wish::Input(bytes) if !self.stdin.at_end => {
                    self.stdin.waiting.extend(bytes);
                    self.note_activity();
                }
                // Nobody else can send what the program still waits for.
                Wish::StdinEof | Wish::RunnerLeft => self.stdin.at_end = true,
                Wish::Stdin(_) | Wish::Input(_) | Wish::Resize(_) => {}
            }
        }
    }

    fn tell_if_left(&mut self, was_empty: bool, now_ms: u64) {
        if !was_empty && self.crowd.is_empty() {
            self.step(Event::LastViewerLeft, now_ms);
            self.tell(TerminalEvent::Left);
        }
    }

    fn write_stdin(&mut self, context: &mut Context<'_>, now_ms: u64) -> bool {
        let before = self.stdin.written;
        self.stdin.poll_write(context);
        let went = self.stdin.written > before;
        if went {
            self.crowd.tell_writer(&Frame::Ack(self.stdin.written), now_ms);
        }
        went
    }

    fn read(&mut self, context: &mut Context<'_>, now_ms: u64) -> usize {
        let time_is_over = self.drain_until.is_some_and(|until| until <= now_ms);
        // What a runner still needs is never dropped; without one, everything may be.
        let runner = self.crowd.iter().filter(|v| v.options.runner).map(|v| v.cursor).min();
        let behind = self.kept.end() - runner.unwrap_or(self.kept.end());
        if behind > RUNNER_BEHIND_MAX && !time_is_over {
            return 0;
        }
        let needed_from = runner.unwrap_or(u64::MAX);
        let buffer = Rc::clone(&self.shared.buffer);
        let mut buffer = buffer.borrow_mut();
        let mut taken = 0;
        let mut index = 0;
        while let Some(source) = self.sources.get_mut(index) {
            if time_is_over {
                source.limit_rest();
            }
            let stream = source.stream;
            match source.poll_read(context, &mut buffer) {
                Poll::Pending => index += 1,
                Poll::Ready(0) => drop(self.sources.remove(index)),
                Poll::Ready(count) => {
                    taken += count;
                    let chunk = buffer.get(..count).unwrap_or_default();
                    let (at_ms, seq) = (wall_ms(), self.kept.end());
                    if self.times.wants(at_ms) {
                        self.times.mark(at_ms, self.lines);
                    }
                    self.kept.push(stream, chunk, needed_from);
                    self.watchers.output(chunk, seq, now_ms);
                    self.lines += newlines(chunk);
                    self.recording.output(chunk, now_ms);
                    index += 1;
                }
            }
        }
        if taken > 0 {
            self.status.seq.set(self.kept.end());
            self.quiet.breaks(now_ms);
            self.status.active_at.set(Instant::now());
            if self.status.output.add(taken) {
                self.tell(TerminalEvent::OverLimit);
            }
        }
        if self.sources.is_empty() {
            self.step(Event::HoldersGone, now_ms);
        }
        taken
    }

    fn tick(&mut self, now_ms: u64) {
        self.recording.tick(now_ms);
        self.look_for_watchers(now_ms);
        if self.hold_until.is_some_and(|until| until <= now_ms) {
            self.hold_until = None;
            self.tell(TerminalEvent::Ready { size: None });
        }
    }

    fn timer_rang(&mut self, context: &mut Context<'_>, now_ms: u64) -> bool {
        let recording = self.recording.deadline_ms();
        // Past it, only what the pipes held then is waited for.
        let drain = self.drain_until.filter(|until| *until > now_ms);
        let quiet = self.quiet.since_ms();
        let quiet = quiet.and_then(|since_ms| self.watchers.deadline_ms(since_ms, self.kept.end()));
        let next = [recording, self.hold_until, drain, quiet].into_iter().flatten().min();
        let Some(next) = next else { return false };
        let at = self.shared.epoch + Duration::from_millis(next.max(now_ms));
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(context).is_ready()
    }

    fn tell(&self, event: TerminalEvent) {
        drop(self.shared.inbox.send(Happening::Terminal { pty: self.pty, event }));
    }
}

impl Source {
    /// Zero bytes at its end.
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<usize> {
        loop {
            if self.rest == Some(0) {
                return Poll::Ready(0);
            }
            if !self.unread {
                match self.pipe.poll_read_ready(context) {
                    Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                    Poll::Ready(Err(_)) => return Poll::Ready(0),
                    Poll::Pending => return Poll::Pending,
                }
            }
            self.unread = true;
            let room = self.rest.unwrap_or(READ_BYTES).min(READ_BYTES).min(buffer.len());
            match read(self.pipe.get_ref(), buffer.get_mut(..room).unwrap_or_default()) {
                Ok(count) => {
                    self.rest = self.rest.map(|rest| rest.saturating_sub(count));
                    return Poll::Ready(count);
                }
                Err(Errno::EAGAIN) if self.rest.is_none() => self.unread = false,
                Err(Errno::EINTR) => {}
                Err(_) => return Poll::Ready(0),
            }
        }
    }

    fn limit_rest(&mut self) {
        if self.rest.is_none() {
            let waiting = sys::bytes_waiting(self.pipe.get_ref().as_fd()).unwrap_or(0);
            self.rest = Some(waiting);
        }
    }
}

impl Stdin {
    fn takes_input(&self) -> bool {
        (self.waiting.len() as u64) < STDIN_WINDOW
    }

    fn poll_write(&mut self, context: &mut Context<'_>) {
        while let Some(pipe) = &self.pipe {
            if self.waiting.is_empty() {
                if self.at_end {
                    self.pipe = None;
                }
                return;
            }
            let Poll::Ready(Ok(mut ready)) = pipe.poll_write_ready(context) else { return };
            match write(pipe.get_ref(), self.waiting.as_slices().0) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.written += count as u64;
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => {}
                // EPIPE: the program closed its standard input, which is its right.
                Err(_) => {
                    self.pipe = None;
                    self.at_end = true;
                    self.waiting.clear();
                }
            }
        }
    }
}

fn newlines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// Gives a viewer what it has room for, and the last frame when it has everything.
fn pull(viewer: &mut Viewer, kept: &mut Kept, now_ms: u64) -> bool {
    let mut progress = false;
    while let Outbox::Pull(queue) = &mut viewer.outbox
        && queue.has_room()
        && viewer.cursor < kept.end()
    {
        progress = true;
        if let Some(piece) = kept.read(viewer.cursor) {
            viewer.cursor += piece.bytes.len() as u64;
            queue.push_shared(piece.stream.frame_type(), piece.bytes);
        } else {
            let gap = Frame::Gap { from: viewer.cursor, to: kept.oldest() };
            viewer.tell(&gap, now_ms);
            viewer.cursor = kept.oldest();
        }
    }
    let Some(close) = viewer.closing.clone().filter(|_| !viewer.told_last) else {
        return progress;
    };
    let leaves = !matches!(close.reason, CloseReason::Exited | CloseReason::SessionEnded);
    if leaves || viewer.cursor >= kept.end() {
        viewer.told_last = true;
        viewer.outbox.last(&Frame::Close(close), now_ms);
        progress = true;
    }
    progress
}
