//! The loop of pid 1: orders in, reports out, children reaped.

use crate::attest;
use crate::init::commands::{Commands, Upward};
use crate::init::leader::exit_of;
use crate::init::report::{Record, Word};
use crate::init::still::{Late, Still};
use crate::init::terminal::open_terminal;
use crate::init::{EXIT_NO_CAGE, kill, zygote};
use crate::orders::{Order, Program, Report, Target, open_order, pack_order};
use crate::sys::{self, inside};
use link::{LinkError, Packet, Packets};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// Most instructions of a filter, in bytes: BPF_MAXINSNS of 8 bytes.
const FILTER_BYTES_MAX: usize = 4096 * 8;

/// How often late handlers are looked for, in milliseconds: nothing tells of them.
const LATE_LOOK_MS: u8 = 20;

/// Why the cage ends from within.
enum End {
    /// The broker closed the order socket, or sent what is no order.
    Broker,
    /// The walls do not stand; the broker knows.
    Walls,
    /// A system call failed that a cage cannot be without.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<nix::errno::Errno> for End {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl From<LinkError> for End {
    fn from(_gone: LinkError) -> Self {
        Self::Broker
    }
}

/// Serves the order socket at `order_fd` until it ends; the end of pid 1 ends the cage.
#[must_use]
pub fn run(order_fd: i32) -> ExitCode {
    let mut went = false;
    match serve(order_fd, &mut went) {
        Ok(never) => match never {},
        Err(End::Broker) if went => ExitCode::SUCCESS,
        Err(End::Broker | End::Walls) => ExitCode::from(EXIT_NO_CAGE),
        Err(End::Io(error)) => {
            use std::io::Write;
            drop(writeln!(io::stderr(), "mews-cage-init: {error}"));
            ExitCode::from(EXIT_NO_CAGE)
        }
    }
}

