//! `<run>/supervisor.sock`: who may connect, and one link for each that does.

use crate::host::Mode;
use crate::supervisor::Supervisor;
use crate::upstream;
use link::{Listener, Packets, Peer};
use nix::unistd::{Gid, Uid, chown};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Binds the socket: of sessiond's uid, 0600.
pub(crate) fn bind(supervisor: &Supervisor) -> io::Result<Listener> {
    let path = supervisor.host.dirs.supervisor_socket();
    let listener = Listener::bind(&path, 0o600)?;
    let ids = supervisor.host.sessiond;
    chown(&path, Some(Uid::from_raw(ids.uid)), Some(Gid::from_raw(ids.gid)))?;
    Ok(listener)
}

/// Accepts until the supervisor ends.
pub(crate) async fn run(listener: Listener, supervisor: Rc<Supervisor>) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(&listener, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let watched = link::nonblocking::watch_input(listener.as_fd().try_clone_to_owned()?)?;
    let mut exhausted = false;
    loop {
        let mut ready = watched.readable().await?;
        match listener.accept() {
            Ok(packets) => {
                exhausted = false;
                welcome(packets, &supervisor);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EMFILE, ENOMEM: the peer waits in the backlog.
            Err(error) => {
                if !std::mem::replace(&mut exhausted, true) {
                    tracing::error!(%error, "accept; it is tried again until it works");
                }
                tokio::time::sleep(link::nonblocking::EXHAUSTED_PAUSE).await;
            }
        }
    }
}

fn welcome(packets: Packets, supervisor: &Rc<Supervisor>) {
    let pid = match Peer::of(&packets) {
        Ok(peer) if may_connect(supervisor, peer.uid) => peer.pid,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid, pid = peer.pid, "a stranger at the supervisor's socket");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "a peer without a name");
            return;
        }
    };
    let supervisor = Rc::clone(supervisor);
    tokio::task::spawn_local(async move {
        match upstream::serve(packets, Some(pid), supervisor).await {
            Ok(()) => tracing::debug!("a link ended"),
            Err(error) => tracing::warn!(%error, "a link was closed"),
        }
    });
}

fn may_connect(supervisor: &Supervisor, uid: u32) -> bool {
    let own = match supervisor.host.mode {
        Mode::Root(_) => supervisor.host.sessiond.uid,
        Mode::User => supervisor.host.uid,
    };
    uid == 0 || uid == own
}

/// The API socket for sessiond: everybody may connect to root's, who they are is read from it.
pub(crate) fn bind_api(supervisor: &Supervisor) -> io::Result<OwnedFd> {
    let mode = if supervisor.host.is_root() { 0o666 } else { 0o600 };
    let path = supervisor.host.dirs.api_socket();
    link::packet::bind_socket(&path, mode, nix::sys::socket::SockType::Stream)
}
