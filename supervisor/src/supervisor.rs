//! What the supervisor holds for its whole life: the host, the programs, the cages.

use crate::admission::Admission;
use crate::audit::Audit;
use crate::cage::Cage;
use crate::cage::record::Record;
use crate::files;
use crate::grants::Grants;
use crate::host::{Host, Mode};
use crate::layers::Places;
use crate::programs::Programs;
use crate::pump::Dirty;
use crate::uids::Uids;
use ::cage::cgroup::Layout;
use ::cage::plan::HostFacts;
use link::failpoint;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use wire::supervisor::Phase;
use wire::{CageId, SessionId};

/// Why the supervisor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// By request (`mews daemon stop`).
    Asked,
    /// SIGTERM, SIGINT.
    Signal,
    /// The one-shot's caller is gone.
    CallerGone,
    /// sessiond does not start.
    NoSessiond,
}

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) host: Host,
    pub(crate) admission: Admission,
    pub(crate) grants: Grants,
    pub(crate) audit: Audit,
    pub(crate) programs: Programs,
    pub(crate) facts: HostFacts,
    pub(crate) layout: Layout,
    /// The compiled filter, sealed; the same for every cage.
    pub(crate) seccomp: OwnedFd,
    pub(crate) dirty: Rc<Dirty>,
    pub(crate) uids: RefCell<Option<Uids>>,
    pub(crate) userns: RefCell<BTreeMap<u32, Rc<OwnedFd>>>,
    /// Operators whose spawn is under way and has no cage yet, one entry each.
    pub(crate) places: RefCell<Vec<u32>>,
    /// Requests that a cage takes only once, taken or being worked on.
    pub(crate) claims: RefCell<BTreeSet<(CageId, &'static str)>>,
    /// Whose layers' files still belong to a uid.
    pub(crate) layer_uids: RefCell<BTreeMap<SessionId, u32>>,
    layer_turns: RefCell<BTreeMap<SessionId, Arc<Mutex<()>>>>,
    pub(crate) layer_places: Places,
    cages: RefCell<BTreeMap<CageId, Rc<Cage>>>,
    stop: watch::Sender<Option<Stop>>,
    /// sessiond's API listener, as its hello brought it.
    api_listener: RefCell<Option<OwnedFd>>,
    /// It is a service manager's, which goes on listening when we end.
    pub(crate) api_is_given: Cell<bool>,
    hellos: watch::Sender<u64>,
    /// Pid of the last sessiond that we could not talk to.
    foreign: watch::Sender<Option<i32>>,
    stopping: Cell<bool>,
}

impl Supervisor {
    pub(crate) fn new(
        host: Host,
        (admission, grants, audit): (Admission, Grants, Audit),
        programs: Programs,
        layout: Layout,
        facts: HostFacts,
        seccomp: OwnedFd,
    ) -> Rc<Self> {
        let uids = match host.mode {
            Mode::Root(range) => Some(Uids::new(range, seed())),
            Mode::User => None,
        };
        let dirty = Rc::clone(audit.dirty());
        Rc::new(Self {
            host,
            admission,
            grants,
            audit,
            programs,
            facts,
            layout,
            seccomp,
            dirty,
            uids: RefCell::new(uids),
            userns: RefCell::default(),
            places: RefCell::default(),
            claims: RefCell::default(),
            layer_uids: RefCell::default(),
            layer_turns: RefCell::default(),
            layer_places: Places::default(),
            cages: RefCell::default(),
            stop: watch::Sender::new(None),
            api_listener: RefCell::default(),
            api_is_given: Cell::new(false),
            hellos: watch::Sender::new(0),
            foreign: watch::Sender::new(None),
            stopping: Cell::new(false),
        })
    }

    pub(crate) fn find(&self, id: CageId) -> Option<Rc<Cage>> {
        self.cages.borrow().get(&id).cloned()
    }

    pub(crate) fn cages(&self) -> Vec<Rc<Cage>> {
        self.cages.borrow().values().cloned().collect()
    }

    /// Those of which something is left to run.
    pub(crate) fn living(&self) -> Vec<Rc<Cage>> {
        let mut cages = self.cages();
        cages.retain(|cage| cage.phase() != Phase::Gone);
        cages
    }

    pub(crate) fn add(&self, cage: Rc<Cage>) {
        self.cages.borrow_mut().insert(cage.id, cage);
    }

    /// Writes the cage's record; the step that it records is done all the same if that fails.
    /// # Errors
    /// The disk is full.
    pub(crate) fn try_save(&self, cage: &Cage) -> io::Result<()> {
        let saved = cage.record().save(&self.host.dirs.sup_state());
        if saved.is_ok() {
            cage.set_record_late(false);
        }
        saved
    }

    /// The same where there is nothing left to refuse.
    pub(crate) fn save(&self, cage: &Cage) {
        if let Err(error) = self.try_save(cage) {
            tracing::error!(cage = %cage.id, %error, "a cage's record waits until it can be written");
            cage.set_record_late(true);
        }
    }

    pub(crate) fn journal_path(&self, id: CageId) -> PathBuf {
        self.host.dirs.sup_state().join(format!("{id}.events.jsonl"))
    }

    pub(crate) fn plan_path(&self, id: CageId) -> PathBuf {
        self.host.dirs.sup_state().join(format!("{id}.plan.json"))
    }

    /// What started a cage; in memory, with the variables that its policy passes.
    pub(crate) fn spec_path(&self, id: CageId) -> PathBuf {
        self.run_folder(id).join("spec.json")
    }

    pub(crate) fn cage_folder(&self, id: CageId) -> PathBuf {
        self.host.dirs.cages().join(id.to_string())
    }

