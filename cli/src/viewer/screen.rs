//! A program with a terminal, on the operator's terminal.

use super::echo::Echo;
use super::keys::{DetachKeys, Matcher, PATIENCE, Wish};
use super::stdio::{Input, Output};
use super::stream::{Incoming, Outgoing};
use super::{Ending, Ends, Viewer, after, ending, until};
use crate::terminal::{self, Raw};
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use wire::Role;
use wire::frame::{Close, CloseReason, Frame, Hello, Others, RoleChange};

/// Input that may wait for the broker before no more is read from the keyboard.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Output that is taken together into one write.
const PAINT_BYTES: usize = 256 * 1024;
/// A burst of size changes becomes its last one.
const RESIZE: Duration = Duration::from_millis(20);
/// The echo of a key is waited for awake so long: to be woken for it takes as long as the echo.
const ECHO: Duration = Duration::from_micros(300);
/// How long a broker may take to say that we are detached.
const GOODBYE: Duration = Duration::from_millis(500);

pub(super) async fn view(
    viewer: &Viewer<'_>,
    incoming: Incoming,
    outgoing: Outgoing,
    hello: &Hello,
    raw: Raw,
    ends: &mut Ends,
) -> io::Result<Ending> {
    let mut screen = Screen {
        viewer,
        incoming,
        outgoing,
        output: Output::stdout()?,
        input: Input::stdin(),
        input_ended: false,
        keys: Matcher::new(viewer.keys.as_ref()),
        echo: Echo::default(),
        release_at: None,
        resize_at: None,
        role: hello.role,
        others: None,
        painted: false,
        raw,
    };
    let ending = screen.run(ends).await;
    screen.leave(&ending);
    ending
}

struct Screen<'a> {
    viewer: &'a Viewer<'a>,
    incoming: Incoming,
    outgoing: Outgoing,
    output: Output,
    input: Input,
    input_ended: bool,
    keys: Matcher,
    echo: Echo,
    /// When the program gets a held key.
    release_at: Option<Instant>,
    resize_at: Option<Instant>,
    role: Role,
    others: Option<Others>,
    /// A whole screen was drawn, so that the cursor may be anywhere.
    painted: bool,
    raw: Raw,
}

