//! Those who wait for something on a terminal or in pipe streams: each has a stream of its own, which
//! gets one answer. Nothing is asked twice: they are looked at when output comes, when the program's
//! turn is over and when a time is up.

use crate::control::Reply;
use crate::scrollback::{LINE_BYTES_MAX, Scrollback};
use crate::terminal::picture::Picture;
use link::nonblocking::watch_input;
use nix::sys::socket::{MsgFlags, recv, send};
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;
use wire::watch::{Met, Pattern, Watch, Watched};
use wire::{ErrorCode, Size, WireError};

/// At once for one terminal.
const WATCHERS_MAX: usize = 32;
/// A watcher that counts from a moment on has a picture of its own, with so many lines.
const OWN_LINES_MAX: usize = 1000;
const OWN_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct Watchers {
    all: Vec<Watcher>,
    /// Output came since the screens were looked at.
    unseen: bool,
}

#[derive(Debug)]
struct Watcher {
    stream: AsyncFd<OwnedFd>,
    pattern: Option<Pattern>,
    idle_ms: Option<u64>,
    /// Nothing counts before so much output.
    after: u64,
    sight: Sight,
}

/// What a watcher looks at.
#[derive(Debug)]
enum Sight {
    /// The terminal's own picture, from this line on.
    Shared { line: u64 },
    /// What was printed since, drawn on an empty screen.
    Own { picture: Box<Picture>, line: u64 },
    /// The open line of pipe streams.
    Plain(Vec<u8>),
}

/// What is there to be looked at.
#[derive(Debug)]
pub struct Scene {
    /// Bytes of output.
    pub seq: u64,
    /// No output and no key for so long; `None`: the program stands still.
    pub quiet_ms: Option<u64>,
    pub ended: bool,
}

impl Watchers {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether somebody wants each line of the terminal's picture.
    #[must_use]
    pub fn share_picture(&self) -> bool {
        self.all.iter().any(|one| matches!(one.sight, Sight::Shared { .. }))
    }

    /// One more. `since`: the output after the sequence that it names, as far as it is kept.
    pub fn join(
        &mut self,
        (watch, stream): (Watch, OwnedFd),
        kind: Kind,
        since: impl FnOnce(u64) -> Vec<u8>,
        reply: Reply,
        now_ms: u64,
    ) {
        if self.all.len() >= WATCHERS_MAX {
            let words = format!("{WATCHERS_MAX} wait for this terminal already");
            return reply.error(WireError::new(ErrorCode::LimitReached, words));
        }
        let pattern = match watch.pattern.as_deref().map(Pattern::new).transpose() {
            Ok(pattern) => pattern,
            Err(error) => return reply.error(error),
        };
        let stream = match watch_input(stream) {
            Ok(stream) => stream,
            Err(error) => {
                let words = format!("the stream for the answer: {error}");
                return reply.error(WireError::new(ErrorCode::BadRequest, words));
            }
        };
        reply.done();
        let sight = match (kind, watch.after) {
            (Kind::Pipes, _) => Sight::Plain(Vec::new()),
            (Kind::Terminal(_), None) => Sight::Shared { line: 0 },
            (Kind::Terminal(size), Some(_)) => {
                let scrollback = Scrollback::new(OWN_LINES_MAX, OWN_BYTES_MAX);
                Sight::Own { picture: Box::new(Picture::new(scrollback, size)), line: 0 }
            }
        };
        let after = watch.after.unwrap_or(0);
        let mut one = Watcher { stream, pattern, idle_ms: watch.idle_ms, after, sight };
        if !matches!(one.sight, Sight::Shared { .. })
            && let Some((line, seq)) = one.take(&since(after), after, now_ms)
        {
            return one.answer(Met::For, Some(line), seq);
        }
        self.unseen = true;
        self.all.push(one);
    }

    /// Output, with the sequence of its first byte.
    pub fn output(&mut self, chunk: &[u8], seq: u64, now_ms: u64) {
        self.unseen |= !self.all.is_empty();
        self.drop_where(|one| {
            // One that waits for what is to come later than this.
            let skip = usize::try_from(one.after.saturating_sub(seq)).unwrap_or(usize::MAX);
            let chunk = chunk.get(skip..).unwrap_or_default();
            let found = one.take(chunk, seq + skip as u64, now_ms);
            found.map(|(line, seq)| (Met::For, Some(line), seq))
        });
    }

    /// Lines that have left the screen since. Called before more than are kept have followed them.
    pub fn lines(&mut self, scrollback: &Scrollback, seq: u64) {
        self.drop_where(|one| {
            let Sight::Shared { line } = &mut one.sight else { return None };
            let found = in_lines(one.pattern.as_ref()?, scrollback, line);
            found.map(|text| (Met::For, Some(text), seq))
        });
    }

