//! What the kernel offers, from its own files.

use super::{Check, State, sys};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// The rlimits that a plan may set; a hard limit below what is asked for cannot be raised again.
const RESOURCES: [Resource; 6] = [
    Resource::RLIMIT_NPROC,
    Resource::RLIMIT_NOFILE,
    Resource::RLIMIT_FSIZE,
    Resource::RLIMIT_CORE,
    Resource::RLIMIT_AS,
    Resource::RLIMIT_MEMLOCK,
];

pub(super) fn checks() -> Vec<Check> {
    vec![landlock(), seccomp(), tiocsti(), terminals(), memfd_exec(), inotify()]
}

/// Whether the switches that forbid user namespaces to ordinary users are open; else which is not.
pub(super) fn userns_allowed() -> Result<(), &'static str> {
    const MAX: &str = "/proc/sys/user/max_user_namespaces";
    const DEBIAN: &str = "/proc/sys/kernel/unprivileged_userns_clone";
    if !std::path::Path::new("/proc/self/ns/user").exists() {
        return Err("the kernel has no user namespaces");
    }
    for file in [MAX, DEBIAN] {
        if number(file) == Some(0) {
            return Err(file);
        }
    }
    Ok(())
}

/// Since Ubuntu 23.10: only programs with a profile that says so make user namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppArmor {
    Lets,
    Restricts,
}

pub(super) fn apparmor() -> AppArmor {
    match number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") {
        Some(1..) => AppArmor::Restricts,
        Some(0) | None => AppArmor::Lets,
    }
}

pub(super) fn has_seccomp() -> bool {
    read("/proc/sys/kernel/seccomp/actions_avail").split_whitespace().any(|word| word == "errno")
}

pub(super) fn hard_rlimits() -> Vec<(u32, u64)> {
    RESOURCES
        .into_iter()
        .filter_map(|resource| {
            let (_, hard) = getrlimit(resource).ok()?;
            (hard != RLIM_INFINITY).then_some((resource as u32, hard))
        })
        .collect()
}

fn landlock() -> Check {
    let abi = sys::landlock_abi();
    let mend = "boot with lsm=landlock,… (kernel 5.13 or newer, CONFIG_SECURITY_LANDLOCK)";
    match abi {
        0 => Check::new("landlock", State::Fail, "this kernel has no Landlock").mend(mend),
        1..=5 => {
            let lacks = "abstract sockets and signals are walled by namespaces alone";
            Check::new("landlock", State::Warn, format!("ABI {abi}: {lacks}"))
                .mend("kernel 6.12 or newer has ABI 6")
        }
        _ => Check::new("landlock", State::Ok, format!("ABI {abi}")),
    }
}

fn seccomp() -> Check {
    if has_seccomp() {
        return Check::new("seccomp", State::Ok, "filters can be loaded");
    }
    Check::new("seccomp", State::Fail, "this kernel has no seccomp filters")
        .mend("a kernel with CONFIG_SECCOMP_FILTER")
}

fn tiocsti() -> Check {
    let what = match number("/proc/sys/dev/tty/legacy_tiocsti") {
        Some(0) => "TIOCSTI is off in the kernel and in the cage's filter",
        Some(_) | None => "TIOCSTI is on in the kernel; the cage's filter refuses it",
    };
    Check::new("tiocsti", State::Ok, what)
}

fn terminals() -> Check {
    let pty = |name: &str| number(&format!("/proc/sys/kernel/pty/{name}")).unwrap_or(0);
    let (most, used, reserved) = (pty("max"), pty("nr"), pty("reserve"));
    let free = most.saturating_sub(used);
    let what = format!("{free} of {most} terminals are free ({reserved} reserved for the host)");
    if free > reserved.saturating_add(16) {
        return Check::new("terminals", State::Ok, what);
    }
    Check::new("terminals", State::Warn, what).mend("sysctl kernel.pty.max=8192")
}

fn memfd_exec() -> Check {
    if number("/proc/sys/vm/memfd_noexec").unwrap_or(0) < 2 {
        return Check::new("memfd", State::Ok, "the cage's pid 1 can run from memory");
    }
    Check::new("memfd", State::Warn, "vm.memfd_noexec=2: pid 1 must be bound from its file")
        .mend("sysctl vm.memfd_noexec=1")
}

fn inotify() -> Check {
    let most = number("/proc/sys/fs/inotify/max_user_instances").unwrap_or(0);
    let what = format!("{most} inotify instances per user");
    if most >= 64 {
        return Check::new("inotify", State::Ok, what);
    }
    Check::new("inotify", State::Warn, what).mend("sysctl fs.inotify.max_user_instances=512")
}

pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn number(path: &str) -> Option<u64> {
    read(path).trim().parse().ok()
}
