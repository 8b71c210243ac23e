//! For how long a command has printed nothing and been given nothing. That clock stands while the
//! program does.

#[derive(Debug)]
pub struct Quiet {
    since_ms: u64,
    still_at_ms: Option<u64>,
}

impl Quiet {
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { since_ms: now_ms, still_at_ms: None }
    }

    /// A key or a byte.
    pub fn breaks(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
    }

    pub fn stand_still(&mut self, still: bool, now_ms: u64) {
        match (self.still_at_ms, still) {
            (None, true) => self.still_at_ms = Some(now_ms),
            (Some(at_ms), false) => {
                self.still_at_ms = None;
                self.since_ms = (self.since_ms + (now_ms - at_ms)).min(now_ms);
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    #[must_use]
    pub fn is_still(&self) -> bool {
        self.still_at_ms.is_some()
    }

    /// Absent while the program stands still.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        (!self.is_still()).then_some(self.since_ms)
    }

    /// Absent while the program stands still.
    #[must_use]
    pub fn for_ms(&self, now_ms: u64) -> Option<u64> {
        self.since_ms().map(|since_ms| now_ms.saturating_sub(since_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count() {
        let mut quiet = Quiet::new(0);
        assert_eq!(quiet.for_ms(10), Some(10));
        quiet.stand_still(true, 10);
        assert_eq!((quiet.for_ms(500), quiet.since_ms()), (None, None));
        quiet.stand_still(true, 500);
        quiet.stand_still(false, 1000);
        assert_eq!(quiet.for_ms(1005), Some(15));
        quiet.breaks(1005);
        assert_eq!(quiet.for_ms(1010), Some(5));
        // What came while it stood counts from its going on.
        quiet.stand_still(true, 1010);
        quiet.breaks(1500);
        quiet.stand_still(false, 2000);
        assert_eq!(quiet.for_ms(2007), Some(7));
    }
}
