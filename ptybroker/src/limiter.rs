//! A token bucket. Time is passed in.

/// `burst` tokens at once, `per_second` in the long run.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: u64,
    burst: u64,
    /// Thousandths of a token, so that slow rates lose nothing to rounding.
    milli: u64,
    at_ms: u64,
}

impl TokenBucket {
    /// Starts full.
    #[must_use]
    pub fn new(per_second: u64, burst: u64, now_ms: u64) -> Self {
        Self { per_second, burst, milli: burst.saturating_mul(1000), at_ms: now_ms }
    }

    /// Takes `tokens` or nothing.
    pub fn take(&mut self, tokens: u64, now_ms: u64) -> bool {
        self.refill(now_ms);
        let cost = tokens.saturating_mul(1000);
        let enough = self.milli >= cost;
        if enough {
            self.milli -= cost;
        }
        enough
    }

    /// Takes up to `wanted` and says how many.
    pub fn take_up_to(&mut self, wanted: u64, now_ms: u64) -> u64 {
        self.refill(now_ms);
        let granted = wanted.min(self.milli / 1000);
        self.milli -= granted * 1000;
        granted
    }

    /// Milliseconds until `tokens` are there (at most a full bucket can be waited for).
    #[must_use]
    pub fn wait_ms(&self, tokens: u64, now_ms: u64) -> u64 {
        let missing = tokens.min(self.burst).saturating_mul(1000).saturating_sub(self.milli);
        let elapsed = now_ms.saturating_sub(self.at_ms);
        match self.per_second {
            0 if missing > 0 => u64::MAX,
            0 => 0,
            rate => missing.div_ceil(rate).saturating_sub(elapsed),
        }
    }

    fn refill(&mut self, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.at_ms);
        self.at_ms = self.at_ms.max(now_ms);
        let filled = self.milli.saturating_add(elapsed.saturating_mul(self.per_second));
        self.milli = filled.min(self.burst.saturating_mul(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = TokenBucket::new(10, 3, 0);
        assert!(bucket.take(3, 0));
        assert!(!bucket.take(1, 99));
        assert_eq!(bucket.wait_ms(1, 99), 1);
        assert!(bucket.take(1, 100));
        assert_eq!(bucket.take_up_to(9, 350), 2);
        assert!(bucket.take(1, 400));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(
            steps in proptest::collection::vec((0_u64..50, 0_u64..20), 1..60),
            rate in 0_u64..200, burst in 0_u64..30,
        ) {
            let mut bucket = TokenBucket::new(rate, burst, 0);
            let (mut now, mut got) = (0, 0);
            for (wait, wanted) in steps {
                now += wait;
                got += bucket.take_up_to(wanted, now);
                prop_assert!(got <= burst + rate * now / 1000);
                let until = bucket.wait_ms(1, now);
                if until != u64::MAX && until > 0 && burst > 0 {
                    prop_assert!(bucket.take_up_to(1, now + until - 1) == 0);
                }
            }
        }
    }
}
