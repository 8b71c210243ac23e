//! A service manager, where there is one: the API's socket from it, and word to it. Without one none
//! of this does anything.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    #[error("the socket that systemd gave: {0}")]
    Take(io::Error),
    #[error(
        "the socket that systemd gave is not {}: set ListenStream= of mews-supervisor.socket to that path, or unset MEWS_RUN_DIR",
        path.display()
    )]
    Another { path: std::path::PathBuf },
    #[error("systemd gave {0} sockets; the API has one")]
    Several(usize),
}

/// The API's listener, if we were started for it. Called before anything else opens descriptors.
///
/// # Errors
/// What was given is not the API's socket.
pub(crate) fn given_socket(path: &Path) -> Result<Option<OwnedFd>, ActivationError> {
    let mut given = listenfd::ListenFd::from_env();
    if given.len() > 1 {
        return Err(ActivationError::Several(given.len()));
    }
    let Some(socket) = given.take_unix_listener(0).map_err(ActivationError::Take)? else {
        return Ok(None);
    };
    let name = link::peer::bound_name(&socket).map_err(ActivationError::Take)?;
    if !name.is_some_and(|name| link::packet::is_bound_to(&name, path)) {
        return Err(ActivationError::Another { path: path.to_owned() });
    }
    // sessiond's runtime expects it so, as of a socket that we bind ourselves.
    socket.set_nonblocking(true).map_err(ActivationError::Take)?;
    Ok(Some(socket.into()))
}

/// Everything answers.
pub(crate) fn say_ready() {
    say(&[sd_notify::NotifyState::Ready]);
}

pub(crate) fn say_stopping() {
    say(&[sd_notify::NotifyState::Stopping]);
}

/// From the event loop that all work is done in: a loop that hangs does not come here.
pub(crate) async fn feed_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| *limit > Duration::ZERO) else {
        return;
    };
    let mut turn = tokio::time::interval(limit / 3);
    loop {
        turn.tick().await;
        say(&[sd_notify::NotifyState::Watchdog]);
    }
}

fn say(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
