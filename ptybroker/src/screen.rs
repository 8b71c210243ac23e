//! The screen model of one terminal: what its viewer sees, and how to say that to another terminal.
//!
//! Lines that leave the top go, rendered, to the [`Scrollback`] at that very moment: the model has
//! no history of its own, so nothing is lost and nothing is there twice. The alternate screen
//! contributes nothing.

use crate::scrollback::Scrollback;
use wire::Size;

/// A model that is fed all output of its terminal.
#[derive(Debug)]
pub struct Screen {
    size: Size,
}

impl Screen {
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self { size: size.clamped() }
    }

    /// Takes output, split anywhere; lines that leave the top go to `scrollback`.
    pub fn feed(&mut self, bytes: &[u8], scrollback: &mut Scrollback) {
        let _ = (bytes, scrollback);
    }

    pub fn resize(&mut self, size: Size, scrollback: &mut Scrollback) {
        let _ = scrollback;
        self.size = size.clamped();
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The bytes that bring any xterm-like terminal of this size into exactly this state.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The text of each visible row, without attributes and trailing blanks.
    #[must_use]
    pub fn visible_lines(&self) -> Vec<String> {
        Vec::new()
    }

    /// What `logs` shows below the scrollback: the logical lines still on the primary screen,
    /// rendered, without the blank ones at the end.
    #[must_use]
    pub fn rendered_lines(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Answers to the program's queries since the last call (at most 4 KiB; the caller limits the
    /// rate, and throws them away while a viewer's own terminal answers).
    pub fn take_replies(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// The title, if it changed since the last call; empty if it was taken away.
    pub fn take_title(&mut self) -> Option<String> {
        None
    }

    /// Whether the bell rang since the last call.
    pub fn take_bell(&mut self) -> bool {
        false
    }

    /// Whether the program wants pastes bracketed.
    #[must_use]
    pub fn bracketed_paste(&self) -> bool {
        false
    }

    /// Whether the alternate screen is shown.
    #[must_use]
    pub fn alternate(&self) -> bool {
        false
    }
}

/// A screen whose crash costs no more than the screen: same methods, never panics.
#[derive(Debug)]
pub struct Guarded(Option<Screen>);

impl Guarded {
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self(Some(Screen::new(size)))
    }

    /// Whether the model crashed. Bytes, recording and attach go on without it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_none()
    }
}

/// Undoes every mode that a program may have switched on: for a viewer's terminal on the way out.
#[must_use]
pub fn reset_sequence() -> &'static [u8] {
    b""
}
