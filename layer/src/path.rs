//! Paths below a folder: split, joined, and reached without following a link, whatever their length.

use crate::problem::Problem;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Arg;

/// Deepest folder that is copied or compared. The kernel has no such bound; a walk has to, since to
/// reach each folder by its path costs the square of the depth.
pub(crate) const DEPTH_MAX: usize = 1024;
/// Longest path that one system call takes, with room for its NUL.
const PIECE_BYTES: usize = 4000;

pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() {
        return name.to_vec();
    }
    [folder, b"/", name].concat()
}

/// Folder and name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at.saturating_add(1)..).unwrap_or_default(),
        ),
        None => (b"", path),
    }
}

/// Whether `path` is `top` or lies below it.
pub(crate) fn is_within(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// All folders above it, the outermost first; not the workspace itself.
pub(crate) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').filter_map(|(at, _)| path.get(..at))
}

pub(crate) fn check_depth(path: &[u8]) -> Result<(), Problem> {
    let depth = path.iter().filter(|byte| **byte == b'/').count();
    if depth < DEPTH_MAX {
        return Ok(());
    }
    let shown = path.get(..200).unwrap_or(path);
    Err(Problem::Deep { path: Arg(shown.to_vec()), max: DEPTH_MAX })
}

/// A path that somebody has named, without `.` and doubled slashes. `..`, absolute and empty ones
/// are refused.
pub(crate) fn clean(named: &Arg) -> Result<Vec<u8>, Problem> {
    let bytes = named.as_bytes();
    let parts: Vec<&[u8]> = bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    let bad = bytes.starts_with(b"/")
        || bytes.contains(&0)
        || parts.is_empty()
        || parts.contains(&b"..".as_slice());
    if bad { Err(Problem::Path(named.clone())) } else { Ok(parts.join(&b'/')) }
}

/// A descriptor that names the folder (O_PATH): looked up from `root`, beneath it, no link
/// followed, in pieces where the path is longer than a system call takes.
pub(crate) fn reach(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    let mut rest = path;
    if rest.is_empty() {
        return openat2(root, ".", how);
    }
    let mut at: Option<OwnedFd> = None;
    while !rest.is_empty() {
        let (piece, after) = first_piece(rest);
        let from = at.as_ref().map_or(root, AsFd::as_fd);
        at = Some(openat2(from, piece, how)?);
        rest = after;
    }
    at.ok_or(Errno::EINVAL)
}

/// The folder itself, for reading.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let folder = reach(root, path)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(&folder, ".", flags, Mode::empty())
}

fn first_piece(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(head) = path.get(..PIECE_BYTES) else { return (path, b"") };
    match head.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at.saturating_add(1)..).unwrap_or_default(),
        ),
        None => (path, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_paths_are_cleaned_or_refused() {
        for (named, clean_path) in
            [("a", "a"), ("a/", "a"), ("./a//b/.", "a/b"), ("...", "..."), ("a/..b", "a/..b")]
        {
            assert_eq!(clean(&named.into()).unwrap(), clean_path.as_bytes(), "{named}");
        }
        for named in ["", ".", "/", "/etc", "..", "a/../b", "a/..", "a\0b"] {
            assert!(clean(&named.into()).is_err(), "{named}");
        }
    }

    #[test]
    fn a_path_is_within_itself_and_what_is_above() {
        assert!(is_within(b"a/b", b"a"));
        assert!(is_within(b"a", b"a"));
        assert!(!is_within(b"ab", b"a"));
        assert_eq!(above(b"a/b/c").collect::<Vec<_>>(), [b"a".as_slice(), b"a/b"]);
        assert_eq!(split(b"a/b/c"), (b"a/b".as_slice(), b"c".as_slice()));
    }
}
