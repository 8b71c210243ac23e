//! A screen whose crash costs no more than the screen.

use super::Screen;
use crate::scrollback::Scrollback;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::Size;
use wire::screen::ScreenView;
use wire::typing::Modes;

/// The methods of [`Screen`]; none of them panics. After a crash of the model, bytes, recording
/// and attach go on without it: the snapshot says so on an empty screen.
#[derive(Debug)]
pub struct Guarded {
    screen: Option<Screen>,
    size: Size,
}

impl Guarded {
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self { screen: Some(Screen::new(size)), size: size.clamped() }
    }

    /// Whether the model crashed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.screen.is_none()
    }

    pub fn feed(&mut self, bytes: &[u8], scrollback: &mut Scrollback) {
        self.with_mut(|screen| screen.feed(bytes, scrollback));
    }

    pub fn feed_most(&mut self, bytes: &[u8], scrollback: &mut Scrollback) -> usize {
        self.with_mut(|screen| screen.feed_most(bytes, scrollback)).unwrap_or(bytes.len())
    }

    pub fn resize(&mut self, size: Size, scrollback: &mut Scrollback) {
        self.size = size.clamped();
        self.with_mut(|screen| screen.resize(size, scrollback));
    }

    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    #[must_use]
    pub fn snapshot(&mut self) -> Vec<u8> {
        self.with_mut(|screen| screen.snapshot()).unwrap_or_else(|| {
            let lost = "[mews: the screen model of this terminal crashed; live output follows]";
            [super::dump::HEAD, lost.as_bytes(), b"\r\n"].concat()
        })
    }

    #[must_use]
    pub fn visible_lines(&mut self) -> Vec<String> {
        self.with_mut(|screen| screen.visible_lines()).unwrap_or_default()
    }

    #[must_use]
    pub fn rendered_lines(&mut self) -> Vec<Vec<u8>> {
        self.with_mut(|screen| screen.rendered_lines()).unwrap_or_default()
    }

    #[must_use]
    pub fn settled_lines(&mut self) -> Vec<Vec<u8>> {
        self.with_mut(|screen| screen.settled_lines()).unwrap_or_default()
    }

    #[must_use]
    pub fn shown_lines(&mut self) -> Vec<Vec<u8>> {
        self.with_mut(|screen| screen.shown_lines()).unwrap_or_default()
    }

    /// Empty rows after a crash.
    #[must_use]
    pub fn view(&mut self, seq: u64) -> ScreenView {
        let lost = ScreenView { size: Some(self.size), seq, ..ScreenView::default() };
        self.with_mut(|screen| screen.view(seq)).unwrap_or(lost)
    }

    #[must_use]
    pub fn typing_modes(&self) -> Modes {
        self.screen.as_ref().map(Screen::typing_modes).unwrap_or_default()
    }

    pub fn take_replies(&mut self) -> Vec<u8> {
        self.screen.as_mut().map(Screen::take_replies).unwrap_or_default()
    }

    pub fn take_title(&mut self) -> Option<String> {
        self.screen.as_mut().and_then(Screen::take_title)
    }

    pub fn take_bell(&mut self) -> bool {
        self.screen.as_mut().is_some_and(Screen::take_bell)
    }

    #[must_use]
    pub fn bracketed_paste(&self) -> bool {
        self.screen.as_ref().is_some_and(Screen::bracketed_paste)
    }

    #[must_use]
    pub fn alternate(&self) -> bool {
        self.screen.as_ref().is_some_and(Screen::alternate)
    }

    /// A model that panicked is in no known state, so it is dropped. The scrollback only ever
    /// grows by whole lines, so it stays right.
    fn with_mut<T>(&mut self, work: impl FnOnce(&mut Screen) -> T) -> Option<T> {
        let screen = self.screen.as_mut()?;
        let result = catch_unwind(AssertUnwindSafe(|| work(screen)));
        if result.is_err() {
            self.screen = None;
        }
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_of_the_model_costs_only_the_screen() {
        let mut guarded = Guarded::new(Size::DEFAULT);
        let mut scrollback = Scrollback::new(10, 1000);
        assert_eq!(guarded.with_mut(|_| -> u8 { panic!("a bug of the parser") }), None);
        assert!(guarded.is_lost());
        guarded.feed(b"more", &mut scrollback);
        guarded.resize(Size { cols: 9, rows: 9 }, &mut scrollback);
        assert_eq!(guarded.size(), Size { cols: 9, rows: 9 });
        assert!(String::from_utf8(guarded.snapshot()).unwrap().contains("crashed"));
        assert_eq!(guarded.take_replies(), b"");
    }
}
