//! One tree that is read: the operator's folder, or a folder of a layer.
//!
//! A caged program may have taken all rights from its own folders and files. In a layer we give them
//! back for as long as we read, and note it first, so that a process that is killed meanwhile leaves
//! a list of what the next order has to put right. The operator's folder is never touched for that.

use crate::entry::{self, Entry, Kind, look, set_mode};
use crate::path::{check_depth, join, open_folder, reach, split};
use crate::problem::{At, Problem};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Arg;

/// What must be readable in a folder, and in a file.
const FOLDER_READ: u32 = 0o500;
const FOLDER_WRITE: u32 = 0o700;
const FILE_READ: u32 = 0o400;
/// Most names of one folder.
const NAMES_MAX: usize = 4_000_000;
/// Name of the note, beside the tree.
const UNLOCKED: &[u8] = b"unlocked";

#[derive(Debug)]
pub(crate) struct Tree<'a> {
    /// What holds the tree: the layer's or the saved folder, or the operator's folder itself.
    holder: BorrowedFd<'a>,
    /// Its name there; empty: the operator's folder.
    top: &'static str,
    unlocked: RefCell<Unlocked>,
}

#[derive(Debug, Default)]
struct Unlocked {
    /// In the order in which they were unlocked.
    entries: Vec<(Vec<u8>, Entry)>,
    /// By device and inode: a file may have several names.
    modes: HashMap<(u64, u64), u32>,
    journal: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Below the holder.
    path: Arg,
    entry: Entry,
}

impl<'a> Tree<'a> {
    /// The operator's folder.
    pub(crate) fn origin(folder: BorrowedFd<'a>) -> Self {
        Self { holder: folder, top: "", unlocked: RefCell::default() }
    }

    /// A tree of ours. That it is there is checked.
    pub(crate) fn layer(holder: BorrowedFd<'a>, top: &'static str) -> Result<Self, Problem> {
        match look(holder, top.as_bytes()).at("look at", top.as_bytes())? {
            Some(entry) if entry.kind == Kind::Folder => {
                Ok(Self { holder, top, unlocked: RefCell::default() })
            }
            Some(_) | None => Err(Problem::NotFilled(top.into())),
        }
    }

    fn is_ours(&self) -> bool {
        !self.top.is_empty()
    }

    fn full(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() { self.top.as_bytes().to_vec() } else { join(self.top.as_bytes(), path) }
    }

    /// Names a folder, for what is looked up in it.
    pub(crate) fn reach(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        reach(self.holder, &self.full(path))
    }

