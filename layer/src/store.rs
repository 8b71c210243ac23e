//! The layer itself: filled, saved, restored, removed.
//!
//! | name in the layer | is |
//! | --- | --- |
//! | `upper`, `work` | an overlay's, as the kernel wants them |
//! | `tree`, `base` | a private copy, and what it began as ([`crate::manifest`]) |
//! | `applied` | what we have brought to the operator's folder ([`crate::applied`]) |
//! | `unlocked` | folders whose modes are to be put right ([`crate::tree`]) |
//! | `*.new`, `*.part` | an order's that did not end |

use crate::copy::copy;
use crate::entry::{self, bits, look};
use crate::manifest::{BASE, Base, Manifest};
use crate::path::{open_folder, reach};
use crate::problem::{At, Problem};
use crate::remove::{empty, remove};
use crate::tree::{Tree, lock_leftovers};
use crate::xattr::Keep;
use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat, renameat2};
use nix::sys::stat::{fchmod, mkdirat};
use nix::unistd::syncfs;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use wire::{Copied, WorkspaceMode};

const WORK: &[u8] = b"work";
const BASE_NEW: &str = "base.new";

/// Name of the tree that programs write to.
pub(crate) fn top(mode: WorkspaceMode) -> Result<&'static str, Problem> {
    match mode {
        WorkspaceMode::Overlay => Ok("upper"),
        WorkspaceMode::Copy => Ok("tree"),
        WorkspaceMode::Direct => Err(Problem::Order("mode direct has no layer".into())),
    }
}

