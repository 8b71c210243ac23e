//! Suspend and resume: what the broker does around the freeze, which is the supervisor's.
//!
//! ```text
//! going ──suspend──▶ stopping ──stilled──▶ still ──resume──▶ resuming ──resumed──▶ going
//!                        └──────────────resume──────────────────▲
//! ```
//! From the first word to the last, keys and sizes wait in the terminals, the clocks stand, and no
//! command starts.

use super::{Broker, Phase, refuse};
use crate::control::Reply;
use crate::terminal::Command as Tell;
use cage::orders::Order;
use std::os::fd::OwnedFd;
use wire::{ErrorCode, PtyId, Size};

#[derive(Debug, Default)]
pub enum Stillness {
    #[default]
    Going,
    Stopping(Reply),
    Still,
    Resuming(Reply),
}

/// A held command whose viewer came while nothing may start, and that viewer's size.
pub type HeldBack = (PtyId, Option<Size>);

impl Broker {
    pub(super) fn is_suspended(&self) -> bool {
        !matches!(self.stillness, Stillness::Going)
    }

    pub(super) fn suspend(&mut self, grace_ms: u64, all: bool, reply: Reply) {
        if self.phase != Phase::Running {
            return refuse(reply, ErrorCode::Gone, "the cage is not running");
        }
        if self.is_suspended() {
            return refuse(reply, ErrorCode::Conflict, "the cage is being suspended already");
        }
        self.still_terminals(true);
        self.stop_clocks();
        self.stillness = Stillness::Stopping(reply);
        self.init.send(&Order::Suspend { grace_ms, all }, Vec::new());
    }

    pub(super) fn stilled(&mut self, fds: Vec<OwnedFd>) {
        match std::mem::take(&mut self.stillness) {
            Stillness::Stopping(reply) => {
                self.stillness = Stillness::Still;
                match fds.into_iter().next() {
                    Some(processes) => reply.descriptor(processes),
                    None => refuse(reply, ErrorCode::Internal, "pid 1 does not say what stands"),
                }
            }
            // It was told to go on before it had said that it stands.
            other @ (Stillness::Going | Stillness::Still | Stillness::Resuming(_)) => {
                self.stillness = other;
            }
        }
    }

    pub(super) fn resume(&mut self, reply: Reply) {
        let next = Stillness::Resuming(reply);
        match std::mem::replace(&mut self.stillness, next) {
            Stillness::Going => {
                if let Stillness::Resuming(reply) = std::mem::take(&mut self.stillness) {
                    reply.done();
                }
            }
            Stillness::Still => self.init.send(&Order::Resume, Vec::new()),
            Stillness::Stopping(earlier) => {
                refuse(earlier, ErrorCode::Conflict, "the cage was told to go on meanwhile");
                self.init.send(&Order::Resume, Vec::new());
            }
            Stillness::Resuming(earlier) => {
                refuse(earlier, ErrorCode::Conflict, "the cage was told to go on again");
            }
        }
    }

    pub(super) fn resumed(&mut self) {
        let Stillness::Resuming(reply) = std::mem::take(&mut self.stillness) else { return };
        let main = self.main.and_then(|pty| self.commands.get(&pty));
        if main.is_some_and(|main| main.started.is_some() && main.end.is_none()) {
            self.start_clocks();
        }
        self.still_terminals(false);
        for (pty, size) in std::mem::take(&mut self.held_back) {
            self.start_held(pty, size);
        }
        reply.done();
    }

    fn still_terminals(&self, still: bool) {
        for command in self.commands.values() {
            command.tell(Tell::Still(still));
        }
    }
}
