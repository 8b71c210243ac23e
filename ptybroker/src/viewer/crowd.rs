//! The viewers of one terminal: who is there, who may write, who comes and goes.
//!
//! Does not know what is shown; the terminal (or the pipe streams) fills the outboxes.

use super::outbox::Outbox;
use super::roles;
use super::{Incoming, Viewer};
use crate::broker::Happening;
use crate::terminal::{Status, TerminalEvent};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Context;
use tokio::sync::mpsc;
use wire::frame::{Close, CloseReason, Frame, Others, RoleChange};
use wire::{AttachOptions, EventBody, PtyId, Role, Size};

/// More would be a mistake or an attack; each costs up to a queue of memory.
pub const VIEWERS_MAX: usize = 64;
/// Frames taken from one viewer before the others have their turn.
const FRAMES_PER_TURN: usize = 8;

/// What the writer wants of the program.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    Input(Vec<u8>),
    Resize(Size),
    Stdin(Vec<u8>),
    StdinEof,
    /// `mews run` itself has gone.
    RunnerLeft,
}

#[derive(Debug)]
pub struct Crowd {
    pty: PtyId,
    viewers: Vec<Viewer>,
    came: u64,
    /// How often one viewer has taken the keyboard from another.
    takes: u64,
    /// The time of the last turn.
    turned_ms: u64,
    status: Rc<Status>,
    inbox: mpsc::UnboundedSender<Happening>,
}

/// What one round of reading and writing brought.
#[derive(Debug, Default)]
pub struct Round {
    pub progress: bool,
    pub wishes: Vec<Wish>,
}

