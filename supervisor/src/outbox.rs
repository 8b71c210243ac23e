//! Events on their way up: written to a file before they are sent, kept until acknowledged.
//!
//! [`Journal`] holds the supervisor's own events of one cage; [`Heard`] what its broker told, with
//! the broker's file behind it. What was sent over which link is the link's own affair
//! (`upstream.rs`): after a reconnect everything that is not acknowledged goes again, in order.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::{CageId, Event, EventBody, Source};

/// The supervisor's own events of one cage. Few, so all that is not acknowledged is in memory too.
#[derive(Debug)]
pub(crate) struct Journal {
    cage: CageId,
    file: File,
    /// Length of its whole lines.
    bytes: u64,
    newest: u64,
    /// What the disk was too full for, oldest first; it is sent when it is written.
    unwritten: VecDeque<Event>,
    pending: VecDeque<Event>,
    /// By type: number and time of the newest that was ever written.
    told: BTreeMap<String, (u64, i64)>,
}

impl Journal {
    /// Opens or makes the file, and reads what an earlier supervisor wrote. A last line that was
    /// cut by its death was never sent and is overwritten by the next.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn open(path: &Path, cage: CageId) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path)?;
        let events = parse(io::BufReader::new(&file), cage, Source::Supervisor);
        let whole: u64 = events.iter().map(line_length).sum();
        if file.metadata()?.len() > whole {
            file.set_len(whole)?;
        }
        let newest = events.last().map_or(0, |event| event.seq);
        let told = events.iter().map(|e| (e.kind.clone(), (e.seq, e.at_ms))).collect();
        let (bytes, unwritten) = (whole, VecDeque::new());
        Ok(Self { cage, file, bytes, newest, unwritten, pending: events.into(), told })
    }

    /// # Errors
    /// The event is not in the file and is not sent.
    pub(crate) fn append(&mut self, at_ms: i64, body: &EventBody) -> io::Result<()> {
        self.write_late()?;
        let event = self.numbered(at_ms, body);
        self.write(event)
    }

    /// The same for what has happened anyhow: it waits until the file takes it.
    ///
    /// # Errors
    /// It waits.
    pub(crate) fn append_late(&mut self, at_ms: i64, body: &EventBody) -> io::Result<()> {
        let event = self.numbered(at_ms, body);
        self.told.insert(event.kind.clone(), (event.seq, event.at_ms));
        self.unwritten.push_back(event);
        self.write_late()
    }

    fn numbered(&self, at_ms: i64, body: &EventBody) -> Event {
        let seq = self.newest + 1 + self.unwritten.len() as u64;
        Event::new(self.cage, Source::Supervisor, seq, at_ms, body)
    }

    pub(crate) fn is_late(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// # Errors
    /// There is no room yet.
    pub(crate) fn write_late(&mut self) -> io::Result<()> {
        while let Some(event) = self.unwritten.front().cloned() {
            self.write(event)?;
            self.unwritten.pop_front();
        }
        Ok(())
    }

    fn write(&mut self, event: Event) -> io::Result<()> {
        let line = line(&event);
        if let Err(error) = self.file.write_all(&line) {
            // The next line must not begin behind a part of this one.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.newest = event.seq;
        self.told.insert(event.kind.clone(), (event.seq, event.at_ms));
        self.pending.push_back(event);
        Ok(())
    }

    /// Of those that are written.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// What is written and not acknowledged, after `seq`. What waits for room is tried once more.
    pub(crate) fn after(&mut self, seq: u64) -> Vec<Event> {
        // They wait on.
        let _full = self.write_late();
        self.pending.iter().filter(|event| event.seq > seq).cloned().collect()
    }

    pub(crate) fn acknowledge(&mut self, seq: u64) {
        self.pending.retain(|event| event.seq > seq);
    }

    /// Whether the last event of this type that is not acknowledged says this.
    pub(crate) fn holds_last(&self, body: &EventBody) -> bool {
        let wanted = Event::new(self.cage, Source::Supervisor, 0, 0, body);
        let last = self.pending.iter().rev().find(|event| event.kind == wanted.kind);
        last.is_some_and(|event| event.data == wanted.data)
    }

    /// Number and time of the newest event of this type, acknowledged or not.
    pub(crate) fn newest_of(&self, kind: &str) -> Option<(u64, i64)> {
        self.told.get(kind).copied()
    }
}

/// Most events of one broker that are kept in memory; older ones are read back from its file.
const HEARD_MAX: usize = 256;

/// Where the events after a number are found.
#[derive(Debug, PartialEq)]
pub(crate) enum Tail {
    Memory(Vec<Event>),
    /// The broker's own file has them.
    File,
}

/// The newest events of one broker, without a hole among them.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    newest: u64,
    acknowledged: u64,
    recent: VecDeque<Event>,
}

impl Heard {
    /// Takes an event that came over the link. Twice-told ones are dropped.
    pub(crate) fn hear(&mut self, event: Event) {
        if event.seq <= self.newest {
            return;
        }
        if event.seq != self.newest + 1 {
            // A hole (told to an earlier supervisor): memory holds only what follows it.
            self.recent.clear();
        }
        self.newest = event.seq;
        self.recent.push_back(event);
        if self.recent.len() > HEARD_MAX {
            self.recent.pop_front();
        }
    }

