//! The screen and the scrollback above it. They may be a moment behind the output, but never for
//! whoever looks.
//!
//! Plain text is shown to the model in large pieces: most of a flood then only passes through, and
//! a key's echo is on its way to the viewer before the model sees it.

use crate::screen::Guarded;
use crate::scrollback::Scrollback;
use wire::Size;
use wire::screen::ScreenView;
use wire::typing::Modes;

/// Plain text is shown to the model when so much waits, in bytes, or so long.
const BEHIND_BYTES: usize = 32 * 1024;
const BEHIND_MS: u64 = 100;
const ESCAPE: u8 = 0x1b;

#[derive(Debug)]
pub struct Picture {
    scrollback: Scrollback,
    /// Made at the first output, or when somebody looks.
    screen: Option<Guarded>,
    size: Size,
    /// Output that the screen has not seen.
    behind: Vec<u8>,
    behind_since_ms: u64,
}

impl Picture {
    #[must_use]
    pub fn new(scrollback: Scrollback, size: Size) -> Self {
        Self { scrollback, screen: None, size, behind: Vec::new(), behind_since_ms: 0 }
    }

    /// What may hold a question of the program is looked at now.
    pub fn output(&mut self, chunk: &[u8], now_ms: u64) {
        if self.behind.is_empty() {
            self.behind_since_ms = now_ms;
        }
        if memchr::memchr(ESCAPE, chunk).is_some() {
            self.catch_up();
            made(&mut self.screen, self.size).feed(chunk, &mut self.scrollback);
            return;
        }
        self.behind.extend_from_slice(chunk);
        if self.behind.len() >= BEHIND_BYTES {
            self.catch_up_but_for_a_flood();
            self.behind_since_ms = now_ms;
        }
    }

    pub fn resize(&mut self, size: Size) {
        self.catch_up();
        self.size = size;
        if let Some(screen) = &mut self.screen {
            screen.resize(size, &mut self.scrollback);
        }
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    pub fn scrollback(&mut self) -> &Scrollback {
        self.catch_up();
        &self.scrollback
    }

    pub fn snapshot(&mut self) -> Vec<u8> {
        self.catch_up();
        made(&mut self.screen, self.size).snapshot()
    }

    pub fn view(&mut self, seq: u64) -> ScreenView {
        self.catch_up();
        made(&mut self.screen, self.size).view(seq)
    }

    /// The logical lines that are to be seen.
    pub fn shown_lines(&mut self) -> Vec<Vec<u8>> {
        self.catch_up();
        self.screen.as_mut().map(Guarded::shown_lines).unwrap_or_default()
    }

    /// The number of the line that output goes on with, counted from the first of the terminal.
    pub fn line_now(&mut self) -> u64 {
        self.catch_up();
        let above = self.screen.as_mut().map_or(0, |screen| screen.settled_lines().len());
        self.scrollback.lines_total() + above as u64
    }

    /// Modes are never behind: what sets one is looked at at once.
    #[must_use]
    pub fn typing_modes(&self) -> Modes {
        self.screen.as_ref().map(Guarded::typing_modes).unwrap_or_default()
    }

    /// What `logs` shows below the scrollback.
    pub fn lines(&mut self) -> Vec<Vec<u8>> {
        self.catch_up();
        self.screen.as_mut().map(Guarded::rendered_lines).unwrap_or_default()
    }

    /// Those of them that the program has gone on from.
    pub fn settled_lines(&mut self) -> Vec<Vec<u8>> {
        self.catch_up();
        self.screen.as_mut().map(Guarded::settled_lines).unwrap_or_default()
    }

    /// Answers to questions that were seen.
    pub fn take_replies(&mut self) -> Vec<u8> {
        self.screen.as_mut().map(Guarded::take_replies).unwrap_or_default()
    }

    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        (!self.behind.is_empty()).then(|| self.behind_since_ms.saturating_add(BEHIND_MS))
    }

    pub fn tick(&mut self, now_ms: u64) {
        if self.deadline_ms().is_some_and(|deadline| now_ms >= deadline) {
            self.catch_up();
            // Nothing hurries: an idle terminal is small.
            self.behind = Vec::new();
        }
    }

    fn catch_up(&mut self) {
        if !self.behind.is_empty() {
            made(&mut self.screen, self.size).feed(&self.behind, &mut self.scrollback);
            self.behind.clear();
        }
    }

    /// The last lines of a flood go on waiting: if more follows, nobody will have seen them.
    fn catch_up_but_for_a_flood(&mut self) {
        let screen = made(&mut self.screen, self.size);
        let taken = screen.feed_most(&self.behind, &mut self.scrollback);
        self.behind.drain(..taken);
    }
}

fn made(screen: &mut Option<Guarded>, size: Size) -> &mut Guarded {
    screen.get_or_insert_with(|| Guarded::new(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        Picture::new(Scrollback::new(100, 1 << 20), Size { cols: 20, rows: 4 })
    }

    #[test]
    fn who_looks_sees_everything() {
        let mut picture = picture();
        picture.output(b"a\r\nb\r\nc\r\nd\r\ne", 5);
        assert_eq!(picture.deadline_ms(), Some(5 + BEHIND_MS));
        assert_eq!(picture.scrollback().len(), 1);
        assert_eq!(picture.deadline_ms(), None);
        picture.output(b"f", 20);
        assert_eq!(picture.lines().last().map(Vec::as_slice), Some(&b"ef"[..]));
    }

    #[test]
    fn questions_are_answered_at_once_and_plain_text_in_time() {
        let mut picture = picture();
        picture.output(b"text", 0);
        picture.output(b"\x1b[6n", 1);
        assert_eq!(picture.take_replies(), b"\x1b[1;5R");
        picture.output(b"more", 2);
        picture.tick(1 + BEHIND_MS);
        assert_eq!(picture.deadline_ms(), Some(2 + BEHIND_MS));
        picture.tick(2 + BEHIND_MS);
        assert_eq!((picture.deadline_ms(), picture.behind.capacity()), (None, 0));
    }
}
