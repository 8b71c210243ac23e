//! Has the operator's side changed too? Decided per entry, in doubt for the operator.
//!
//! An overlay keeps nothing of how the folder below was, but when the layer was made; ctime, which no
//! program can set, tells the rest. A copy has its manifest. Both know our own work by its notes.

use crate::Stamp;
use crate::applied::{Applied, Note};
use crate::compare::{Found, From, Shown};
use crate::entry::{Entry, Kind, look};
use crate::manifest::Manifest;
use crate::path::{is_within, join, split};
use crate::problem::{At, Problem};
use crate::tree::{Tree, is_absent, names};
use crate::xattr;
use nix::errno::Errno;
use std::os::fd::AsFd;
use wire::{Arg, ChangeKind};

const CHANGED: &str = "changed in your folder since the session began";
const DELETED: &str = "deleted in your folder since the session began";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) origin: &'a Tree<'a>,
    pub(crate) tree: &'a Tree<'a>,
    pub(crate) made: Stamp,
    /// Of a private copy.
    pub(crate) manifest: Option<&'a Manifest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Only the program's side has changed.
    Free,
    /// Only the operator's side has.
    NoChange,
    Collides(String),
}

impl Judge<'_> {
    /// Verdicts of a sorted list.
    pub(crate) fn all(
        &self,
        found: Vec<Found>,
        applied: &Applied<'_>,
    ) -> Result<Vec<(Found, Option<String>)>, Problem> {
        let mut judged: Vec<(Found, Option<String>)> = Vec::with_capacity(found.len());
        // The last folder that cannot come: what is below it cannot either.
        let mut stays: Option<Vec<u8>> = None;
        for found in found {
            let verdict = self.one(&found, applied)?;
            let above = stays.as_deref().filter(|top| is_within(&found.path, top));
            if verdict != Verdict::Free && above.is_none() && found.brings_folder() {
                stays = Some(found.path.clone());
            }
            let above = stays.as_deref().filter(|top| is_within(&found.path, top));
            let conflict = match (verdict, above) {
                (Verdict::NoChange, _) => continue,
                (Verdict::Collides(words), _) => Some(words),
                (Verdict::Free, Some(top)) => {
                    Some(format!("its folder {:?} is not there in yours", Arg(top.to_vec())))
                }
                (Verdict::Free, None) => None,
            };
            judged.push((found, conflict));
        }
        Ok(judged)
    }

    fn one(&self, found: &Found, applied: &Applied<'_>) -> Result<Verdict, Problem> {
        let own = match self.manifest {
            Some(manifest) => self.against_manifest(found, manifest, applied),
            None => self.against_time(found, applied)?,
        };
        let loses_folder = found.old.filter(|old| old.entry.kind == Kind::Folder).is_some()
            && found.new.is_none_or(|new| new.entry.kind != Kind::Folder);
        if own == Verdict::Free && loses_folder {
            return self.below(&found.path, &found.path, applied);
        }
        Ok(own)
    }

    fn against_time(&self, found: &Found, applied: &Applied<'_>) -> Result<Verdict, Problem> {
        if let Some(old) = found.old {
            let free = self.is_untouched(&found.path, &old.entry, applied);
            return Ok(if free { Verdict::Free } else { collides(CHANGED) });
        }
        if applied.is_put(&found.path) {
            return Ok(collides("deleted in your folder since it was applied"));
        }
        match found.new {
            Some(new) if new.from == From::Layer && self.has_vanished(found, new, applied)? => {
                Ok(collides(DELETED))
            }
            Some(_) | None => Ok(Verdict::Free),
        }
    }

    /// Whether an entry that is only in the layer was copied up from one that the operator has
    /// deleted since. A file that a program has renamed bears the same mark: then the folder that it
    /// lies in tells whether anything was deleted from it at all.
    fn has_vanished(
        &self,
        found: &Found,
        new: Shown,
        applied: &Applied<'_>,
    ) -> Result<bool, Problem> {
        let (above, name) = split(&found.path);
        if new.entry.kind == Kind::File {
            let folder = self.origin.entry(above)?;
            if folder.is_none_or(|folder| self.is_whole(above, &folder, applied)) {
                return Ok(false);
            }
        }
        let copied_up = match new.entry.kind {
            Kind::Folder => match self.tree.folder_if_any(&found.path)? {
                Some(folder) => xattr::is_copied_up(folder.as_fd()),
                None => Ok(false),
            },
            Kind::File => {
                let folder = self.tree.reach(above).at("open", above)?;
                match self.tree.file(folder.as_fd(), name, &found.path) {
                    Ok(file) => xattr::is_copied_up(file.as_fd()),
                    Err(Errno::ENOENT | Errno::EINVAL | Errno::ELOOP) => Ok(false),
                    Err(errno) => Err(errno),
                }
            }
            Kind::Symlink | Kind::Fifo | Kind::Whiteout | Kind::Other => Ok(false),
        };
        copied_up.at("look at", &found.path)
    }

    fn against_manifest(
        &self,
        found: &Found,
        manifest: &Manifest,
        applied: &Applied<'_>,
    ) -> Verdict {
        let path = found.path.as_slice();
        let touched = match (manifest.entries.get(path), found.old) {
            (_, Some(old)) => !self.is_untouched(path, &old.entry, applied),
            (Some(_), None) => !matches!(applied.get(path), Some(Note::Gone)),
            (None, None) => applied.is_put(path),
        };
        let words = if found.old.is_none() { DELETED } else { CHANGED };
        match touched {
            false => Verdict::Free,
            true if manifest.changed_by_program(path, found.new.map(|new| new.entry).as_ref()) => {
                collides(words)
            }
            true => Verdict::NoChange,
        }
    }

    /// Whether the operator's entry is as the session has begun with, or as our own work has left it.
    pub(crate) fn is_untouched(&self, path: &[u8], entry: &Entry, applied: &Applied<'_>) -> bool {
        if applied.is_ours(path, entry) {
            return true;
        }
        let Some(manifest) = self.manifest else { return entry.ctime <= self.made };
        manifest.entries.get(path).is_some_and(|base| match entry.kind {
            // Its ctime moves with every entry that comes or goes, and those are looked at themselves.
            Kind::Folder => base.origin.is_same_but_for_name(entry),
            Kind::File | Kind::Symlink | Kind::Fifo | Kind::Whiteout | Kind::Other => {
                base.origin.is_same(entry)
            }
        })
    }

    /// Whether nothing has come or gone in a folder of the operator's but by our own work.
    pub(crate) fn is_whole(&self, path: &[u8], folder: &Entry, applied: &Applied<'_>) -> bool {
        folder.ctime <= self.made || applied.is_exactly_ours(path, folder)
    }

    /// Whether something below a folder of the operator's is theirs alone. `at`: where the folder
    /// lies now; `top`: where its place is.
    pub(crate) fn below(
        &self,
        at: &[u8],
        top: &[u8],
        applied: &Applied<'_>,
    ) -> Result<Verdict, Problem> {
        let mut next = vec![top.to_vec()];
        while let Some(path) = next.pop() {
            let below_top = path.get(top.len()..).unwrap_or_default();
            let folder = match self.origin.folder(&[at, below_top].concat()) {
                Ok(folder) => folder,
                Err(problem) if is_absent(problem.errno()) => continue,
                Err(problem) if problem.errno() == Some(Errno::EACCES) => {
                    return Ok(Verdict::Collides(format!(
                        "{:?} in it cannot be read in your folder",
                        Arg(path)
                    )));
                }
                Err(problem) => return Err(problem),
            };
            for name in names(folder.as_fd(), &path)? {
                let inner = join(&path, &name);
                let found = look(folder.as_fd(), &name).at("look at", &inner)?;
                let Some(entry) = found else { continue };
                if !self.is_untouched(&inner, &entry, applied) {
                    return Ok(Verdict::Collides(format!("{:?} in it {CHANGED}", Arg(inner))));
                }
                if entry.kind == Kind::Folder {
                    next.push(inner);
                }
            }
        }
        Ok(Verdict::Free)
    }
}

fn collides(words: &str) -> Verdict {
    Verdict::Collides(words.to_owned())
}

/// For the list: what is shown of a difference.
pub(crate) fn change(found: &Found, conflict: Option<String>) -> Option<wire::Change> {
    let shown = found.new.or(found.old)?;
    let new = found.new.filter(|new| new.entry.kind == Kind::File);
    let mode = match (found.old, found.new) {
        (Some(old), Some(new)) if found.kind == ChangeKind::Modified => {
            let (before, after) = (old.entry.mode, new.entry.mode);
            let shown = old.entry.kind == new.entry.kind
                && (before ^ after) & crate::compare::MODE_BITS != 0;
            shown.then_some((before, after))
        }
        _ => None,
    };
    Some(wire::Change {
        path: Arg(found.path.clone()),
        kind: found.kind,
        entry: shown.entry.kind.to_wire()?,
        bytes: new.map(|new| new.entry.size),
        mode,
        conflict,
    })
}
