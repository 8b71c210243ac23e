//! A user namespace that maps one id, as an idmapped mount wants it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// A user namespace in which disk id 0 is seen as `id`, users and groups alike.
///
/// A child is made *in* the new namespace and does nothing; its namespace stays with the
/// descriptor when it is killed. ENOSPC: too many user namespaces. EPERM: not root.
pub(crate) fn userns_for(id: u32) -> io::Result<OwnedFd> {
    let child = Child(clone_into_userns()?);
    let map = format!("0 {id} 1\n");
    for name in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{name}", child.0);
        std::fs::OpenOptions::new().write(true).open(path)?.write_all(map.as_bytes())?;
    }
    Ok(std::fs::File::open(format!("/proc/{}/ns/user", child.0))?.into())
}

struct Child(libc::pid_t);

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not reaped yet, so the number is still its.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: a null status is allowed; EINTR cannot be, SIGKILL is under way and signals are blocked
        // by nobody; a zombie left behind would only cost a number.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

fn clone_into_userns() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: without CLONE_VM and with a null stack this is fork(2); the child touches no memory
    // of ours and only waits to be killed.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }
    super::done(pid)?;
    libc::pid_t::try_from(pid).map_err(|_too_large| io::ErrorKind::InvalidData.into())
}
