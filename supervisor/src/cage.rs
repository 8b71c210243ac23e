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
    journal: RefCell<Journal>,
    heard: RefCell<Heard>,
    broker: RefCell<Option<Rc<BrokerLink>>>,
    handles: RefCell<Handles>,
    ending: Cell<Option<Cause>>,
    /// Suspend and resume, one at a time.
    turns: Mutex<()>,
    /// `<state>/cages/<id>`.
    folder: OwnedFd,
    dirty: Rc<Dirty>,
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
            journal: RefCell::new(journal),
            heard: RefCell::default(),
            broker: RefCell::default(),
            handles: RefCell::default(),
            ending: Cell::new(None),
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

    /// The limits in effect.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let changed = self.record.borrow().limits.clone();
        changed.or_else(|| self.plan().map(|plan| plan.limits.clone()))
    }

    pub(crate) fn broker(&self) -> Result<Rc<BrokerLink>, WireError> {
        let broker = self.broker.borrow().clone().filter(|link| !link.is_closed());
        broker.ok_or_else(|| {
            WireError::new(ErrorCode::Gone, "the cage has ended; only its records are left")
        })
    }

    pub(crate) fn set_broker(&self, link: Option<Rc<BrokerLink>>) {
        if let Some(old) = self.broker.replace(link) {
            old.close();
        }
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
        if let Err(error) = self.tell(body) {
            tracing::error!(cage = %self.id, %error, "an event could not be written");
        }
    }

    /// Whether the last event of this type is this one, and is not acknowledged.
    pub(crate) fn has_told_last(&self, body: &EventBody) -> bool {
        self.journal.borrow().holds_last(body)
    }

    pub(crate) fn has_told(&self, kind: &str) -> bool {
        self.journal.borrow().newest_of(kind).is_some()
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
            return self.journal.borrow().after(seq);
        }
        let seq = seq.max(self.heard.borrow().acknowledged());
        let tail = self.heard.borrow().after(seq);
        match tail {
            Tail::Memory(events) => events,
            Tail::File => {
                let mut events = self.broker_events();
                events.retain(|event| event.seq > seq);
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
            broker_seq: self.heard.borrow().newest(),
            supervisor_seq: self.journal.borrow().newest(),
        }
    }
}
