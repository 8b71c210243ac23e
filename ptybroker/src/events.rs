//! The broker's events: each is in the file before it is sent, and is sent again to every new
//! connection until it was acknowledged.
//!
//! Kept in memory is only where each unacknowledged event stands in the file (or, when the disk is
//! full, the event itself): a broker that is left alone for long stays small.

use crate::boot::StateDir;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::{CageId, Event, EventBody, Source};

#[derive(Debug)]
pub struct EventLog {
    cage: CageId,
    file: Option<File>,
    bytes: u64,
    /// Of the newest event; the first is 1.
    newest: u64,
    /// The unacknowledged ones; the last is `newest`.
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
enum Kept {
    InFile { at: u64, length: usize },
    InMemory(Vec<u8>),
}

impl EventLog {
    /// Without a file (the folder is full or gone) events are kept in memory.
    #[must_use]
    pub fn open(cage: CageId, folder: &StateDir) -> Self {
        let file = folder.create("events.jsonl").ok();
        Self { cage, file, bytes: 0, newest: 0, kept: VecDeque::new() }
    }

    pub fn append(&mut self, body: &EventBody) -> u64 {
        self.newest += 1;
        let event = Event::new(self.cage, Source::Broker, self.newest, now_ms(), body);
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        let kept = self.store(line);
        self.kept.push_back(kept);
        self.newest
    }

    #[must_use]
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The oldest that is not acknowledged, or the next to come.
    #[must_use]
    pub fn first_unacknowledged(&self) -> u64 {
        self.newest + 1 - self.kept.len() as u64
    }

    /// An event that is not acknowledged yet.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<Event> {
        let index = usize::try_from(seq.checked_sub(self.first_unacknowledged())?).ok()?;
        let line = match self.kept.get(index)? {
            Kept::InMemory(line) => line.clone(),
            Kept::InFile { at, length } => {
                let mut line = vec![0; *length];
                self.file.as_ref()?.read_exact_at(&mut line, *at).ok()?;
                line
            }
        };
        serde_json::from_slice(&line).ok()
    }

    pub fn acknowledge(&mut self, seq: u64) {
        while self.first_unacknowledged() <= seq && self.kept.pop_front().is_some() {}
    }

    fn store(&mut self, line: Vec<u8>) -> Kept {
        let at = self.bytes;
        match self.file.as_ref().map(|file| file.write_all_at(&line, at)) {
            Some(Ok(())) => {
                self.bytes += line.len() as u64;
                Kept::InFile { at, length: line.len() }
            }
            Some(Err(_)) | None => Kept::InMemory(line),
        }
    }
}

/// Milliseconds since 1970, for people.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_until_acknowledged_and_numbered_without_holes() {
        let temp = tempfile::tempdir().unwrap();
        let folder = StateDir::open(temp.path()).unwrap();
        let mut log = EventLog::open(CageId::new(), &folder);
        assert_eq!(log.first_unacknowledged(), 1);
        for pid in 1..=4 {
            assert_eq!(log.append(&EventBody::CageStarted { pid }), u64::try_from(pid).unwrap());
        }
        log.acknowledge(2);
        assert_eq!((log.first_unacknowledged(), log.newest()), (3, 4));
        assert_eq!(log.get(2), None);
        assert_eq!(log.get(4).unwrap().body(), Some(EventBody::CageStarted { pid: 4 }));
        log.acknowledge(99);
        assert_eq!((log.first_unacknowledged(), log.get(5)), (5, None));
        let text = std::fs::read_to_string(temp.path().join("events.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn without_a_file_nothing_is_lost() {
        let temp = tempfile::tempdir().unwrap();
        let folder = StateDir::open(temp.path()).unwrap();
        std::fs::create_dir(temp.path().join("events.jsonl")).unwrap();
        let mut log = EventLog::open(CageId::new(), &folder);
        log.append(&EventBody::CageGone {});
        assert_eq!(log.get(1).unwrap().body(), Some(EventBody::CageGone {}));
    }
}
