//! SIGTERM, SIGINT and SIGHUP as something to wait for.

use std::io;
use std::os::unix::net::UnixStream;
use tokio::io::AsyncReadExt;

#[derive(Debug)]
pub(crate) struct Signals {
    stream: tokio::net::UnixStream,
}

impl Signals {
    /// From here on these signals no longer end the process.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn register() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
        }
        ours.set_nonblocking(true)?;
        Ok(Self { stream: tokio::net::UnixStream::from_std(ours)? })
    }

    /// Returns when one has come.
    pub(crate) async fn any(&mut self) {
        let mut byte = [0];
        // The other end is held by the handlers for ever.
        let _one = self.stream.read(&mut byte).await;
    }
}
