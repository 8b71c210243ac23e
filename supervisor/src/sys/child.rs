//! What happens between fork and exec. Everything is prepared before the fork: the child allocates
//! nothing, takes no lock, and makes only system calls that are async-signal-safe.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The child's steps, in this order, each with the reason why it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// Its own session: no signal from our terminal reaches it.
    Session = 1,
    /// Where we are not root: the right to mount, in a user namespace of its own.
    UserNamespace,
    /// Its own mount namespace: a crash leaves nothing to unmount.
    MountNamespace,
    /// Sources go where its uid can reach them, while we may still mount.
    Attach,
    /// The workspace's layer over its folder.
    Overlay,
    /// While `/proc/self` is still writable for us: dropping the uid makes it root's.
    OomScore,
    /// Nothing of ours but what is wanted stays open.
    Descriptors,
    /// Before the uid drops, which takes the right away.
    Groups,
    BoundingSet,
    Identity,
    /// Also where the uid did not change.
    Capabilities,
    /// Proof: root must not come back.
    StaysDropped,
    /// No key of ours can be found by it.
    Keyring,
    Limits,
    /// Ignored signals would be inherited by every payload (SIGPIPE, SIGXFSZ).
    Signals,
    Exec,
}

impl Step {
    pub(crate) fn name(number: u8) -> &'static str {
        match number {
            1 => "setsid",
            2 => "user namespace",
            3 => "unshare mount namespace",
            4 => "attach sources",
            5 => "mount overlay",
            6 => "oom_score_adj",
            7 => "descriptors",
            8 => "setgroups",
            9 => "bounding set",
            10 => "setresuid",
            11 => "capset",
            12 => "verify dropped uid",
            13 => "session keyring",
            14 => "rlimits",
            15 => "signals",
            16 => "exec",
            _ => "unknown step",
        }
    }
}

/// What is attached below [`MountPlan::folder`], and where.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) tree: Tree,
    pub(crate) target: CString,
    pub(crate) is_folder: bool,
}

#[derive(Debug)]
pub(crate) enum Tree {
    /// A detached mount.
    Detached(OwnedFd),
    /// A folder by its path: where we are not root, nothing can be detached.
    Path(CString),
}

/// A folder seen with a layer over it.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) target: CString,
    pub(crate) options: CString,
    /// Where the layer was attached: nobody needs to reach it once the overlay holds it.
    pub(crate) layer: CString,
}

/// Who we are, inside and outside of a user namespace that is made for the right to mount.
#[derive(Debug)]
pub(crate) struct IdMaps {
    pub(crate) uids: CString,
    pub(crate) gids: CString,
}

#[derive(Debug)]
pub(crate) struct MountPlan {
    /// Where we are not root.
    pub(crate) ids: Option<IdMaps>,
    /// An existing folder that a fresh tmpfs covers in the child's own mount namespace.
    pub(crate) folder: CString,
    pub(crate) attach: Vec<Attach>,
    /// Trees of mounts that nothing of the cage comes from: taken out of its mount namespace, since
    /// bwrap reads the whole table again for each bind.
    pub(crate) hidden: Vec<CString>,
    pub(crate) overlay: Option<Overlay>,
}

/// All that the child needs, owned until the fork is done.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) program: OwnedFd,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    /// Descriptor and the number that it gets. Numbers below [`HIGH`].
    pub(crate) fds: Vec<(OwnedFd, RawFd)>,
    pub(crate) mounts: Option<MountPlan>,
    /// uid and gid to become, with no other group.
    pub(crate) identity: Option<(u32, u32)>,
    pub(crate) limits: Vec<(u32, u64)>,
    pub(crate) oom_score_adj: Option<CString>,
}

/// Wanted descriptors are parked from here up while the low numbers are taken.
pub(crate) const HIGH: RawFd = 300;

/// Forks; the child goes through its steps and becomes `program`, or writes step and errno to
/// `report` (close-on-exec) and ends.
pub(crate) fn fork(prepared: &Prepared, report: &OwnedFd) -> io::Result<libc::pid_t> {
    let mut argv: Vec<*const libc::c_char> = prepared.argv.iter().map(|a| a.as_ptr()).collect();
    argv.push(std::ptr::null());
    let mut env: Vec<*const libc::c_char> = prepared.env.iter().map(|e| e.as_ptr()).collect();
    env.push(std::ptr::null());
    let mut parked = vec![0; prepared.fds.len()];
    // SAFETY: this process has one thread (tokio current-thread, no blocking pool in use), and the
    // child keeps to async-signal-safe calls until exec or _exit.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        super::done(pid.into())?;
        return Ok(pid);
    }
    let mut report = report.as_raw_fd();
    let failed = run(prepared, &argv, &env, &mut parked, &mut report);
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0).to_le_bytes();
    let [a, b, c, d] = errno;
    let message = [failed as u8, a, b, c, d];
    // SAFETY: pointer and length are the array's.
    unsafe { libc::write(report, message.as_ptr().cast(), message.len()) };
    // SAFETY: takes no pointers, runs no handlers.
    unsafe { libc::_exit(127) }
}

