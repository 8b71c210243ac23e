//! A command without a terminal: its streams are ours, byte for byte.

use super::stdio::{Input, Output};
use super::stream::{Incoming, Outgoing};
use super::{Ending, Ends, Viewer, after, ending, until};
use std::io;
use std::time::Duration;
use tokio::time::Instant;
use wire::frame::{Frame, Hello, STDIN_WINDOW};

/// A second signal within this time means "at once".
const IMPATIENT: Duration = Duration::from_secs(2);
/// How long a program may go on after nobody reads its output.
const UNHEARD: Duration = Duration::from_secs(2);

pub(super) async fn view(
    viewer: &Viewer<'_>,
    incoming: Incoming,
    outgoing: Outgoing,
    hello: &Hello,
    ends: &mut Ends,
) -> io::Result<Ending> {
    let sends_input = hello.role == wire::Role::Writer;
    let mut pipes = Pipes {
        viewer,
        incoming,
        outgoing,
        stdout: Output::stdout()?,
        stderr: Output::stderr()?,
        input: if sends_input { Input::stdin() } else { Input::closed() },
        input_ended: !sends_input,
        is_terminal: hello.mode == wire::frame::Mode::Terminal,
        sent: 0,
        acknowledged: 0,
        impatient_until: None,
        kill_at: None,
        grace_ends_at: None,
    };
    pipes.run(ends).await
}

struct Pipes<'a> {
    viewer: &'a Viewer<'a>,
    incoming: Incoming,
    outgoing: Outgoing,
    stdout: Output,
    stderr: Output,
    input: Input,
    input_ended: bool,
    /// The other side is a terminal after all (`mews attach ID | cat`): keys, not a stream.
    is_terminal: bool,
    sent: u64,
    acknowledged: u64,
    impatient_until: Option<Instant>,
    /// Nobody reads the output any more; when the program has had its time.
    kill_at: Option<Instant>,
    /// It was told to end, and may take so long.
    grace_ends_at: Option<Instant>,
}

impl Pipes<'_> {
    async fn run(&mut self, ends: &mut Ends) -> io::Result<Ending> {
        loop {
            let shown = self.stdout.is_empty() && self.stderr.is_empty();
            let room = self.room();
            tokio::select! {
                frame = self.incoming.next(), if shown => {
                    let Some(frame) = frame? else { return Ok(Ending::Lost) };
                    if let Some(ending) = self.take_all(frame)? {
                        return self.show_rest(ends).await.map(|()| ending);
                    }
                }
                done = self.stdout.flush(), if !self.stdout.is_empty() => {
                    self.stdout_done(done)?;
                }
                done = self.stderr.flush(), if !self.stderr.is_empty() => {
                    if done.is_err() {
                        self.stderr.discard();
                    }
                }
                bytes = self.input.read(room), if !self.input_ended && room > 0 => {
                    self.send(bytes);
                }
                () = self.outgoing.flush(), if self.outgoing.waiting() > 0 => {}
                () = until(self.kill_at), if self.kill_at.is_some() => {
                    self.kill_at = None;
                    self.kill();
                }
                () = until(self.grace_ends_at), if self.grace_ends_at.is_some() => {
                    self.grace_ends_at = None;
                    self.viewer.say.note("it was told to end and did not; killing it");
                    self.kill();
                }
                signal = ends.next() => {
                    if !self.viewer.is_runner {
                        return Ok(Ending::Signalled(signal));
                    }
                    self.forward(signal);
                }
            }
        }
    }

    fn take_all(&mut self, first: Frame) -> io::Result<Option<Ending>> {
        let mut next = Some(first);
        let mut count = 0;
        while let Some(frame) = next {
            if let Some(ending) = self.take(frame) {
                return Ok(Some(ending));
            }
            count += 1;
            next = if count < 16 { self.incoming.buffered()? } else { None };
        }
        Ok(None)
    }

    fn take(&mut self, frame: Frame) -> Option<Ending> {
        match frame {
            Frame::Out(bytes)
            | Frame::Output { bytes, .. }
            | Frame::History(bytes)
            | Frame::Snapshot { bytes, .. } => {
                self.viewer.heard(&bytes);
                self.stdout.push(&bytes);
            }
            Frame::Err(bytes) => {
                self.viewer.heard(&bytes);
                let merged = self.viewer.recording.is_some_and(|recording| recording.merged);
                if merged { self.stdout.push(&bytes) } else { self.stderr.push(&bytes) }
            }
            Frame::Ack(bytes) => self.acknowledged = bytes,
            Frame::Gap { from, to } => {
                let lost = to.saturating_sub(from);
                self.viewer.say.note(&format!("{lost} bytes of output are not kept any more"));
            }
            Frame::Ping => self.outgoing.push(&Frame::Pong),
            Frame::Close(close) => return Some(ending(close)),
            Frame::Hello(_)
            | Frame::Others(_)
            | Frame::Input(_)
            | Frame::Resize(_)
            | Frame::Role(_)
            | Frame::Throttled { .. }
            | Frame::Pong
            | Frame::Stdin(_)
            | Frame::StdinEof
            | Frame::Title(_)
            | Frame::Still(_)
            | Frame::Bell => {}
        }
        None
    }

    /// How much standard input may be read now.
    fn room(&self) -> usize {
        if self.is_terminal {
            // A terminal acknowledges nothing; the socket pushes back.
            return if self.outgoing.waiting() > 0 { 0 } else { 16 * 1024 };
        }
        let under_way = self.sent.saturating_sub(self.acknowledged);
        usize::try_from(STDIN_WINDOW.saturating_sub(under_way)).unwrap_or(0)
    }

    fn send(&mut self, bytes: io::Result<Vec<u8>>) {
        // Standard input that cannot be read (EIO: the terminal is gone) has ended.
        let bytes = bytes.unwrap_or_default();
        if bytes.is_empty() {
            self.input_ended = true;
            if !self.is_terminal {
                self.outgoing.push(&Frame::StdinEof);
            }
        } else if self.is_terminal {
            self.outgoing.push(&Frame::Input(bytes));
        } else {
            self.sent += bytes.len() as u64;
            self.outgoing.push(&Frame::Stdin(bytes));
        }
    }

    /// As it is for any program whose reader goes away: SIGPIPE; then, if it stays, the end.
    fn stdout_done(&mut self, done: io::Result<()>) -> io::Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.viewer.is_runner => {
                self.stdout.discard();
                if self.kill_at.is_none() {
                    self.kill_at = after(UNHEARD);
                    self.viewer.pass_on(libc::SIGPIPE);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn forward(&mut self, signal: i32) {
        let now = Instant::now();
        if self.impatient_until.is_some_and(|until| now < until) {
            self.viewer.say.note("killing it");
            self.kill();
        } else {
            self.viewer.pass_on_end(signal);
            let grace = self.viewer.recording.and_then(|recording| recording.grace);
            self.grace_ends_at = self.grace_ends_at.or(grace.map(|grace| now + grace));
        }
        self.impatient_until = Some(now + IMPATIENT);
    }

    fn kill(&self) {
        let control = self.viewer.control.clone();
        tokio::spawn(async move { control.kill().await });
    }

    async fn show_rest(&mut self, ends: &mut Ends) -> io::Result<()> {
        let all = async {
            let done = self.stdout.flush().await;
            // Standard error that is closed takes nothing with it.
            drop(self.stderr.flush().await);
            match done {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                other => other,
            }
        };
        tokio::select! {
            done = all => done,
            _signal = ends.next() => Ok(()),
        }
    }
}
