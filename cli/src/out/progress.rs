//! A sign of life on standard error while something takes long: only on a terminal, only after half
//! a second, and gone before the next word is said.

use crate::table::cut;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What takes less needs no sign.
const PATIENCE: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(120);
const SIGNS: [char; 4] = ['-', '\\', '|', '/'];
/// Back to the first column, and nothing right of it.
const CLEAR: &str = "\r\x1b[K";

/// One line at a time: who is inside another one's work adds nothing.
static DRAWN: AtomicBool = AtomicBool::new(false);
/// Somebody else has the terminal: a program, or `top`.
static HUSHED: AtomicBool = AtomicBool::new(false);
/// Not with --json.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Said once, before anything takes long.
pub(crate) fn want(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Nothing is drawn from now on, or it is again.
pub(crate) fn hush(hushed: bool) {
    HUSHED.store(hushed, Ordering::Relaxed);
}

/// While it lives, the line is there. A thread of its own draws it, since work may hold up the loop.
#[derive(Debug)]
pub(crate) struct Progress {
    news: Option<Sender<String>>,
    drawer: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn new(text: &str) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_wanted = WANTED.load(Ordering::Relaxed) && !is_dumb && io::stderr().is_terminal();
        if !is_wanted || DRAWN.swap(true, Ordering::Relaxed) {
            return Self { news: None, drawer: None };
        }
        let (news, told) = mpsc::channel::<String>();
        let text = text.to_owned();
        let drawer = std::thread::Builder::new().name("progress".to_owned());
        // No thread, no sign: the work goes on.
        let drawer = drawer.spawn(move || draw(text, &told)).ok();
        Self { news: Some(news), drawer }
    }

    /// Another text from now on.
    pub(crate) fn say(&self, text: &str) {
        if let Some(news) = &self.news {
            // A drawer that has ended draws nothing.
            drop(news.send(text.to_owned()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.news.take().is_none() {
            return;
        }
        if let Some(drawer) = self.drawer.take() {
            drop(drawer.join());
        }
        DRAWN.store(false, Ordering::Relaxed);
    }
}

/// Until nobody has news any more.
fn draw(mut text: String, news: &mpsc::Receiver<String>) {
    let began = Instant::now();
    let (mut turn, mut is_shown) = (0_usize, false);
    loop {
        let wait = if turn == 0 { PATIENCE.saturating_sub(began.elapsed()) } else { TURN };
        match news.recv_timeout(wait) {
            Ok(other) => text = other,
            Err(RecvTimeoutError::Timeout) => {
                turn += 1;
                if !HUSHED.load(Ordering::Relaxed) {
                    is_shown = true;
                    write(&line(&text, turn, began.elapsed()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if is_shown {
        write(CLEAR);
    }
}

fn line(text: &str, turn: usize, elapsed: Duration) -> String {
    let sign = SIGNS.get(turn % SIGNS.len()).copied().unwrap_or('-');
    let width = crate::terminal::size_of_stderr().map_or(80, |size| usize::from(size.cols));
    // Never the last column: some terminals would begin another line.
    let shown = cut(&format!("{sign} {text} ({}s)", elapsed.as_secs()), width.saturating_sub(1));
    format!("{CLEAR}{shown}")
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to tell if standard error is closed.
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_as_wide_as_the_terminal() {
        let shown = line(&"x".repeat(500), 3, Duration::from_secs(61));
        let shown = shown.strip_prefix(CLEAR).unwrap();
        assert!(shown.chars().count() < 500 && shown.starts_with("/ x"), "{shown}");
        assert_eq!(line("a", 1, Duration::from_millis(1900)), format!("{CLEAR}\\ a (1s)"));
    }
}
