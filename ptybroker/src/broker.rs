//! The broker of one cage: one inbox, one task that handles what happens in it, in order.
//!
//! Owns the link to pid 1, the list of commands, the event log and the end. It never waits for
//! anybody: terminals, the supervisor's link and pid 1 have tasks of their own, and what it tells
//! them is queued. (The inbox has no bound of its own: each item in it comes from one request of
//! the supervisor, one report of pid 1, or one change of a viewer, and those are bounded.)
//!
//! ```text
//! starting ──attested──▶ gate ──go──▶ running ──first command ended──▶ ended ──acknowledged──▶ gone
//!     └─failed─▶ gone      └─tether─▶ gone        └─cage lost─────────────▲
//! ```

pub mod command;
pub mod ending;
pub mod requests;
pub mod starting;
pub mod suspending;
pub mod timing;

use crate::boot::{Booted, Counters};
use crate::clocks::{self, Alarm};
use crate::control::{self, Inbound, Outgoing, Reply};
use crate::events::EventLog;
use crate::exit::{Alarmed, End};
use crate::init_link::InitLink;
use crate::terminal::{Output, Shared, TerminalEvent};
use cage::launch::Clocks;
use cage::orders::Report;
use command::Command;
use ending::MainEnd;
use link::PidFd;
use starting::{Standing, StartError};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use suspending::{HeldBack, Stillness};
use timing::Timing;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wire::broker::{BrokerNotice, CameFrom};
use wire::{Cause, EventBody, Exit, PtyId};

/// Everything that can happen to a broker.
#[derive(Debug)]
pub enum Happening {
    Request(Inbound),
    Report {
        report: Report,
        fds: Vec<OwnedFd>,
    },
    /// The order socket ended: the cage is dead, or not ours any more.
    InitGone {
        why: Option<String>,
    },
    Terminal {
        pty: PtyId,
        event: TerminalEvent,
    },
    Alarm(Alarm),
    /// The supervisor that started us is gone, or let go of the tether.
    TetherEnded,
    /// bwrap's monitor died before pid 1.
    MonitorLost,
    /// Pid 1 and bwrap's monitor are reaped.
    CageGone,
    /// Pid 1 has had its time to tell how the commands beside the first one ended.
    OthersWaitedFor,
    /// Acknowledged or not: nobody came for too long.
    LeftAlone,
}

/// Runs the broker of one cage to its end.
pub async fn run(booted: Booted) -> ExitCode {
    let Booted { boot, listener, tether, state_dir, launch, seccomp, counters, oom_event } = booted;
    let folder = Rc::new(state_dir);
    let events = Rc::new(RefCell::new(EventLog::open(boot.cage, &folder)));
    let (inbox, happenings) = mpsc::unbounded_channel();
    let (outgoing, to_send) = mpsc::unbounded_channel();
    let channel = (outgoing.clone(), to_send);
    let serving =
        control::serve(listener, boot.supervisor_uid, Rc::clone(&events), channel, inbox.clone());
    tokio::task::spawn_local(serving);

    let started = starting::start(launch, boot.program, seccomp, boot.ptys_max, &tether, &folder);
    let standing = match started.await {
        Ok(standing) => standing,
        Err(failure) => {
            let (wall, message) = (failure.wall(), failure.to_string());
            drop(outgoing.send(Outgoing::Notice(BrokerNotice::Failed { wall, message })));
            // bwrap may have failed faster than the supervisor has come for the word.
            let somebody_waits = !matches!(failure, StartError::TetherEnded);
            let kind = if somebody_waits { Outgoing::FlushToSomebody } else { Outgoing::Flush };
            flush(&outgoing, kind).await;
            return ExitCode::FAILURE;
        }
    };
    let attested = BrokerNotice::Attested {
        init_pid: standing.init_pid,
        monitor_pid: standing.monitor_pid,
        attestation: serde_json::to_value(&standing.attestation).unwrap_or_default(),
    };
    drop(outgoing.send(Outgoing::Notice(attested)));
    clocks::watch_cgroup(oom_event, &counters, &inbox);
    starting::watch_tether(tether, inbox.clone());

    let active_at = Rc::new(Cell::new(Instant::now()));
    let shared = Shared {
        inbox: inbox.clone(),
        folder,
        bounds: Rc::new(boot.terminal),
        buffer: Rc::new(RefCell::new(vec![0; crate::terminal::tty::READ_BYTES])),
        epoch: Instant::now(),
    };
    let broker = Broker {
        output: Rc::new(Output::limited(boot.clocks.output_bytes)),
        clocks: boot.clocks,
        ptys_max: boot.ptys_max,
        oom_group: boot.fds.oom_group,
        active_at,
        ..Broker::new(standing, shared, events, outgoing.clone(), counters)
    };
    // There may be hundreds of brokers, each idle for hours.
    crate::sys::give_back_memory();
    broker.serve(happenings).await;
    flush(&outgoing, Outgoing::Flush).await;
    ExitCode::SUCCESS
}

async fn flush(
    outgoing: &mpsc::UnboundedSender<Outgoing>,
    kind: fn(oneshot::Sender<()>) -> Outgoing,
) {
    let (done, flushed) = oneshot::channel();
    drop(outgoing.send(kind(done)));
    // A supervisor that does not read its last messages is not waited for.
    drop(tokio::time::timeout(std::time::Duration::from_secs(5), flushed).await);
}

/// Where the broker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Attested; nothing may start before `go`.
    Gate,
    Running,
    /// The first command has ended, or the cage is lost.
    Ended,
}

