//! One place in the operator's folder, filled, replaced or cleared in one step.
//!
//! ```text
//! note intent → new under a temporary name ─ exchange ─► new in place, old under the temporary name
//!                                                          │ old as it was seen? nothing of the
//!                                                          │ operator's below it?
//!                                            no: back ◄────┴────► yes: note, remove old, note
//! ```
//!
//! Killed anywhere, [`recover`] ends it or takes it back.

use crate::applied::{Applied, Note};
use crate::entry::{Entry, Kind, look};
use crate::judge::{Judge, Verdict};
use crate::path::{join, split};
use crate::problem::{At, Problem};
use crate::remove::remove;
use crate::tree::{Tree, is_absent};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, RenameFlags, renameat, renameat2};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use wire::Arg;

pub(crate) fn has_changed() -> Problem {
    Problem::Stays("changed in your folder at this moment".into())
}

pub(crate) fn has_come() -> Problem {
    Problem::Stays("something has come there in your folder at this moment".into())
}

#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) folder: BorrowedFd<'a>,
    name: &'a [u8],
    path: &'a [u8],
    /// A name beside it that nobody else uses.
    pub(crate) temporary: Vec<u8>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(folder: BorrowedFd<'a>, name: &'a [u8], path: &'a [u8]) -> Self {
        let random = RandomState::new().hash_one(path);
        Self { folder, name, path, temporary: format!(".mews-{random:016x}").into_bytes() }
    }

    fn look(&self, name: &[u8]) -> Result<Option<Entry>, Problem> {
        look(self.folder, name).at("look at", self.path)
    }

    fn intent(&self, new: Option<&Entry>, old: Option<&Entry>) -> Note {
        Note::Intent {
            temporary: Arg(self.temporary.clone()),
            new: new.copied(),
            old: old.copied(),
        }
    }

    /// Before anything lies under the temporary name.
    pub(crate) fn begin(
        &self,
        applied: &mut Applied<'_>,
        seen: Option<&Entry>,
    ) -> Result<(), Problem> {
        let temporary = Arg(self.temporary.clone());
        applied.note(self.path, Note::Begun { temporary, old: seen.copied() })
    }

    /// Nothing was done to the place: what was ours there is ours still.
    pub(crate) fn leave(
        &self,
        applied: &mut Applied<'_>,
        seen: Option<&Entry>,
    ) -> Result<(), Problem> {
        remove(self.folder, &self.temporary)?;
        match (self.look(self.name)?, seen) {
            (Some(now), Some(seen)) if now.is_same(seen) => applied.put(self.path, &now),
            (None, None) => applied.note(self.path, Note::Gone),
            (Some(_) | None, _) => applied.note(self.path, Note::Nothing),
        }
    }

    /// What is made goes to where nothing is.
    pub(crate) fn fill(&self, applied: &mut Applied<'_>, made: &Entry) -> Result<(), Problem> {
        applied.note(self.path, self.intent(Some(made), None))?;
        match move_new(self.folder, &self.temporary, self.name) {
            Ok(()) => self.settle(applied, Some(made), None),
            Err(errno) => {
                self.leave(applied, None)?;
                let failed = Problem::step("move into place", self.path, errno);
                Err(if errno == Errno::EEXIST { has_come() } else { failed })
            }
        }
    }

    /// What is made takes the place of what was seen.
    pub(crate) fn replace(
        &self,
        judge: &Judge<'_>,
        applied: &mut Applied<'_>,
        made: &Entry,
        seen: &Entry,
    ) -> Result<(), Problem> {
        if self.look(self.name)?.is_none_or(|now| !now.is_same(seen)) {
            self.leave(applied, Some(seen))?;
            return Err(has_changed());
        }
        applied.note(self.path, self.intent(Some(made), Some(seen)))?;
        match exchange(self.folder, &self.temporary, self.name) {
            Ok(()) => {}
            // A file system that cannot: one step too, but what it displaces is not seen again.
            Err(Errno::EINVAL) if seen.kind != Kind::Folder && made.kind != Kind::Folder => {
                renameat(self.folder, self.temporary.as_slice(), self.folder, self.name)
                    .at("move into place", self.path)?;
                return self.settle(applied, Some(made), None);
            }
            Err(errno) => {
                self.leave(applied, Some(seen))?;
                return Err(errno).at("exchange", self.path);
            }
        }
        if let Err(problem) = self.check_displaced(judge, applied, seen) {
            exchange(self.folder, &self.temporary, self.name).at("put back", self.path)?;
            let aside = self.look(&self.temporary)?;
            if aside.is_some_and(|aside| aside.inode != made.inode) {
                // The operator has replaced what we had just put there.
                applied.note(self.path, Note::Nothing)?;
                return Err(self.both_stay());
            }
            self.leave(applied, Some(seen))?;
            return Err(problem);
        }
        self.remove_old(applied, Some(made), seen)
    }

    /// What was seen goes.
    pub(crate) fn clear(
        &self,
        judge: &Judge<'_>,
        applied: &mut Applied<'_>,
        seen: &Entry,
    ) -> Result<(), Problem> {
        if self.look(self.name)?.is_none_or(|now| !now.is_same(seen)) {
            return Err(has_changed());
        }
        applied.note(self.path, self.intent(None, Some(seen)))?;
        move_new(self.folder, self.name, &self.temporary).at("move away", self.path)?;
        if let Err(problem) = self.check_displaced(judge, applied, seen) {
            let back = move_new(self.folder, &self.temporary, self.name);
            applied.note(self.path, Note::Nothing)?;
            return Err(if back.is_ok() { problem } else { self.both_stay() });
        }
        self.remove_old(applied, None, seen)
    }

    fn check_displaced(
        &self,
        judge: &Judge<'_>,
        applied: &Applied<'_>,
        seen: &Entry,
    ) -> Result<(), Problem> {
        let displaced = self.look(&self.temporary)?;
        if displaced.is_none_or(|displaced| !displaced.is_same_but_for_name(seen)) {
            return Err(has_changed());
        }
        if seen.kind != Kind::Folder {
            return Ok(());
        }
        let at = join(split(self.path).0, &self.temporary);
        match judge.below(&at, self.path, applied)? {
            Verdict::Free | Verdict::NoChange => Ok(()),
            Verdict::Collides(words) => Err(Problem::Stays(words)),
        }
    }

    /// Two entries of the operator's want one place: none is removed.
    fn both_stay(&self) -> Problem {
        Problem::Stays(format!(
            "changed in your folder at this moment; the other version lies beside it as {:?}",
            Arg(self.temporary.clone())
        ))
    }

    fn remove_old(
        &self,
        applied: &mut Applied<'_>,
        made: Option<&Entry>,
        seen: &Entry,
    ) -> Result<(), Problem> {
        let note = Note::Removing {
            temporary: Arg(self.temporary.clone()),
            new: made.copied(),
            old: *seen,
        };
        applied.note(self.path, note)?;
        remove(self.folder, &self.temporary)?;
        self.settle(applied, made, None)
    }

    /// What lies there now is ours, or the operator's as it was seen (moved back, so that its ctime
    /// tells nothing any more), or something else.
    fn settle(
        &self,
        applied: &mut Applied<'_>,
        made: Option<&Entry>,
        seen: Option<&Entry>,
    ) -> Result<(), Problem> {
        match (self.look(self.name)?, made) {
            (Some(now), _)
                if made.into_iter().chain(seen).any(|it| now.is_same_but_for_name(it)) =>
            {
                applied.put(self.path, &now)
            }
            (None, None) if seen.is_none() => applied.note(self.path, Note::Gone),
            (Some(_) | None, _) => applied.note(self.path, Note::Nothing),
        }
    }

    /// After a kill.
    fn recover(&self, applied: &mut Applied<'_>, note: &Note) -> Result<(), Problem> {
        let is = |entry: &Option<Entry>, other: &Entry| {
            entry.as_ref().is_some_and(|entry| entry.inode == other.inode)
        };
        let aside = self.look(&self.temporary)?;
        match note {
            Note::Removing { old, new, .. } => {
                if is(&aside, old) {
                    remove(self.folder, &self.temporary)?;
                }
                self.settle(applied, new.as_ref(), None)
            }
            Note::Begun { old, .. } => self.leave(applied, old.as_ref()),
            Note::Intent { new, old, .. } => match (&aside, new, old) {
                (None, new, old) => self.settle(applied, new.as_ref(), old.as_ref()),
                (Some(aside), Some(new), old) if aside.inode == new.inode => {
                    remove(self.folder, &self.temporary)?;
                    self.settle(applied, None, old.as_ref())
                }
                (Some(aside), new, Some(old)) if aside.inode == old.inode => {
                    self.put_back(applied, new.as_ref(), old)
                }
                (Some(_), _, _) => Ok(()),
            },
            Note::Put { .. } | Note::Gone | Note::Nothing => Ok(()),
        }
    }

    /// The operator's entry back to its place; that this has moved its ctime is noted.
    fn put_back(
        &self,
        applied: &mut Applied<'_>,
        new: Option<&Entry>,
        old: &Entry,
    ) -> Result<(), Problem> {
        match (self.look(self.name)?, new) {
            (None, _) => move_new(self.folder, &self.temporary, self.name),
            (Some(now), Some(new)) if now.inode == new.inode => {
                exchange(self.folder, &self.temporary, self.name)
                    .and_then(|()| unlink(self.folder, &self.temporary, new.kind))
            }
            // Something of the operator's is in its place: both stay.
            (Some(_), _) => return Ok(()),
        }
        .at("put back", self.path)?;
        self.settle(applied, new, Some(old))
    }
}

