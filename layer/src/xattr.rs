//! Extended attributes of a program's own kind (`user.*`), among them the overlay's marks.

use crate::sys;
use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

const OPAQUE: &CStr = c"user.overlay.opaque";
/// The kernel sets it on what it has copied up from the folder below.
const ORIGIN: &CStr = c"user.overlay.origin";
const WHITEOUT: &CStr = c"user.overlay.whiteout";
const OF_OVERLAY: &[u8] = b"user.overlay.";
/// The kernel's own bounds (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 * 1024;

/// What an overlay's folder says of what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opaque {
    No,
    /// Nothing of the folder below is seen.
    Yes,
    /// Files in it may be whiteouts by an attribute.
    FileWhiteouts,
}

pub(crate) fn opaque(folder: BorrowedFd<'_>) -> Result<Opaque, Errno> {
    let mut value = [0; 8];
    match optional(sys::get_xattr(folder, OPAQUE, &mut value))? {
        Some(length) if value.get(..length) == Some(b"y") => Ok(Opaque::Yes),
        Some(length) if value.get(..length) == Some(b"x") => Ok(Opaque::FileWhiteouts),
        Some(_) | None => Ok(Opaque::No),
    }
}

pub(crate) fn set_opaque(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    sys::set_xattr(folder, OPAQUE, b"y")
}

pub(crate) fn clear_opaque(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    optional(sys::remove_xattr(folder, OPAQUE)).map(drop)
}

pub(crate) fn is_copied_up(entry: BorrowedFd<'_>) -> Result<bool, Errno> {
    is_set(entry, ORIGIN)
}

pub(crate) fn is_whiteout(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    is_set(file, WHITEOUT)
}

/// Which attributes a copy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Also the overlay's marks: from layer to layer.
    All,
    /// What programs have set: to or from the operator's folder.
    Programs,
}

pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, keep: Keep) -> Result<(), Errno> {
    let Some(length) = supported(sys::list_xattr(from, &mut []))? else { return Ok(()) };
    if length == 0 {
        return Ok(());
    }
    let mut names = vec![0; BYTES_MAX];
    let length = sys::list_xattr(from, &mut names)?;
    names.truncate(length);
    let mut value = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let wanted =
            name.starts_with(b"user.") && (keep == Keep::All || !name.starts_with(OF_OVERLAY));
        let Ok(name) = CString::new(name) else { continue };
        if !wanted {
            continue;
        }
        value.resize(BYTES_MAX, 0);
        let Some(length) = optional(sys::get_xattr(from, &name, &mut value))? else { continue };
        supported(sys::set_xattr(to, &name, value.get(..length).unwrap_or_default()))?;
    }
    Ok(())
}

fn is_set(entry: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    optional(sys::get_xattr(entry, name, &mut [])).map(|length| length.is_some())
}

/// Not set, or a file system without attributes, in which nothing can be set.
fn optional<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match supported(result) {
        Err(Errno::ENODATA) => Ok(None),
        other => other,
    }
}

fn supported<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
