//! One cage as the supervisor holds it: its record, its phase, and the handles to reach it by.
//!
//! The spawn (`spawn.rs`) or the reconciliation (`reconcile.rs`) makes it; from then on its driver
//! (`cage/driver.rs`) alone moves it on to its end. Requests read it and talk to its broker.

pub(crate) mod driver;
pub(crate) mod phase;
pub(crate) mod record;

use crate::broker_link::{BrokerLink, OnEvent};
use crate::clock;
use crate::files;
use crate::outbox::{Heard, Journal, Tail, parse};
use crate::pump::Dirty;
use crate::unreachable::Unreachable;
use ::cage::cgroup::CageCgroup;
use ::cage::plan::{CagePlan, Limits};
use link::PidFd;
use phase::Moment;
use record::Record;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::{Mutex, MutexGuard, watch};
use wire::supervisor::{CageState, Phase};
use wire::{CageId, Cause, ErrorCode, Event, EventBody, Exit, Source, WireError};

/// What can be killed and waited for.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    pub(crate) broker: Option<Rc<PidFd>>,
    /// Pid 1 of the cage.
    pub(crate) init: Option<Rc<PidFd>>,
    pub(crate) cgroup: Option<Rc<CageCgroup>>,
}

#[derive(Debug)]
pub(crate) struct Cage {
    pub(crate) id: CageId,
    record: RefCell<Record>,
    plan: RefCell<Option<Rc<CagePlan>>>,
    phase: watch::Sender<Phase>,
    /// Other limits are in effect.
    limits_change: watch::Sender<()>,
    journal: RefCell<Journal>,
    heard: RefCell<Heard>,
    broker: RefCell<Option<Rc<BrokerLink>>>,
    handles: RefCell<Handles>,
    ending: Cell<Option<Cause>>,
    /// For people, where there is more to say of that than its broker will.
    ending_words: RefCell<Option<String>>,
    unreachable: RefCell<Option<Unreachable>>,
    record_is_late: Cell<bool>,
    /// Suspend and resume, one at a time.
    turns: Mutex<()>,
    /// `<state>/cages/<id>`.
    folder: OwnedFd,
    dirty: Rc<Dirty>,
}

/// None is missed between two waits.
pub(crate) struct Changes {
    phase: watch::Receiver<Phase>,
    limits: watch::Receiver<()>,
}

impl Changes {
    /// Returns at the next one. Its cage must be there: it holds the senders.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _never_closed = self.phase.changed() => {}
            _never_closed = self.limits.changed() => {}
        }
    }
}

impl Cage {
    pub(crate) fn new(
        record: Record,
        phase: Phase,
        journal: Journal,
        folder: OwnedFd,
        dirty: Rc<Dirty>,
    ) -> Rc<Self> {
        Rc::new(Self {
            id: record.cage,
            record: RefCell::new(record),
            plan: RefCell::default(),
            phase: watch::Sender::new(phase),
            limits_change: watch::Sender::new(()),
            journal: RefCell::new(journal),
            heard: RefCell::default(),
            broker: RefCell::default(),
            handles: RefCell::default(),
            ending: Cell::new(None),
            ending_words: RefCell::default(),
            unreachable: RefCell::default(),
            record_is_late: Cell::new(false),
            turns: Mutex::default(),
            folder,
            dirty,
        })
    }

    pub(crate) fn operator(&self) -> u32 {
        self.record.borrow().operator
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on, if the table says so.
    pub(crate) fn step(&self, moment: Moment) {
        let next = phase::step(self.phase(), moment);
        self.phase.send_if_modified(|phase| std::mem::replace(phase, next) != next);
    }

    /// For whoever keeps a limit: its phase, and other limits.
    pub(crate) fn changes(&self) -> Changes {
        Changes { phase: self.phase.subscribe(), limits: self.limits_change.subscribe() }
    }

    /// Suspend and resume take turns.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock().await
    }

    /// Returns when nothing of the cage is left.
    pub(crate) async fn gone(&self) {
        let mut phase = self.phase.subscribe();
        // The sender is in `self`, which outlives this wait.
        let _never_closed = phase.wait_for(|phase| *phase == Phase::Gone).await;
    }

