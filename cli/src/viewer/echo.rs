//! Whether the program is likely to answer a key at once, so that it is worth staying awake.

/// More than this is not a key, but a paste.
const KEY_BYTES_MAX: usize = 16;
/// A program that does not echo is given another chance after 2^this keys at most.
const DOUBLINGS_MAX: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Echo {
    /// Keys in a row that were waited for in vain.
    missed: u32,
    /// Keys that are not waited for.
    skipped: u32,
}

impl Echo {
    pub(super) fn is_expected(&mut self, typed: usize) -> bool {
        if typed > KEY_BYTES_MAX {
            return false;
        }
        let is_expected = self.skipped == 0;
        self.skipped = self.skipped.saturating_sub(1);
        is_expected
    }

    pub(super) fn learn(&mut self, came: bool) {
        self.missed = if came { 0 } else { (self.missed + 1).min(DOUBLINGS_MAX) };
        self.skipped = (1 << self.missed) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(echo: &mut Echo, keys: usize, came: bool) -> usize {
        let mut waits = 0;
        for _ in 0..keys {
            if echo.is_expected(1) {
                waits += 1;
                echo.learn(came);
            }
        }
        waits
    }

    #[test]
    fn a_program_that_echoes_is_always_waited_for() {
        assert_eq!(waits(&mut Echo::default(), 1000, true), 1000);
    }

    #[test]
    fn a_password_is_soon_not_waited_for_and_the_shell_after_it_is() {
        let mut echo = Echo::default();
        // After 1, 3, 7, 15, 31, 63, 63, … keys.
        assert_eq!(waits(&mut echo, 1 + 2 + 4 + 8 + 16 + 32 + 64, false), 7);
        assert!(waits(&mut echo, 64, true) >= 1);
        assert_eq!(waits(&mut echo, 100, true), 100);
    }

    #[test]
    fn a_paste_is_not_waited_for() {
        assert!(!Echo::default().is_expected(KEY_BYTES_MAX + 1));
    }
}
