//! Commands in the cage: from the request to the end of their output.

use super::{Broker, Phase, refuse};
use crate::control::Reply;
use crate::exit::End;
use crate::pipes;
use crate::terminal::{self, Command as Tell, Status};
use cage::orders::{Order, Target};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::broker::BrokerExec;
use wire::supervisor::PtyState;
use wire::{Arg, ErrorCode, EventBody, Exit, PtyId, Size};

/// Of a command line in events and states, in characters.
const SHOWN_CHARS_MAX: usize = 300;
/// Commands that have ended and are still served from memory; older ones are in their files.
const ENDED_MAX: usize = 32;

/// One command with its terminal or pipes.
#[derive(Debug)]
pub struct Command {
    pub argv: Vec<String>,
    pub tty: bool,
    pub status: Rc<Status>,
    pub task: mpsc::UnboundedSender<Tell>,
    pub order: u64,
    pub pid: Option<i32>,
    pub started: Option<Instant>,
    pub oom_kills_before: u64,
    pub end: Option<End>,
    /// It ran when the first command had ended.
    pub ends_with_cage: bool,
    pub exit: Option<Exit>,
    /// What is to be started when its viewer is there.
    held: Option<BrokerExec>,
    /// Who waits to hear that it runs.
    pub waiting: Option<Reply>,
    /// Signals that came before it ran.
    early_signals: Vec<i32>,
}

impl Command {
    pub fn tell(&self, what: Tell) {
        // The task lives as long as this sender.
        drop(self.task.send(what));
    }

    /// Keeps a signal for the start; `false` if it runs, or has ended. As in the kernel, one that
    /// waits already is not doubled.
    pub fn keep_signal(&mut self, signal: i32) -> bool {
        let starts = self.pid.is_none() && self.end.is_none();
        if starts && !self.early_signals.contains(&signal) {
            self.early_signals.push(signal);
        }
        starts
    }

    #[must_use]
    pub fn state(&self, pty: PtyId) -> PtyState {
        PtyState {
            pty,
            argv: self.argv.clone(),
            tty: self.tty,
            size: self.status.size.get().filter(|_| self.tty),
            viewers: self.status.viewers.get(),
            has_writer: self.status.has_writer.get(),
            seq: self.status.seq.get(),
            pid: self.pid,
            exit: self.exit.clone(),
        }
    }
}

impl Broker {
    pub(super) fn exec(&mut self, pty: PtyId, main: bool, exec: BrokerExec, reply: Reply) {
        match self.phase {
            Phase::Running => {}
            Phase::Gate => {
                return refuse(reply, ErrorCode::CageUnavailable, "the cage is not attested yet");
            }
            Phase::Ended => return refuse(reply, ErrorCode::Gone, "the cage has ended"),
        }
        if self.is_suspended() {
            let words = "the cage is suspended; `mews resume` lets it go on";
            return refuse(reply, ErrorCode::Conflict, words);
        }
        if self.commands.contains_key(&pty) || (main && self.main.is_some()) {
            return refuse(reply, ErrorCode::Conflict, "this command was started already");
        }
        if exec.tty.is_some() && self.living_terminals() >= self.ptys_max {
            let message = format!("the policy allows {} terminals at once", self.ptys_max);
            self.log(&EventBody::CageLimit { limit: "ptys".to_owned(), message: message.clone() });
            return refuse(reply, ErrorCode::LimitReached, &message);
        }
        self.forget_old();
        let command = self.make(pty, &exec);
        if main {
            self.main = Some(pty);
        }
        let held = exec.hold;
        let command = Command { held: held.then(|| exec.clone()), waiting: None, ..command };
        if held {
            command.tell(Tell::Hold);
            reply.done();
            self.commands.insert(pty, command);
        } else {
            self.commands.insert(pty, Command { waiting: Some(reply), ..command });
            self.order_exec(pty, &exec);
        }
    }

    fn make(&mut self, pty: PtyId, exec: &BrokerExec) -> Command {
        let argv = shown(&exec.argv);
        let size = exec.tty.map(Size::clamped);
        self.log(&EventBody::PtyAllocated { pty, argv: argv.clone(), tty: size.is_some(), size });
        let status = Rc::new(Status {
            viewers: Cell::new(0),
            has_writer: Cell::new(false),
            seq: Cell::new(0),
            written: Cell::new(0),
            size: Cell::new(size),
            active_at: Rc::clone(&self.active_at),
            output: Rc::clone(&self.output),
        });
        let task = match size {
            Some(size) => terminal::start(pty, size, Rc::clone(&status), &self.shared),
            None => pipes::start(pty, Rc::clone(&status), &self.shared),
        };
        self.next_order += 1;
        Command {
            argv,
            tty: size.is_some(),
            status,
            task,
            order: self.next_order,
            pid: None,
            started: None,
            oom_kills_before: 0,
            end: None,
            ends_with_cage: false,
            exit: None,
            held: None,
            waiting: None,
            early_signals: Vec::new(),
        }
    }

