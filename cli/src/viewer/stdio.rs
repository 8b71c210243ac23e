//! Standard input and outputs without blocking the loop, and without changing the open files that
//! the caller's shell shares with us (O_NONBLOCK would stay on them).

use link::Outlet;
use link::nonblocking::TERMINAL_READ_BYTES;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Standard input: a zero-time poll before each read, then a read that cannot block.
#[derive(Debug)]
pub(crate) enum Input {
    Watched {
        fd: AsyncFd<OwnedFd>,
        is_terminal: bool,
    },
    /// A file: reading it never blocks for long, and epoll refuses it.
    Plain(OwnedFd),
    Closed,
}

impl Input {
    pub(crate) fn open() -> Self {
        let Ok(fd) = io::stdin().as_fd().try_clone_to_owned() else { return Self::Closed };
        let Ok(copy) = fd.try_clone() else { return Self::Closed };
        let is_terminal = io::IsTerminal::is_terminal(&fd);
        match link::nonblocking::watch_input(fd) {
            Ok(fd) => Self::Watched { fd, is_terminal },
            Err(_not_pollable) => Self::Plain(copy),
        }
    }

    /// Up to `max` bytes; none at the end. Cancel-safe.
    pub(crate) async fn read(&self, max: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Closed => Ok(Vec::new()),
            Self::Plain(fd) => read_some(fd, max),
            Self::Watched { fd, is_terminal } => loop {
                let mut ready = fd.readable().await?;
                if *is_terminal && is_in_background(fd.get_ref()) {
                    // Reading now would stop us (SIGTTIN); the keys are the shell's.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                } else if is_readable(fd.get_ref())? {
                    let bytes = read_some(fd.get_ref(), max)?;
                    if *is_terminal && bytes.len() < TERMINAL_READ_BYTES.min(max) {
                        ready.clear_ready();
                    }
                    return Ok(bytes);
                } else {
                    ready.clear_ready();
                }
            },
        }
    }
}

/// The buffer is made when there is something for it: a read is begun, and given up, with every
/// frame that comes.
fn read_some(fd: &OwnedFd, max: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; max];
    let count = nix::unistd::read(fd, &mut buffer)?;
    buffer.truncate(count);
    Ok(buffer)
}

fn is_in_background(terminal: &OwnedFd) -> bool {
    nix::unistd::tcgetpgrp(terminal).is_ok_and(|group| group != nix::unistd::getpgrp())
}

fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
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
            match open_anew(number) {
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
                    Err(nix::errno::Errno::EINTR) => {}
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

fn open_anew(number: i32) -> io::Result<OwnedFd> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    options.open(format!("/proc/self/fd/{number}")).map(OwnedFd::from)
}