    pub(crate) fn record(&self) -> Record {
        self.record.borrow().clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record.borrow_mut());
    }

    pub(crate) fn plan(&self) -> Option<Rc<CagePlan>> {
        self.plan.borrow().clone()
    }

    pub(crate) fn set_plan(&self, plan: Rc<CagePlan>) {
        self.plan.replace(Some(plan));
    }

    pub(crate) fn limits_are_others(&self) {
        self.limits_change.send_replace(());
    }

    /// The limits in effect.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let changed = self.record.borrow().limits.clone();
        changed.or_else(|| self.plan().map(|plan| plan.limits.clone()))
    }

    pub(crate) fn broker(&self) -> Result<Rc<BrokerLink>, WireError> {
        if let Some(why) = self.unreachable() {
            return Err(why.into());
        }
        let broker = self.broker.borrow().clone().filter(|link| !link.is_closed());
        broker.ok_or_else(|| {
            WireError::new(ErrorCode::Gone, "the cage has ended; only its records are left")
        })
    }

    pub(crate) fn broker_broke_rules(&self) -> bool {
        self.broker.borrow().as_ref().is_some_and(|link| link.broke_rules())
    }

    pub(crate) fn set_broker(&self, link: Option<Rc<BrokerLink>>) {
        if let Some(old) = self.broker.replace(link) {
            old.close();
        }
    }

    pub(crate) fn unreachable(&self) -> Option<Unreachable> {
        self.unreachable.borrow().clone()
    }

    pub(crate) fn set_unreachable(&self, why: Option<Unreachable>) {
        self.unreachable.replace(why);
    }

    pub(crate) fn handles(&self) -> std::cell::Ref<'_, Handles> {
        self.handles.borrow()
    }

    pub(crate) fn set_handles(&self, change: impl FnOnce(&mut Handles)) {
        change(&mut self.handles.borrow_mut());
    }

    /// Why somebody is about to kill it. The first reason stays.
    pub(crate) fn set_ending(&self, cause: Cause) {
        if self.ending.get().is_none() {
            self.ending.set(Some(cause));
        }
    }

    pub(crate) fn ending(&self) -> Option<Cause> {
        self.ending.get()
    }

    pub(crate) fn set_ending_words(&self, words: String) {
        self.ending_words.replace(Some(words));
    }

    pub(crate) fn ending_words(&self) -> Option<String> {
        self.ending_words.borrow().clone()
    }

    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// One event of our own: into the file, then on its way.
    ///
    /// # Errors
    /// It could not be written (the disk is full): whoever asked for the step must not go on.
    pub(crate) fn tell(&self, body: &EventBody) -> io::Result<()> {
        self.journal.borrow_mut().append(clock::now_ms(), body)?;
        self.dirty.mark(self.id);
        Ok(())
    }

    /// The same where there is nothing left to refuse.
    pub(crate) fn tell_end(&self, body: &EventBody) {
        if let Err(error) = self.journal.borrow_mut().append_late(clock::now_ms(), body) {
            tracing::error!(cage = %self.id, %error, "an event waits until it can be written");
            self.dirty.mark_late();
        }
        self.dirty.mark(self.id);
    }

    pub(crate) fn events_are_late(&self) -> bool {
        self.journal.borrow().is_late()
    }

    /// # Errors
    /// There is no room yet.
    pub(crate) fn write_late_events(&self) -> io::Result<()> {
        let written = self.journal.borrow_mut().write_late();
        self.dirty.mark(self.id);
        written
    }

    pub(crate) fn record_is_late(&self) -> bool {
        self.record_is_late.get()
    }

    /// Whether the newest record is on the disk.
    pub(crate) fn set_record_late(&self, late: bool) {
        self.record_is_late.set(late);
        if late {
            self.dirty.mark_late();
        }
    }

    /// Whether the last event of this type is this one, and is not acknowledged.
    pub(crate) fn has_told_last(&self, body: &EventBody) -> bool {
        self.journal.borrow().holds_last(body)
    }

    pub(crate) fn has_told(&self, kind: &str) -> bool {
        self.journal.borrow().newest_of(kind).is_some()
    }

    /// Whether the last word is that its broker cannot be talked to.
    pub(crate) fn told_unreachable(&self) -> bool {
        let journal = self.journal.borrow();
        let newest = |kind| journal.newest_of(kind).map_or(0, |(seq, _at_ms)| seq);
        newest("cage.unreachable") > newest("cage.adopted")
    }

    /// Since when it stands still by what was told; none: the last word is that it goes on.
    pub(crate) fn told_suspended_at_ms(&self) -> Option<i64> {
        let journal = self.journal.borrow();
        let (suspended, at_ms) = journal.newest_of("cage.suspended")?;
        let resumed = journal.newest_of("cage.resumed").map_or(0, |(seq, _at_ms)| seq);
        (suspended > resumed).then_some(at_ms)
    }

    /// What the link's reader does with an event of this cage's broker.
    pub(crate) fn listener(self: &Rc<Self>) -> OnEvent {
        let cage = Rc::downgrade(self);
        Rc::new(move |event: Event| {
            let Some(cage) = cage.upgrade() else { return true };
            if event.cage != cage.id || event.source != Source::Broker {
                return false;
            }
            cage.heard.borrow_mut().hear(event);
            cage.dirty.mark(cage.id);
            true
        })
    }

    pub(crate) fn learn_broker_seq(&self, newest: u64) {
        self.heard.borrow_mut().learn(newest);
        self.dirty.mark(self.id);
    }

    /// Unacknowledged events of one source after `seq`, oldest first.
    pub(crate) fn events_after(&self, source: Source, seq: u64) -> Vec<Event> {
        if source == Source::Supervisor {
            return self.journal.borrow_mut().after(seq);
        }
        let seq = seq.max(self.heard.borrow().acknowledged());
        let tail = self.heard.borrow().after(seq);
        match tail {
            Tail::Memory(events) => events,
            Tail::File => {
                let mut events = self.broker_events();
                // Beyond the newest is what nobody may be told.
                let newest = self.heard.borrow().newest();
                events.retain(|event| event.seq > seq && event.seq <= newest);
                if events.is_empty() { self.heard.borrow().recent() } else { events }
            }
        }
    }

    /// All events that the broker's own file has.
    pub(crate) fn broker_events(&self) -> Vec<Event> {
        let uid = self.record.borrow().uid;
        match files::read_hostile(&self.folder, "events.jsonl", uid, files::EVENTS_BYTES_MAX) {
            Ok(bytes) => parse(bytes.as_slice(), self.id, Source::Broker),
            Err(files::FileError::Missing { .. }) => Vec::new(),
            Err(error) => {
                tracing::warn!(cage = %self.id, %error, "the broker's events are unreadable");
                Vec::new()
            }
        }
    }

    pub(crate) fn acknowledge(&self, source: Source, seq: u64) {
        match source {
            Source::Supervisor => self.journal.borrow_mut().acknowledge(seq),
            Source::Broker => self.heard.borrow_mut().acknowledge(seq),
        }
    }

    /// The exit that the broker wrote, if it is there and is one.
    pub(crate) fn exit_on_disk(&self) -> Option<Exit> {
        let uid = self.record.borrow().uid;
        let bytes =
            files::read_hostile(&self.folder, "exit.json", uid, files::RECORD_BYTES_MAX).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The version of its broker, if that has said it.
    fn build(&self) -> Option<String> {
        match self.unreachable() {
            Some(why) => why.build,
            None => self.broker.borrow().as_ref().map(|link| link.hello.build.clone()),
        }
    }

    /// The row of this cage in a snapshot; terminals as last recorded.
    pub(crate) fn state(&self) -> CageState {
        let record = self.record.borrow();
        CageState {
            cage: self.id,
            session: record.session,
            run: record.run,
            uid: record.operator,
            name: record.name.clone(),
            policy: record.policy.clone(),
            plan_hash: record.plan_hash.clone(),
            phase: self.phase(),
            pid: record.init.map(|process| process.pid),
            started_at_ms: record.started_at_ms,
            enforced: record.enforced.clone(),
            exit: record.exit.clone(),
            ptys: record.ptys.clone(),
            build: self.build(),
            unreachable: self.unreachable().map(|why| why.message),
            broker_seq: self.heard.borrow().newest(),
            supervisor_seq: self.journal.borrow().newest(),
        }
    }
}