    /// An agent may run thousands of commands in one cage.
    fn forget_old(&mut self) {
        let main = self.main;
        let ended = |(pty, command): &(&PtyId, &Command)| {
            command.exit.is_some() && command.status.viewers.get() == 0 && main != Some(**pty)
        };
        let ended: Vec<PtyId> = self.commands.iter().filter(ended).map(|(pty, _)| *pty).collect();
        // Ids are in the order of their making.
        for pty in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            self.commands.remove(pty);
        }
    }

    fn living_terminals(&self) -> u32 {
        let living = self.commands.values().filter(|c| c.tty && c.exit.is_none()).count();
        u32::try_from(living).unwrap_or(u32::MAX)
    }

    /// The viewer of a held command is there, or nobody came.
    pub(super) fn start_held(&mut self, pty: PtyId, size: Option<Size>) {
        if self.is_suspended() {
            self.held_back.push((pty, size));
            return;
        }
        let Some(command) = self.commands.get_mut(&pty) else { return };
        let Some(mut exec) = command.held.take() else { return };
        if self.phase == Phase::Ended {
            return;
        }
        if let (Some(wanted), Some(own)) = (size, &mut exec.tty) {
            *own = wanted;
        }
        self.order_exec(pty, &exec);
    }

    fn order_exec(&mut self, pty: PtyId, exec: &BrokerExec) {
        let oom_kills = self.counters.oom_kills();
        let Some(command) = self.commands.get_mut(&pty) else { return };
        command.oom_kills_before = oom_kills;
        let mut fds: Vec<OwnedFd> = Vec::new();
        if exec.tty.is_none() {
            match pipes::make(exec.stdin) {
                Ok(made) => {
                    command.tell(Tell::Pipes(made.ours));
                    fds.extend(made.theirs);
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    let end = End::NotStarted { errno, what: "pipes".to_owned() };
                    let order = command.order;
                    return self.payload_ended(order, end);
                }
            }
        }
        let order = Order::Exec {
            id: command.order,
            argv: exec.argv.clone(),
            env: exec.env.clone(),
            cwd: exec.cwd.clone(),
            umask: exec.umask,
            tty: exec.tty.map(Size::clamped),
        };
        self.init.send(&order, fds);
    }

    pub(super) fn started(&mut self, order: u64, pid: i32, fds: Vec<OwnedFd>) {
        self.active_at.set(Instant::now());
        let Some((pty, command)) = self.by_order(order) else { return };
        command.pid = Some(pid);
        command.started = Some(Instant::now());
        if let Some(master) = fds.into_iter().next() {
            command.tell(Tell::Master(master));
        }
        let waiting = command.waiting.take();
        for signal in std::mem::take(&mut command.early_signals) {
            self.init.send(&Order::Signal { target: Target::Group(order), signal }, Vec::new());
        }
        self.log(&EventBody::PtyStarted { pty, pid });
        if self.main == Some(pty) {
            self.start_clocks();
        }
        if let Some(reply) = waiting {
            reply.done();
        }
    }

    pub(super) fn payload_ended(&mut self, order: u64, end: End) {
        let Some((pty, command)) = self.by_order(order) else { return };
        if command.end.is_some() {
            return;
        }
        command.end = Some(end);
        command.tell(Tell::PayloadEnded);
        // Its end is told by its exit; the request has done what it could.
        if let Some(reply) = command.waiting.take() {
            reply.done();
        }
        if self.main == Some(pty) {
            self.stop_clocks();
        }
        self.another_ended();
    }

    fn by_order(&mut self, order: u64) -> Option<(PtyId, &mut Command)> {
        self.commands
            .iter_mut()
            .find(|(_, command)| command.order == order)
            .map(|(pty, command)| (*pty, command))
    }
}

/// A command line for people, short enough for any packet: events and states carry it.
fn shown(argv: &[Arg]) -> Vec<String> {
    let mut room = SHOWN_CHARS_MAX;
    let mut words = Vec::new();
    for arg in argv {
        let mut word: String = arg.lossy().chars().take(room).map(printable).collect();
        let length = arg.lossy().chars().count();
        if length > room {
            word.push('\u{2026}');
        }
        words.push(word);
        room = room.saturating_sub(length.max(1));
        if room == 0 {
            break;
        }
    }
    words
}

fn printable(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_line_is_shown_short() {
        let short = [Arg::from("sh"), Arg::from("-c"), Arg::from("echo \u{1b}[m")];
        assert_eq!(shown(&short), ["sh", "-c", "echo \u{fffd}[m"]);
        let long = [Arg::from("sh"), Arg(vec![b'x'; 100_000]), Arg::from("more")];
        let words = shown(&long);
        assert_eq!(words.len(), 2);
        assert!(words[1].ends_with("x\u{2026}") && words[1].len() < 400);
        let many: Vec<Arg> = (0..100_000).map(|_| Arg::from("")).collect();
        assert!(shown(&many).len() <= SHOWN_CHARS_MAX);
    }
}
