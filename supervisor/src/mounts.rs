//! Sources of a cage whose uid is not the operator's: detached clones of the operator's folders,
//! files and sockets, seen through a user namespace in which the operator's id is the cage's.
//!
//! They are opened and cloned here, in our own mount namespace (a descriptor from another one cannot
//! be cloned), and attached by the broker's child in *its* own namespace, below a tmpfs that covers
//! an empty folder. So a crash leaves nothing to unmount, and bwrap finds them by path.

use crate::supervisor::Supervisor;
use crate::sys;
use crate::sys::child::{Attach, MountPlan};
use ::cage::plan::{CagePlan, Role, Source, SourceKind};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("{path} cannot be opened: {source}")]
    Open { path: String, source: io::Error },
    #[error("{path} cannot be lent: {source}")]
    Clone { path: String, source: io::Error },
    #[error(
        "{path} cannot be lent to another uid: its file system does not support idmapped mounts \
         ({source}). Put it on ext4, xfs, btrfs or tmpfs, or start mews as an ordinary user"
    )]
    Idmap { path: String, source: io::Error },
    #[error("a user namespace for the cage's uid: {0}")]
    Namespace(io::Error),
    #[error("no folder can be reached by the cage's uid to attach its sources in")]
    NoPlace,
}

/// Where bwrap finds each source, and what is attached there.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// By index into [`CagePlan::sources`].
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) mounts: Option<MountPlan>,
}

/// As an ordinary user everything is used where it is.
pub(crate) fn in_place(plan: &CagePlan) -> Lent {
    let paths = plan.sources.iter().map(|source| PathBuf::from(&source.host)).collect();
    Lent { paths, mounts: None }
}

/// Clones what the cage's uid could not reach or write by itself.
pub(crate) fn lend(supervisor: &Supervisor, plan: &CagePlan, uid: u32) -> Result<Lent, MountError> {
    let folder = place(&supervisor.host.dirs.mnt())?;
    let mut lent = Lent::default();
    let mut attach = Vec::new();
    for source in &plan.sources {
        if is_everybodys(source) {
            lent.paths.push(PathBuf::from(&source.host));
            continue;
        }
        let userns = userns(supervisor, uid).map_err(MountError::Namespace)?;
        let mount = clone(source, userns.as_fd())?;
        let path = folder.join(attach.len().to_string());
        let target = cstring(&path)?;
        let is_folder = source.kind == SourceKind::Folder;
        attach.push(Attach { mount, target, is_folder });
        lent.paths.push(path);
    }
    if !attach.is_empty() {
        let hidden =
            if plan.sources.iter().any(is_of_sys) { Vec::new() } else { vec![c"/sys".into()] };
        lent.mounts = Some(MountPlan { folder: cstring(&folder)?, attach, hidden });
    }
    Ok(lent)
}

/// Whether it lies below /sys, or /sys below it. With its cgroups that is often the greater half of
/// all mounts of a host.
fn is_of_sys(source: &Source) -> bool {
    let path = Path::new(&source.host);
    path.starts_with("/sys") || Path::new("/sys").starts_with(path)
}

/// What everybody on this host can read anyway, and the cage is only to read: no clone is needed.
fn is_everybodys(source: &Source) -> bool {
    !source.writable
        && source.role == Role::Read
        && source.kind != SourceKind::Socket
        && is_reachable(Path::new(&source.host))
        && std::fs::metadata(&source.host).is_ok_and(|meta| {
            let wanted = if meta.is_dir() { 0o005 } else { 0o004 };
            meta.mode() & wanted == wanted
        })
}

/// Whether a stranger's uid can walk to this path.
fn is_reachable(path: &Path) -> bool {
    let mut above = path.ancestors().skip(1);
    above.all(|folder| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

/// An existing folder that the cage's uid can walk to; what it holds is covered in the broker's own
/// mount namespace alone. `<run>/mnt` is made for that, but `<run>` may lie in a private folder.
fn place(mnt: &Path) -> Result<PathBuf, MountError> {
    let candidates = [mnt, Path::new("/mnt"), Path::new("/media"), Path::new("/srv")];
    let found = candidates.into_iter().find(|path| path.is_dir() && is_reachable(path));
    found.map(Path::to_owned).ok_or(MountError::NoPlace)
}

fn clone(source: &Source, userns: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let path = || source.host.clone();
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    // The plan's paths are canonical: a link in one of them has come since, and is refused.
    let fd = openat2(nix::fcntl::AT_FDCWD, source.host.as_str(), how)
        .map_err(|errno| MountError::Open { path: path(), source: errno.into() })?;
    let clone_failed = |source| MountError::Clone { path: path(), source };
    let whole = sys::clone_tree(fd.as_fd(), true).map_err(clone_failed)?;
    if sys::idmap(whole.as_fd(), userns).is_ok() {
        return Ok(whole);
    }
    // Something mounted below it may not support it: lend the file system alone.
    let alone = sys::clone_tree(fd.as_fd(), false).map_err(clone_failed)?;
    match sys::idmap(alone.as_fd(), userns) {
        Ok(()) => Ok(alone),
        Err(_read_as_a_stranger) if !source.writable => Ok(whole),
        Err(error) => Err(MountError::Idmap { path: path(), source: error }),
    }
}

/// Made once for each uid: it is used again with the uid.
fn userns(supervisor: &Supervisor, uid: u32) -> io::Result<Rc<OwnedFd>> {
    if let Some(known) = supervisor.userns.borrow().get(&uid) {
        return Ok(Rc::clone(known));
    }
    let made = Rc::new(sys::helper::userns_for(uid)?);
    supervisor.userns.borrow_mut().insert(uid, Rc::clone(&made));
    Ok(made)
}

fn cstring(path: &Path) -> Result<CString, MountError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_nul| MountError::NoPlace)
}
