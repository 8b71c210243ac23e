//! One attached client: its socket, its role, what it sends and what waits for it.
//!
//! Knows nothing of terminals; [`crowd::Crowd`] keeps the viewers of one terminal together.

pub mod crowd;
pub mod outbox;
pub mod roles;

use link::{Duplex, Peer};
use nix::errno::Errno;
use nix::sys::uio::writev;
use nix::unistd::read;
use outbox::Outbox;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use wire::frame::{Close, Decoder, Frame};
use wire::{AttachOptions, Role, Size};

/// Of a viewer's name: it goes into events and hellos.
const NAME_CHARS_MAX: usize = 100;
/// Read at once from a viewer, in bytes.
const READ_BYTES: usize = 16 * 1024;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one socket")]
pub struct Viewer {
    pub id: u64,
    pub options: AttachOptions,
    pub role: Role,
    /// Which take-over it lost the keyboard by, if it did and has not said since what it wants.
    pub lost_by: Option<u64>,
    pub outbox: Outbox,
    /// Its own size, as last told.
    pub size: Option<Size>,
    /// How far it has pulled: bytes or lines, as its view counts. Lines are counted from the first
    /// of the terminal, those on the screen behind those that have left it.
    pub cursor: u64,
    pub screen_told: ScreenTold,
    /// Said when it has got everything before.
    pub closing: Option<Close>,
    /// Whether it has been put into the outbox.
    pub told_last: bool,
    /// It takes nothing, and more was said to it than may wait.
    pub overwhelmed: bool,
    /// Who else is here has changed since it was told.
    pub others_unsaid: bool,
    /// Whose stream it is, as the kernel tells; none where it has no peer.
    pub uid: Option<u32>,
    socket: Duplex,
    decoder: Decoder,
    /// Readable when it was last looked at, and not read since.
    unread: bool,
    buffer: Box<[u8]>,
}

/// What a viewer of lines was told of those on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenTold {
    Nothing,
    /// Those that were settled at this sequence of the output.
    At(u64),
    /// The last one: the terminal has ended.
    All,
}

/// What a viewer's socket gave.
#[derive(Debug)]
pub enum Incoming {
    Nothing,
    Frame(Frame),
    /// It hung up.
    Gone,
    /// It does not speak the protocol.
    Bad,
}

impl Viewer {
    /// `read`: bytes that were taken from the stream before it was handed down.
    ///
    /// # Errors
    /// Not a descriptor that can be waited on.
    pub fn new(
        id: u64,
        stream: OwnedFd,
        read: &[u8],
        options: AttachOptions,
        outbox: Outbox,
    ) -> io::Result<Self> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        fcntl(&stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut decoder = Decoder::default();
        decoder.feed(read);
        Ok(Self {
            id,
            role: Role::Observer,
            size: options.size.map(Size::clamped),
            options,
            outbox,
            lost_by: None,
            cursor: 0,
            screen_told: ScreenTold::Nothing,
            closing: None,
            told_last: false,
            overwhelmed: false,
            others_unsaid: false,
            uid: Peer::of(&stream).ok().map(|peer| peer.uid),
            socket: Duplex::new(stream)?,
            decoder,
            unread: true,
            buffer: vec![0; READ_BYTES].into(),
        })
    }

    #[must_use]
    pub fn name(&self) -> String {
        if self.options.viewer.is_empty() {
            format!("viewer-{}", self.id)
        } else {
            self.options.viewer.chars().take(NAME_CHARS_MAX).collect()
        }
    }

    /// A control frame, before any output that waits.
    pub fn tell(&mut self, frame: &Frame, now_ms: u64) {
        self.overwhelmed |= !self.outbox.control(frame, now_ms);
    }

    /// Writes what waits until the socket takes no more. Bytes that went.
    ///
    /// # Errors
    /// The viewer is gone.
    pub fn poll_write(&mut self, context: &mut Context<'_>, now_ms: u64) -> io::Result<u64> {
        let mut went = 0;
        while !self.outbox.is_empty() {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.outbox.slices(&mut slices);
            let Poll::Ready(wrote) = self.socket.poll_write(context, |fd| writev(fd, &slices))
            else {
                return Ok(went);
            };
            drop(slices);
            let bytes = wrote?;
            self.outbox.written(bytes, now_ms);
            went += bytes as u64;
        }
        self.socket.wrote_all();
        Ok(went)
    }

    /// The next frame from it. `wanted`: whether what it may send can be taken now; if not, only
    /// its end is noticed.
    pub fn poll_frame(&mut self, context: &mut Context<'_>, wanted: bool) -> Incoming {
        loop {
            if wanted {
                match self.decoder.next_frame() {
                    Ok(Some(frame)) => return Incoming::Frame(frame),
                    Ok(None) => {}
                    Err(_not_ours) => return Incoming::Bad,
                }
                if self.unread {
                    match self.read() {
                        Ok(0) => return Incoming::Gone,
                        Ok(length) => {
                            // Less than there was room for was all; what comes later wakes us.
                            self.unread = length == self.buffer.len();
                            continue;
                        }
                        Err(Errno::EAGAIN) => self.unread = false,
                        Err(Errno::EINTR) => continue,
                        Err(_) => return Incoming::Gone,
                    }
                }
            }
            let mut ready = match self.socket.poll_read_ready(context) {
                Poll::Pending => return Incoming::Nothing,
                Poll::Ready(Err(_)) => return Incoming::Gone,
                Poll::Ready(Ok(ready)) => ready,
            };
            // Both directions closed: what it still had to say has no one to say it for.
            if !wanted && ready.ready().is_write_closed() {
                return Incoming::Gone;
            }
            if !wanted && ready.ready().is_read_closed() {
                self.unread = true;
                return Incoming::Nothing;
            }
            self.unread = true;
            ready.clear_ready();
        }
    }

    fn read(&mut self) -> Result<usize, Errno> {
        let length = read(self.socket.get_ref(), &mut self.buffer)?;
        self.decoder.feed(self.buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}
