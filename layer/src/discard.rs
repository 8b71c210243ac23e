//! Changes taken back: the operator's own state is seen again.
//!
//! An overlay forgets what makes the difference; a copy is given the operator's entry, and its
//! manifest the new beginning.

use crate::applied::Applied;
use crate::apply::Outcome;
use crate::compare::{Found, From};
use crate::copy::copy_one;
use crate::diff::Sides;
use crate::entry::{self, Kind, bits, look, set_mtime};
use crate::judge::change;
use crate::manifest::{BASE, Base, Manifest};
use crate::path::{above, is_within, join, split};
use crate::problem::{At, Problem};
use crate::remove::{empty, remove};
use crate::selection::Selection;
use crate::tree::names;
use crate::xattr::{self, Keep, Opaque};
use nix::sys::stat::{SFlag, fchmod, mknodat};
use std::os::fd::AsFd;
use wire::Arg;

pub(crate) fn discard(sides: &Sides<'_>, named: &[Arg]) -> Result<Outcome, Problem> {
    let selection = Selection::new(named)?;
    let applied = Applied::read(sides.layer)?;
    let done = run(sides, &applied, &selection);
    sides.tree.lock_again()?;
    done
}

fn run(
    sides: &Sides<'_>,
    applied: &Applied<'_>,
    selection: &Selection,
) -> Result<Outcome, Problem> {
    let judged = sides.diff(applied)?;
    let selected: Vec<&Found> = judged
        .found
        .iter()
        .map(|(found, _)| found)
        .filter(|it| selection.selects(&it.path))
        .collect();
    match (&sides.manifest, selection.is_all()) {
        (None, true) => forget_all(sides)?,
        (None, false) => {
            for top in selection.tops() {
                // One that means no change may still hold what is equal to the folder below.
                if selected.iter().any(|found| is_within(&found.path, top)) {
                    forget(sides, top)?;
                }
            }
        }
        (Some(_), true) => {
            crate::store::copy_afresh(sides.origin_folder(), sides.layer).map(drop)?
        }
        (Some(manifest), false) => take_back(sides, manifest.clone(), &selected)?,
    }
    let mut outcome = Outcome::default();
    outcome.done.changes = selected.iter().filter_map(|found| change(found, None)).collect();
    outcome.done.truncated = judged.truncated;
    outcome.left.changes = selection.without_change(&judged.found);
    Ok(outcome)
}

/// An overlay's layer as it was when it was made.
fn forget_all(sides: &Sides<'_>) -> Result<(), Problem> {
    let upper = sides.tree.folder_for_writing(b"")?;
    empty(upper.as_fd())?;
    xattr::clear_opaque(upper.as_fd()).at("unmark", b"")?;
    let folder = sides.origin.folder(b"")?;
    let folder = entry::of(&folder).at("look at", b"")?;
    fchmod(&upper, bits(folder.mode)).at("set the mode of", b"")?;
    crate::content::set_mtime(&upper, folder.mtime).at("set the time of", b"")
}

/// Removes what an overlay's layer holds under one path.
fn forget(sides: &Sides<'_>, top: &[u8]) -> Result<(), Problem> {
    let (folder, name) = split(top);
    for folder in std::iter::once(b"".as_slice()).chain(above(top)) {
        show_below(sides, folder)?;
    }
    let folder = sides.tree.folder_for_writing(folder)?;
    remove(folder.as_fd(), name)
}

/// Makes an opaque folder one that lets the folder below be seen, but hides by whiteouts what it has
/// hidden until now.
fn show_below(sides: &Sides<'_>, path: &[u8]) -> Result<(), Problem> {
    let upper = sides.tree.folder_for_writing(path)?;
    let upper = upper.as_fd();
    if xattr::opaque(upper).at("look at", path)? != Opaque::Yes {
        return Ok(());
    }
    let Some(below) = sides.origin.folder_if_any(path)? else { return Ok(()) };
    for name in names(below.as_fd(), path)? {
        let inner = join(path, &name);
        match look(upper, &name).at("look at", &inner)? {
            None => {
                mknodat(upper, name.as_slice(), SFlag::S_IFCHR, bits(0), 0).at("hide", &inner)?;
            }
            Some(entry) if entry.kind == Kind::Folder => {
                let folder = sides.tree.folder_for_writing(&inner)?;
                xattr::set_opaque(folder.as_fd()).at("mark", &inner)?;
            }
            Some(_) => {}
        }
    }
    xattr::clear_opaque(upper).at("unmark", path)
}

/// The operator's entries in place of a copy's.
fn take_back(
    sides: &Sides<'_>,
    mut manifest: Manifest,
    selected: &[&Found],
) -> Result<(), Problem> {
    let root = sides.tree.folder_for_writing(b"")?;
    for found in selected {
        let path = found.path.as_slice();
        let (folder, name) = split(path);
        let Ok(folder) = sides.tree.folder_for_writing(folder) else {
            // It went with a folder that was taken back before.
            continue;
        };
        let Some(old) = found.old.filter(|old| old.from == From::Below) else {
            remove(folder.as_fd(), name)?;
            manifest.forget(path);
            continue;
        };
        if found.only_mode && old.entry.kind == Kind::Folder {
            sides.tree.set_own_mode(path, old.entry.mode)?;
            manifest.entries.insert(path.to_vec(), Base { origin: old.entry, copy: None });
            continue;
        }
        remove(folder.as_fd(), name)?;
        manifest.forget(path);
        let entries = &mut manifest.entries;
        let before = entry::of(folder.as_fd()).at("look at", path)?;
        copy_one(&sides.origin, root.as_fd(), path, Keep::Programs, &mut |path, entry| {
            entries.insert(path.to_vec(), Base { origin: *entry, copy: None });
        })?;
        set_mtime(folder.as_fd(), b".", before.mtime).at("set the time of", path)?;
    }
    manifest.write(sides.layer, BASE)
}