    pub(crate) fn socket_path(&self, id: CageId) -> PathBuf {
        self.host.dirs.sup_run().join(format!("{id}.sock"))
    }

    pub(crate) fn run_folder(&self, id: CageId) -> PathBuf {
        self.host.dirs.sup_run().join(id.to_string())
    }

    /// Socket and run folder of a cage whose broker has ended.
    pub(crate) fn remove_run_files(&self, id: CageId) {
        for path in [self.socket_path(id), self.run_folder(id)] {
            if let Err(error) = files::remove_any(&path) {
                tracing::warn!(path = %path.display(), %error, "left behind");
            }
        }
    }

    /// All files of one cage.
    pub(crate) fn remove_files(&self, id: CageId) -> io::Result<()> {
        self.remove_run_files(id);
        files::remove_any(&self.cage_folder(id))?;
        files::remove_any(&self.journal_path(id))?;
        files::remove_any(&self.plan_path(id))?;
        failpoint::reach("forget.files");
        // The record goes last: while it is there, everything else has an owner.
        files::remove_any(&Record::path(&self.host.dirs.sup_state(), id))
    }

    /// Everything that is kept of an ended cage. Its uid may be used again.
    pub(crate) fn forget(&self, cage: &Cage) -> io::Result<()> {
        if let Some(broker) = cage.handles().broker.as_ref() {
            // It may still wait for viewers; nobody will ask for them any more.
            let _ended = broker.signal(libc::SIGKILL);
        }
        failpoint::reach("forget.asked");
        self.remove_files(cage.id)?;
        failpoint::reach("forget.record");
        self.cages.borrow_mut().remove(&cage.id);
        self.claims.borrow_mut().retain(|(id, _verb)| *id != cage.id);
        self.dirty.mark(cage.id);
        self.free_uid(cage.record().uid);
        Ok(())
    }

    /// Once nothing is left that belongs to it.
    pub(crate) fn free_uid(&self, uid: u32) {
        let of_cage = self.cages.borrow().values().any(|cage| cage.record().uid == uid);
        let of_layer = self.layer_uids.borrow().values().any(|other| *other == uid);
        if let Some(uids) = self.uids.borrow_mut().as_mut()
            && !of_cage
            && !of_layer
        {
            uids.free(uid);
            self.userns.borrow_mut().remove(&uid);
        }
    }

    /// The layer of a session is no more.
    pub(crate) fn layer_is_gone(&self, session: SessionId, uid: u32) {
        self.layer_uids.borrow_mut().remove(&session);
        self.layer_turns.borrow_mut().remove(&session);
        self.free_uid(uid);
    }

    /// Work on one layer, one at a time.
    pub(crate) async fn layer_turn(&self, session: SessionId) -> OwnedMutexGuard<()> {
        let turns = Arc::clone(self.layer_turns.borrow_mut().entry(session).or_default());
        turns.lock_owned().await
    }

    pub(crate) fn stop(&self, why: Stop) {
        self.stopping.set(true);
        self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(why);
            }
            first
        });
    }

    /// From now on, or (a shutdown that was given up) no longer.
    pub(crate) fn refuse_spawns(&self, refuse: bool) {
        self.stopping.set(refuse);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(crate) async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(why) = *stop.borrow_and_update() {
                return why;
            }
            if stop.changed().await.is_err() {
                return Stop::Asked;
            }
        }
    }

    /// sessiond answers.
    pub(crate) fn sessiond_said_hello(&self) {
        self.hellos.send_modify(|count| *count += 1);
    }

    /// sessiond's API listener, for the next one.
    pub(crate) fn keep_listener(&self, listener: Option<OwnedFd>) {
        if self.api_listener.borrow().is_none()
            && let Some(listener) = listener.filter(|fd| self.is_our_api_socket(fd))
        {
            self.api_listener.replace(Some(listener));
        }
    }

    /// One whose protocol we do not speak.
    pub(crate) fn sessiond_is_foreign(&self, pid: Option<i32>) {
        self.foreign.send_replace(pid);
    }

    /// Returns when the sessiond of this pid turns out to be of such a build.
    pub(crate) async fn foreign_sessiond(&self, pid: i32) {
        let mut foreign = self.foreign.subscribe();
        let _never_closed = foreign.wait_for(|found| *found == Some(pid)).await;
    }

    pub(crate) fn has_met_sessiond(&self) -> bool {
        *self.hellos.borrow() > 0
    }

    /// By what it is bound to: a sessiond that was taken over could bring any.
    fn is_our_api_socket(&self, fd: &OwnedFd) -> bool {
        let path = self.host.dirs.api_socket();
        let listens = link::peer::is_listener(fd).unwrap_or(false);
        let name = link::peer::bound_name(fd).ok().flatten();
        listens && name.is_some_and(|name| link::packet::is_bound_to(&name, &path))
    }

    pub(crate) fn api_listener(&self) -> Option<OwnedFd> {
        self.api_listener.borrow().as_ref().and_then(|fd| fd.try_clone().ok())
    }

    pub(crate) fn keep_given_socket(&self, given: Option<OwnedFd>) {
        if given.is_some() {
            self.api_is_given.set(true);
            self.set_api_listener(given);
        }
    }

    pub(crate) fn set_api_listener(&self, listener: Option<OwnedFd>) {
        self.api_listener.replace(listener);
    }

    /// Returns after the first hello.
    pub(crate) async fn first_hello(&self) {
        let mut hellos = self.hellos.subscribe();
        let _never_closed = hellos.wait_for(|count| *count > 0).await;
    }
}

/// Any number that two supervisors are unlikely to share.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
