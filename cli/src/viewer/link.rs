//! The two directions of a viewer stream, each with its own buffer.

use bytes::Bytes;
use std::io;
use tokio::net::UnixStream;
use wire::frame::{Decoder, Frame};

/// One read of the socket.
const READ_BYTES: usize = 128 * 1024;

/// Frames from the broker.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    stream: &'a UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(stream: &'a UnixStream, early: &Bytes) -> Self {
        let mut decoder = Decoder::default();
        decoder.feed(early);
        Self { stream, decoder, buffer: vec![0; READ_BYTES] }
    }

    /// A frame that is here already.
    pub(crate) fn buffered(&mut self) -> io::Result<Option<Frame>> {
        let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.decoder.next_frame().map_err(bad)
    }

    /// The next frame; `None` when the broker's end is closed. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            self.stream.readable().await?;
            match self.stream.try_read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.decoder.feed(self.buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Frames to the broker.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    stream: &'a UnixStream,
    waiting: Vec<u8>,
    written: usize,
}

impl<'a> Outgoing<'a> {
    pub(crate) fn new(stream: &'a UnixStream) -> Self {
        Self { stream, waiting: Vec::new(), written: 0 }
    }

    pub(crate) fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.waiting);
    }

    /// The same, and on its way at once if nothing waits before it: a key.
    pub(crate) fn push_now(&mut self, frame: &Frame) {
        self.push(frame);
        let rest = self.waiting.get(self.written..).unwrap_or_default();
        // Whatever is wrong is met again by the flush.
        self.written += self.stream.try_write(rest).unwrap_or(0);
        if self.waiting() == 0 {
            self.waiting.clear();
            self.written = 0;
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
            let wrote = match self.stream.writable().await {
                Ok(()) => self.stream.try_write(rest),
                Err(error) => Err(error),
            };
            match wrote {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_gone) => break,
            }
        }
        self.waiting.clear();
        self.written = 0;
    }
}
