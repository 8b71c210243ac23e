//! The zygote: puts the walls up around itself once, then forks a leader per command.
//!
//! All payloads so stand in one Landlock domain: one command can signal what another started, and
//! none pays for the walls again. It gets the broker's own orders (`go`, `exec`), passed on by pid 1
//! with the descriptors that belong to them.

use crate::init::forward;
use crate::init::leader::{Command, lead};
use crate::init::payload::{Stdio, tell};
use crate::init::report::{Record, Step, Word};
use crate::init::walls;
use crate::orders::{Order, Program, open_order};
use crate::sys::{self, inside};
use link::{Packet, Packets};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Where the zygote keeps the socket that orders come from. Leaders close it, so that orders which a
/// killed zygote did not read end with it.
const ORDERS: i32 = 3;
/// The socket to speak on, shared with the leaders. Everything above is closed.
const WORDS: i32 = 4;

/// Runs in a fork of pid 1, and never returns into its frames.
pub(crate) fn serve(
    program: &Program,
    filter: Option<&[u8]>,
    orders: &Packets,
    words: &Packets,
    replaced: bool,
) -> ! {
    nix::sys::prctl::set_name(c"mews-zygote").ok();
    // Leaders are reaped by the kernel; those who need to wait set it back.
    inside::set_disposition(libc::SIGCHLD, true);
    let (orders, words) = match settle(orders, words) {
        Ok(links) => links,
        Err(_error) => sys::exit_now(1),
    };
    let word = match walls::raise(program, filter) {
        Ok(attestation) => Word::Attested(attestation),
        Err(error) => Word::Failed { wall: error.wall.to_owned(), message: error.message },
    };
    let up = matches!(word, Word::Attested(_));
    if say(&words, &word).is_ok() && up {
        // Until pid 1 is gone, and with it everything.
        while let Ok(Some(packet)) = orders.recv() {
            obey(&words, program, replaced, packet);
        }
    }
    sys::exit_now(1)
}

/// Own standard descriptors (the broker's error pipe is not for payloads' relatives), the sockets at
/// their places, and nothing else.
fn settle(orders: &Packets, words: &Packets) -> io::Result<(Packets, Packets)> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for number in 0..3 {
        inside::put_at(null.as_fd(), number, true)?;
    }
    // Copies, so that the first does not overwrite the second.
    let high = [orders.as_fd().try_clone_to_owned()?, words.as_fd().try_clone_to_owned()?];
    for (fd, number) in high.iter().zip([ORDERS, WORDS]) {
        inside::put_at(fd.as_fd(), number, true)?;
    }
    inside::close_from(WORDS.unsigned_abs() + 1)?;
    // Their descriptors are closed, or overwritten, already.
    std::mem::forget((null, high));
    Ok((Packets::from_fd(sys::own(ORDERS)), Packets::from_fd(sys::own(WORDS))))
}

fn say(words: &Packets, word: &Word) -> io::Result<()> {
    let bytes = serde_json::to_vec(word)?;
    words.send(&bytes, &[]).map_err(io::Error::other)
}

fn obey(words: &Packets, program: &Program, replaced: bool, packet: Packet) {
    match open_order(packet) {
        Ok((Order::Exec { id, argv, env, cwd, umask, tty }, mut fds)) => {
            if fds.is_empty() {
                return;
            }
            let report = fds.remove(0);
            let command = Command { id, argv, env, cwd, umask };
            match stdio_from(tty.is_some(), fds) {
                Some(stdio) => fork_leader(words, command, stdio, report),
                None => tell(&report, Record::Failed { step: Step::Session, errno: libc::EBADF }),
            }
        }
        Ok((Order::Go, _none)) => {
            let word = match forward::start(&program.forwarders, replaced) {
                Ok(pids) => Word::Forwarding(pids),
                // The payloads did without for a moment; an end of the cage would be worse.
                Err(_error) if replaced => Word::Forwarding(Vec::new()),
                Err(error) => {
                    Word::Failed { wall: "forwarder".to_owned(), message: error.to_string() }
                }
            };
            drop(say(words, &word));
        }
        // Pid 1 passes nothing else on, and nothing that it could not read.
        Ok((
            Order::Program(_)
            | Order::Signal { .. }
            | Order::Suspend { .. }
            | Order::Resume
            | Order::InMemfd,
            _,
        ))
        | Err(_) => {}
    }
}

fn stdio_from(terminal: bool, fds: Vec<OwnedFd>) -> Option<Stdio> {
    if terminal {
        fds.into_iter().next().map(Stdio::Terminal)
    } else {
        <[OwnedFd; 3]>::try_from(fds).ok().map(Stdio::Pipes)
    }
}

fn fork_leader(words: &Packets, command: Command, stdio: Stdio, report: OwnedFd) {
    match sys::fork() {
        Ok(None) => {
            inside::close_number(ORDERS);
            lead(words, command, stdio, report)
        }
        Ok(Some(_leader)) => {}
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            tell(&report, Record::Failed { step: Step::Fork, errno });
        }
    }
}
