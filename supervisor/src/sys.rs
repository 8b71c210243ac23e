//! Every unsafe call of this crate: one call per wrapper, owned descriptors out.

pub(crate) mod apart;
pub(crate) mod child;
pub(crate) mod helper;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn own(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(|_too_large| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: callers pass what a successful system call has just returned, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A descriptor that our parent left open for us under this number, as its argument says.
/// EBADF: it did not.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; asks only whether the number is open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    done(flags.into())?;
    // SAFETY: takes no pointers.
    let set = unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) };
    done(set.into())?;
    // SAFETY: called once per number at the start, before anything else of ours opens descriptors
    // (standard ones aside), so the number is the parent's gift and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// open_tree(2) of what `fd` (O_PATH) names: a detached clone of that mount, from there down, with
/// what is mounted below it or without.
/// ENOSYS before Linux 5.2; EINVAL when `fd` belongs to another mount namespace.
pub(crate) fn clone_tree(fd: BorrowedFd<'_>, with_mounts: bool) -> io::Result<OwnedFd> {
    let recursive = if with_mounts { libc::AT_RECURSIVE } else { 0 };
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | u32::try_from(libc::AT_EMPTY_PATH | recursive).unwrap_or(0);
    // SAFETY: the path is a constant, NUL-terminated string.
    own(unsafe { libc::syscall(libc::SYS_open_tree, fd.as_raw_fd(), c"".as_ptr(), flags) })
}

/// mount_setattr(2): ids of this mount, and of those below it, are seen through the user namespace.
/// EINVAL: the file system cannot be idmapped, or the mount is idmapped already.
pub(crate) fn idmap(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(userns.as_raw_fd()).unwrap_or(u64::MAX),
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: path and attributes outlive the call, and the size is theirs.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    })
}

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What {
    /// The root of a mount.
    pub(crate) is_mount: bool,
    /// Device and inode.
    pub(crate) what: (u32, u32, u64),
    /// The mount takes no writes.
    pub(crate) is_read_only: bool,
}

/// statx(2) and fstatvfs(3). A kernel that does not tell of mounts is an error.
pub(crate) fn what_is(fd: BorrowedFd<'_>) -> io::Result<What> {
    const MOUNT_ROOT: u64 = 0x2000;
    let flags = nix::sys::statvfs::fstatvfs(fd)?.flags();
    let is_read_only = flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY);
    // SAFETY: all zeros are a valid value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, path, flags) = (fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: a constant path; the structure outlives the call.
    let told = unsafe { libc::statx(fd, path, flags, libc::STATX_INO, &raw mut stat) };
    done(told.into())?;
    if stat.stx_attributes_mask & MOUNT_ROOT == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(What {
        is_mount: stat.stx_attributes & MOUNT_ROOT != 0,
        what: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
        is_read_only,
    })
}

/// The root of a process, `/proc/PID/root`.
pub(crate) fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    use nix::fcntl::{OFlag, open};
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(path, flags, nix::sys::stat::Mode::empty())?)
}

/// PR_SET_DUMPABLE 0: no core, no ptrace, `/proc/self` belongs to root.
pub(crate) fn set_undumpable() -> io::Result<()> {
    // SAFETY: takes no pointers.
    done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }.into())
}

/// eventfd, pidfd and socket are all pollable: whether `fd` has hung up (POLLHUP, POLLERR).
pub(crate) fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one pollfd, which outlives the call; it does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Opens something with the rights to files of somebody else, and nothing more. Ours come back before
/// this returns; if they did not, we could do nothing any more, so that is the end of us.
/// EPERM: we may not become that uid.
pub(crate) fn with_rights_of<T>(uid: u32, gid: u32, act: impl FnOnce() -> T) -> io::Result<T> {
    let (own_uid, own_gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let groups = nix::unistd::getgroups()?;
    nix::unistd::setgroups(&[])?;
    set_fs_ids(uid, gid);
    let is_so = fs_ids() == (uid, gid);
    let done = is_so.then(act);
    set_fs_ids(own_uid, own_gid);
    let is_back = fs_ids() == (own_uid, own_gid) && nix::unistd::setgroups(&groups).is_ok();
    if !is_back {
        std::process::abort();
    }
    done.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

/// The group first: with another uid for files we may not change it any more.
fn set_fs_ids(uid: u32, gid: u32) {
    // SAFETY: takes no pointers; it answers the old id, whether or not it has changed it.
    unsafe { libc::setfsgid(gid) };
    // SAFETY: takes no pointers.
    unsafe { libc::setfsuid(uid) };
}

/// Asked by an id that nobody can have, which changes nothing.
fn fs_ids() -> (u32, u32) {
    // SAFETY: takes no pointers.
    let uid = unsafe { libc::setfsuid(u32::MAX) };
    // SAFETY: takes no pointers.
    let gid = unsafe { libc::setfsgid(u32::MAX) };
    (u32::try_from(uid).unwrap_or(u32::MAX), u32::try_from(gid).unwrap_or(u32::MAX))
}