/// Ends or takes back what a killed apply has begun.
pub(crate) fn recover(origin: &Tree<'_>, applied: &mut Applied<'_>) -> Result<(), Problem> {
    for (path, temporary, note) in applied.unfinished() {
        let (above, name) = split(&path);
        let folder = match origin.reach(above) {
            Ok(folder) => folder,
            Err(errno) if is_absent(Some(errno)) => continue,
            Err(errno) => return Err(errno).at("open", above),
        };
        let place = Place { folder: folder.as_fd(), name, path: &path, temporary };
        place.recover(applied, &note)?;
    }
    Ok(())
}

fn exchange(folder: BorrowedFd<'_>, one: &[u8], other: &[u8]) -> Result<(), Errno> {
    renameat2(folder, one, folder, other, RenameFlags::RENAME_EXCHANGE)
}

/// To a name where nothing is: EEXIST.
fn move_new(folder: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match renameat2(folder, from, folder, to, RenameFlags::RENAME_NOREPLACE) {
        // A file system that cannot: as safe for all but folders, which are moved to no name that
        // anybody else uses.
        Err(Errno::EINVAL) => match linkat(folder, from, folder, to, AtFlags::empty()) {
            Ok(()) => unlinkat(folder, from, UnlinkatFlags::NoRemoveDir),
            Err(Errno::EPERM) => renameat(folder, from, folder, to),
            Err(errno) => Err(errno),
        },
        other => other,
    }
}

fn unlink(folder: BorrowedFd<'_>, name: &[u8], kind: Kind) -> Result<(), Errno> {
    let how =
        if kind == Kind::Folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
    unlinkat(folder, name, how)
}
