//! What we have brought to the operator's folder: so that our own work is never taken for theirs.
//!
//! A file of lines, appended to. Before something is moved into place its line says what will lie
//! there (an intent), afterwards what does: a process that is killed in between leaves enough for
//! the next one to know its own file, and to clear up the temporary name.

use crate::Stamp;
use crate::entry::{Entry, Kind, bits};
use crate::notes;
use crate::problem::{At, Problem};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use wire::Arg;

const NAME: &[u8] = b"applied";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// This lies there, put by us.
    Put { inode: u64, ctime: Stamp, kind: Kind, mode: u32 },
    /// We have removed what was there.
    Gone,
    /// About to happen, by way of this temporary name beside it.
    Intent { temporary: Arg, new: Option<Entry>, old: Option<Entry> },
    /// The old entry lies under the temporary name, holds nothing of the operator's, and is being
    /// removed.
    Removing { temporary: Arg, new: Option<Entry>, old: Entry },
    /// Something new is being made under the temporary name; what is in place stands as it was seen.
    Begun { temporary: Arg, old: Option<Entry> },
    /// Nothing of ours.
    Nothing,
}

#[derive(Serialize, Deserialize)]
struct Line {
    path: Arg,
    note: Note,
}

#[derive(Debug)]
pub(crate) struct Applied<'a> {
    layer: BorrowedFd<'a>,
    notes: BTreeMap<Vec<u8>, Note>,
    file: Option<File>,
}

impl<'a> Applied<'a> {
    pub(crate) fn read(layer: BorrowedFd<'a>) -> Result<Self, Problem> {
        let text = notes::read(layer, NAME)?.unwrap_or_default();
        // The last line of a killed process may be cut: what it was about was not begun.
        let notes = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Line>(line).ok())
            .map(|line| (line.path.0, line.note))
            .collect();
        Ok(Self { layer, notes, file: None })
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<&Note> {
        self.notes.get(path)
    }

    /// Whether the operator's entry is as our own work has left it. Of a folder, whatever has come or
    /// gone in it since: those entries are looked at themselves.
    pub(crate) fn is_ours(&self, path: &[u8], entry: &Entry) -> bool {
        match self.notes.get(path) {
            Some(Note::Put { inode, kind: Kind::Folder, mode, .. }) => {
                entry.kind == Kind::Folder && entry.inode == *inode && entry.mode == *mode
            }
            Some(Note::Put { inode, ctime, .. }) => entry.inode == *inode && entry.ctime == *ctime,
            Some(Note::Intent { new: Some(new), .. } | Note::Removing { new: Some(new), .. }) => {
                entry.is_same_but_for_name(new)
            }
            Some(
                Note::Intent { .. }
                | Note::Removing { .. }
                | Note::Begun { .. }
                | Note::Gone
                | Note::Nothing,
            )
            | None => false,
        }
    }

    /// Whether nothing has come or gone in a folder since our own work in it.
    pub(crate) fn is_exactly_ours(&self, path: &[u8], entry: &Entry) -> bool {
        matches!(self.notes.get(path), Some(Note::Put { inode, ctime, .. })
            if entry.inode == *inode && entry.ctime == *ctime)
    }

    /// Whether we have put something there that should still be there.
    pub(crate) fn is_put(&self, path: &[u8]) -> bool {
        matches!(self.notes.get(path), Some(Note::Put { .. }))
    }

    /// What was begun and perhaps not ended: path, temporary name beside it, note.
    pub(crate) fn unfinished(&self) -> Vec<(Vec<u8>, Vec<u8>, Note)> {
        let open = self.notes.iter().filter_map(|(path, note)| match note {
            Note::Intent { temporary, .. }
            | Note::Removing { temporary, .. }
            | Note::Begun { temporary, .. } => {
                Some((path.clone(), temporary.0.clone(), note.clone()))
            }
            Note::Put { .. } | Note::Gone | Note::Nothing => None,
        });
        open.collect()
    }

    pub(crate) fn put(&mut self, path: &[u8], entry: &Entry) -> Result<(), Problem> {
        let Entry { inode, ctime, kind, mode, .. } = *entry;
        self.note(path, Note::Put { inode, ctime, kind, mode })
    }

    pub(crate) fn note(&mut self, path: &[u8], note: Note) -> Result<(), Problem> {
        let line = Line { path: Arg(path.to_vec()), note };
        // A newline before it too: a line that was cut must not swallow this one.
        let mut text = vec![b'\n'];
        serde_json::to_writer(&mut text, &line)
            .map_err(|error| Problem::Note("applied", error.to_string()))?;
        text.push(b'\n');
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(append(self.layer).at("open", NAME)?),
        };
        file.write_all(&text).at("write", NAME)?;
        self.notes.insert(line.path.0, line.note);
        Ok(())
    }
}

fn append(layer: BorrowedFd<'_>) -> Result<File, Errno> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(layer, NAME, flags, bits(0o600))?.into())
}
