//! What the supervisor asks for.

use super::{Broker, Phase, refuse, timing};
use crate::control::{Inbound, Reply};
use crate::terminal::{Attach, Command as Tell, answer_bytes};
use cage::orders::{Order, Target};
use link::{Peer, memfd};
use serde::de::DeserializeOwned;
use std::os::fd::OwnedFd;
use wire::broker::{BrokerExec, BrokerRequest, BrokerState, Came, CameFrom};
use wire::control;
use wire::screen::last_name;
use wire::supervisor::PtyState;
use wire::typing::Typing;
use wire::{AttachOptions, Cause, ErrorCode, PtyId, ScrollbackForm, WireError};

/// argv and environment as JSON, which may need several bytes for one.
const EXEC_BYTES_MAX: usize = 8 << 20;
/// Of the commands in a state, as JSON.
const STATE_BYTES_MAX: usize = 56 * 1024;
const INPUT_BYTES_MAX: usize = 1 << 20;
/// Different operators (or groups of one) that are remembered.
const CAME_MAX: usize = 256;
/// What an HTTP server may have read beyond the upgrade.
const READ_BYTES_MAX: usize = 1 << 20;

impl Broker {
    pub(super) fn request(&mut self, inbound: Inbound) {
        let Inbound { request, fds, reply } = inbound;
        match request {
            BrokerRequest::Go => self.go(reply),
            BrokerRequest::Exec { pty, main } => match json_of::<BrokerExec>(fds) {
                Ok(exec) => self.exec(pty, main, exec, reply),
                Err(error) => reply.error(error),
            },
            BrokerRequest::Attach { pty, options } => self.attach(pty, options, fds, reply),
            BrokerRequest::Came => {
                let from = self.came.iter().cloned().collect();
                reply.result_value(control::value(&Came { from }));
            }
            BrokerRequest::Dismiss { uid } => {
                self.came.retain(|from| from.uid != uid);
                for command in self.commands.values() {
                    command.tell(Tell::Dismiss(uid));
                }
                reply.done();
            }
            BrokerRequest::Input { pty } => match bytes_of(fds.into_iter().next(), INPUT_BYTES_MAX)
            {
                Ok(bytes) => self.tell(pty, reply, |reply| Tell::Input(bytes, reply)),
                Err(error) => reply.error(error),
            },
            BrokerRequest::Type { pty } => match json_of::<Typing>(fds) {
                Ok(typing) => self.tell(pty, reply, |reply| Tell::Type(typing, reply)),
                Err(error) => reply.error(error),
            },
            BrokerRequest::Watch { pty, watch } => match fds.into_iter().next() {
                Some(stream) => self.tell(pty, reply, |reply| Tell::Watch(watch, stream, reply)),
                None => {
                    refuse(reply, ErrorCode::BadRequest, "the stream for the answer is missing")
                }
            },
            BrokerRequest::Resize { pty, size } => {
                self.tell(pty, reply, |reply| Tell::Resize(size, reply));
            }
            BrokerRequest::Signal { pty, signal } => self.signal(pty, signal, reply),
            BrokerRequest::Suspend { grace_ms, all } => self.suspend(grace_ms, all, reply),
            BrokerRequest::Resume => self.resume(reply),
            BrokerRequest::Clocks(clocks) => reply.result(self.set_clocks(clocks)),
            BrokerRequest::Ending { cause } => {
                self.ending.get_or_insert(cause);
                reply.done();
            }
            BrokerRequest::OverLimit { limit, message } => {
                self.end_for(Cause::Limit, &limit, &message);
                reply.done();
            }
            BrokerRequest::Kill => {
                self.kill_cage();
                reply.done();
            }
            BrokerRequest::Scrollback { pty, form } if !self.commands.contains_key(&pty) => {
                self.scrollback_of_forgotten(pty, form, reply);
            }
            BrokerRequest::Scrollback { pty, form } => {
                self.tell(pty, reply, |reply| Tell::Scrollback(form, reply));
            }
            BrokerRequest::State => {
                self.look_at_pids();
                reply.result_value(control::value(&self.state()));
            }
            BrokerRequest::Ack { seq } => {
                self.events.borrow_mut().acknowledge(seq);
                reply.done();
            }
        }
    }

    fn go(&mut self, reply: Reply) {
        match self.phase {
            Phase::Gate => {
                self.phase = Phase::Running;
                self.init.send(&Order::Go, Vec::new());
                reply.done();
            }
            Phase::Running => reply.done(),
            Phase::Ended => refuse(reply, ErrorCode::CageUnavailable, "the cage has ended"),
        }
    }

