//! The recording of one command while it runs: policy and files together.
//!
//! A disk that is full ends the recording, not the program.

use crate::boot::StateDir;
use crate::recording::{Action, Recorder, Writer};
use wire::{PtyId, Size, recording};

#[derive(Debug)]
pub struct Recording {
    pty: PtyId,
    running: Option<(Recorder, Writer)>,
}

impl Recording {
    /// Without `bytes_max` (the policy wants none) or a file nothing is recorded.
    #[must_use]
    pub fn start(
        folder: &StateDir,
        pty: PtyId,
        bytes_max: Option<u64>,
        size: Size,
        now_ms: u64,
    ) -> Self {
        let running = bytes_max.and_then(|bytes_max| {
            let writer = Writer::create(folder, pty).ok()?;
            Some((Recorder::new(bytes_max, size, now_ms), writer))
        });
        Self { pty, running }
    }

    pub fn output(&mut self, bytes: &[u8], now_ms: u64) {
        self.perform(|recorder| recorder.output(bytes, now_ms));
    }

    pub fn size(&mut self, size: Size, now_ms: u64) {
        self.perform(|recorder| recorder.size(size, now_ms));
    }

    pub fn tick(&mut self, now_ms: u64) {
        self.perform(|recorder| recorder.tick(now_ms));
    }

    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.running.as_ref().and_then(|(recorder, _)| recorder.deadline_ms())
    }

    /// Writes what waits and makes one file of the parts.
    pub fn finish(&mut self, now_ms: u64) {
        if let Some((recorder, mut writer)) = self.running.take() {
            // What could not be written is missing from the recording, and from nothing else.
            drop(writer.perform(recorder.finish(now_ms)));
        }
    }

    /// The output as recorded so far; `None` if there is no recording.
    pub fn raw(&mut self, folder: &StateDir) -> Option<Vec<u8>> {
        if let Some(due) = self.deadline_ms() {
            self.tick(due);
        }
        let [head, a, b] = recording::part_names(self.pty).map(|name| folder.read_all(&name));
        let mut raw = recording::raw(&head.ok()?);
        let tails = [a, b].map(Result::unwrap_or_default);
        raw.extend(recording::raw(&recording::join(&[], [&tails[0], &tails[1]])));
        Some(raw)
    }

    fn perform(&mut self, what: impl FnOnce(&mut Recorder) -> Vec<Action>) {
        let Some((recorder, writer)) = &mut self.running else { return };
        let actions = what(recorder);
        if !actions.is_empty() && writer.perform(actions).is_err() {
            self.running = None;
        }
    }
}
