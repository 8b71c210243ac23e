//! What a run keeps of its viewing for whoever reads its report: the end of the output, and whether it was
//! told to end.

use std::cell::{Cell, RefCell};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Bytes of output that are kept, of both streams in the order in which they came.
    bytes_max: usize,
    tail: RefCell<Vec<u8>>,
    total: Cell<u64>,
    signal: Cell<Option<i32>>,
    /// Both streams go to standard output, so that they stay in one order.
    pub(crate) merged: bool,
    /// Who was told to end has so long, then the cage is killed.
    pub(crate) grace: Option<Duration>,
}

impl Recording {
    pub(crate) fn new(bytes_max: usize, merged: bool, grace: Option<Duration>) -> Self {
        Self { bytes_max, merged, grace, ..Self::default() }
    }

    pub(crate) fn heard(&self, bytes: &[u8]) {
        self.total.set(self.total.get().saturating_add(bytes.len() as u64));
        if self.bytes_max == 0 {
            return;
        }
        let mut tail = self.tail.borrow_mut();
        tail.extend_from_slice(bytes);
        // Moved seldom: each byte once or twice.
        if tail.len() > self.bytes_max.saturating_mul(2) {
            let surplus = tail.len() - self.bytes_max;
            tail.drain(..surplus);
        }
    }

    /// The first signal that told it to end is why it was cancelled.
    pub(crate) fn told(&self, signal: i32) {
        if self.signal.get().is_none() {
            self.signal.set(Some(signal));
        }
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.signal.get()
    }

    /// Bytes of output in all.
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    /// The last bytes, from the beginning of a line where some are missing; and how many are.
    pub(crate) fn tail(&self) -> (Vec<u8>, u64) {
        let tail = self.tail.borrow();
        let from = tail.len().saturating_sub(self.bytes_max);
        let mut kept = tail.get(from..).unwrap_or_default();
        if (kept.len() as u64) < self.total()
            && let Some(end) = kept.iter().position(|&byte| byte == b'\n')
            && end + 1 < kept.len()
        {
            kept = kept.get(end + 1..).unwrap_or_default();
        }
        (kept.to_vec(), self.total().saturating_sub(kept.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_from_the_beginning_of_a_line() {
        let recording = Recording::new(10, false, None);
        recording.heard(b"one\n");
        assert_eq!(recording.tail(), (b"one\n".to_vec(), 0));
        for line in 0..100 {
            recording.heard(format!("line {line}\n").as_bytes());
        }
        assert_eq!(recording.tail(), (b"line 99\n".to_vec(), recording.total() - 8));
        // A line that is longer than what is kept.
        recording.heard(&[b'x'; 50]);
        assert_eq!(recording.tail().0, [b'x'; 10]);
        recording.heard(b"\n");
        assert_eq!(recording.tail().0, b"xxxxxxxxx\n");
    }

    #[test]
    fn nothing_is_kept_for_nobody_and_the_first_signal_counts() {
        let recording = Recording::default();
        recording.heard(b"text");
        recording.told(15);
        recording.told(2);
        assert_eq!((recording.tail(), recording.signal()), ((Vec::new(), 4), Some(15)));
    }
}
