//! The supervisor's own journal of who asked for what: `<state>/sup/journal`, which sessiond, taken over
//! or not, can neither write nor hold back.
//!
//! An act is written down before it is done, its outcome after it. What is done by an admin's right or by
//! a grant is not done where it cannot be written; everything else is, and the log says so. Appended, not
//! synced: it survives the death of a daemon, of a machine but for its last moments. Two files of
//! [`AUDIT_BYTES_MAX`]: the older one goes when the newer one is full.

use crate::clock;
use crate::pump::Dirty;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wire::audit::{AUDIT_BYTES_MAX, Act, AuditLine, AuditPage};
use wire::{ErrorCode, WireError};

/// Lines kept in memory, and most in one answer.
const RECENT_MAX: usize = 1_000;
/// Refusals of one uid that are written down in a minute; of those beyond them only that there were.
const REFUSALS_MAX: u32 = 30;
const MINUTE_MS: i64 = 60_000;
/// Uids whose refusals are counted at once.
const COUNTED_MAX: usize = 1_000;
/// Sequences of one millisecond: more than anybody can ask for in it.
const SEQ_PER_MS: u64 = 1_024;

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    dirty: Rc<Dirty>,
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    bytes: u64,
    newest: u64,
    recent: VecDeque<AuditLine>,
    refusals: BTreeMap<u32, Refusals>,
}

#[derive(Clone, Copy, Debug)]
struct Refusals {
    since_ms: i64,
    count: u32,
}

impl Audit {
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn open(path: PathBuf, dirty: Rc<Dirty>) -> io::Result<Self> {
        let file = append_to(&path)?;
        let mut lines = read_file(&path)?;
        let whole: u64 = lines.iter().map(|line| length(&bytes_of(line))).sum();
        if file.metadata()?.len() > whole {
            // The last line was cut by our death; whatever it was about was not done.
            file.set_len(whole)?;
        }
        // Over a file that was lost, too: nobody is to take a new line for one that they have.
        let by_clock = u64::try_from(clock::now_ms()).unwrap_or(0).saturating_mul(SEQ_PER_MS);
        let newest = lines.last().map_or(0, |line| line.seq).max(by_clock);
        let surplus = lines.len().saturating_sub(RECENT_MAX);
        let recent: VecDeque<AuditLine> = lines.drain(..).skip(surplus).collect();
        let inner = Inner { file, bytes: whole, newest, recent, refusals: BTreeMap::new() };
        dirty.mark_audit();
        Ok(Self { path, dirty, inner: RefCell::new(inner) })
    }

    pub(crate) fn dirty(&self) -> &Rc<Dirty> {
        &self.dirty
    }

    pub(crate) fn newest(&self) -> u64 {
        self.inner.borrow().newest
    }

    /// Before it is done. The number is for its outcome.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn asked(&self, act: &Act) -> io::Result<u64> {
        self.append(act.clone(), None, "asked")
    }

    /// After it.
    pub(crate) fn outcome(&self, of: Option<u64>, act: Act, told: Option<&WireError>) {
        let outcome = told.map_or_else(|| "done".to_owned(), |error| word(error.code));
        if let Err(error) = self.append(act, of, &outcome) {
            tracing::error!(%error, "the outcome of an act is not in the journal");
        }
    }

    /// What was not let through, as far as it is not more of the same than anybody wants to read.
    pub(crate) fn refused(&self, act: Act, error: &WireError) {
        if self.is_too_much(act.uid) {
            return;
        }
        self.outcome(None, act, Some(error));
    }

    fn is_too_much(&self, uid: u32) -> bool {
        let now = clock::now_ms();
        let refusals = &mut self.inner.borrow_mut().refusals;
        if refusals.len() >= COUNTED_MAX && !refusals.contains_key(&uid) {
            refusals.retain(|_uid, counted| now - counted.since_ms < MINUTE_MS);
        }
        let counted = refusals.entry(uid).or_insert(Refusals { since_ms: now, count: 0 });
        if now - counted.since_ms >= MINUTE_MS {
            *counted = Refusals { since_ms: now, count: 0 };
        }
        counted.count = counted.count.saturating_add(1);
        if counted.count == REFUSALS_MAX + 1 {
            tracing::warn!(uid, "more refusals in a minute than the journal takes");
        }
        counted.count > REFUSALS_MAX
    }

    /// In order, the oldest first; as many as fit into one answer.
    pub(crate) fn after(&self, seq: u64) -> AuditPage {
        let inner = self.inner.borrow();
        let all_in_memory = inner.recent.front().is_none_or(|first| first.seq <= seq)
            || inner.recent.len() < RECENT_MAX && !older(&self.path).exists();
        let newer = |line: &AuditLine| line.seq > seq;
        if all_in_memory {
            return AuditPage {
                lines: inner.recent.iter().filter(|it| newer(it)).cloned().collect(),
            };
        }
        drop(inner);
        let files = [older(&self.path), self.path.clone()];
        let lines = files.iter().flat_map(|path| read_file(path).unwrap_or_default());
        AuditPage { lines: lines.filter(newer).take(RECENT_MAX).collect() }
    }

    fn append(&self, act: Act, of: Option<u64>, outcome: &str) -> io::Result<u64> {
        let mut inner = self.inner.borrow_mut();
        if inner.bytes >= AUDIT_BYTES_MAX {
            std::fs::rename(&self.path, older(&self.path))?;
            inner.file = append_to(&self.path)?;
            inner.bytes = 0;
        }
        let seq = inner.newest + 1;
        let line = AuditLine { seq, of, at_ms: clock::now_ms(), act, outcome: outcome.to_owned() };
        let bytes = bytes_of(&line);
        let before = inner.bytes;
        if let Err(error) = inner.file.write_all(&bytes) {
            // Half a line would end the reading of what follows.
            let _as_it_was = inner.file.set_len(before);
            return Err(error);
        }
        inner.bytes += length(&bytes);
        inner.newest = seq;
        inner.recent.push_back(line);
        if inner.recent.len() > RECENT_MAX {
            inner.recent.pop_front();
        }
        drop(inner);
        self.dirty.mark_audit();
        Ok(seq)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("1")
}

