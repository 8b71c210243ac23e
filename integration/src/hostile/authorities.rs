//! What a sessiond can get hold of and pass off as an operator's connection.

use super::Hostile;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

pub(super) struct Authority {
    pub(super) name: &'static str,
    pub(super) connection: Option<OwnedFd>,
}

/// `closed` is that of an operator who has gone.
pub(super) fn all(hostile: &Hostile, closed: &OwnedFd) -> anyhow::Result<Vec<Authority>> {
    let api = hostile.dirs.api_socket();
    // The end that connects: its peer is whoever listens, which is root.
    let connecting = UnixStream::connect(&api)?;
    let (own, _address) = hostile.listener.accept()?;
    let connecting_to_root = UnixStream::connect(hostile.dirs.run.with_file_name("root.sock"))?;
    let packets = super::link::raw(&hostile.dirs.supervisor_socket())?;
    let (pair, other) = UnixStream::pair()?;
    let elsewhere = hostile.dirs.state.join("db/own.sock");
    std::fs::remove_file(&elsewhere).ok();
    let listener = UnixListener::bind(&elsewhere)?;
    let kept_open = UnixStream::connect(&elsewhere)?;
    let (accepted, _address) = listener.accept()?;
    let (pipe, _writer) = std::io::pipe()?;
    // Both ends live as long as we do, so that none of them has hung up.
    std::mem::forget((other, kept_open, _writer));
    let own_listener = hostile.listener.as_fd().try_clone_to_owned()?;
    let given: Vec<(&'static str, OwnedFd)> = vec![
        ("a closed connection", closed.try_clone()?),
        ("its own connection", own.into()),
        ("the connecting end of the API socket", connecting.into()),
        ("the connecting end of a socket of root's", connecting_to_root.into()),
        ("the supervisor's own link", packets.as_fd().try_clone_to_owned()?),
        ("a pair", pair.into()),
        ("a connection to a socket of its own", accepted.into()),
        ("the listener", own_listener),
        ("a pipe", pipe.into()),
        ("a file", File::open("/dev/null")?.into()),
    ];
    let none = Authority { name: "no connection", connection: None };
    let given = given.into_iter();
    let given = given.map(|(name, fd)| Authority { name, connection: Some(fd) });
    std::mem::forget(packets);
    Ok(std::iter::once(none).chain(given).collect())
}