/// Returns only the step that failed; errno says why.
fn run(
    prepared: &Prepared,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
    parked: &mut [RawFd],
    report: &mut RawFd,
) -> Step {
    // SAFETY: takes no pointers.
    if unsafe { libc::setsid() } < 0 {
        return Step::Session;
    }
    // SAFETY: takes no pointers.
    unsafe { libc::umask(0o077) };
    if let Some(mounts) = &prepared.mounts
        && let Err(step) = attach(mounts)
    {
        return step;
    }
    if let Some(value) = &prepared.oom_score_adj
        && !write_oom_score(value)
    {
        return Step::OomScore;
    }
    let Some(program) = arrange(prepared, parked, report) else { return Step::Descriptors };
    let dropped = match prepared.identity {
        Some(identity) => become_another(identity),
        // What its user namespace gave it.
        None if prepared.mounts.is_some() => {
            drop_bounding_set().and_then(|()| clear_capabilities())
        }
        None => Ok(()),
    };
    if let Err(step) = dropped {
        return step;
    }
    // SAFETY: a null name is allowed: a new anonymous session keyring.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, 1, std::ptr::null::<libc::c_char>()) };
    if joined < 0 && last_errno() != libc::ENOSYS {
        return Step::Keyring;
    }
    for &(resource, value) in &prepared.limits {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: the structure outlives the call.
        if unsafe { libc::setrlimit(resource, &raw const limit) } < 0 {
            return Step::Limits;
        }
    }
    if !reset_signals() {
        return Step::Signals;
    }
    // SAFETY: argv and env are NULL-terminated arrays of NUL-terminated strings that the parent
    // prepared; they outlive the call.
    unsafe {
        libc::execveat(
            program,
            c"".as_ptr(),
            argv.as_ptr().cast::<*mut libc::c_char>(),
            env.as_ptr().cast::<*mut libc::c_char>(),
            libc::AT_EMPTY_PATH,
        )
    };
    Step::Exec
}

fn attach(mounts: &MountPlan) -> Result<(), Step> {
    if let Some(ids) = &mounts.ids {
        enter_userns(ids)?;
    }
    // SAFETY: takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(Step::MountNamespace);
    }
    let flags = libc::MS_REC | libc::MS_SLAVE;
    if !mount(c"none", c"/", c"", flags, c"") {
        return Err(Step::MountNamespace);
    }
    for tree in &mounts.hidden {
        // One that stays costs time and nothing else: the cage's root is built up from nothing.
        // SAFETY: a NUL-terminated path.
        unsafe { libc::umount2(tree.as_ptr(), libc::MNT_DETACH) };
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    if !mount(c"mews", &mounts.folder, c"tmpfs", flags, c"mode=0711,size=64k") {
        return Err(Step::Attach);
    }
    for item in &mounts.attach {
        let made = if item.is_folder {
            // SAFETY: a NUL-terminated path.
            unsafe { libc::mkdir(item.target.as_ptr(), 0o700) }
        } else {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
            // SAFETY: a NUL-terminated path.
            unsafe { libc::open(item.target.as_ptr(), flags, 0o600) }
        };
        if made < 0 || !put(&item.tree, &item.target) {
            return Err(Step::Attach);
        }
    }
    mounts.overlay.as_ref().map_or(Ok(()), lay_over)
}

fn put(tree: &Tree, target: &CStr) -> bool {
    match tree {
        Tree::Path(path) => mount(path, target, c"", libc::MS_BIND | libc::MS_REC, c""),
        Tree::Detached(tree) => {
            // SAFETY: NUL-terminated paths; the descriptor is a detached mount that we own.
            let moved = unsafe {
                libc::syscall(
                    libc::SYS_move_mount,
                    tree.as_raw_fd(),
                    c"".as_ptr(),
                    libc::AT_FDCWD,
                    target.as_ptr(),
                    libc::MOVE_MOUNT_F_EMPTY_PATH,
                )
            };
            moved == 0
        }
    }
}

fn lay_over(overlay: &Overlay) -> Result<(), Step> {
    let Overlay { target, options, layer } = overlay;
    // SAFETY: a NUL-terminated path.
    let made = unsafe { libc::mkdir(target.as_ptr(), 0o700) };
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    if made < 0 || !mount(c"mews", target, c"overlay", flags, options) {
        return Err(Step::Overlay);
    }
    // SAFETY: a NUL-terminated path.
    if unsafe { libc::umount2(layer.as_ptr(), libc::MNT_DETACH) } < 0 {
        return Err(Step::Overlay);
    }
    Ok(())
}