impl Screen<'_> {
    async fn run(&mut self, ends: &mut Ends) -> io::Result<Ending> {
        let mut resized = signal(SignalKind::window_change())?;
        loop {
            let reads_keys = !self.input_ended && self.outgoing.waiting() < INPUT_BYTES_MAX;
            tokio::select! {
                frame = self.incoming.next(), if self.output.is_empty() => {
                    let Some(frame) = frame? else { return Ok(Ending::Lost) };
                    if let Some(ending) = self.show(frame)? {
                        self.paint_rest(ends).await?;
                        return Ok(ending);
                    }
                }
                done = self.output.flush(), if !self.output.is_empty() => done?,
                typed = self.input.read(INPUT_BYTES_MAX), if reads_keys => {
                    let typed = typed?;
                    if self.typed(&typed) {
                        return self.detach(ends).await;
                    }
                    if let Some(ending) = self.show_echo(typed.len())? {
                        self.paint_rest(ends).await?;
                        return Ok(ending);
                    }
                }
                () = self.outgoing.flush(), if self.outgoing.waiting() > 0 => {}
                _ = resized.recv() => self.resize_at = self.resize_at.or(after(RESIZE)),
                () = until(self.resize_at), if self.resize_at.is_some() => self.resize(),
                () = until(self.release_at), if self.release_at.is_some() => {
                    self.release_at = None;
                    let held = self.keys.release();
                    self.send(held);
                }
                signal = ends.next() => match (self.viewer.is_runner, signal) {
                    // Typed while the program was being started, or sent to us for it.
                    (true, libc::SIGINT | libc::SIGQUIT) => self.viewer.pass_on_end(signal),
                    _other => return Ok(Ending::Signalled(signal)),
                },
            }
        }
    }

    /// What a key does to the screen, if the program is quick.
    fn show_echo(&mut self, typed: usize) -> io::Result<Option<Ending>> {
        let is_sent =
            self.role == Role::Writer && !self.keys.holds() && self.outgoing.waiting() == 0;
        if !is_sent || !self.output.is_empty() || !self.echo.is_expected(typed) {
            return Ok(None);
        }
        let came = self.incoming.comes_within(ECHO);
        self.echo.learn(came);
        match self.incoming.buffered()? {
            Some(frame) => self.show(frame),
            None => Ok(None),
        }
    }

    /// Written at once as far as it goes, without another look around.
    fn show(&mut self, frame: Frame) -> io::Result<Option<Ending>> {
        let ending = self.take_all(frame)?;
        self.output.write_now();
        Ok(ending)
    }

    /// This frame and those that came with it, as far as one write should go.
    fn take_all(&mut self, first: Frame) -> io::Result<Option<Ending>> {
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(frame) = next {
            if let Some(ending) = self.take(frame, &mut bytes) {
                return Ok(Some(ending));
            }
            next = if bytes < PAINT_BYTES { self.incoming.buffered()? } else { None };
        }
        Ok(None)
    }

    fn take(&mut self, frame: Frame, taken: &mut usize) -> Option<Ending> {
        match frame {
            Frame::Output { bytes, .. } | Frame::History(bytes) => {
                self.viewer.heard(&bytes);
                self.paint(&bytes, taken);
            }
            Frame::Snapshot { bytes, .. } => {
                self.painted = true;
                self.paint(&bytes, taken);
            }
            // A terminal that turned out to be pipes would be a different hello.
            Frame::Out(bytes) | Frame::Err(bytes) => self.paint(&bytes, taken),
            Frame::Bell => self.paint(b"\x07", taken),
            Frame::Still(still) => self.stillness_changed(still, taken),
            Frame::Others(others) => self.others_changed(others, taken),
            Frame::Role(change) => self.role_changed(change.role, change.by, taken),
            Frame::Ping => self.outgoing.push(&Frame::Pong),
            Frame::Close(close) => return Some(ending(close)),
            // A snapshot follows throttling; titles come in the output itself, too.
            Frame::Throttled { .. }
            | Frame::Title(_)
            | Frame::Gap { .. }
            | Frame::Resize(_)
            | Frame::Hello(_)
            | Frame::Pong
            | Frame::Ack(_)
            | Frame::Input(_)
            | Frame::Stdin(_)
            | Frame::StdinEof => {}
        }
        None
    }

    fn paint(&mut self, bytes: &[u8], taken: &mut usize) {
        *taken += bytes.len();
        self.raw.modes.feed(bytes);
        self.output.push(bytes);
    }

    /// Told in the terminal's title line, where it harms no program's screen.
    fn role_changed(&mut self, role: Role, by: Option<String>, taken: &mut usize) {
        if role == self.role {
            return;
        }
        self.role = role;
        // Nobody else is named where it was our own wish.
        let was_wished = by.is_none();
        let by =
            by.map_or_else(|| "another viewer".to_owned(), |name| crate::escape::escape(&name));
        let text = match role {
            Role::Observer if was_wished => "mews: you have let go of the keyboard".to_owned(),
            Role::Observer => format!("mews: {by} has taken the keyboard; you watch"),
            Role::Writer => "mews: you have the keyboard".to_owned(),
        };
        let text = match (role, self.keyboard_keys()) {
            (Role::Observer, Some(keys)) => format!("{text}; {keys} takes it back"),
            _other => text,
        };
        self.paint(format!("\x07\x1b]2;{text}\x1b\\").as_bytes(), taken);
        if role == Role::Writer {
            // The terminal takes our size now.
            self.resize_at = after(Duration::ZERO);
        }
    }

    fn keyboard_keys(&self) -> Option<String> {
        self.viewer.keys.as_ref().and_then(DetachKeys::keyboard_name)
    }

    /// Told where [`Self::role_changed`] tells, without its bell.
    fn others_changed(&mut self, others: Others, taken: &mut usize) {
        // That nobody else is here is no news to who came first.
        let words = super::others::changed(
            self.others.as_ref(),
            &others,
            self.role,
            self.keyboard_keys().as_deref(),
        );
        self.others = Some(others);
        if let Some(words) = words {
            self.paint(format!("\x1b]2;mews: {words}\x1b\\").as_bytes(), taken);
        }
    }

    /// Told where [`Self::role_changed`] tells.
    fn stillness_changed(&mut self, still: bool, taken: &mut usize) {
        let name = crate::escape::escape(&self.viewer.name);
        let text = if still {
            format!("mews: paused; keys wait until: mews resume {name}")
        } else {
            format!("mews: {name} goes on")
        };
        self.paint(format!("\x07\x1b]2;{text}\x1b\\").as_bytes(), taken);
    }

    /// Whether the detach keys were typed.
    fn typed(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            // The terminal is hung up; SIGHUP follows.
            self.input_ended = true;
            return true;
        }
        let mut rest = bytes.to_vec();
        let mut detach = false;
        while !rest.is_empty() && !detach {
            let typed = self.keys.feed(&rest);
            self.send(typed.bytes);
            match typed.wish {
                Some(Wish::Keyboard) => self.wish_keyboard(),
                Some(Wish::Detach) => detach = true,
                None => {}
            }
            rest = typed.rest;
        }
        self.release_at = if self.keys.holds() { after(PATIENCE) } else { None };
        detach
    }

    /// The broker answers with the role that it comes to.
    fn wish_keyboard(&mut self) {
        let role = match self.role {
            Role::Observer => Role::Writer,
            Role::Writer => Role::Observer,
        };
        self.outgoing.push_now(&Frame::Role(RoleChange { role, by: None }));
    }

    fn send(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() && self.role == Role::Writer {
            self.outgoing.push_now(&Frame::Input(bytes));
        }
    }

    fn resize(&mut self) {
        self.resize_at = None;
        if let Some(size) = terminal::size()
            && self.role == Role::Writer
        {
            self.outgoing.push(&Frame::Resize(size));
        }
    }

    /// Says goodbye, so that nothing that was typed before is lost, and waits for the answer.
    async fn detach(&mut self, ends: &mut Ends) -> io::Result<Ending> {
        self.outgoing.push(&Frame::Close(Close { reason: CloseReason::Detached, exit: None }));
        let deadline = after(GOODBYE);
        loop {
            tokio::select! {
                frame = self.incoming.next() => match frame? {
                    Some(Frame::Close(close)) => return Ok(ending(close)),
                    Some(_late) => {}
                    None => return Ok(Ending::Detached),
                },
                () = self.outgoing.flush(), if self.outgoing.waiting() > 0 => {}
                () = until(deadline) => return Ok(Ending::Detached),
                signal = ends.next() => return Ok(Ending::Signalled(signal)),
            }
        }
    }

    /// What the program has said last, before the way out.
    async fn paint_rest(&mut self, ends: &mut Ends) -> io::Result<()> {
        tokio::select! {
            done = self.output.flush() => done,
            _signal = ends.next() => Ok(()),
        }
    }

    /// Below whatever is drawn, so that the shell's prompt does not write into it. The modes are
    /// undone when `raw` is dropped, right after this.
    fn leave(&mut self, ending: &io::Result<Ending>) {
        let is_over = matches!(ending, Ok(Ending::Exited(_)));
        if self.raw.modes.is_alternate() || is_over {
            return;
        }
        let below: &[u8] = if self.painted { b"\x1b[999;1H\r\n" } else { b"\r\n" };
        terminal::write_soon(below);
    }
}
