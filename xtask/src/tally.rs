//! Counting what the suites say of themselves.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Runs a step that is one test in itself.
    pub(crate) fn step(&mut self, command: &mut Command) -> anyhow::Result<()> {
        if crate::steps::succeeds(command)? {
            self.passed += 1;
        } else {
            eprintln!("FAILED: {}", crate::steps::shown(command));
            self.failed += 1;
        }
        Ok(())
    }

    /// Runs a suite, shows what it prints and adds what it counted. One that fails without having
    /// counted a failure (it did not compile, it crashed) is one failure.
    pub(crate) fn suite(&mut self, command: &mut Command) -> anyhow::Result<()> {
        eprintln!("$ {}", crate::steps::shown(command));
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut counted = Self::default();
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                counted.add(counts_in(&line));
            }
        }
        if !child.wait()?.success() && counted.failed == 0 {
            counted.failed = 1;
            eprintln!("FAILED: {}", crate::steps::shown(command));
        }
        self.add(counted);
        Ok(())
    }

    /// Counts what a line says, if it is a summary.
    pub(crate) fn line(&mut self, line: &str) {
        self.add(counts_in(line));
    }

    pub(crate) fn fails(&mut self, why: &str) {
        eprintln!("FAILED: {why}");
        self.failed += 1;
    }

    pub(crate) fn all_passed(&self) -> bool {
        self.failed == 0
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skipped > 0 {
            writeln!(f, "{} skipped, each with its reason above", self.skipped)?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The counts of a summary line, `test result: ok. 7 passed; 0 failed; …` of libtest or
/// `7 passed, 0 failed, 1 skipped` of ours; nothing in any other line.
fn counts_in(line: &str) -> Tally {
    let ours = line.starts_with(|first: char| first.is_ascii_digit());
    let summary = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ").map_or(rest, |(_, counts)| counts),
        None if ours => line,
        None => return Tally::default(),
    };
    let mut tally = Tally::default();
    for part in summary.split([';', ',']) {
        let mut words = part.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next() {
            Some("passed") => tally.passed += number,
            Some("failed") => tally.failed += number,
            Some("skipped" | "ignored") => tally.skipped += number,
            Some(_) | None => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_summary_are_counted_and_nothing_else() {
        let libtest = "test result: FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 3 filtered \
                       out; finished in 0.05s";
        for (line, want) in [
            (libtest, (7, 2, 1)),
            ("12 passed, 0 failed, 3 skipped", (12, 0, 3)),
            ("test result ... ok", (0, 0, 0)),
            ("3 apples", (0, 0, 0)),
        ] {
            let got = counts_in(line);
            assert_eq!((got.passed, got.failed, got.skipped), want, "{line}");
        }
    }
}