fn enter_userns(ids: &IdMaps) -> Result<(), Step> {
    // SAFETY: takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } < 0 {
        return Err(Step::UserNamespace);
    }
    let written = as_dumpable(|| {
        write_file(c"/proc/self/setgroups", b"deny")
            && write_file(c"/proc/self/uid_map", ids.uids.to_bytes())
            && write_file(c"/proc/self/gid_map", ids.gids.to_bytes())
    });
    if written { Ok(()) } else { Err(Step::UserNamespace) }
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong, data: &CStr) -> bool {
    // SAFETY: NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast::<libc::c_void>(),
        )
    };
    result == 0
}

/// Wanted descriptors up, everything close-on-exec, wanted ones down again to their numbers.
/// Gives the program's descriptor; the report's moves up with the rest.
fn arrange(prepared: &Prepared, parked: &mut [RawFd], report: &mut RawFd) -> Option<RawFd> {
    let program = park(prepared.program.as_raw_fd())?;
    *report = park(*report)?;
    for (slot, (fd, _target)) in parked.iter_mut().zip(&prepared.fds) {
        *slot = park(fd.as_raw_fd())?;
    }
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: takes no pointers.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags) } < 0 {
        return None;
    }
    for (from, (_fd, target)) in parked.iter().zip(&prepared.fds) {
        // SAFETY: takes no pointers; clears close-on-exec on the new number.
        if unsafe { libc::dup2(*from, *target) } < 0 {
            return None;
        }
    }
    Some(program)
}

fn park(fd: RawFd) -> Option<RawFd> {
    // SAFETY: takes no pointers.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    (high >= 0).then_some(high)
}

/// For good: no other group, no capability, no way back.
pub(super) fn become_another((uid, gid): (u32, u32)) -> Result<(), Step> {
    // SAFETY: a count of 0 reads no memory.
    if unsafe { libc::setgroups(0, std::ptr::null()) } < 0 {
        return Err(Step::Groups);
    }
    drop_bounding_set()?;
    // SAFETY: takes no pointers.
    if unsafe { libc::setresgid(gid, gid, gid) } < 0 {
        return Err(Step::Identity);
    }
    // SAFETY: takes no pointers.
    if unsafe { libc::setresuid(uid, uid, uid) } < 0 {
        return Err(Step::Identity);
    }
    clear_capabilities()?;
    // SAFETY: takes no pointers.
    if unsafe { libc::setresuid(0, 0, 0) } == 0 {
        return Err(Step::StaysDropped);
    }
    Ok(())
}

fn drop_bounding_set() -> Result<(), Step> {
    for capability in 0..64 {
        // SAFETY: takes no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        // EINVAL: beyond the last capability that this kernel knows.
        if dropped < 0 && last_errno() == libc::EINVAL {
            break;
        }
        if dropped < 0 {
            return Err(Step::BoundingSet);
        }
    }
    Ok(())
}

fn clear_capabilities() -> Result<(), Step> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let none = [0_u32; 6];
    // SAFETY: version 3 reads two structures of three words each; both outlive the call.
    let done =
        unsafe { libc::syscall(libc::SYS_capset, std::ptr::from_ref(&header), none.as_ptr()) };
    if done < 0 { Err(Step::Capabilities) } else { Ok(()) }
}

fn reset_signals() -> bool {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is no code of ours. SIGKILL, SIGSTOP and libc's own refuse: harmless.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let empty: [u64; 1] = [0];
    // The raw call: libc's would keep its own two signals out of the set.
    // SAFETY: eight bytes, as the kernel's sigset_t is; a null old set is allowed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            empty.as_ptr(),
            std::ptr::null::<u64>(),
            8,
        )
    };
    done == 0
}

fn write_oom_score(value: &CStr) -> bool {
    as_dumpable(|| write_file(c"/proc/self/oom_score_adj", value.to_bytes()))
}

/// Our undumpable supervisor's `/proc/self` belongs to root, also where we are not root.
fn as_dumpable(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    let done = act();
    // SAFETY: takes no pointers. The exec makes it dumpable again; the broker sees to itself.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    done
}

fn write_file(path: &CStr, bytes: &[u8]) -> bool {
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    // SAFETY: pointer and length are the slice's.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    // SAFETY: ours, opened above.
    unsafe { libc::close(fd) };
    usize::try_from(written).is_ok_and(|n| n == bytes.len())
}

fn last_errno() -> i32 {
    // Reads errno and nothing else: async-signal-safe.
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
