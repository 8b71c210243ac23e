//! Changes brought to the operator's folder.
//!
//! A reader of that folder sees the old entry or the new one, never half of one, and an edit of the
//! operator's wins, also one in that very moment: everything is made under a temporary name beside
//! its place ([`crate::swap`]), and what is displaced is looked at before it is removed.

use crate::applied::Applied;
use crate::compare::{Found, MODE_BITS, Shown};
use crate::content::Contents;
use crate::diff::Sides;
use crate::entry::{self, Entry, Kind, bits, look};
use crate::judge::change;
use crate::path::split;
use crate::problem::{At, Problem};
use crate::selection::Selection;
use crate::swap::Place;
use crate::tree::is_absent;
use crate::xattr::{self, Keep};
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{fchmod, mkdirat};
use nix::unistd::{fsync, mkfifoat, symlinkat, syncfs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use wire::{Arg, ChangeKind, Changes};

/// What was done, and what stays.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) done: Changes,
    pub(crate) left: Changes,
}

struct Apply<'a> {
    sides: &'a Sides<'a>,
    applied: Applied<'a>,
    contents: Contents,
    /// Folders whose mode (and, of new ones, time) is set when all is in them.
    folders: Vec<(Found, Option<Entry>)>,
}

pub(crate) fn apply(sides: &Sides<'_>, named: &[Arg]) -> Result<Outcome, Problem> {
    let selection = Selection::new(named)?;
    let mut applied = Applied::read(sides.layer)?;
    crate::swap::recover(&sides.origin, &mut applied)?;
    let done = run(sides, applied, &selection);
    sides.tree.lock_again()?;
    done
}

fn run(sides: &Sides<'_>, applied: Applied<'_>, selection: &Selection) -> Result<Outcome, Problem> {
    let judged = sides.diff(&applied)?;
    let needed = selection.needed(&judged.found);
    let mut outcome = Outcome::default();
    outcome.left.changes = selection.without_change(&judged.found);
    outcome.done.truncated = judged.truncated;
    let mut work = Apply { sides, applied, contents: Contents::default(), folders: Vec::new() };
    for (found, conflict) in judged.found {
        if !selection.selects(&found.path) && !needed.contains(&found.path) {
            continue;
        }
        let why = match conflict {
            Some(why) => Some(why),
            None => work.one(&found).err().map(|problem| problem.to_string()),
        };
        let list = if why.is_some() { &mut outcome.left } else { &mut outcome.done };
        list.changes.extend(change(&found, why));
    }
    for (found, made) in std::mem::take(&mut work.folders).into_iter().rev() {
        if let Err(problem) = work.finish_folder(&found, made.as_ref()) {
            outcome.done.changes.retain(|done| done.path.as_bytes() != found.path);
            outcome.left.changes.extend(change(&found, Some(problem.to_string())));
        }
    }
    outcome.left.changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let origin = sides.origin.reach(b"").at("open", b"")?;
    let origin = openat(&origin, ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, bits(0));
    origin.and_then(|origin| syncfs(&origin)).at("sync", b"")?;
    Ok(outcome)
}

