//! How much of the disk a layer takes, while its programs are at work.

use crate::Measured;
use crate::entry::Kind;
use crate::path::join;
use crate::problem::{At, Problem};
use crate::tree::{Tree, names};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};

/// Of a block as stat(2) counts, whatever the file system's own are.
const BLOCK_BYTES: u64 = 512;

/// What goes while we look is not counted, what comes may not be.
pub(crate) fn measure(layer: BorrowedFd<'_>, top: &'static str) -> Result<Measured, Problem> {
    let tree = Tree::layer(layer, top)?;
    let counted = count(&tree);
    tree.lock_again()?;
    counted
}

fn count(tree: &Tree<'_>) -> Result<Measured, Problem> {
    let mut measured = Measured::default();
    let mut linked = HashSet::new();
    let mut next: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = next.pop() {
        let Some(folder) = tree.folder_if_any(&path)? else { continue };
        for name in names(folder.as_fd(), &path)? {
            let below = join(&path, &name);
            let stat = match fstatat(&folder, name.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(errno).at("look at", &below),
            };
            let entry = crate::entry::Entry::from(stat);
            let is_folder = entry.kind == Kind::Folder;
            // Only such as have several names need to be remembered.
            if entry.links > 1 && !is_folder && !linked.insert((entry.device, entry.inode)) {
                continue;
            }
            measured.bytes += stat.st_blocks.cast_unsigned() * BLOCK_BYTES;
            measured.inodes += 1;
            if is_folder {
                next.push(below);
            }
        }
    }
    Ok(measured)
}
