//! Loopback listeners inside, each connection carried to a Unix socket bound into the cage.
//!
//! One process for all of them, forked from the zygote and so behind the walls. It waits in poll(2),
//! holds at most [`BUFFER_BYTES`] per direction, and passes half-closes on. It knows no protocol.

mod connection;

use crate::orders::Forwarder;
use crate::sys;
use connection::{Connection, Wish};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Most bytes on their way in one direction of one connection.
const BUFFER_BYTES: usize = 32 * 1024;
/// Most connections at once; more wait in the listeners' queues.
const CONNECTIONS_MAX: usize = 256;

#[derive(Debug, thiserror::Error)]
#[error("{listen} cannot be listened on: {source}")]
pub(crate) struct ListenError {
    listen: std::net::SocketAddr,
    source: io::Error,
}

/// What one listener's connections go to.
struct Door {
    listener: TcpListener,
    connect: String,
}

/// Listens everywhere, then forks the process that carries, so that a payload never comes too early.
/// Returns its pid, if there is anything to do. With `again` an address that is in use is the older
/// forwarder's, which outlived its zygote.
pub(crate) fn start(forwarders: &[Forwarder], again: bool) -> Result<Vec<i32>, ListenError> {
    let mut doors = Vec::new();
    for forwarder in forwarders {
        match open_door(forwarder) {
            Ok(door) => doors.push(door),
            Err(error) if again && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(source) => return Err(ListenError { listen: forwarder.listen, source }),
        }
    }
    let Some(first) = forwarders.first().filter(|_some| !doors.is_empty()) else {
        return Ok(Vec::new());
    };
    match sys::fork().map_err(|source| ListenError { listen: first.listen, source })? {
        None => {
            nix::sys::prctl::set_name(c"mews-forward").ok();
            // Only a failure of poll(2) itself ends it.
            serve(&doors).ok();
            sys::exit_now(1)
        }
        Some(pid) => Ok(vec![pid]),
    }
}

fn open_door(forwarder: &Forwarder) -> io::Result<Door> {
    let listener = TcpListener::bind(forwarder.listen)?;
    listener.set_nonblocking(true)?;
    Ok(Door { listener, connect: forwarder.connect.clone() })
}

fn serve(doors: &[Door]) -> Result<std::convert::Infallible, Errno> {
    let mut connections: Vec<Connection> = Vec::new();
    // After EMFILE nobody is let in until somebody has gone.
    let mut full = false;
    loop {
        let open = !full && connections.len() < CONNECTIONS_MAX;
        let (doors_ready, ready) = wait(doors, open, &connections)?;
        for (connection, ready) in connections.iter_mut().zip(ready) {
            match ready {
                Readiness::None => {}
                Readiness::Some => connection.carry(),
                Readiness::Hangup if connection.awaits_hangup() => connection.hang_up(),
                Readiness::Hangup => connection.carry(),
            }
        }
        let before = connections.len();
        connections.retain(|connection| !connection.is_over());
        full = full && connections.len() == before;
        for (door, _ready) in doors.iter().zip(doors_ready).filter(|(_door, ready)| *ready) {
            full |= !let_in(door, &mut connections);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    None,
    Some,
    /// Of the outer socket, when that was waited for.
    Hangup,
}

/// Waits until something can be done: for each door and each connection whether it can.
fn wait(
    doors: &[Door],
    open: bool,
    connections: &[Connection],
) -> Result<(Vec<bool>, Vec<Readiness>), Errno> {
    let mut fds = Vec::new();
    if open {
        fds.extend(doors.iter().map(|door| PollFd::new(door.listener.as_fd(), PollFlags::POLLIN)));
    }
    let doors_polled = fds.len();
    // A side that nothing is wished of is left out: poll(2) would report its hangup for ever.
    let mut owners = Vec::new();
    for (index, connection) in connections.iter().enumerate() {
        for (fd, Wish { read, write }) in connection.wishes() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, read);
            flags.set(PollFlags::POLLOUT, write);
            if !flags.is_empty() {
                fds.push(PollFd::new(fd, flags));
                owners.push(index);
            }
        }
        if connection.awaits_hangup() {
            fds.push(PollFd::new(connection.outer(), PollFlags::empty()));
            owners.push(index);
        }
    }
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno),
    }
    let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
    let (door_fds, connection_fds) = fds.split_at(doors_polled);
    let mut ready = vec![Readiness::None; connections.len()];
    for (owner, fd) in owners.into_iter().zip(connection_fds).filter(|(_owner, fd)| is_ready(fd)) {
        let hangup = fd.events().is_empty();
        if let Some(ready) = ready.get_mut(owner) {
            *ready = if hangup { Readiness::Hangup } else { Readiness::Some.max(*ready) };
        }
    }
    Ok((door_fds.iter().map(is_ready).collect(), ready))
}

/// Accepts what waits at a door. False: there are no descriptors left.
fn let_in(door: &Door, connections: &mut Vec<Connection>) -> bool {
    while connections.len() < CONNECTIONS_MAX {
        let inner = match door.listener.accept() {
            Ok((inner, _loopback)) => inner,
            Err(error) => return error.raw_os_error() != Some(libc::EMFILE),
        };
        match pair_up(inner, &door.connect) {
            Ok(connection) => connections.push(connection),
            Err(Errno::EMFILE) => return false,
            // Nobody listens outside: the caller sees its connection closed.
            Err(_refused) => {}
        }
    }
    true
}

fn pair_up(inner: TcpStream, path: &str) -> Result<Connection, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let outer: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // To a Unix socket connect(2) is done at once, or refused (EAGAIN: its queue is full).
    connect(outer.as_raw_fd(), &UnixAddr::new(path)?)?;
    let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    inner.set_nonblocking(true).map_err(errno)?;
    inner.set_nodelay(true).map_err(errno)?;
    Ok(Connection::new(inner.into(), outer))
}

#[cfg(test)]
mod tests;