impl Crowd {
    #[must_use]
    pub fn new(pty: PtyId, status: Rc<Status>, inbox: mpsc::UnboundedSender<Happening>) -> Self {
        Self { pty, viewers: Vec::new(), came: 0, takes: 0, turned_ms: 0, status, inbox }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Viewer> {
        self.viewers.iter_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Viewer> {
        self.viewers.iter()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.viewers.is_empty()
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.viewers.len() >= VIEWERS_MAX
    }

    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.viewers.iter().any(|viewer| viewer.role == Role::Writer)
    }

    /// The name of the viewer that has the keyboard.
    #[must_use]
    pub fn writer(&self) -> Option<String> {
        self.viewers.iter().find(|viewer| viewer.role == Role::Writer).map(Viewer::name)
    }

    /// Takes a viewer in. `greet` makes its first frame, from its role and who else is here: all of them,
    /// the writer among them too.
    ///
    /// # Errors
    /// Its stream is not one.
    pub fn join(
        &mut self,
        stream: OwnedFd,
        read: &[u8],
        options: AttachOptions,
        outbox: Outbox,
        now_ms: u64,
        greet: impl FnOnce(Role, Others) -> Frame,
    ) -> io::Result<&mut Viewer> {
        self.came += 1;
        let joined = roles::join(&options, self.has_writer());
        let mut viewer = Viewer::new(self.came, stream, read, options, outbox)?;
        viewer.role = joined.role;
        if let Some(size) = viewer.size {
            viewer.outbox.set_viewer_rows(size.rows);
        }
        if joined.takes_over {
            self.demote_writer(&viewer.name(), now_ms);
        }
        let others = Others {
            writer: self.writer().filter(|_| !joined.takes_over),
            observers: self.viewers.iter().map(Viewer::name).collect(),
        };
        viewer.tell(&greet(viewer.role, others), now_ms);
        self.log(EventBody::PtyAttached {
            pty: self.pty,
            viewer: viewer.name(),
            role: viewer.role,
        });
        let at = self.viewers.len();
        self.viewers.push(viewer);
        self.tell_status();
        self.others_changed();
        self.viewers.get_mut(at).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Tells all viewers but the writer.
    pub fn tell_observers(&mut self, frame: &Frame, now_ms: u64) {
        for viewer in self.viewers.iter_mut().filter(|v| v.role != Role::Writer) {
            viewer.tell(frame, now_ms);
        }
    }

    pub fn tell_writer(&mut self, frame: &Frame, now_ms: u64) {
        for viewer in self.viewers.iter_mut().filter(|v| v.role == Role::Writer) {
            viewer.tell(frame, now_ms);
        }
    }

    /// Tells those that asked for it.
    pub fn tell_still(&mut self, still: bool, now_ms: u64) {
        for viewer in self.viewers.iter_mut().filter(|viewer| viewer.options.tell_still) {
            viewer.tell(&Frame::Still(still), now_ms);
        }
    }

    /// Every viewer is told this when it has got all that came before.
    pub fn close_all(&mut self, close: &Close) {
        for viewer in &mut self.viewers {
            viewer.closing.get_or_insert_with(|| close.clone());
        }
    }

    /// Writes to and reads from every viewer. `take_input`: whether the program takes more now.
    pub fn turn(&mut self, context: &mut Context<'_>, now_ms: u64, take_input: bool) -> Round {
        self.turned_ms = now_ms;
        let mut round = Round::default();
        let mut index = 0;
        while index < self.viewers.len() {
            match self.turn_of(index, context, now_ms, take_input, &mut round) {
                None => index += 1,
                Some(reason) => {
                    round.progress = true;
                    self.remove(index, reason, &mut round);
                }
            }
        }
        round
    }

    /// One viewer's round. A reason if it is gone.
    fn turn_of(
        &mut self,
        index: usize,
        context: &mut Context<'_>,
        now_ms: u64,
        take_input: bool,
        round: &mut Round,
    ) -> Option<CloseReason> {
        for _ in 0..FRAMES_PER_TURN {
            let viewer = self.viewers.get_mut(index)?;
            let wanted = take_input || viewer.role != Role::Writer;
            match viewer.poll_frame(context, wanted) {
                Incoming::Nothing => break,
                Incoming::Frame(frame) => {
                    round.progress = true;
                    self.obey(index, frame, now_ms, &mut round.wishes);
                }
                // What still waits for it has no reader.
                Incoming::Gone => return Some(CloseReason::Detached),
                Incoming::Bad => {
                    viewer.closing = Some(Close { reason: CloseReason::BadFrame, exit: None });
                    break;
                }
            }
        }
        let viewer = self.viewers.get_mut(index)?;
        match viewer.poll_write(context, now_ms) {
            Ok(went) => {
                round.progress |= went > 0;
                self.status.written.set(self.status.written.get() + went);
            }
            Err(_hung_up) => return Some(CloseReason::Detached),
        }
        if viewer.overwhelmed {
            return Some(CloseReason::TooSlow);
        }
        self.say_others(index, now_ms, round);
        let viewer = self.viewers.get(index)?;
        if viewer.outbox.is_done() {
            return Some(viewer.closing.as_ref().map_or(CloseReason::Detached, |c| c.reason));
        }
        None
    }

    fn obey(&mut self, index: usize, frame: Frame, now_ms: u64, wishes: &mut Vec<Wish>) {
        let Some(viewer) = self.viewers.get_mut(index) else { return };
        let is_writer = viewer.role == Role::Writer;
        match frame {
            Frame::Input(bytes) if is_writer => wishes.push(Wish::Input(bytes)),
            Frame::Stdin(bytes) if is_writer => wishes.push(Wish::Stdin(bytes)),
            Frame::StdinEof if is_writer => wishes.push(Wish::StdinEof),
            // An observer's keys go nowhere, and that is no mistake of its client.
            Frame::Input(_) | Frame::Stdin(_) | Frame::StdinEof | Frame::Pong => {}
            Frame::Resize(size) => {
                viewer.size = Some(size.clamped());
                viewer.outbox.set_viewer_rows(size.clamped().rows);
                if is_writer {
                    wishes.push(Wish::Resize(size.clamped()));
                }
            }
            Frame::Role(change) => self.change_role(index, change.role, now_ms, wishes),
            Frame::Close(_) => {
                viewer.closing = Some(Close { reason: CloseReason::Detached, exit: None });
            }
            Frame::Ping => viewer.tell(&Frame::Pong, now_ms),
            Frame::Hello(_)
            | Frame::Output { .. }
            | Frame::Snapshot { .. }
            | Frame::History(_)
            | Frame::Throttled { .. }
            | Frame::Out(_)
            | Frame::Err(_)
            | Frame::Gap { .. }
            | Frame::Ack(_)
            | Frame::Title(_)
            | Frame::Still(_)
            | Frame::Others(_)
            | Frame::Bell => {
                viewer.closing = Some(Close { reason: CloseReason::BadFrame, exit: None });
            }
        }
    }

    fn change_role(&mut self, index: usize, role: Role, now_ms: u64, wishes: &mut Vec<Wish>) {
        let Some(viewer) = self.viewers.get(index) else { return };
        if viewer.role == role {
            return;
        }
        if role == Role::Writer {
            self.demote_writer(&viewer.name(), now_ms);
        }
        let Some(viewer) = self.viewers.get_mut(index) else { return };
        viewer.role = role;
        viewer.lost_by = None;
        viewer.tell(&Frame::Role(RoleChange { role, by: None }), now_ms);
        if let (Role::Writer, Some(size)) = (role, viewer.size) {
            wishes.push(Wish::Resize(size));
        }
        let viewer = viewer.name();
        self.log(EventBody::PtyRole { pty: self.pty, viewer, role });
        self.tell_status();
        self.others_changed();
    }

    fn demote_writer(&mut self, by: &str, now_ms: u64) {
        let Some(old) = self.viewers.iter_mut().find(|viewer| viewer.role == Role::Writer) else {
            return;
        };
        old.role = Role::Observer;
        self.takes += 1;
        old.lost_by = Some(self.takes);
        let change = RoleChange { role: Role::Observer, by: Some(by.to_owned()) };
        old.tell(&Frame::Role(change), now_ms);
        let viewer = old.name();
        self.log(EventBody::PtyRole { pty: self.pty, viewer, role: Role::Observer });
    }

    /// The writer has gone: whoever lost the keyboard last, and still watches, has it again.
    fn give_back(&mut self) {
        let watches = |viewer: &&mut Viewer| viewer.lost_by.is_some() && viewer.closing.is_none();
        let losers = self.viewers.iter_mut().filter(watches);
        let Some(viewer) = losers.max_by_key(|viewer| viewer.lost_by) else { return };
        viewer.lost_by = None;
        viewer.role = Role::Writer;
        // It tells its size in turn.
        viewer.tell(&Frame::Role(RoleChange { role: Role::Writer, by: None }), self.turned_ms);
        let viewer = viewer.name();
        self.log(EventBody::PtyRole { pty: self.pty, viewer, role: Role::Writer });
    }

    fn remove(&mut self, index: usize, reason: CloseReason, round: &mut Round) {
        let viewer = self.viewers.remove(index);
        if let Some(missed) = viewer.outbox.open_episode(self.turned_ms) {
            self.log(EventBody::PtyOutputThrottled {
                pty: self.pty,
                viewer: viewer.name(),
                dropped_bytes: missed.dropped,
                episode_ms: missed.lasted_ms,
            });
        }
        if viewer.options.runner {
            round.wishes.push(Wish::RunnerLeft);
        }
        self.log(EventBody::PtyDetached {
            pty: self.pty,
            viewer: viewer.name(),
            reason: reason.as_str().to_owned(),
        });
        if viewer.role == Role::Writer {
            self.give_back();
        }
        self.tell_status();
        self.others_changed();
    }

    /// Drops viewers for which `gone` gives a reason.
    pub fn drop_where(&mut self, mut gone: impl FnMut(&mut Viewer) -> Option<CloseReason>) {
        let mut index = 0;
        while let Some(viewer) = self.viewers.get_mut(index) {
            match gone(viewer) {
                Some(reason) => self.remove(index, reason, &mut Round::default()),
                None => index += 1,
            }
        }
    }

    /// At once: who is told first, and takes nothing, stays.
    pub fn dismiss(&mut self, uid: u32) -> Vec<Wish> {
        let mut round = Round::default();
        while let Some(index) = self.viewers.iter().position(|viewer| viewer.uid == Some(uid)) {
            self.remove(index, CloseReason::Detached, &mut round);
        }
        round.wishes
    }

    /// Each is told when it has taken what was said before: who takes nothing makes nothing pile up.
    fn others_changed(&mut self) {
        for viewer in self.viewers.iter_mut().filter(|viewer| viewer.options.tell_others) {
            viewer.others_unsaid = true;
        }
    }

    fn say_others(&mut self, index: usize, now_ms: u64, round: &mut Round) {
        if !self.viewers.get(index).is_some_and(|viewer| viewer.others_unsaid) {
            return;
        }
        let others = self.others_of(index);
        let Some(viewer) = self.viewers.get_mut(index) else { return };
        if viewer.outbox.is_empty() && !viewer.told_last {
            viewer.others_unsaid = false;
            viewer.tell(&Frame::Others(others), now_ms);
            round.progress = true;
        }
    }

    fn others_of(&self, index: usize) -> Others {
        let mut others = Others::default();
        for (_at, viewer) in self.viewers.iter().enumerate().filter(|(at, _)| *at != index) {
            match viewer.role {
                Role::Writer => others.writer = Some(viewer.name()),
                Role::Observer => others.observers.push(viewer.name()),
            }
        }
        others
    }

    fn tell_status(&self) {
        self.status.viewers.set(u32::try_from(self.viewers.len()).unwrap_or(u32::MAX));
        self.status.has_writer.set(self.has_writer());
    }

    pub fn log(&self, body: EventBody) {
        let event = TerminalEvent::Log(body);
        // The broker's inbox is gone only when the process ends.
        drop(self.inbox.send(Happening::Terminal { pty: self.pty, event }));
    }
}
