//! Standard input and outputs without blocking the loop, and without changing the open files that
//! the caller's shell shares with us (O_NONBLOCK would stay on them).

use link::Outlet;
use link::nonblocking::{TERMINAL_READ_BYTES, watch_input};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use std::fs::{File, OpenOptions};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Standard input. What may belong to others too is asked before each read, so that none blocks.
#[derive(Debug)]
pub(crate) struct Input {
    source: Source,
    /// Made once: a key should not wait for 64 KiB to be cleared.
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    /// A terminal, opened anew and so non-blocking for us alone.
    Own(AsyncFd<OwnedFd>),
    Shared {
        fd: AsyncFd<OwnedFd>,
        is_terminal: bool,
    },
    /// A file: reading it never blocks for long, and epoll refuses it.
    Plain(OwnedFd),
    Closed,
}

impl Input {
    pub(crate) fn stdin() -> Self {
        let source = Source::stdin().unwrap_or(Source::Closed);
        Self { source, buffer: Vec::new() }
    }

    pub(crate) fn closed() -> Self {
        Self { source: Source::Closed, buffer: Vec::new() }
    }

    /// Up to `max` bytes; none at the end. Cancel-safe.
    pub(crate) async fn read(&mut self, max: usize) -> io::Result<Vec<u8>> {
        let Self { source, buffer } = self;
        buffer.resize(buffer.len().max(max), 0);
        let buffer = buffer.get_mut(..max).unwrap_or_default();
        let count = source.read(buffer).await?;
        Ok(buffer.get(..count).unwrap_or_default().to_vec())
    }
}

impl Source {
    fn stdin() -> io::Result<Self> {
        let fd = io::stdin().as_fd().try_clone_to_owned()?;
        let is_terminal = io::IsTerminal::is_terminal(&fd);
        if is_terminal {
            // To read from the background then fails, instead of stopping us.
            SigSet::from(Signal::SIGTTIN).thread_block()?;
        }
        if is_terminal
            && let Ok(own) = open_anew(0, File::options().read(true))
            && let Ok(own) = watch_input(own)
        {
            return Ok(Self::Own(own));
        }
        let copy = fd.try_clone()?;
        Ok(match watch_input(fd) {
            Ok(fd) => Self::Shared { fd, is_terminal },
            Err(_not_pollable) => Self::Plain(copy),
        })
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (fd, is_terminal, is_own) = match self {
            Self::Closed => return Ok(0),
            Self::Plain(fd) => return Ok(nix::unistd::read(fd, buffer)?),
            Self::Own(fd) => (fd, true, true),
            Self::Shared { fd, is_terminal } => (fd, *is_terminal, false),
        };
        loop {
            let mut ready = fd.readable().await?;
            if !is_own && !is_readable(fd.get_ref())? {
                ready.clear_ready();
                continue;
            }
            match nix::unistd::read(fd.get_ref(), &mut *buffer) {
                Ok(count) => {
                    if is_terminal && count < TERMINAL_READ_BYTES.min(buffer.len()) {
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => {}
                // The keys are the shell's now. Nothing tells when they are ours again.
                Err(Errno::EIO) if is_terminal && is_in_background(fd.get_ref()) => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_in_background(terminal: &OwnedFd) -> bool {
    nix::unistd::tcgetpgrp(terminal).is_ok_and(|group| group != nix::unistd::getpgrp())
}

fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Standard output or error, with what still waits to be written.
#[derive(Debug)]
pub(crate) struct Output {
    sink: Sink,
    waiting: Vec<u8>,
    written: usize,
}

#[derive(Debug)]
enum Sink {
    /// A terminal or pipe, opened anew and so non-blocking for us alone.
    Own(Outlet),
    /// A socket: non-blocking call by call.
    Socket(Outlet),
    /// A file, or something that cannot be opened anew: written to as it is.
    Plain(OwnedFd),
}

impl Output {
    pub(crate) fn stdout() -> io::Result<Self> {
        Self::of(io::stdout().as_fd().try_clone_to_owned()?, 1)
    }

    pub(crate) fn stderr() -> io::Result<Self> {
        Self::of(io::stderr().as_fd().try_clone_to_owned()?, 2)
    }

    fn of(fd: OwnedFd, number: i32) -> io::Result<Self> {
        use nix::sys::stat::{SFlag, fstat};
        let kind = SFlag::from_bits_truncate(fstat(&fd)?.st_mode & SFlag::S_IFMT.bits());
        let sink = if kind == SFlag::S_IFSOCK {
            Sink::Socket(Outlet::new(fd))
        } else if kind == SFlag::S_IFIFO || kind == SFlag::S_IFCHR {
            match open_anew(number, File::options().write(true)) {
                Ok(own) => Sink::Own(Outlet::new(own)),
                Err(_not_allowed) => Sink::Plain(fd),
            }
        } else {
            Sink::Plain(fd)
        };
        Ok(Self { sink, waiting: Vec::new(), written: 0 })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn discard(&mut self) {
        self.waiting.clear();
        self.written = 0;
        if let Sink::Own(outlet) | Sink::Socket(outlet) = &mut self.sink {
            outlet.wrote_all();
        }
    }

    /// Writes what goes at once, so that the echo of a key does not wait for our next look around.
    /// What is wrong is met again by the flush.
    pub(crate) fn write_now(&mut self) {
        if self.written == 0
            && let Sink::Own(outlet) = &mut self.sink
            && let Ok(count) = nix::unistd::write(outlet.get_ref(), &self.waiting)
        {
            self.written = count;
            if count == self.waiting.len() {
                self.discard();
            }
        }
    }

    /// Writes until nothing waits. Cancel-safe: what is written is not written again.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        loop {
            let rest = self.waiting.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                self.discard();
                return Ok(());
            }
            self.written += self.sink.write_some(rest).await?;
        }
    }
}

impl Sink {
    async fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use nix::sys::socket::{MsgFlags, send};
        match self {
            Self::Plain(fd) => loop {
                match nix::unistd::write(&*fd, bytes) {
                    Err(Errno::EINTR) => {}
                    other => return Ok(other?),
                }
            },
            Self::Own(outlet) => {
                let write = |fd: &OwnedFd| nix::unistd::write(fd, bytes);
                poll_fn(|context| outlet.poll_write(context, write)).await
            }
            Self::Socket(outlet) => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                let write = |fd: &OwnedFd| send(fd.as_raw_fd(), bytes, flags);
                poll_fn(|context| outlet.poll_write(context, write)).await
            }
        }
    }
}

fn open_anew(number: i32, options: &mut OpenOptions) -> io::Result<OwnedFd> {
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    options.open(format!("/proc/self/fd/{number}")).map(OwnedFd::from)
}