    fn attach(&mut self, pty: PtyId, options: AttachOptions, fds: Vec<OwnedFd>, reply: Reply) {
        let mut fds = fds.into_iter();
        let Some(stream) = fds.next() else {
            return refuse(reply, ErrorCode::BadRequest, "the viewer's stream is missing");
        };
        // Who cannot be sent away is not let in. A stream without a peer is nobody's of the host.
        if let Ok(peer) = Peer::of(&stream) {
            let groups = link::peer::groups_of(&stream).unwrap_or_default();
            let came = CameFrom { uid: peer.uid, gid: peer.gid, groups };
            if self.came.len() >= CAME_MAX && !self.came.contains(&came) {
                let words = "this cage has had as many different viewers as it may have";
                return refuse(reply, ErrorCode::LimitReached, words);
            }
            self.came.insert(came);
        }
        let read = match fds.next() {
            Some(memfd) => bytes_of(Some(memfd), READ_BYTES_MAX),
            None => Ok(Vec::new()),
        };
        match read {
            Ok(read) => {
                self.tell(pty, reply, |reply| Tell::Attach(Attach { stream, read, options, reply }))
            }
            Err(error) => reply.error(error),
        }
    }

    /// A command that has not started yet gets its signals when it has.
    fn signal(&mut self, pty: Option<PtyId>, signal: i32, reply: Reply) {
        if self.phase != Phase::Running {
            return refuse(reply, ErrorCode::Gone, "the cage is not running");
        }
        if self.is_suspended() {
            let words = "the cage is suspended; `mews resume` lets it go on, `mews kill` ends it";
            return refuse(reply, ErrorCode::Conflict, words);
        }
        let target = match pty {
            None => {
                for command in self.commands.values_mut() {
                    let _kept = command.keep_signal(signal);
                }
                Target::Everything
            }
            Some(pty) => {
                let Some(command) = self.commands.get_mut(&pty) else { return unknown(reply) };
                if command.end.is_some() {
                    return refuse(reply, ErrorCode::Gone, "this command has ended");
                }
                if command.keep_signal(signal) {
                    return reply.done();
                }
                Target::Group(command.order)
            }
        };
        self.init.send(&Order::Signal { target, signal }, Vec::new());
        reply.done();
    }

    fn tell(&self, pty: PtyId, reply: Reply, what: impl FnOnce(Reply) -> Tell) {
        match self.commands.get(&pty) {
            Some(command) => command.tell(what(reply)),
            None => unknown(reply),
        }
    }

    /// A command that ended long ago has its files only.
    fn scrollback_of_forgotten(&self, pty: PtyId, form: ScrollbackForm, reply: Reply) {
        let folder = &self.shared.folder;
        let bytes = match form {
            ScrollbackForm::Rendered => folder.read_all(&format!("{pty}.scrollback")),
            ScrollbackForm::Raw => {
                folder.read_all(&format!("{pty}.rec")).map(|file| wire::recording::raw(&file))
            }
            ScrollbackForm::Last => folder.read_all(&last_name(pty)),
            ScrollbackForm::Since(_) | ScrollbackForm::Screen => {
                // Whoever asks has both files, and cuts them.
                return refuse(reply, ErrorCode::Gone, "this command has ended");
            }
        };
        match bytes {
            Ok(bytes) => answer_bytes(reply, &bytes),
            Err(_not_there) => unknown(reply),
        }
    }

    /// Living commands first, and no more than a packet holds.
    fn ptys(&self) -> Vec<PtyState> {
        let states = self.commands.iter().map(|(pty, command)| command.state(*pty));
        let (living, ended): (Vec<_>, Vec<_>) = states.partition(|state| state.exit.is_none());
        let main = |state: &PtyState| self.main == Some(state.pty);
        let (main, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(main);
        let mut room = STATE_BYTES_MAX;
        let fits = |state: &PtyState| {
            let bytes = serde_json::to_vec(state).map_or(usize::MAX, |text| text.len() + 1);
            room = room.saturating_sub(bytes);
            room > 0
        };
        main.into_iter().chain(living).chain(ended.into_iter().rev()).take_while(fits).collect()
    }

    fn state(&self) -> BrokerState {
        BrokerState {
            init_pid: (!self.cage_gone).then_some(self.init_pid),
            monitor_pid: (!self.cage_gone).then_some(self.monitor_pid),
            ptys: self.ptys(),
            suspended: self.is_suspended(),
            ran_ms: timing::millis(self.timing.ran()),
            output_bytes: self.output.bytes(),
            exit: self.exit.clone(),
            seq: self.events.borrow().newest(),
        }
    }
}

fn unknown(reply: Reply) {
    refuse(reply, ErrorCode::NotFound, "there is no such terminal in this cage");
}

fn bytes_of(fd: Option<OwnedFd>, bytes_max: usize) -> Result<Vec<u8>, WireError> {
    let bad = |words: String| WireError::new(ErrorCode::BadRequest, words);
    let fd = fd.ok_or_else(|| bad("its memory file is missing".to_owned()))?;
    memfd::read(fd, bytes_max).map_err(|error| bad(format!("its memory file: {error}")))
}

fn json_of<T: DeserializeOwned>(fds: Vec<OwnedFd>) -> Result<T, WireError> {
    let bytes = bytes_of(fds.into_iter().next(), EXEC_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        WireError::new(ErrorCode::BadRequest, format!("the command is not understood: {error}"))
    })
}