fn serve(order_fd: i32, went: &mut bool) -> Result<std::convert::Infallible, End> {
    // Before anything else: nobody looks into this process, and nothing it forks inherits orders.
    nix::sys::prctl::set_dumpable(false)?;
    let orders = sys::own(order_fd);
    fcntl(&orders, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let orders = Packets::from_fd(orders);
    kill::block_all()?;
    // Ignored ones would be inherited through exec; pid 1 itself has them all blocked.
    for signal in (1..=64).filter(|signal| *signal != libc::SIGPIPE) {
        inside::set_disposition(signal, false);
    }
    let (program, filter) = first_order(&orders)?;
    let children = SignalFd::with_flags(
        &SigSet::from(Signal::SIGCHLD),
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?;
    let mut init = Init::new(orders, program, filter, children)?;
    loop {
        init.turn()?;
        *went = init.went;
    }
}

fn first_order(orders: &Packets) -> Result<(Program, Option<Vec<u8>>), End> {
    let packet = orders.recv()?.ok_or(End::Broker)?;
    match open_order(packet) {
        Ok((Order::Program(program), fds)) => {
            let filter = match (program.seccomp, fds.into_iter().next()) {
                (true, Some(fd)) => Some(link::memfd::read(fd, FILTER_BYTES_MAX)?),
                (true, None) => return Err(End::Broker),
                (false, _none) => None,
            };
            Ok((program, filter))
        }
        Ok(_other) => Err(End::Broker),
        Err(_no_order) => Err(End::Broker),
    }
}

struct Init {
    orders: Packets,
    program: Program,
    filter: Option<Vec<u8>>,
    children: SignalFd,
    zygote: Zygote,
    /// What zygotes and leaders say. Both ends, since the next zygote gets the second.
    words: (Packets, Packets),
    /// Whether this is not the first zygote.
    replaced: bool,
    went: bool,
    forwarders: Vec<i32>,
    commands: Commands,
    /// Orders that wait for a zygote that is raising its walls.
    waiting: VecDeque<(Order, Vec<OwnedFd>)>,
    /// While the cage is suspended.
    still: Option<Still>,
    /// After a resume.
    late: Option<Late>,
}

struct Zygote {
    pid: i32,
    orders: Packets,
    attested: bool,
}

/// What can be ready.
#[derive(Clone, Copy)]
enum Source {
    Orders,
    Words,
    Children,
    Pipe(u64),
}

impl Init {
    fn new(
        orders: Packets,
        program: Program,
        filter: Option<Vec<u8>>,
        children: SignalFd,
    ) -> Result<Self, End> {
        let words = Packets::pair()?;
        words.0.set_nonblocking()?;
        let zygote = fork_zygote(&program, filter.as_deref(), &words.1, false)?;
        Ok(Self {
            orders,
            program,
            filter,
            children,
            zygote,
            words,
            replaced: false,
            went: false,
            forwarders: Vec::new(),
            commands: Commands::default(),
            waiting: VecDeque::new(),
            still: None,
            late: None,
        })
    }

    /// Waits, then serves all that is ready. Reports from inside are read before children are reaped
    /// and orders obeyed, so that a leader's own word counts before what pid 1 sees.
    fn turn(&mut self) -> Result<(), End> {
        let ready = self.wait()?;
        if self.late.as_mut().is_some_and(Late::is_over) {
            self.late = None;
        }
        for source in &ready {
            match *source {
                Source::Pipe(id) => self.read_pipe(id)?,
                Source::Words => self.hear_all()?,
                Source::Children | Source::Orders => {}
            }
        }
        for source in &ready {
            match *source {
                Source::Children => self.reap()?,
                Source::Orders => self.obey()?,
                Source::Pipe(_) | Source::Words => {}
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<Source>, End> {
        let mut sources = vec![Source::Orders, Source::Words, Source::Children];
        let interest = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![
            interest(self.orders.as_fd()),
            interest(self.words.0.as_fd()),
            interest(self.children.as_fd()),
        ];
        for (id, pipe) in self.commands.pipes() {
            sources.push(Source::Pipe(id));
            fds.push(interest(pipe));
        }
        let look_again = PollTimeout::from(LATE_LOOK_MS);
        let timeout = if self.late.is_some() { look_again } else { PollTimeout::NONE };
        match poll(&mut fds, timeout) {
            Ok(_count) => {}
            Err(nix::errno::Errno::EINTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        Ok(sources
            .into_iter()
            .zip(&fds)
            .filter(|(_s, fd)| is_ready(fd))
            .map(|(s, _fd)| s)
            .collect())
    }

    // --- From the broker.

    fn obey(&mut self) -> Result<(), End> {
        let packet = self.orders.recv()?.ok_or(End::Broker)?;
        let (order, fds) = open_order(packet).map_err(|_no_order| End::Broker)?;
        match order {
            Order::Go => {
                self.went = true;
                self.pass_on(Order::Go, Vec::new())
            }
            Order::Exec { .. } if self.went => self.pass_on(order, fds),
            Order::Signal { target, signal } => {
                self.signal(target, signal);
                Ok(())
            }
            Order::Suspend { grace_ms, all } if self.still.is_none() => {
                let grace = Duration::from_millis(grace_ms);
                let (still, stilled) = Still::make(&self.spared(), grace, all);
                self.late = None;
                self.still = Some(still);
                let json = serde_json::to_vec(&stilled).map_err(io::Error::from)?;
                let memfd = link::memfd::sealed("mews-stilled", &json)?;
                self.report((Report::Stilled, Some(memfd)))
            }
            Order::Resume => {
                self.late = self.still.take().and_then(Still::undo);
                self.report((Report::Resumed, None))
            }
            Order::Exec { .. } | Order::Program(_) | Order::InMemfd | Order::Suspend { .. } => {
                Err(End::Broker)
            }
        }
    }

    /// Ours: what no signal that is for everything goes to.
    fn spared(&self) -> BTreeSet<i32> {
        let mut spared: BTreeSet<i32> = self.commands.leaders().collect();
        spared.extend(self.forwarders.iter().copied());
        spared.extend([1, self.zygote.pid]);
        spared
    }

    fn signal(&self, target: Target, signal: i32) {
        match target {
            Target::Payload(id) | Target::Group(id) => {
                let Some(pid) = self.commands.payload(id) else { return };
                let to = if matches!(target, Target::Group(_)) { -pid } else { pid };
                // Gone already: its exit is on the way.
                kill::send(to, signal).ok();
            }
            Target::Everything => kill::everything(&self.spared(), signal),
        }
    }

    /// To the zygote, or into the queue while it raises its walls.
    fn pass_on(&mut self, order: Order, fds: Vec<OwnedFd>) -> Result<(), End> {
        if !self.zygote.attested {
            self.waiting.push_back((order, fds));
            return Ok(());
        }
        // A payload may have stopped it: they share a domain.
        kill::send(self.zygote.pid, libc::SIGCONT).ok();
        let Order::Exec { id, tty, argv, cwd, .. } = &order else {
            return self.hand_over(&order, &[]).map_err(End::Io);
        };
        let id = *id;
        match self.prepare(*tty, fds) {
            Ok(Prepared { reader, writer, stdio, master }) => {
                let argv0 = argv.first().cloned().unwrap_or_default();
                self.commands.add(id, argv0, cwd.clone(), reader, master);
                let mut all = vec![writer.as_fd()];
                all.extend(stdio.iter().map(AsFd::as_fd));
                // If it cannot take the order, the writer is dropped and the pipe's end tells.
                drop(self.hand_over(&order, &all));
                Ok(())
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                let what = "the command's terminal or pipes".to_owned();
                self.report((Report::ExecFailed { id, errno, what }, None))
            }
        }
    }

    fn prepare(&self, tty: Option<wire::Size>, fds: Vec<OwnedFd>) -> io::Result<Prepared> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let Some(size) = tty else {
            return Ok(Prepared { reader, writer, stdio: fds, master: None });
        };
        let terminal = open_terminal(size)?;
        let stdio = vec![terminal.slave];
        Ok(Prepared { reader, writer, stdio, master: Some(terminal.master) })
    }

    fn hand_over(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (bytes, memfd) = pack_order(order)?;
        let mut all: Vec<BorrowedFd<'_>> = memfd.iter().map(AsFd::as_fd).collect();
        all.extend_from_slice(fds);
        self.zygote.orders.send(&bytes, &all).map_err(io::Error::other)
    }

    fn report(&self, (report, fd): Upward) -> Result<(), End> {
        let bytes = serde_json::to_vec(&report).map_err(io::Error::from)?;
        let fds: Vec<BorrowedFd<'_>> = fd.iter().map(AsFd::as_fd).collect();
        Ok(self.orders.send(&bytes, &fds)?)
    }

    // --- From behind the walls.

    fn read_pipe(&mut self, id: u64) -> Result<(), End> {
        let mut bytes = [0; Record::BYTES];
        let Some((_id, pipe)) = self.commands.pipes().find(|(other, _pipe)| *other == id) else {
            return Ok(());
        };
        if let Ok(Record::BYTES) = nix::unistd::read(pipe, &mut bytes) {
            self.commands.record(id, Record::from_bytes(bytes));
            return Ok(());
        }
        for upward in self.commands.pipe_ended(id) {
            self.report(upward)?;
        }
        Ok(())
    }

    fn hear_all(&mut self) -> Result<(), End> {
        while let Ok(Some(packet)) = self.words.0.recv() {
            self.hear(&packet)?;
        }
        Ok(())
    }

    /// One word of the zygote's or a leader's.
    fn hear(&mut self, packet: &Packet) -> Result<(), End> {
        let Ok(word) = serde_json::from_slice(&packet.bytes) else { return Ok(()) };
        match word {
            Word::Attested(mut attestation) => {
                attestation.init_dumpable = attest::dumpable();
                self.zygote.attested = true;
                let report = if self.replaced {
                    Report::ZygoteReplaced(attestation)
                } else {
                    Report::Attested(attestation)
                };
                self.report((report, None))?;
                while let Some((order, fds)) = self.waiting.pop_front() {
                    self.pass_on(order, fds)?;
                }
                Ok(())
            }
            Word::Failed { wall, message } => {
                self.report((Report::Failed { wall, message }, None))?;
                Err(End::Walls)
            }
            Word::Forwarding(pids) => {
                self.forwarders.extend(pids);
                Ok(())
            }
            Word::Exited(exit) => self.commands.exited(exit).map_or(Ok(()), |up| self.report(up)),
        }
    }

    fn reap(&mut self) -> Result<(), End> {
        while let Ok(Some(_signal)) = self.children.read_signal() {}
        while let Some(ended) = inside::reap_any()? {
            if ended.pid == self.zygote.pid {
                self.replace_zygote()?;
            } else if let Some(id) = self.commands.by_payload(ended.pid) {
                // Its leader was killed.
                if let Some(upward) = self.commands.exited(exit_of(id, &ended)) {
                    self.report(upward)?;
                }
            }
        }
        Ok(())
    }

    fn replace_zygote(&mut self) -> Result<(), End> {
        if !self.went {
            let message = "the first process behind the walls was killed".to_owned();
            self.report((Report::Failed { wall: "zygote".to_owned(), message }, None))?;
            return Err(End::Walls);
        }
        self.zygote = fork_zygote(&self.program, self.filter.as_deref(), &self.words.1, true)?;
        self.replaced = true;
        // For the forwarders that are gone too.
        self.waiting.push_front((Order::Go, Vec::new()));
        Ok(())
    }
}

/// What a command needs before its order can be passed on.
struct Prepared {
    reader: OwnedFd,
    writer: OwnedFd,
    /// For the leader: the terminal, or the three pipes.
    stdio: Vec<OwnedFd>,
    master: Option<OwnedFd>,
}

fn fork_zygote(
    program: &Program,
    filter: Option<&[u8]>,
    words: &Packets,
    replaced: bool,
) -> Result<Zygote, End> {
    let (mine, its) = Packets::pair()?;
    // A zygote that a payload stopped must not stop pid 1 too.
    mine.set_nonblocking()?;
    match sys::fork()? {
        None => zygote::serve(program, filter, &its, words, replaced),
        Some(pid) => Ok(Zygote { pid, orders: mine, attested: false }),
    }
}
