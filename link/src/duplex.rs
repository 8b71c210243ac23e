//! Descriptors that wait for room only while there is none: [`Duplex`] is read too.
//!
//! Watched for room at all times, they would wake their owner whenever the other side has taken a
//! byte: with every key, at the moment when the other side needs the processor.

use crate::nonblocking::{watch_input, watch_room};
use nix::errno::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A duplicate, from the first write that found no room until nothing waits any more.
type Room = Option<AsyncFd<OwnedFd>>;

/// A descriptor that is read and written.
#[derive(Debug)]
pub struct Duplex {
    input: AsyncFd<OwnedFd>,
    room: Room,
}

/// A descriptor that is only written.
#[derive(Debug)]
pub struct Outlet {
    fd: OwnedFd,
    room: Room,
}

impl Duplex {
    /// The descriptor must not block.
    ///
    /// # Errors
    /// Called outside a runtime, or the descriptor cannot be polled.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: watch_input(fd)?, room: None })
    }

    #[must_use]
    pub fn get_ref(&self) -> &OwnedFd {
        self.input.get_ref()
    }

    /// As [`AsyncFd::poll_read_ready`].
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn poll_read_ready<'a>(
        &'a self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, OwnedFd>>> {
        self.input.poll_read_ready(context)
    }

    /// Writes once; pending if there is no room.
    ///
    /// # Errors
    /// What `write` says, but for "no room now" and interruptions.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&OwnedFd) -> nix::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        poll_write(self.input.get_ref(), &mut self.room, context, write)
    }

    /// Nothing waits to be written any more.
    pub fn wrote_all(&mut self) {
        self.room = None;
    }
}

impl Outlet {
    /// Writes must not block, by the descriptor's flags or by those of each write.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, room: None }
    }

    #[must_use]
    pub fn get_ref(&self) -> &OwnedFd {
        &self.fd
    }

    /// As [`Duplex::poll_write`].
    ///
    /// # Errors
    /// What `write` says, but for "no room now" and interruptions.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&OwnedFd) -> nix::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.fd, &mut self.room, context, write)
    }

    /// Nothing waits to be written any more.
    pub fn wrote_all(&mut self) {
        self.room = None;
    }
}

fn poll_write(
    fd: &OwnedFd,
    room: &mut Room,
    context: &mut Context<'_>,
    mut write: impl FnMut(&OwnedFd) -> nix::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = match &*room {
            None => None,
            Some(room) => Some(ready!(room.poll_write_ready(context))?),
        };
        match write(fd) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => match &mut guard {
                Some(guard) => guard.clear_ready(),
                None => *room = Some(watch_room(fd.try_clone()?)?),
            },
            other => return Poll::Ready(other.map_err(io::Error::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_write_without_room_goes_on_when_there_is_some() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut ours = Duplex::new(ours.into()).unwrap();
        let piece = [7_u8; 65536];
        let mut full = 0;
        let mut write = |fd: &OwnedFd| nix::unistd::write(fd, &piece);
        while let Poll::Ready(wrote) =
            poll_fn(|context| Poll::Ready(ours.poll_write(context, &mut write))).await
        {
            full += wrote.unwrap();
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all.len()
        });
        let more = poll_fn(|context| ours.poll_write(context, &mut write)).await.unwrap();
        ours.wrote_all();
        drop(ours);
        assert_eq!(reader.join().unwrap(), full + more);
    }
}
