//! The attach client: the operator's terminal or standard streams on one side, a viewer stream of
//! the broker on the other. The same for daemons and for one-shot runs.
//!
//! `screen` has the terminal, `pipes` the streams of a command without one, `follow` only reads.

mod echo;
pub(crate) mod follow;
pub(crate) mod keys;
pub(crate) mod modes;
mod others;
mod pipes;
pub(crate) mod recording;
mod screen;
pub(crate) mod stdio;
mod stream;

use crate::control::Control;
use crate::http::Upgraded;
use crate::out::Say;
use crate::terminal::{self, Raw};
use keys::DetachKeys;
use recording::Recording;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wire::Exit;
use wire::frame::{Close, CloseReason, Frame, Hello, Mode};

/// How a viewing came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(Exit),
    /// The operator left; the program runs on.
    Detached,
    /// This process was told to end by a signal; the program runs on.
    Signalled(i32),
    Closed(CloseReason),
    /// The stream ended without a word: the broker is gone.
    Lost,
}

/// What a viewer does beyond showing bytes.
#[derive(Debug)]
pub(crate) struct Viewer<'a> {
    pub(crate) say: &'a Say,
    pub(crate) control: Control,
    pub(crate) keys: Option<DetachKeys>,
    /// What to come back to.
    pub(crate) name: String,
    /// This viewer is the runner: its signals are the program's, its closed output ends it.
    pub(crate) is_runner: bool,
    /// Say first how to leave.
    pub(crate) banner: bool,
    /// What is kept of it for a report.
    pub(crate) recording: Option<&'a Recording>,
}

impl Viewer<'_> {
    pub(crate) async fn view(&self, upgraded: Upgraded, ends: &mut Ends) -> io::Result<Ending> {
        let Upgraded { stream, early, resolved: _ } = upgraded;
        let (mut incoming, outgoing) = stream::split(stream, &early)?;
        let hello = match incoming.next().await? {
            Some(Frame::Hello(hello)) => hello,
            Some(Frame::Close(close)) => return Ok(ending(close)),
            Some(_other) => return Err(io::Error::other("the broker did not say hello")),
            None => return Ok(Ending::Lost),
        };
        match hello.mode {
            Mode::Terminal if terminal::is_interactive() => {
                // Whoever reads these words may type at once.
                let raw = Raw::keys()?;
                self.tell(&hello);
                raw.output()?;
                screen::view(self, incoming, outgoing, &hello, raw, ends).await
            }
            Mode::Terminal | Mode::Pipes => {
                pipes::view(self, incoming, outgoing, &hello, ends).await
            }
        }
    }

    fn heard(&self, bytes: &[u8]) {
        if let Some(recording) = self.recording {
            recording.heard(bytes);
        }
    }

    /// A signal that tells the program to end.
    fn pass_on_end(&self, signal: i32) {
        if let Some(recording) = self.recording {
            recording.told(signal);
        }
        self.pass_on(signal);
    }

    fn pass_on(&self, signal: i32) {
        let control = self.control.clone();
        // A program that has ended meanwhile needs no signal.
        tokio::spawn(async move { control.signal(signal).await });
    }

    fn tell(&self, hello: &Hello) {
        if !self.banner {
            return;
        }
        let leave = match &self.keys {
            Some(keys) => format!("leave it with {}", keys.name()),
            None => "no key leaves it".to_owned(),
        };
        self.say.dim(&format!("[mews: {}; {leave}]", self.name));
        if hello.role == wire::Role::Observer {
            let takes = self.keys.as_ref().and_then(DetachKeys::keyboard_name);
            let takes = takes.unwrap_or_else(|| format!("mews attach --take {}", self.name));
            // An older broker says who is here, and not which of them writes.
            let who = match (&hello.writer, hello.others.as_slice()) {
                (Some(writer), _) => format!("{} has the keyboard", crate::escape::escape(writer)),
                (None, [one]) => format!("{} is here too", crate::escape::escape(one)),
                (None, []) => "nobody has the keyboard".to_owned(),
                (None, more) => format!("{} others are here", more.len()),
            };
            self.say.dim(&format!("[you watch: {who}; {takes} takes it]"));
        } else if let Some(one) = hello.others.first() {
            let more = match hello.others.len() {
                1 => String::new(),
                more => format!(" and {} more", more - 1),
            };
            self.say.dim(&format!("[also here: {}{more}]", crate::escape::escape(one)));
        }
    }
}

fn ending(close: Close) -> Ending {
    match (close.reason, close.exit) {
        (CloseReason::Exited | CloseReason::SessionEnded, Some(exit)) => Ending::Exited(exit),
        (CloseReason::Detached, _) => Ending::Detached,
        (reason, _) => Ending::Closed(reason),
    }
}

/// The signals that end a program unless it asks for them. Made before anything is started, so
/// that none of them leaves something behind.
#[derive(Debug)]
pub(crate) struct Ends(mpsc::UnboundedReceiver<i32>);

impl Ends {
    /// Listens in a task of its own: with every key a viewer asks whether there was a signal.
    pub(crate) fn new() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut quit = signal(SignalKind::quit())?;
        let (sender, signals) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => libc::SIGINT,
                    _ = terminate.recv() => libc::SIGTERM,
                    _ = hangup.recv() => libc::SIGHUP,
                    _ = quit.recv() => libc::SIGQUIT,
                };
                if sender.send(signal).is_err() {
                    return;
                }
            }
        });
        Ok(Self(signals))
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            // The task lives as long as the runtime.
            None => std::future::pending().await,
        }
    }
}

/// Does some work to its end, however often it is told to end meanwhile but once; the signal comes
/// with the result. The second one ends the work: `Err`.
pub(crate) async fn undisturbed<T>(
    work: impl Future<Output = T>,
    ends: &mut Ends,
) -> Result<(T, Option<i32>), i32> {
    let mut work = std::pin::pin!(work);
    let signal = tokio::select! {
        done = &mut work => return Ok((done, None)),
        signal = ends.next() => signal,
    };
    tokio::select! {
        done = &mut work => Ok((done, Some(signal))),
        second = ends.next() => Err(second),
    }
}

/// Until a deadline that may not be set.
async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn after(time: Duration) -> Option<tokio::time::Instant> {
    Some(tokio::time::Instant::now() + time)
}
