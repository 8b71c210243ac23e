//! The terminal while `top` has it: the other screen, no cursor, every key a byte; as it was on every
//! way out, a panic among them.

use crate::terminal::Raw;
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use std::io::{self, Stdout, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, PoisonError};

/// The other screen, and no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";

pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Gives the terminal back when it is dropped.
    _raw: Raw,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let mut raw = Raw::keys()?;
        raw.modes.feed(ENTER);
        let mut stdout = io::stdout();
        stdout.write_all(ENTER)?;
        stdout.flush()?;
        Ok(Self { terminal: Terminal::new(CrosstermBackend::new(stdout))?, _raw: raw })
    }

    /// The next drawing is of all of it. A size that went and came back is the same to whoever only
    /// compares; what it cut off is gone.
    pub(super) fn resized(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// As large as the terminal is now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// What a panic says would be written to the screen that is just about to go: it is kept, and said
/// when this is dropped, after the [`Screen`].
pub(super) struct Panics {
    said: Arc<Mutex<String>>,
    before: Option<Hook>,
}

impl Panics {
    pub(super) fn kept() -> Self {
        let said = Arc::new(Mutex::new(String::new()));
        let before = Some(std::panic::take_hook());
        let kept = Arc::clone(&said);
        std::panic::set_hook(Box::new(move |info| {
            let mut said = kept.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&format!("mews: {info}\n"));
        }));
        Self { said, before }
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        // The hook cannot be changed by a thread that panics.
        if !std::thread::panicking()
            && let Some(before) = self.before.take()
        {
            std::panic::set_hook(before);
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody is left to tell if standard error is closed.
        io::stderr().lock().write_all(said.as_bytes()).ok();
    }
}