fn new(top: &'static str) -> &'static [u8] {
    if top == "upper" { b"upper.new" } else { b"tree.new" }
}

/// Puts right and removes what an order that was killed has left.
pub(crate) fn recover(holder: BorrowedFd<'_>) -> Result<(), Problem> {
    lock_leftovers(holder)?;
    let unfinished = Manifest::read(holder, BASE_NEW);
    // One that cannot be read was not written to its end, so the tree was not exchanged.
    if let Ok(Some(manifest)) = unfinished
        && look(holder, b"tree").at("look at", b"tree")?.map(|tree| tree.inode)
            == Some(manifest.tree)
    {
        rename(holder, BASE_NEW.as_bytes(), BASE.as_bytes())?;
    }
    for name in ["upper.new", "tree.new", BASE_NEW, "base.part", "base.new.part", "applied.part"] {
        remove(holder, name.as_bytes())?;
    }
    Ok(())
}

/// Afresh, whatever an earlier fill has left.
pub(crate) fn fill(
    mode: WorkspaceMode,
    origin: BorrowedFd<'_>,
    layer: BorrowedFd<'_>,
) -> Result<Copied, Problem> {
    let top = top(mode)?;
    for name in [b"upper".as_slice(), WORK, b"tree", BASE.as_bytes(), b"applied"] {
        remove(layer, name)?;
    }
    match mode {
        WorkspaceMode::Overlay => {
            make_work(layer)?;
            let folder = entry::of(origin).at("look at", b"")?;
            mkdirat(layer, new(top), bits(0o700)).at("make", top.as_bytes())?;
            let upper = open_folder(layer, new(top)).at("open", top.as_bytes())?;
            fchmod(&upper, bits(folder.mode)).at("set the mode of", top.as_bytes())?;
            crate::content::set_mtime(&upper, folder.mtime).at("set the time of", b"upper")?;
            rename(layer, new(top), top.as_bytes())?;
            Ok(Copied::default())
        }
        WorkspaceMode::Copy => copy_afresh(origin, layer),
        WorkspaceMode::Direct => Ok(Copied::default()),
    }
}

/// A private copy of the folder as it is now, in place of the one that there may be.
pub(crate) fn copy_afresh(
    origin: BorrowedFd<'_>,
    layer: BorrowedFd<'_>,
) -> Result<Copied, Problem> {
    let top = top(WorkspaceMode::Copy)?;
    let origin = Tree::origin(origin);
    let mut entries = BTreeMap::new();
    let copied = copy(&origin, layer, new(top), Keep::Programs, &mut |path, entry| {
        entries.insert(path.to_vec(), Base { origin: *entry, copy: None });
    })?;
    let mut manifest = Manifest { tree: 0, entries };
    stamp_copies(layer, new(top), &mut manifest)?;
    put_in_place(layer, top, Some(manifest))?;
    Ok(copied)
}

/// The new tree, with its manifest, in place of the old one: as one step for all who look.
fn put_in_place(
    layer: BorrowedFd<'_>,
    top: &'static str,
    manifest: Option<Manifest>,
) -> Result<(), Problem> {
    let new = new(top);
    let with_manifest = manifest.is_some();
    if let Some(mut manifest) = manifest {
        manifest.tree = look(layer, new).at("look at", new)?.map_or(0, |made| made.inode);
        manifest.write(layer, BASE_NEW)?;
    }
    syncfs(layer).at("sync", top.as_bytes())?;
    match renameat2(layer, new, layer, top.as_bytes(), RenameFlags::RENAME_EXCHANGE) {
        Ok(()) => {}
        Err(Errno::ENOENT) => rename(layer, new, top.as_bytes())?,
        Err(errno) => return Err(errno).at("exchange", top.as_bytes()),
    }
    if with_manifest {
        rename(layer, BASE_NEW.as_bytes(), BASE.as_bytes())?;
    }
    remove(layer, new)
}

/// Notes how each copy stands now that nothing is done to it any more.
fn stamp_copies(
    layer: BorrowedFd<'_>,
    tree: &[u8],
    manifest: &mut Manifest,
) -> Result<(), Problem> {
    let mut folder: (Vec<u8>, Option<std::os::fd::OwnedFd>) = (Vec::new(), None);
    for (path, base) in &mut manifest.entries {
        let (above, name) = crate::path::split(path);
        if folder.1.is_none() || folder.0 != above {
            let full =
                if above.is_empty() { tree.to_vec() } else { crate::path::join(tree, above) };
            folder = (above.to_vec(), reach(layer, &full).ok());
        }
        // Below a folder that its owner may not pass nothing is stamped: it is compared instead.
        base.copy = match &folder.1 {
            Some(folder) => look(folder.as_fd(), name).unwrap_or(None),
            None => None,
        };
    }
    Ok(())
}

pub(crate) fn save(
    mode: WorkspaceMode,
    layer: BorrowedFd<'_>,
    saved: BorrowedFd<'_>,
) -> Result<Copied, Problem> {
    let top = top(mode)?;
    let tree = Tree::layer(layer, top)?;
    let done = save_tree(mode, &tree, layer, saved, top);
    tree.lock_again()?;
    done
}

fn save_tree(
    mode: WorkspaceMode,
    tree: &Tree<'_>,
    layer: BorrowedFd<'_>,
    saved: BorrowedFd<'_>,
    top: &'static str,
) -> Result<Copied, Problem> {
    empty(saved)?;
    let copied = copy(tree, saved, new(top), Keep::All, &mut |_, _| {})?;
    if mode == WorkspaceMode::Copy {
        let Some(mut manifest) = Manifest::read(layer, BASE)? else {
            return Err(Problem::NotFilled(BASE.into()));
        };
        // Neither the saved entries nor those restored from them are those of the fill.
        manifest.entries.values_mut().for_each(|base| base.copy = None);
        manifest.write(saved, BASE)?;
    }
    rename(saved, new(top), top.as_bytes())?;
    syncfs(saved).at("sync", top.as_bytes())?;
    Ok(copied)
}

pub(crate) fn restore(
    mode: WorkspaceMode,
    layer: BorrowedFd<'_>,
    saved: BorrowedFd<'_>,
) -> Result<Copied, Problem> {
    let top = top(mode)?;
    lock_leftovers(saved)?;
    let tree = Tree::layer(saved, top)?;
    let copied = copy(&tree, layer, new(top), Keep::All, &mut |_, _| {});
    tree.lock_again()?;
    let copied = copied?;
    let manifest = match mode {
        WorkspaceMode::Copy => match Manifest::read(saved, BASE)? {
            Some(manifest) => Some(manifest),
            None => return Err(Problem::NotFilled(BASE.into())),
        },
        WorkspaceMode::Overlay | WorkspaceMode::Direct => None,
    };
    put_in_place(layer, top, manifest)?;
    if mode == WorkspaceMode::Overlay {
        remove(layer, WORK)?;
        make_work(layer)?;
    }
    syncfs(layer).at("sync", top.as_bytes())?;
    Ok(copied)
}

fn make_work(layer: BorrowedFd<'_>) -> Result<(), Problem> {
    mkdirat(layer, WORK, bits(0o700)).at("make", WORK)
}

fn rename(holder: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<(), Problem> {
    renameat(holder, from, holder, to).at("rename", from)
}