    /// Opens a folder for reading. Those above it have been opened by this before.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<OwnedFd, Problem> {
        check_depth(path)?;
        let full = self.full(path);
        if self.is_ours() {
            self.unlock_folder(&full, FOLDER_READ).at("open", path)?;
        }
        open_folder(self.holder, &full).at("open", path)
    }

    /// The same for a folder of ours that is to be changed.
    pub(crate) fn folder_for_writing(&self, path: &[u8]) -> Result<OwnedFd, Problem> {
        check_depth(path)?;
        let full = self.full(path);
        self.unlock_folder(&full, FOLDER_WRITE).at("open", path)?;
        open_folder(self.holder, &full).at("open", path)
    }

    /// Another mode for a folder of ours, from when it is locked again.
    pub(crate) fn set_own_mode(&self, path: &[u8], mode: u32) -> Result<(), Problem> {
        let full = self.full(path);
        let (above, name) = split(&full);
        let above = reach(self.holder, above).at("open", path)?;
        let Some(entry) = look(above.as_fd(), name).at("look at", path)? else { return Ok(()) };
        let mut unlocked = self.unlocked.borrow_mut();
        if let Some(noted) = unlocked.entries.iter_mut().find(|(noted, _)| *noted == full) {
            noted.1.mode = mode;
            return Ok(());
        }
        set_mode(above.as_fd(), name, &entry, mode).at("set the mode of", path)
    }

    /// `None`: it is not there, or is no folder.
    pub(crate) fn folder_if_any(&self, path: &[u8]) -> Result<Option<OwnedFd>, Problem> {
        match self.folder(path) {
            Ok(folder) => Ok(Some(folder)),
            Err(problem) if is_absent(problem.errno()) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// An entry by its path; what cannot be looked up because a folder above it is not there, is not
    /// there.
    pub(crate) fn entry(&self, path: &[u8]) -> Result<Option<Entry>, Problem> {
        let (above, name) = split(path);
        let name = if name.is_empty() { b"." } else { name };
        match self.reach(above).and_then(|folder| look(folder.as_fd(), name)) {
            Ok(found) => Ok(found),
            Err(errno) if is_absent(Some(errno)) => Ok(None),
            Err(errno) => Err(errno).at("look at", path),
        }
    }

    /// Opens a file for reading; ELOOP or EINVAL where it is something else by now. In a layer also
    /// one that its owner may not read: it stays readable until all is locked again, since the kernel
    /// asks for the right also when attributes are read.
    pub(crate) fn file(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<OwnedFd, Errno> {
        match open_file(folder, name) {
            Err(Errno::EACCES) if self.is_ours() => {
                let found = look(folder, name)?;
                let Some(entry) = found.filter(|entry| entry.kind == Kind::File) else {
                    return Err(Errno::ENOENT);
                };
                self.unlock(folder, name, &self.full(path), &entry, FILE_READ)?;
                open_file(folder, name)
            }
            other => other,
        }
    }

    fn unlock_folder(&self, full: &[u8], rights: u32) -> Result<(), Errno> {
        let (above, name) = split(full);
        let above = reach(self.holder, above)?;
        let Some(entry) = look(above.as_fd(), name)? else { return Err(Errno::ENOENT) };
        if entry.kind != Kind::Folder || entry.mode & rights == rights {
            return Ok(());
        }
        self.unlock(above.as_fd(), name, full, &entry, rights)
    }

    fn unlock(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        full: &[u8],
        entry: &Entry,
        rights: u32,
    ) -> Result<(), Errno> {
        self.unlocked.borrow_mut().note(self.holder, full, entry)?;
        set_mode(folder, name, entry, entry.mode | rights)
    }

    /// Takes the rights back. What is gone by now needs nothing.
    pub(crate) fn lock_again(&self) -> Result<(), Problem> {
        let unlocked = self.unlocked.take();
        if unlocked.journal.is_none() {
            return Ok(());
        }
        lock(self.holder, unlocked.entries)
    }

    /// The mode as the program has set it, whether or not the entry is unlocked now.
    pub(crate) fn own_mode(&self, entry: &Entry) -> u32 {
        let unlocked = self.unlocked.borrow();
        unlocked.modes.get(&(entry.device, entry.inode)).copied().unwrap_or(entry.mode)
    }
}

impl Unlocked {
    fn note(&mut self, holder: BorrowedFd<'_>, full: &[u8], entry: &Entry) -> Result<(), Errno> {
        if self.modes.contains_key(&(entry.device, entry.inode)) {
            return Ok(());
        }
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(open_journal(holder)?),
        };
        let line = Line { path: Arg(full.to_vec()), entry: *entry };
        let mut text = serde_json::to_vec(&line).map_err(|_never| Errno::EINVAL)?;
        text.push(b'\n');
        journal.write_all(&text).map_err(errno)?;
        self.entries.push((full.to_vec(), *entry));
        self.modes.insert((entry.device, entry.inode), entry.mode);
        Ok(())
    }
}

/// Puts right what an order that was killed has left unlocked.
pub(crate) fn lock_leftovers(holder: BorrowedFd<'_>) -> Result<(), Problem> {
    let Some(text) = crate::notes::read(holder, UNLOCKED)? else { return Ok(()) };
    // The last line of a killed process may be cut; what it was about was not done then.
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let line: Line = serde_json::from_slice(line).ok()?;
        Some((line.path.0, line.entry))
    });
    lock(holder, lines.collect())
}

/// The innermost first: those above must be passable for it.
fn lock(holder: BorrowedFd<'_>, entries: Vec<(Vec<u8>, Entry)>) -> Result<(), Problem> {
    for (full, entry) in entries.iter().rev() {
        let (above, name) = split(full);
        let done =
            reach(holder, above).and_then(|above| set_mode(above.as_fd(), name, entry, entry.mode));
        match done {
            Ok(()) | Err(Errno::ESTALE) => {}
            Err(errno) if is_absent(Some(errno)) => {}
            Err(errno) => return Err(errno).at("set the mode of", full),
        }
    }
    match unlinkat(holder, UNLOCKED, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", UNLOCKED),
    }
}

fn open_journal(holder: BorrowedFd<'_>) -> Result<File, Errno> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(holder, UNLOCKED, flags, entry::bits(0o600))?.into())
}

fn open_file(folder: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    // O_NONBLOCK: a FIFO that has come in its place must not hold us.
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    if entry::of(&file)?.kind == Kind::File { Ok(file) } else { Err(Errno::EINVAL) }
}

/// Names in a folder, sorted.
pub(crate) fn names(folder: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut folder = Dir::openat(folder, ".", flags, Mode::empty()).at("list", path)?;
    let mut names = Vec::new();
    for found in folder.iter() {
        let found = found.at("list", path)?;
        let name = found.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == NAMES_MAX {
            return Err(Problem::Large { path: Arg(path.to_vec()), max: NAMES_MAX });
        }
        names.push(name.to_vec());
    }
    names.sort_unstable();
    Ok(names)
}

/// Not there, or not as a folder, or a link in its place.
pub(crate) fn is_absent(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
