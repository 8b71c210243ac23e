//! The broker's own walls, once its cage stands: it parses hostile bytes for the rest of its life.
//!
//! Landlock: only the cage's state folder can be opened. seccomp: an allow list without exec,
//! fork, new sockets or anything that reaches another process but by a pidfd that is open already.
//! No Landlock scope on signals: the cage was started before and stands outside our domain.

use crate::boot::StateDir;
use crate::sys;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum LockupError {
    #[error("Landlock for the broker: {0}")]
    Landlock(#[from] landlock::RulesetError),
    #[error("no_new_privs for the broker: {0}")]
    NoNewPrivs(nix::errno::Errno),
    #[error("seccomp for the broker: {0}")]
    Seccomp(io::Error),
}

/// Called with one thread; irrevocable.
///
/// # Errors
/// A wall could not be put up where the kernel has it.
pub fn lock_up(folder: &StateDir) -> Result<(), LockupError> {
    let abi = ABI::V5;
    let rights = AccessFs::from_all(abi);
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(rights)?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rule(PathBeneath::new(folder, rights & !AccessFs::Execute))?
        .restrict_self()?;
    nix::sys::prctl::set_no_new_privs().map_err(LockupError::NoNewPrivs)?;
    sys::set_filter(&program()).map_err(LockupError::Seccomp)
}

/// What the event loop, its files and its allocator need. Anything else is EPERM.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_memfd_create,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fchmod,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_send_signal,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Depends on the number alone, so that the kernel caches the verdicts.
fn program() -> Vec<libc::sock_filter> {
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let verdict = code(libc::BPF_RET | libc::BPF_K);
    let mut program = vec![
        statement(load, 4),
        jump(equal, ARCHITECTURE, 1, 0),
        statement(verdict, libc::SECCOMP_RET_KILL_PROCESS),
        statement(load, 0),
    ];
    for number in ALLOWED {
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        program.push(jump(equal, number, 0, 1));
        program.push(statement(verdict, libc::SECCOMP_RET_ALLOW));
    }
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap_or(1);
    program.push(statement(verdict, refuse));
    program
}

fn code(bits: u32) -> u16 {
    u16::try_from(bits).unwrap_or(0)
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_starts_or_reaches_a_process_is_allowed() {
        for forbidden in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_vm_writev,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
        ] {
            assert!(!ALLOWED.contains(&forbidden), "{forbidden}");
        }
    }
}