impl Apply<'_> {
    fn one(&mut self, found: &Found) -> Result<(), Problem> {
        let (above, name) = split(&found.path);
        let folder = match self.sides.origin.reach(above) {
            Ok(folder) => folder,
            Err(errno) if is_absent(Some(errno)) => {
                return Err(Problem::Stays("its folder is not there in yours".into()));
            }
            Err(errno) => return Err(errno).at("open", above),
        };
        let folder = folder.as_fd();
        let before = entry::of(folder).at("look at", above)?;
        let ours = self.sides.judge().is_whole(above, &before, &self.applied);
        // Its ctime moves by our work, which must not look like the operator's: noted before, for
        // whoever kills us, and after.
        if ours && !self.applied.is_ours(above, &before) {
            self.applied.put(above, &before)?;
        }
        self.change(found, folder, name)?;
        if ours {
            self.applied.put(above, &entry::of(folder).at("look at", above)?)?;
        }
        Ok(())
    }

    fn change(
        &mut self,
        found: &Found,
        folder: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Problem> {
        let path = found.path.as_slice();
        match (found.kind, found.old, found.new) {
            (ChangeKind::Modified, Some(old), Some(new)) if found.only_mode => {
                let now = new.entry.mode & 0o300 == 0o300 || new.entry.kind != Kind::Folder;
                if now {
                    return self.set_mode(folder, name, path, &old.entry, new.entry.mode);
                }
                self.folders.push((found.clone(), None));
                Ok(())
            }
            (_, None, Some(new)) => {
                let place = Place::new(folder, name, path);
                let made = self.make(&place, found, new)?;
                place.fill(&mut self.applied, &made)?;
                self.folder_made(found, folder, name)
            }
            (_, Some(old), Some(new)) => {
                let place = Place::new(folder, name, path);
                let made = self.make(&place, found, new)?;
                place.replace(&self.sides.judge(), &mut self.applied, &made, &old.entry)?;
                self.folder_made(found, folder, name)
            }
            (_, Some(old), None) => {
                let place = Place::new(folder, name, path);
                place.clear(&self.sides.judge(), &mut self.applied, &old.entry)
            }
            (_, None, None) => Ok(()),
        }
    }

    fn folder_made(
        &mut self,
        found: &Found,
        folder: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Problem> {
        if found.brings_folder() {
            let made = look(folder, name).at("look at", &found.path)?;
            self.folders.push((found.clone(), made));
        }
        Ok(())
    }

    /// A new folder in an overlay hides from now on what the kernel, which has it mounted, has never
    /// seen below it: else entries that a program deletes in it would come back.
    fn hide_below(&self, path: &[u8]) -> Result<(), Problem> {
        if self.sides.manifest.is_some() {
            return Ok(());
        }
        let upper = self.sides.tree.folder_for_writing(path)?;
        xattr::set_opaque(upper.as_fd()).at("mark", path)
    }

    fn finish_folder(&mut self, found: &Found, made: Option<&Entry>) -> Result<(), Problem> {
        let path = found.path.as_slice();
        let (above, name) = split(path);
        let folder = self.sides.origin.reach(above).at("open", above)?;
        let folder = folder.as_fd();
        let Some(new) = found.new else { return Ok(()) };
        let now = look(folder, name).at("look at", path)?;
        let expected = made.or(found.old.as_ref().map(|old| &old.entry));
        let Some(now) = now.filter(|now| expected.is_some_and(|then| then.inode == now.inode))
        else {
            return Err(crate::swap::has_changed());
        };
        self.set_mode(folder, name, path, &now, new.entry.mode)?;
        if made.is_some() {
            entry::set_mtime(folder, name, new.entry.mtime).at("set the time of", path)?;
            if let Some(now) = look(folder, name).at("look at", path)? {
                self.applied.put(path, &now)?;
            }
        }
        Ok(())
    }

    /// Bits that count; setuid and setgid stay as they are in the operator's folder.
    fn set_mode(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        old: &Entry,
        mode: u32,
    ) -> Result<(), Problem> {
        let now = look(folder, name).at("look at", path)?;
        let same = now.as_ref().is_some_and(|now| {
            now.is_same(old)
                || (now.kind == Kind::Folder && now.inode == old.inode && now.mode == old.mode)
        });
        if !same {
            return Err(crate::swap::has_changed());
        }
        let mode = (mode & MODE_BITS) | (old.mode & !MODE_BITS);
        entry::set_mode(folder, name, old, mode).at("set the mode of", path)?;
        match look(folder, name).at("look at", path)? {
            Some(now) => self.applied.put(path, &now),
            None => Ok(()),
        }
    }

    /// The new entry, whole, under a temporary name.
    fn make(&mut self, place: &Place<'_>, found: &Found, new: Shown) -> Result<Entry, Problem> {
        let seen = found.old.as_ref().map(|old| &old.entry);
        place.begin(&mut self.applied, seen)?;
        let made = self
            .make_entry(place.folder, &place.temporary, &found.path, new)
            .and_then(|()| look(place.folder, &place.temporary).at("look at", &found.path))
            .and_then(|made| made.ok_or_else(crate::swap::has_changed));
        if made.is_err() {
            place.leave(&mut self.applied, seen)?;
        }
        made
    }

    fn make_entry(
        &mut self,
        folder: BorrowedFd<'_>,
        temporary: &[u8],
        path: &[u8],
        new: Shown,
    ) -> Result<(), Problem> {
        let (above, name) = split(path);
        let source = self.sides.tree.reach(above).at("open in the session", above)?;
        let source = source.as_fd();
        match new.entry.kind {
            Kind::File => return self.make_file(source, name, folder, temporary, path),
            Kind::Folder => {
                self.hide_below(path)?;
                return mkdirat(folder, temporary, bits(0o700)).at("make", path);
            }
            Kind::Symlink => {
                let to = readlinkat(source, name).at("read the link", path)?;
                symlinkat(to.as_bytes(), folder, temporary).at("make", path)?;
            }
            Kind::Fifo => {
                mkfifoat(folder, temporary, bits(0o600)).at("make", path)?;
                if let Some(made) = look(folder, temporary).at("look at", path)? {
                    entry::set_mode(folder, temporary, &made, new.entry.mode & MODE_BITS)
                        .at("set the mode of", path)?;
                }
            }
            Kind::Whiteout | Kind::Other => return Err(crate::swap::has_changed()),
        }
        entry::set_mtime(folder, temporary, new.entry.mtime).at("set the time of", path)
    }

    fn make_file(
        &mut self,
        source: BorrowedFd<'_>,
        name: &[u8],
        folder: BorrowedFd<'_>,
        temporary: &[u8],
        path: &[u8],
    ) -> Result<(), Problem> {
        let from = self.sides.tree.file(source, name, path).at("read in the session", path)?;
        let before = entry::of(&from).at("look at", path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let to = openat(folder, temporary, flags, bits(0o600)).at("make", path)?;
        self.contents.copy(&from, &to, before.size).at("copy", path)?;
        xattr::copy(from.as_fd(), to.as_fd(), Keep::Programs).at("copy the attributes of", path)?;
        fchmod(&to, bits(self.sides.tree.own_mode(&before) & MODE_BITS))
            .at("set the mode of", path)?;
        crate::content::set_mtime(&to, before.mtime).at("set the time of", path)?;
        fsync(&to).at("sync", path)?;
        if entry::of(&from).at("look at", path)?.is_same(&before) {
            return Ok(());
        }
        Err(Problem::Stays("a program was writing it: pause the session, or try again".into()))
    }
}
