//! Two views of a workspace side by side: what must happen to the old one to become the new one.
//!
//! A [`View`] is what a cage sees: a layer over a folder, a folder alone, or a tree alone. So one
//! walk serves the diff (folder → folder with layer), the diff of a copy (folder → copy) and the
//! preview of a restore (now → as saved).

use crate::entry::{Entry, Kind, look};
use crate::path::join;
use crate::problem::{At, Problem};
use crate::report::PATHS_BYTES_MAX;
use crate::tree::{Tree, is_absent, names};
use crate::xattr::{self, Opaque};
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::ChangeKind;
use wire::layer::CHANGES_MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) layer: Option<&'a Tree<'a>>,
    pub(crate) below: Option<&'a Tree<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Layer,
    Below,
}

/// What a view shows under a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) from: From,
    pub(crate) entry: Entry,
}

#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: ChangeKind,
    pub(crate) old: Option<Shown>,
    pub(crate) new: Option<Shown>,
    /// Of the same kind, with the same content: only permission bits differ.
    pub(crate) only_mode: bool,
}

impl Found {
    /// A folder takes the place of nothing or of something else: what is below it comes with it.
    pub(crate) fn brings_folder(&self) -> bool {
        self.new.is_some_and(|new| new.entry.kind == Kind::Folder)
            && self.old.is_none_or(|old| old.entry.kind != Kind::Folder)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Sorted by path.
    pub(crate) found: Vec<Found>,
    pub(crate) truncated: bool,
}

/// Entries (path, old, new) of which it is known that they are equal.
pub(crate) type Known<'a> = &'a dyn Fn(&[u8], &Entry, &Entry) -> bool;

/// Permission bits that count: setuid and setgid never pass between a layer and a folder.
pub(crate) const MODE_BITS: u32 = 0o1777;

pub(crate) fn compare(
    old: View<'_>,
    new: View<'_>,
    known: Known<'_>,
) -> Result<Differences, Problem> {
    let (done, next) = (Differences::default(), Vec::new());
    let mut walk = Walk { old, new, known, done, paths_bytes: 0, next };
    walk.next.push(Pair { path: Vec::new(), old: old.top()?, new: new.top()? });
    while let Some(pair) = walk.next.pop() {
        if walk.done.truncated {
            break;
        }
        walk.folder(&pair)?;
    }
    walk.done.found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(walk.done)
}

/// Of which trees a folder's content is made up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Made {
    layer: bool,
    below: bool,
}

struct Pair {
    path: Vec<u8>,
    old: Made,
    new: Made,
}

/// The folder of a pair, opened on one side.
struct Open<'a> {
    view: View<'a>,
    layer: Option<OwnedFd>,
    below: Option<OwnedFd>,
    /// Files may be whiteouts.
    file_whiteouts: bool,
}

struct Walk<'a> {
    old: View<'a>,
    new: View<'a>,
    known: Known<'a>,
    done: Differences,
    /// Of what was found.
    paths_bytes: usize,
    next: Vec<Pair>,
}

impl Walk<'_> {
    fn folder(&mut self, pair: &Pair) -> Result<(), Problem> {
        let old = self.old.open(&pair.path, pair.old)?;
        let new = self.new.open(&pair.path, pair.new)?;
        let mut all = BTreeSet::new();
        for folder in [&old.layer, &new.layer].into_iter().flatten() {
            all.extend(names(folder.as_fd(), &pair.path)?);
        }
        // Where both sides show the same folder below, what no layer names is equal.
        if pair.old.below != pair.new.below {
            for folder in [&old.below, &new.below].into_iter().flatten() {
                all.extend(names(folder.as_fd(), &pair.path)?);
            }
        }
        for name in all {
            if self.done.truncated {
                break;
            }
            let path = join(&pair.path, &name);
            let before = old.shown(&name, &path)?;
            let after = new.shown(&name, &path)?;
            self.entry(&old, &new, name.as_slice(), path, before, after, pair)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "two sides of one name")]
    fn entry(
        &mut self,
        old: &Open<'_>,
        new: &Open<'_>,
        name: &[u8],
        path: Vec<u8>,
        before: Option<Shown>,
        after: Option<Shown>,
        pair: &Pair,
    ) -> Result<(), Problem> {
        let inside = |shown: Option<Shown>, open: &Open<'_>, made: Made| match shown {
            Some(shown) if shown.entry.kind == Kind::Folder => {
                open.inside(name, &path, shown, made)
            }
            Some(_) | None => Ok(Made::default()),
        };
        let (made_old, made_new) = (inside(before, old, pair.old)?, inside(after, new, pair.new)?);
        let kind = match (before, after) {
            (None, None) => return Ok(()),
            (Some(one), Some(other)) if one.from == From::Below && other.from == From::Below => {
                return Ok(());
            }
            (Some(_), None) => ChangeKind::Deleted,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Modified,
        };
        let (mut differs, mut only_mode) = (true, false);
        if let (Some(one), Some(other)) = (before, after)
            && one.entry.kind == other.entry.kind
        {
            let modes = one.entry.mode & MODE_BITS != other.entry.mode & MODE_BITS;
            let content = !(self.known)(&path, &one.entry, &other.entry)
                && !same_content(old, new, name, &path, one, other)?;
            differs = modes || content;
            only_mode = modes && !content;
        }
        let goes_on = after.is_some_and(|after| after.entry.kind == Kind::Folder);
        if goes_on && (made_old != made_new || made_new.layer) {
            self.next.push(Pair { path: path.clone(), old: made_old, new: made_new });
        }
        if differs {
            self.paths_bytes += path.len();
            if self.done.found.len() == CHANGES_MAX || self.paths_bytes > PATHS_BYTES_MAX {
                self.done.truncated = true;
                return Ok(());
            }
            self.done.found.push(Found { path, kind, old: before, new: after, only_mode });
        }
        Ok(())
    }
}

