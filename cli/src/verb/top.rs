//! `mews top`: what is running, as it runs, with keys to attach, pause and kill.
//!
//! [`feed`] asks the daemons, [`model`] keeps what is known and what the keys mean, [`draw`] shows it,
//! [`screen`] has the terminal and gives it back on every way out.

mod draw;
mod feed;
mod history;
mod keys;
mod model;
mod screen;

use super::attach;
use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::terminal;
use crate::viewer::Ends;
use crate::viewer::stdio::Input;
use feed::{Feed, News};
use model::{Act, Model};
use screen::{Panics, Screen};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wire::SessionId;

/// Keys that are read at once.
const KEYS_BYTES: usize = 256;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: up and down choose, enter attaches (ctrl-\\ ctrl-d comes back here), p pauses and resumes, k kills
after a question, / filters by name or command, s sorts, q leaves. What this host does not count is shown
as -; the graphs are of the last minutes of the chosen one.

It needs a terminal; in scripts: mews stats --json, mews ls --json.

Examples:
  mews top
  mews top build                  only what has this in its name or command")]
pub(crate) struct Args {
    /// Only sessions with this in their name or command
    filter: Option<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    if say.json || !terminal::is_interactive() {
        return Err(Failure::usage("top needs a terminal, and draws no JSON")
            .next("mews stats --json, or mews ls --json"));
    }
    let failed = |error: std::io::Error| Failure::new(format!("the terminal failed: {error}"));
    // Where there is nobody to ask, that is said on the plain screen; who is tired of waiting leaves.
    let first = feed::look(&Api::new()).await?;
    let mut ends = Ends::new().map_err(failed)?;
    // Daemons that somebody stops stay stopped, though this looks for them.
    let api = Arc::new(Api::without_start());
    let mut model = Model::new(args.filter.clone().unwrap_or_default());
    model.learn(first);
    let panics = Panics::kept();
    let status = Top::new(api, model, say).map_err(failed)?.run(&mut ends).await;
    drop(panics);
    status
}

struct Top<'a> {
    say: &'a Say,
    api: Arc<Api>,
    model: Model,
    feed: Feed,
    news: mpsc::Receiver<News>,
    input: Input,
    /// None while an attached program has the terminal.
    screen: Option<Screen>,
}

/// What is to be done next.
enum Turn {
    Go,
    Leave(u8),
    Attach(String),
}

impl<'a> Top<'a> {
    fn new(api: Arc<Api>, model: Model, say: &'a Say) -> std::io::Result<Self> {
        let (sender, news) = mpsc::channel(feed::NEWS_MAX);
        let feed = Feed::start(Arc::clone(&api), sender);
        let screen = Some(Screen::enter()?);
        Ok(Self { say, api, model, feed, news, input: Input::stdin(), screen })
    }

    async fn run(mut self, ends: &mut Ends) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("the terminal failed: {error}"));
        let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
        loop {
            self.feed.follow(self.model.chosen().map(|row| (row.session.id, row.session.seq)));
            if let Some(screen) = &mut self.screen {
                let model = &self.model;
                screen.draw(|frame| draw::all(frame, model)).map_err(failed)?;
            }
            let turn = tokio::select! {
                signal = ends.next() => Turn::Leave(128 + u8::try_from(signal).unwrap_or(0)),
                _ = resized.recv() => {
                    let screen = self.screen.as_mut();
                    screen.map_or(Ok(()), Screen::resized).map_err(failed)?;
                    Turn::Go
                }
                news = self.news.recv() => self.learn(news),
                keys = self.input.read(KEYS_BYTES) => self.press(&keys.map_err(failed)?),
            };
            match turn {
                Turn::Go => {}
                Turn::Leave(status) => return Ok(status),
                Turn::Attach(id) => self.attach(id).await.map_err(failed)?,
            }
        }
    }

    fn learn(&mut self, news: Option<News>) -> Turn {
        match news {
            Some(News::Seen(found)) => self.model.learn(found),
            Some(News::Events(session, events)) => self.model.happened(session, events),
            Some(News::Failed(words)) => self.model.cut_off(words),
            Some(News::Done(words)) => {
                self.model.say(words);
                self.feed.hurry();
            }
            // The feed holds the other end as long as we do.
            None => return Turn::Leave(1),
        }
        Turn::Go
    }

    fn press(&mut self, bytes: &[u8]) -> Turn {
        // The terminal is gone.
        if bytes.is_empty() {
            return Turn::Leave(0);
        }
        for key in keys::keys(bytes) {
            panic_if_told(key);
            match self.model.press(key) {
                Act::Nothing => {}
                Act::Leave => return Turn::Leave(0),
                // What was typed behind it was meant for nobody that is there yet.
                Act::Attach(id) => return Turn::Attach(id),
                Act::Pause(id, name) => self.feed.pause(&self.api, id, name),
                Act::Resume(id, name) => self.feed.resume(&self.api, id, name),
                Act::Kill { session, cage, name } => {
                    self.feed.kill(&self.api, session, cage, name);
                }
            }
        }
        Turn::Go
    }

    /// The terminal is the program's until its viewer leaves it.
    async fn attach(&mut self, id: String) -> std::io::Result<()> {
        self.screen = None;
        let attached = Box::pin(attach::run(attach::Args::to(id.clone()), self.say)).await;
        self.screen = Some(Screen::enter()?);
        match attached {
            Ok(0) => {}
            Ok(status) => self.model.say(format!("attach ended with {status}")),
            Err(failure) => self.model.say(escape(&failure.error.message)),
        }
        self.feed.hurry();
        Ok(())
    }
}

/// For the test that the terminal comes back; a release build never does.
#[expect(clippy::panic, reason = "on purpose")]
fn panic_if_told(key: keys::Key) {
    if key == keys::Key::Char('!') && link::failpoint::variable("MEWS_PANICS").is_some() {
        panic!("told to panic");
    }
}

/// A session's name where it says what it means, else its id.
fn named(name: &str, id: SessionId) -> String {
    if name.is_empty() { id.to_string() } else { escape(name) }
}

fn colours() -> bool {
    out::colours()
}