/// Until the first line that is none.
fn read_file(path: &Path) -> io::Result<Vec<AuditLine>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut lines = Vec::new();
    for text in io::BufReader::new(file).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<AuditLine>(&text?) else { break };
        lines.push(line);
    }
    Ok(lines)
}

fn bytes_of(line: &AuditLine) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn word(code: ErrorCode) -> String {
    let value = serde_json::to_value(code).unwrap_or_default();
    value.as_str().unwrap_or("internal").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(uid: u32) -> Act {
        let verb = "kill".to_owned();
        Act { uid, admin: false, grant: None, verb, session: None, cage: None, owner: None }
    }

    fn open(folder: &tempfile::TempDir) -> Audit {
        Audit::open(folder.path().join("journal"), Rc::default()).unwrap()
    }

    #[test]
    fn it_goes_on_after_a_death_in_mid_line_and_after_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&folder);
        let of = audit.asked(&act(7)).unwrap();
        audit.outcome(Some(of), act(7), None);
        drop(audit);
        let path = folder.path().join("journal");
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"seq\":cut");
        std::fs::write(&path, text).unwrap();
        let audit = open(&folder);
        let next = audit.asked(&act(8)).unwrap();
        let lines = audit.after(0).lines;
        let told: Vec<(u32, &str)> =
            lines.iter().map(|line| (line.act.uid, line.outcome.as_str())).collect();
        assert_eq!(told, [(7, "asked"), (7, "done"), (8, "asked")]);
        assert_eq!((lines[1].of, lines[2].seq), (Some(of), next));
        assert_eq!(audit.after(of).lines.len(), 2);
        std::fs::remove_file(&path).unwrap();
        // Nobody starts a supervisor twice in one millisecond.
        while u64::try_from(clock::now_ms()).unwrap() <= next / SEQ_PER_MS {
            std::hint::spin_loop();
        }
        assert!(open(&folder).asked(&act(9)).unwrap() > next, "a number that was told before");
    }

    #[test]
    fn it_is_bounded_and_what_is_not_in_memory_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&folder);
        let first = audit.asked(&act(1)).unwrap();
        let line = length(&std::fs::read(folder.path().join("journal")).unwrap());
        let count = 5 * AUDIT_BYTES_MAX / (2 * line);
        let mut last = first;
        for _number in 0..count {
            last = audit.asked(&act(2)).unwrap();
        }
        let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert!(size("journal") + size("journal.1") <= 2 * (AUDIT_BYTES_MAX + line));
        // The first one is gone with its file; then in order, without a hole, to the newest.
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = audit.after(after).lines;
            let Some(end) = page.last() else { break };
            after = end.seq;
            seen.extend(page.iter().map(|line| line.seq));
        }
        assert!(seen[0] > first && *seen.last().unwrap() == last);
        assert!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }

    #[test]
    fn a_stranger_cannot_push_out_what_others_did() {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&folder);
        let error = WireError::new(ErrorCode::Forbidden, "no");
        for _number in 0..1_000 {
            audit.refused(act(6), &error);
        }
        audit.refused(act(7), &error);
        let lines = audit.after(0).lines;
        assert_eq!(lines.len(), usize::try_from(REFUSALS_MAX).unwrap() + 1);
        assert!(lines.iter().all(|line| line.outcome == "forbidden"));
    }
}