impl<'a> View<'a> {
    fn top(&self) -> Result<Made, Problem> {
        let hidden = match self.layer {
            Some(layer) => xattr::opaque(layer.folder(b"")?.as_fd()).at("look at", b"")?,
            None => Opaque::No,
        };
        Ok(Made {
            layer: self.layer.is_some(),
            below: self.below.is_some() && hidden != Opaque::Yes,
        })
    }

    fn open(&self, path: &[u8], made: Made) -> Result<Open<'a>, Problem> {
        let folder = |tree: Option<&Tree<'_>>, wanted| match tree {
            Some(tree) if wanted => tree.folder_if_any(path),
            Some(_) | None => Ok(None),
        };
        let layer = folder(self.layer, made.layer)?;
        let file_whiteouts = match &layer {
            Some(folder) if self.below.is_some() => {
                xattr::opaque(folder.as_fd()).at("look at", path)? == Opaque::FileWhiteouts
            }
            Some(_) | None => false,
        };
        // Where only names of the layer count, the folder below need not be readable, but passable.
        let below = match self.below {
            Some(tree) if made.below => match tree.folder_if_any(path) {
                Err(problem) if problem.errno() == Some(Errno::EACCES) => {
                    Some(tree.reach(path).at("open", path)?)
                }
                other => other?,
            },
            Some(_) | None => None,
        };
        Ok(Open { view: *self, layer, below, file_whiteouts })
    }
}

impl Open<'_> {
    fn shown(&self, name: &[u8], path: &[u8]) -> Result<Option<Shown>, Problem> {
        if let (Some(tree), Some(folder)) = (self.view.layer, &self.layer)
            && let Some(mut entry) = look(folder.as_fd(), name).at("look at", path)?
        {
            let hides = match entry.kind {
                Kind::Whiteout | Kind::Other => true,
                Kind::File if self.file_whiteouts && entry.size == 0 => {
                    let file = tree.file(folder.as_fd(), name, path).at("open", path)?;
                    xattr::is_whiteout(file.as_fd()).at("look at", path)?
                }
                Kind::File | Kind::Folder | Kind::Symlink | Kind::Fifo => false,
            };
            entry.mode = tree.own_mode(&entry);
            return Ok((!hides).then_some(Shown { from: From::Layer, entry }));
        }
        let Some(folder) = &self.below else { return Ok(None) };
        let entry = look(folder.as_fd(), name).at("look at", path)?;
        Ok(entry
            .filter(|entry| entry.kind.to_wire().is_some())
            .map(|entry| Shown { from: From::Below, entry }))
    }

    /// Of what the content of a folder in this folder is made up.
    fn inside(&self, name: &[u8], path: &[u8], shown: Shown, made: Made) -> Result<Made, Problem> {
        let tree = match (shown.from, self.view.layer) {
            (From::Below, _) | (From::Layer, None) => {
                return Ok(Made { layer: false, below: true });
            }
            (From::Layer, Some(tree)) => tree,
        };
        let below = match &self.below {
            Some(folder) if made.below => look(folder.as_fd(), name).at("look at", path)?,
            Some(_) | None => None,
        };
        if below.is_none_or(|below| below.kind != Kind::Folder) {
            return Ok(Made { layer: true, below: false });
        }
        let hidden = match tree.folder_if_any(path)? {
            Some(folder) => xattr::opaque(folder.as_fd()).at("look at", path)?,
            None => Opaque::No,
        };
        Ok(Made { layer: true, below: hidden != Opaque::Yes })
    }

    fn tree(&self, from: From) -> Option<(&Tree<'_>, BorrowedFd<'_>)> {
        match from {
            From::Layer => Some((self.view.layer?, self.layer.as_ref()?.as_fd())),
            From::Below => Some((self.view.below?, self.below.as_ref()?.as_fd())),
        }
    }
}

/// Of two entries of one kind.
fn same_content(
    old: &Open<'_>,
    new: &Open<'_>,
    name: &[u8],
    path: &[u8],
    one: Shown,
    other: Shown,
) -> Result<bool, Problem> {
    let (Some((tree, folder)), Some((other_tree, other_folder))) =
        (old.tree(one.from), new.tree(other.from))
    else {
        return Ok(false);
    };
    match one.entry.kind {
        Kind::Folder | Kind::Fifo | Kind::Whiteout | Kind::Other => Ok(true),
        Kind::Symlink => {
            let target = readlinkat(folder, name);
            let other_target = readlinkat(other_folder, name);
            Ok(target.at("read the link", path)? == other_target.at("read the link", path)?)
        }
        Kind::File if one.entry.size != other.entry.size => Ok(false),
        Kind::File => {
            let file = tree.file(folder, name, path);
            let other_file = other_tree.file(other_folder, name, path);
            match (file, other_file) {
                (Ok(file), Ok(other_file)) => {
                    crate::content::equal(file, other_file, one.entry.size).at("read", path)
                }
                // Gone, changed into something else, or not readable for us: not the same then.
                (Err(errno), _) | (_, Err(errno)) if is_unreadable(errno) => Ok(false),
                (Err(errno), _) | (_, Err(errno)) => Err(errno).at("read", path),
            }
        }
    }
}

fn is_unreadable(errno: Errno) -> bool {
    is_absent(Some(errno)) || matches!(errno, Errno::EACCES | Errno::EINVAL | Errno::ENXIO)
}