/// What the cgroup had counted before, and what of it was told: each once.
#[derive(Debug)]
struct Told {
    oom_kills_before: u64,
    pids_met_before: u64,
    oom: bool,
    pids: bool,
}

#[derive(Debug)]
struct Broker {
    phase: Phase,
    init: InitLink,
    init_pid: i32,
    monitor_pid: i32,
    init_handle: PidFd,
    shared: Shared,
    events: Rc<RefCell<EventLog>>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    counters: Counters,
    clocks: Clocks,
    ptys_max: u32,
    oom_group: bool,
    active_at: Rc<Cell<Instant>>,
    /// Printed by all commands, in bytes.
    output: Rc<Output>,
    commands: BTreeMap<PtyId, Command>,
    /// The number of the next command in orders.
    next_order: u64,
    main: Option<PtyId>,
    /// It has ended, and the others are waited for.
    main_end: Option<MainEnd>,
    ending: Option<Cause>,
    alarm: Option<Alarmed>,
    told: Told,
    timing: Timing,
    stillness: Stillness,
    held_back: Vec<HeldBack>,
    /// Who has attached to anything here.
    came: BTreeSet<CameFrom>,
    cage_gone: bool,
    left_alone: bool,
    exit: Option<Exit>,
    last_event: u64,
}

impl Broker {
    fn new(
        standing: Standing,
        shared: Shared,
        events: Rc<RefCell<EventLog>>,
        outgoing: mpsc::UnboundedSender<Outgoing>,
        counters: Counters,
    ) -> Self {
        let Standing { orders, words, init_pid, monitor_pid, init_handle, processes, .. } =
            standing;
        starting::watch_words(words);
        starting::watch_cage(processes, shared.inbox.clone());
        Self {
            phase: Phase::Gate,
            init: InitLink::start(orders, shared.inbox.clone()),
            init_pid,
            monitor_pid,
            init_handle,
            events,
            outgoing,
            told: Told {
                oom_kills_before: counters.oom_kills(),
                pids_met_before: counters.pids_met(),
                oom: false,
                pids: false,
            },
            counters,
            clocks: Clocks::default(),
            ptys_max: 0,
            oom_group: false,
            active_at: Rc::new(Cell::new(shared.epoch)),
            output: Rc::new(Output::default()),
            shared,
            commands: BTreeMap::new(),
            next_order: 1,
            main: None,
            main_end: None,
            ending: None,
            alarm: None,
            timing: Timing::default(),
            stillness: Stillness::Going,
            held_back: Vec::new(),
            came: BTreeSet::new(),
            cage_gone: false,
            left_alone: false,
            exit: None,
            last_event: 0,
        }
    }

    async fn serve(mut self, mut happenings: mpsc::UnboundedReceiver<Happening>) {
        while let Some(happening) = happenings.recv().await {
            self.handle(happening);
            if self.may_end() {
                return;
            }
        }
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::Request(inbound) => self.request(inbound),
            Happening::Report { report, fds } => self.report(report, fds),
            Happening::InitGone { why } => self.cage_lost(why),
            Happening::Terminal { pty, event } => self.terminal(pty, event),
            Happening::Alarm(alarm) => self.alarm(alarm),
            Happening::TetherEnded if self.phase == Phase::Gate => {
                // Nothing ran, and nobody will ever say go.
                self.kill_cage();
                self.left_alone = true;
                self.phase = Phase::Ended;
            }
            Happening::TetherEnded => {}
            Happening::MonitorLost => self.monitor_lost(),
            Happening::CageGone => self.cage_gone = true,
            Happening::OthersWaitedFor => self.end_cage(),
            Happening::LeftAlone => self.left_alone = true,
        }
    }

    fn report(&mut self, report: Report, fds: Vec<OwnedFd>) {
        match report {
            Report::Started { id, pid } => self.started(id, pid, fds),
            Report::ExecFailed { id, errno, what } => {
                self.payload_ended(id, End::NotStarted { errno, what });
            }
            Report::Exited(exit) => self.payload_ended(exit.id, End::Reported(exit)),
            Report::Stilled => self.stilled(fds),
            Report::Resumed => self.resumed(),
            Report::ZygoteReplaced(_) => {
                self.log(&EventBody::CageZygoteReplaced {});
            }
            // Told once, before we came here; pid 1 that says so again is not in order.
            Report::Attested(_) | Report::Failed { .. } => {}
        }
    }

    fn terminal(&mut self, pty: PtyId, event: TerminalEvent) {
        match event {
            TerminalEvent::Ready { size } => self.start_held(pty, size),
            TerminalEvent::Log(body) => {
                self.log(&body);
            }
            TerminalEvent::Drained { bytes, lines } => self.drained(pty, bytes, lines),
            TerminalEvent::OverLimit => self.output_over_limit(),
            TerminalEvent::Left => {}
        }
    }

    /// Written, then sent.
    fn log(&mut self, body: &EventBody) -> u64 {
        let seq = self.events.borrow_mut().append(body);
        drop(self.outgoing.send(Outgoing::Events));
        seq
    }

    fn notify(&self, notice: BrokerNotice) {
        drop(self.outgoing.send(Outgoing::Notice(notice)));
    }

    /// SIGKILL to pid 1: the kernel ends everything in its namespace with it.
    fn kill_cage(&self) {
        // ESRCH: it is gone already.
        drop(self.init_handle.signal(libc::SIGKILL));
    }
}

/// A request that cannot be served now.
fn refuse(reply: Reply, code: wire::ErrorCode, words: &str) {
    reply.error(wire::WireError::new(code, words));
}
