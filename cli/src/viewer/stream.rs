//! The two directions of a viewer stream, each with its own buffer.

use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use wire::frame::{Decoder, Frame};

/// One read of the socket.
const READ_BYTES: usize = 128 * 1024;

/// Frames from the broker, and frames to it; `early` was read of the stream before.
pub(super) fn split(stream: OwnedFd, early: &Bytes) -> io::Result<(Incoming, Outgoing)> {
    let mut decoder = Decoder::default();
    decoder.feed(early);
    let outlet = link::Outlet::new(stream.try_clone()?);
    let stream = link::nonblocking::watch_input(stream)?;
    let incoming = Incoming { stream, decoder, buffer: vec![0; READ_BYTES] };
    Ok((incoming, Outgoing { stream: outlet, waiting: Vec::new(), written: 0 }))
}

#[derive(Debug)]
pub(crate) struct Incoming {
    stream: AsyncFd<OwnedFd>,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Incoming {
    /// A frame that is here already.
    pub(crate) fn buffered(&mut self) -> io::Result<Option<Frame>> {
        let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.decoder.next_frame().map_err(bad)
    }

    /// Whether something more of the broker comes within this time, which is spent awake. What is
    /// wrong is met again by [`Self::next`].
    pub(super) fn comes_within(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            match receive(self.stream.get_ref(), &mut self.buffer, &mut self.decoder) {
                Ok(count) => return count > 0,
                Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < end => {
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
    }

    /// The next frame; `None` when the broker's end is closed. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            let mut ready = self.stream.readable().await?;
            match receive(self.stream.get_ref(), &mut self.buffer, &mut self.decoder) {
                Ok(0) | Err(Errno::ECONNRESET) => return Ok(None),
                // That was all; what comes later wakes us.
                Ok(count) if count < READ_BYTES => ready.clear_ready(),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: link::Outlet,
    waiting: Vec<u8>,
    written: usize,
}

impl Outgoing {
    pub(crate) fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.waiting);
    }

    /// The same, and on its way at once if nothing waits before it: a key.
    pub(crate) fn push_now(&mut self, frame: &Frame) {
        self.push(frame);
        let rest = self.waiting.get(self.written..).unwrap_or_default();
        // Whatever is wrong is met again by the flush.
        self.written += write(self.stream.get_ref(), rest).unwrap_or(0);
        if self.waiting() == 0 {
            self.nothing_waits();
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len().saturating_sub(self.written)
    }

    /// Writes until nothing waits. Cancel-safe. A broker that is gone takes nothing and is noticed
    /// by [`Incoming::next`], after what it has said before.
    pub(crate) async fn flush(&mut self) {
        while self.waiting() > 0 {
            let rest = self.waiting.get(self.written..).unwrap_or_default();
            match poll_fn(|context| self.stream.poll_write(context, |fd| write(fd, rest))).await {
                Ok(count) => self.written += count,
                Err(_gone) => break,
            }
        }
        self.nothing_waits();
    }

    fn nothing_waits(&mut self) {
        self.waiting.clear();
        self.written = 0;
        self.stream.wrote_all();
    }
}

fn receive(stream: &OwnedFd, buffer: &mut [u8], decoder: &mut Decoder) -> nix::Result<usize> {
    let count = recv(stream.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
    decoder.feed(buffer.get(..count).unwrap_or_default());
    Ok(count)
}

fn write(stream: &OwnedFd, bytes: &[u8]) -> nix::Result<usize> {
    send(stream.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
}
