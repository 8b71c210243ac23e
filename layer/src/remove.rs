//! Removal of a tree of ours, whatever modes and depths a program has left in it.

use crate::entry::{Kind, look, set_mode};
use crate::path::{join, open_folder, reach, split};
use crate::problem::{At, Problem};
use crate::tree::{is_absent, names};
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::os::fd::{AsFd, BorrowedFd};

/// Folders that lie deeper are moved up first, so that no path gets long.
const LEVELS_MAX: usize = 64;

/// Removes one name of `holder`, with what is below it. Nothing there is fine.
pub(crate) fn remove(holder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Problem> {
    let Some(entry) = look(holder, name).at("look at", name)? else { return Ok(()) };
    if entry.kind != Kind::Folder {
        return unlink(holder, name, UnlinkatFlags::NoRemoveDir).at("remove", name);
    }
    set_mode(holder, name, &entry, 0o700).at("set the mode of", name)?;
    let folder = open_folder(holder, name).at("open", name)?;
    empty(folder.as_fd())?;
    unlink(holder, name, UnlinkatFlags::RemoveDir).at("remove", name)
}

/// Removes everything in a folder.
pub(crate) fn empty(root: BorrowedFd<'_>) -> Result<(), Problem> {
    let mut folders: Vec<Vec<u8>> = Vec::new();
    let mut next: Vec<Vec<u8>> = vec![Vec::new()];
    let mut moved = 0_u64;
    while let Some(path) = next.pop() {
        let folder = open_folder(root, &path).at("open", &path)?;
        for name in names(folder.as_fd(), &path)? {
            let below = join(&path, &name);
            let Some(entry) = look(folder.as_fd(), &name).at("look at", &below)? else { continue };
            if entry.kind != Kind::Folder {
                unlink(folder.as_fd(), &name, UnlinkatFlags::NoRemoveDir).at("remove", &below)?;
                continue;
            }
            // Also for the move: a folder that changes its parent is written to.
            set_mode(folder.as_fd(), &name, &entry, 0o700).at("set the mode of", &below)?;
            let levels = below.iter().filter(|byte| **byte == b'/').count();
            if levels < LEVELS_MAX {
                next.push(below);
            } else {
                next.push(move_up(root, folder.as_fd(), &name, &mut moved).at("move", &below)?);
            }
        }
        if !path.is_empty() {
            folders.push(path);
        }
    }
    for path in folders.iter().rev() {
        let (above, name) = split(path);
        reach(root, above)
            .and_then(|above| unlink(above.as_fd(), name, UnlinkatFlags::RemoveDir))
            .at("remove", path)?;
    }
    Ok(())
}

/// To a name of the root's that is free. A killed removal may have left some.
fn move_up(
    root: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    name: &[u8],
    moved: &mut u64,
) -> Result<Vec<u8>, Errno> {
    loop {
        *moved = moved.saturating_add(1);
        let up = format!(".mews-{moved}").into_bytes();
        if look(root, &up)?.is_none() {
            nix::fcntl::renameat(folder, name, root, up.as_slice())?;
            return Ok(up);
        }
    }
}

fn unlink(folder: BorrowedFd<'_>, name: &[u8], how: UnlinkatFlags) -> Result<(), Errno> {
    match unlinkat(folder, name, how) {
        Err(errno) if is_absent(Some(errno)) => Ok(()),
        other => other,
    }
}