    /// Looks at the screens if anything has changed, and at the time.
    pub fn look(&mut self, picture: Option<&mut Picture>, scene: &Scene) {
        if self.all.is_empty() {
            return;
        }
        if std::mem::take(&mut self.unseen) {
            self.look_at_screens(picture, scene.seq);
        }
        self.drop_where(|one| {
            let printed = scene.seq > one.after || one.after == 0;
            let idle = one.idle_ms.zip(scene.quiet_ms).is_some_and(|(idle, quiet)| quiet >= idle);
            if scene.ended {
                return Some((Met::Ended, None, scene.seq));
            }
            (idle && printed).then_some((Met::Idle, None, scene.seq))
        });
    }

    fn look_at_screens(&mut self, mut picture: Option<&mut Picture>, seq: u64) {
        if let Some(picture) = picture.as_deref_mut() {
            self.lines(picture.scrollback(), seq);
        }
        let shared = if self.share_picture() { picture.map(Picture::shown_lines) } else { None };
        let shared = shared.unwrap_or_default();
        self.drop_where(|one| {
            let pattern = one.pattern.as_ref()?;
            let found = match &mut one.sight {
                Sight::Shared { .. } => shared.iter().find_map(|line| pattern.find(line)),
                Sight::Own { picture, .. } => {
                    picture.shown_lines().iter().find_map(|line| pattern.find(line))
                }
                Sight::Plain(open) => pattern.find(open),
            };
            found.map(|line| (Met::For, Some(line), seq))
        });
    }

    /// When the next time is up, if nothing moves: `quiet_since_ms` as [`Scene::quiet_ms`] has it.
    #[must_use]
    pub fn deadline_ms(&self, quiet_since_ms: u64, seq: u64) -> Option<u64> {
        let may = self.all.iter().filter(|one| seq > one.after || one.after == 0);
        may.filter_map(|one| one.idle_ms).min().map(|idle| quiet_since_ms.saturating_add(idle))
    }

    /// Who has gone away waits no more.
    pub fn poll_gone(&mut self, context: &mut Context<'_>) {
        self.all.retain(|one| !one.is_gone(context));
    }

    fn drop_where(
        &mut self,
        mut met: impl FnMut(&mut Watcher) -> Option<(Met, Option<String>, u64)>,
    ) {
        let mut index = 0;
        while let Some(one) = self.all.get_mut(index) {
            match met(one) {
                Some((met, line, seq)) => self.all.remove(index).answer(met, line, seq),
                None => index += 1,
            }
        }
    }
}

/// What is watched.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Terminal(Size),
    Pipes,
}

impl Watcher {
    /// Output for its own sight. The line that matches, and where that was.
    fn take(&mut self, chunk: &[u8], seq: u64, now_ms: u64) -> Option<(String, u64)> {
        let pattern = self.pattern.as_ref()?;
        let end = seq + chunk.len() as u64;
        let found = match &mut self.sight {
            Sight::Shared { .. } => None,
            Sight::Own { picture, line } => {
                // No more lines at once than its scrollback keeps.
                chunk.chunks(OWN_LINES_MAX).find_map(|piece| {
                    picture.output(piece, now_ms);
                    in_lines(pattern, picture.scrollback(), line)
                })
            }
            Sight::Plain(open) => in_text(pattern, open, chunk),
        };
        found.map(|line| (line, end))
    }

    /// Smaller than any socket's buffer: written at once. Who is gone wants no answer.
    fn answer(self, met: Met, line: Option<String>, seq: u64) {
        let text = serde_json::to_vec(&Watched { met, line, seq }).unwrap_or_default();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _gone = send(self.stream.get_ref().as_raw_fd(), &text, flags);
    }

    fn is_gone(&self, context: &mut Context<'_>) -> bool {
        loop {
            let mut ready = match self.stream.poll_read_ready(context) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(ready)) => ready,
            };
            let mut byte = [0_u8; 64];
            match recv(self.stream.get_ref().as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return true,
                // Nothing is expected of it.
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
                Err(_) => return true,
            }
        }
    }
}

fn in_lines(pattern: &Pattern, scrollback: &Scrollback, line: &mut u64) -> Option<String> {
    let total = scrollback.lines_total();
    let missing = usize::try_from(total.saturating_sub(*line)).unwrap_or(usize::MAX);
    *line = total;
    scrollback.last(missing).find_map(|line| pattern.find(line))
}

/// Whole lines; what is behind the last of them stays in `open`.
fn in_text(pattern: &Pattern, open: &mut Vec<u8>, chunk: &[u8]) -> Option<String> {
    let mut pieces = chunk.split_inclusive(|byte| *byte == b'\n');
    pieces.find_map(|piece| {
        open.extend_from_slice(piece);
        if !piece.ends_with(b"\n") {
            let surplus = open.len().saturating_sub(LINE_BYTES_MAX);
            open.drain(..surplus);
            return None;
        }
        open.pop();
        let found = pattern.find(open);
        open.clear();
        found
    })
}
