//! SIGTERM, SIGINT and SIGHUP as something to wait for.

use std::io;
use std::os::unix::net::UnixStream;
use tokio::io::AsyncReadExt;

#[derive(Debug)]
pub(crate) struct Signals {
    end: tokio::net::UnixStream,
    hangup: tokio::net::UnixStream,
}

/// What they ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    End,
    /// SIGHUP: to read the configuration again, where there is one.
    Reload,
}

impl Signals {
    /// From here on these signals no longer end the process.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self { end: pipe(&[libc::SIGTERM, libc::SIGINT])?, hangup: pipe(&[libc::SIGHUP])? })
    }

    /// Returns when one has come.
    pub(crate) async fn next(&mut self) -> Asked {
        let (mut byte, mut other) = ([0], [0]);
        // The other ends are held by the handlers for ever.
        tokio::select! {
            _one = self.end.read(&mut byte) => Asked::End,
            _one = self.hangup.read(&mut other) => Asked::Reload,
        }
    }
}

fn pipe(signals: &[i32]) -> io::Result<tokio::net::UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    ours.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(ours)
}
