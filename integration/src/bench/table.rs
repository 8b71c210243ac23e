//! Samples of one thing, and how ours stand beside a peer's.

use std::time::Duration;

/// Samples in one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn push_ms(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1000.0);
    }

    /// The value that `percent` of the samples do not exceed; not a number without samples.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }
}

/// What a ratio, or a number by itself, should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    AtMost(f64),
    AtLeast(f64),
    /// Told for its own sake.
    None,
}

impl Aim {
    /// `within`, `within twice` or `OVER`.
    pub(crate) fn verdict(self, value: f64) -> &'static str {
        let twice = |good: bool, nearly: bool| match (good, nearly) {
            (true, _) => "within",
            (false, true) => "within twice",
            (false, false) => "OVER",
        };
        match self {
            Self::AtMost(aim) => twice(value <= aim, value <= aim * 2.0),
            Self::AtLeast(aim) => twice(value >= aim, value * 2.0 >= aim),
            Self::None => "",
        }
    }

    /// Whether the value is at least within twice the aim.
    pub(crate) fn is_met_twice(self, value: f64) -> bool {
        self.verdict(value) != "OVER"
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(aim) => format!("<= {aim}"),
            Self::AtLeast(aim) => format!(">= {aim}"),
            Self::None => String::new(),
        }
    }
}

/// Prints as it goes; remembers whether every row was within twice its aim.
#[derive(Debug)]
pub(crate) struct Table {
    all_met: bool,
}

impl Table {
    pub(crate) fn new(title: &str, peer: &str) -> Self {
        println!("\n{title}");
        println!(
            "{:<42} {:>17} {:>17} {:>6}  {:<8} verdict",
            "row",
            format!("{peer} p50/p95"),
            "mews p50/p95",
            "ratio",
            "aim"
        );
        Self { all_met: true }
    }

    /// The ratio of the medians against `aim`.
    pub(crate) fn compare(&mut self, row: &str, peer: &Series, ours: &Series, aim: Aim) {
        let ratio = ours.median() / peer.median();
        let pair = |s: &Series| format!("{:.2}/{:.2}", s.median(), s.percentile(95));
        println!(
            "{row:<42} {:>17} {:>17} {ratio:>6.2}  {:<8} {}",
            pair(peer),
            pair(ours),
            aim.shown(),
            aim.verdict(ratio)
        );
        self.all_met &= aim.is_met_twice(ratio);
    }

    /// One number of ours by itself.
    pub(crate) fn alone(&mut self, row: &str, value: f64, aim: Aim) {
        println!(
            "{row:<42} {:>17} {value:>17.2} {:>6}  {:<8} {}",
            "",
            "",
            aim.shown(),
            aim.verdict(value)
        );
        self.all_met &= aim.is_met_twice(value);
    }

    pub(crate) fn all_met(&self) -> bool {
        self.all_met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_know_both_directions() {
        for (aim, value, verdict) in [
            (Aim::AtMost(2.0), 2.0, "within"),
            (Aim::AtMost(2.0), 4.0, "within twice"),
            (Aim::AtMost(2.0), 4.1, "OVER"),
            (Aim::AtLeast(0.7), 0.7, "within"),
            (Aim::AtLeast(0.7), 0.4, "within twice"),
            (Aim::AtLeast(0.7), 0.3, "OVER"),
            (Aim::AtMost(2.0), f64::NAN, "OVER"),
        ] {
            assert_eq!(aim.verdict(value), verdict, "{aim:?} {value}");
        }
    }

    #[test]
    fn percentiles_are_samples() {
        let mut series = Series::default();
        (1..=20).rev().for_each(|n| series.push(f64::from(n)));
        assert_eq!((series.median(), series.percentile(95)), (11.0, 20.0));
    }
}