    /// The newest number, from the broker's state or file.
    pub(crate) fn learn(&mut self, newest: u64) {
        if newest > self.newest {
            self.recent.clear();
            self.newest = newest;
        }
    }

    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) fn acknowledge(&mut self, seq: u64) {
        self.acknowledged = self.acknowledged.max(seq.min(self.newest));
    }

    pub(crate) fn after(&self, seq: u64) -> Tail {
        if seq >= self.newest {
            return Tail::Memory(Vec::new());
        }
        match self.recent.front() {
            Some(first) if first.seq <= seq + 1 => {
                Tail::Memory(self.recent.iter().filter(|event| event.seq > seq).cloned().collect())
            }
            Some(_) | None => Tail::File,
        }
    }

    /// All that is in memory: what is left when the file is unreadable.
    pub(crate) fn recent(&self) -> Vec<Event> {
        self.recent.iter().cloned().collect()
    }
}

/// The events in a file of this cage and source, in order, until the first line that is not one.
pub(crate) fn parse(lines: impl BufRead, cage: CageId, source: Source) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for text in lines.split(b'\n') {
        let Ok(text) = text else { break };
        let Ok(event) = serde_json::from_slice::<Event>(&text) else { break };
        let follows = events.last().is_none_or(|last| event.seq > last.seq);
        if event.cage != cage || event.source != source || !follows {
            break;
        }
        events.push(event);
    }
    events
}

fn line(event: &Event) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(event).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn line_length(event: &Event) -> u64 {
    u64::try_from(line(event).len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cage: CageId, seq: u64) -> Event {
        Event::new(cage, Source::Broker, seq, 0, &EventBody::CageGone {})
    }

    fn seqs(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn a_journal_goes_on_after_a_death_even_in_mid_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.jsonl");
        let cage = CageId::new();
        let mut journal = Journal::open(&path, cage).unwrap();
        journal.append(1, &EventBody::CageStarted { pid: 4 }).unwrap();
        journal.append(2, &EventBody::CageGone {}).unwrap();
        drop(journal);
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"cage\":\"cut");
        std::fs::write(&path, text).unwrap();
        let mut journal = Journal::open(&path, cage).unwrap();
        assert_eq!(journal.newest(), 2);
        journal.append(3, &EventBody::CageAdopted {}).unwrap();
        assert_eq!(seqs(&Journal::open(&path, cage).unwrap().after(0)), [1, 2, 3]);
        journal.acknowledge(2);
        assert_eq!(seqs(&journal.after(0)), [3]);
        journal.append(4, &EventBody::CageResumed { suspended_ms: 1 }).unwrap();
        journal.append(5, &EventBody::CageResumed { suspended_ms: 2 }).unwrap();
        assert!(journal.holds_last(&EventBody::CageResumed { suspended_ms: 2 }));
        assert!(!journal.holds_last(&EventBody::CageResumed { suspended_ms: 1 }));
        assert_eq!(journal.newest_of("cage.adopted"), Some((3, 3)));
        assert_eq!(journal.newest_of("cage.gone"), Some((2, 2)));
        assert_eq!(journal.newest_of("cage.exited"), None);
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_in_order_when_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.jsonl");
        let cage = CageId::new();
        let mut journal = Journal::open(&path, cage).unwrap();
        journal.append(1, &EventBody::CageStarted { pid: 4 }).unwrap();
        // Each write gives ENOSPC.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let disk = std::mem::replace(&mut journal.file, full);
        assert!(journal.append(2, &EventBody::CageAdopted {}).is_err());
        assert!(journal.append_late(3, &EventBody::CageResumed { suspended_ms: 1 }).is_err());
        assert!(journal.append_late(4, &EventBody::CageGone {}).is_err());
        assert!(journal.append(5, &EventBody::CageAdopted {}).is_err(), "it would overtake them");
        assert_eq!((seqs(&journal.after(0)), journal.newest()), (vec![1], 1));
        assert_eq!(journal.newest_of("cage.gone"), Some((3, 4)));
        journal.file = disk;
        assert_eq!(seqs(&journal.after(0)), [1, 2, 3]);
        journal.append(6, &EventBody::CageAdopted {}).unwrap();
        let events = Journal::open(&path, cage).unwrap().after(0);
        assert_eq!(seqs(&events), [1, 2, 3, 4]);
        assert_eq!(events[2].kind, "cage.gone");
    }

    #[test]
    fn heard_events_come_from_memory_while_they_are_whole() {
        let cage = CageId::new();
        let mut heard = Heard::default();
        for seq in [1, 2, 2, 3] {
            heard.hear(event(cage, seq));
        }
        let tail = |heard: &Heard, seq| match heard.after(seq) {
            Tail::Memory(events) => Some(seqs(&events)),
            Tail::File => None,
        };
        assert_eq!(tail(&heard, 1), Some(vec![2, 3]));
        assert_eq!(tail(&heard, 3), Some(vec![]));
        heard.hear(event(cage, 7));
        assert_eq!(tail(&heard, 3), None);
        assert_eq!(tail(&heard, 6), Some(vec![7]));
        heard.learn(9);
        assert_eq!(tail(&heard, 7), None);
        heard.acknowledge(100);
        assert_eq!(heard.acknowledged(), 9);
    }

    #[test]
    fn memory_is_bounded() {
        let cage = CageId::new();
        let mut heard = Heard::default();
        for seq in 1..=1000 {
            heard.hear(event(cage, seq));
        }
        assert_eq!(heard.recent().len(), HEARD_MAX);
        assert_eq!(heard.after(0), Tail::File);
    }

    #[test]
    fn foreign_and_broken_lines_end_the_reading() {
        let cage = CageId::new();
        let good = serde_json::to_string(&event(cage, 1)).unwrap();
        let other = serde_json::to_string(&event(CageId::new(), 2)).unwrap();
        for bad in [other.as_str(), "junk", good.as_str(), ""] {
            let text = format!("{good}\n{bad}\n{good}\n");
            assert_eq!(seqs(&parse(text.as_bytes(), cage, Source::Broker)), [1], "{bad}");
        }
    }
}
