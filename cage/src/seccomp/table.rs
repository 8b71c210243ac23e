//! The source: which call is allowed, refused, or looked at more closely, and why.
//!
//! Calls that every architecture has are here; the rest, with their numbers, in a file per
//! architecture. Only the low 32 bits of arguments are compared: the kernel itself takes these
//! arguments as 32 bits or fewer, so bits above cannot hide anything.

#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::seccomp::Profile;
use std::collections::BTreeMap;
use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

pub(crate) use native::AUDIT_ARCH;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Allow,
    /// EPERM: known and refused.
    Refuse,
    /// ENOSYS: as if this kernel did not have it.
    Unknown,
}

/// A condition on one argument's low 32 bits: `(argument & mask) == value`, or with `any`,
/// `(argument & mask) != 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    Is { arg: usize, mask: u32, value: u32 },
    AnyOf { arg: usize, mask: u32 },
}

impl Condition {
    #[must_use]
    pub fn holds(self, args: [u64; 6]) -> bool {
        let low = |arg: usize| {
            let value = args.get(arg).copied().unwrap_or(0);
            u32::try_from(value & 0xffff_ffff).unwrap_or(0)
        };
        match self {
            Self::Is { arg, mask, value } => low(arg) & mask == value,
            Self::AnyOf { arg, mask } => low(arg) & mask != 0,
        }
    }
}

/// The first case whose conditions all hold decides, else `otherwise`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub cases: Vec<(Vec<Condition>, Act)>,
    pub otherwise: Act,
}

impl Rule {
    #[must_use]
    pub fn verdict(&self, args: [u64; 6]) -> Act {
        let mut cases = self.cases.iter();
        let first = cases.find(|(conditions, _act)| conditions.iter().all(|c| c.holds(args)));
        first.map_or(self.otherwise, |(_conditions, act)| *act)
    }

    fn always(act: Act) -> Self {
        Self { cases: Vec::new(), otherwise: act }
    }
}

/// A call of the table.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: &'static str,
    pub number: u32,
    pub rule: Rule,
}

/// Names and numbers; a macro so that the names are those of the C library's constants.
macro_rules! numbers {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}
pub(super) use numbers;

type Names = &'static [(&'static str, libc::c_long)];

/// Ordinary work of programs: files, memory, processes, signals, time, sockets, IPC of the cage's own.
const ALLOWED: Names = numbers![
    // Files and folders.
    SYS_read SYS_write SYS_close SYS_fstat SYS_lseek SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev
    SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_dup SYS_dup3 SYS_fcntl SYS_flock SYS_fsync
    SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_truncate SYS_ftruncate SYS_fallocate
    SYS_getcwd SYS_chdir SYS_fchdir SYS_getdents64 SYS_mkdirat SYS_unlinkat SYS_renameat2
    SYS_linkat SYS_symlinkat SYS_readlinkat SYS_faccessat SYS_faccessat2 SYS_fchown SYS_fchownat
    SYS_utimensat SYS_statx SYS_statfs SYS_fstatfs SYS_umask SYS_sendfile SYS_splice SYS_tee
    SYS_copy_file_range SYS_readahead SYS_fadvise64 SYS_close_range SYS_pipe2
    SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr
    SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
    SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_cancel SYS_io_destroy
    // Memory.
    SYS_mmap SYS_mprotect SYS_munmap SYS_brk SYS_mremap SYS_msync SYS_mincore SYS_madvise
    SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_memfd_create
    SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_get_mempolicy SYS_membarrier
    // Waiting.
    SYS_pselect6 SYS_ppoll SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
    SYS_eventfd2 SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_get_robust_list SYS_restart_syscall
    // Processes and signals. Namespaces: see `clone` among the rules.
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill
    SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_rt_sigaction SYS_rt_sigprocmask
    SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigqueueinfo
    SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_sigaltstack SYS_getpid SYS_getppid SYS_gettid
    SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_set_tid_address SYS_rseq SYS_prctl
    SYS_sched_yield SYS_sched_setparam SYS_sched_getparam SYS_sched_setscheduler
    SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_setattr
    SYS_sched_getattr SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_getcpu
    SYS_getrlimit SYS_setrlimit SYS_getrusage SYS_times SYS_sysinfo SYS_uname
    SYS_getrandom
    // Identity: without capabilities these change nothing, but programs call them.
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
    SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid
    SYS_setfsgid SYS_setgroups SYS_capget SYS_capset
    // Time.
    SYS_nanosleep SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_gettimeofday
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime
    SYS_timer_getoverrun SYS_timer_delete
    // Sockets that exist. Which may be made: see `socket` among the rules.
    SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen SYS_shutdown SYS_recvfrom SYS_recvmsg
    SYS_recvmmsg SYS_getsockname SYS_getpeername SYS_setsockopt SYS_getsockopt
    // IPC, in the cage's own namespace.
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend
    SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
    // More walls of a program's own.
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
];

/// Allowed, but younger than the C library's list of names. The same on all architectures.
const ALLOWED_NEW: Names = &[
    ("SYS_cachestat", 451),
    ("SYS_map_shadow_stack", 453),
    ("SYS_futex_wake", 454),
    ("SYS_futex_wait", 455),
    ("SYS_futex_requeue", 456),
    ("SYS_mseal", 462),
    ("SYS_setxattrat", 463),
    ("SYS_getxattrat", 464),
    ("SYS_listxattrat", 465),
    ("SYS_removexattrat", 466),
];

const REFUSED: Names = numbers![
    // Keys of the session: not ours to read.
    SYS_keyctl SYS_add_key SYS_request_key
    // Large parts of the kernel that programs in a cage have no business with.
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_fanotify_init SYS_fanotify_mark
    SYS_memfd_secret SYS_vmsplice SYS_move_pages SYS_migrate_pages SYS_mbind SYS_set_mempolicy
    // Into other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp
    SYS_process_madvise
    // Namespaces and mounts; a table of the old calls only missed the new ones (CVE-2021-41133).
    SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig
    SYS_fsmount SYS_fspick SYS_open_tree SYS_move_mount SYS_mount_setattr
    // Around path checks.
    SYS_name_to_handle_at SYS_open_by_handle_at
    // The machine.
    SYS_quotactl SYS_quotactl_fd SYS_acct SYS_swapon SYS_swapoff SYS_reboot SYS_kexec_load
    SYS_init_module SYS_finit_module SYS_delete_module SYS_syslog SYS_settimeofday
    SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_vhangup SYS_nfsservctl
    SYS_sethostname SYS_setdomainname SYS_lookup_dcookie
];

const REFUSED_NEW: Names = &[("SYS_open_tree_attr", 467)];

/// Every call that the table decides, by number.
#[must_use]
pub fn calls(profile: Profile) -> &'static BTreeMap<u32, Call> {
    static DEFAULT: OnceLock<BTreeMap<u32, Call>> = OnceLock::new();
    match profile {
        Profile::Default => DEFAULT.get_or_init(table),
    }
}

/// `None`: nobody decided; ENOSYS.
#[must_use]
pub fn rule_of(profile: Profile, number: u32) -> Option<&'static Rule> {
    calls(profile).get(&number).map(|call| &call.rule)
}

fn table() -> BTreeMap<u32, Call> {
    let mut calls = BTreeMap::new();
    let mut add = |name: &'static str, number: libc::c_long, rule: Rule| {
        let Ok(number) = u32::try_from(number) else { return };
        let name = name.trim_start_matches("SYS_");
        let older = calls.insert(number, Call { name, number, rule });
        debug_assert!(older.is_none(), "{name} is decided twice");
    };
    for (name, number) in [ALLOWED, ALLOWED_NEW, native::ALLOWED].into_iter().flatten() {
        add(name, *number, Rule::always(Act::Allow));
    }
    for (name, number) in [REFUSED, REFUSED_NEW, native::REFUSED].into_iter().flatten() {
        add(name, *number, Rule::always(Act::Refuse));
    }
    for (name, number, rule) in rules().into_iter().chain(native::rules()) {
        add(name, number, rule);
    }
    calls
}

fn is(arg: usize, value: u32) -> Condition {
    Condition::Is { arg, mask: u32::MAX, value }
}

/// Refused when all of these hold, else allowed.
pub(super) fn refuse_when(conditions: &[Condition]) -> Rule {
    Rule { cases: vec![(conditions.to_vec(), Act::Refuse)], otherwise: Act::Allow }
}

/// Set-user-ID and set-group-ID files would outlive the cage in the operator's folders.
pub(super) fn no_setid(arg: usize) -> Rule {
    refuse_when(&[setid(arg)])
}

fn setid(arg: usize) -> Condition {
    Condition::AnyOf { arg, mask: libc::S_ISUID | libc::S_ISGID }
}

/// The mode counts only where the flags make a file.
pub(super) fn no_setid_when_creating(flags: usize, mode: usize) -> Rule {
    // O_CREAT, and O_TMPFILE without its O_DIRECTORY.
    let creating = Condition::AnyOf { arg: flags, mask: 0o100 | 0o20_000_000 };
    refuse_when(&[creating, setid(mode)])
}

fn rules() -> Vec<(&'static str, libc::c_long, Rule)> {
    vec![
        ("SYS_clone", libc::SYS_clone, no_namespaces()),
        // `clone3` is unknown (its flags lie in memory), so that C libraries use `clone`.
        // `openat2` too: its mode lies in memory.
        ("SYS_ioctl", libc::SYS_ioctl, terminal_ioctls()),
        ("SYS_socket", libc::SYS_socket, sockets()),
        ("SYS_socketpair", libc::SYS_socketpair, only(&[is(0, AF_UNIX)])),
        // TCP fast open sends data, and so connects, without connect(2), which Landlock guards.
        ("SYS_sendto", libc::SYS_sendto, no_fast_open(3)),
        ("SYS_sendmsg", libc::SYS_sendmsg, no_fast_open(2)),
        ("SYS_sendmmsg", libc::SYS_sendmmsg, no_fast_open(3)),
        ("SYS_openat", libc::SYS_openat, no_setid_when_creating(2, 3)),
        ("SYS_fchmod", libc::SYS_fchmod, no_setid(1)),
        ("SYS_fchmodat", libc::SYS_fchmodat, no_setid(2)),
        ("SYS_fchmodat2", 452, no_setid(2)),
        ("SYS_mknodat", libc::SYS_mknodat, no_setid(2)),
        // Linux proper, and asking. Others switch off address randomisation or change old ABIs.
        ("SYS_personality", libc::SYS_personality, only(&[is(0, 0), is(0, u32::MAX)])),
        // Its own limits alone: lowered limits would end pid 1, the zygote or a leader, which have the
        // same uid, and with pid 1 the true exit status. (A null pointer for asking cannot be told:
        // only its low half is compared.)
        ("SYS_prlimit64", libc::SYS_prlimit64, only(&[is(0, 0)])),
        // Filters of a program's own are fine; one that answers in the kernel's stead is not.
        (
            "SYS_seccomp",
            libc::SYS_seccomp,
            refuse_when(&[Condition::AnyOf { arg: 1, mask: 1 << 3 }]),
        ),
    ]
}

/// Allowed when any of these holds, else refused.
fn only(alternatives: &[Condition]) -> Rule {
    let cases = alternatives.iter().map(|condition| (vec![*condition], Act::Allow)).collect();
    Rule { cases, otherwise: Act::Refuse }
}

fn no_namespaces() -> Rule {
    // CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET. (NEWTIME is a signal number to clone(2).)
    refuse_when(&[Condition::AnyOf { arg: 0, mask: 0x7e02_0000 }])
}

fn terminal_ioctls() -> Rule {
    // TIOCSTI types for the operator, TIOCLINUX pastes, TIOCSETD loads line disciplines, TIOCCONS
    // takes the console's output, TIOCEXCL locks others out.
    let refused = [0x5412, 0x541c, 0x5423, 0x541d, 0x540c];
    let cases = refused.iter().map(|request| (vec![is(1, *request)], Act::Refuse)).collect();
    Rule { cases, otherwise: Act::Allow }
}

const AF_UNIX: u32 = 1;

fn sockets() -> Rule {
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    const AF_NETLINK: u32 = 16;
    const NETLINK_ROUTE: u32 = 0;
    const IPPROTO_MPTCP: u32 = 262;
    let kind = |value| Condition::Is { arg: 1, mask: 0xf, value };
    let cases = vec![
        // C libraries ask it for the machine's addresses, with SOCK_RAW.
        (vec![is(0, AF_NETLINK), is(2, NETLINK_ROUTE)], Act::Allow),
        // SOCK_RAW, SOCK_PACKET.
        (vec![kind(3)], Act::Refuse),
        (vec![kind(10)], Act::Refuse),
        // Landlock's TCP rules do not see it.
        (vec![is(2, IPPROTO_MPTCP)], Act::Refuse),
        (vec![is(0, AF_UNIX)], Act::Allow),
        (vec![is(0, AF_INET)], Act::Allow),
        (vec![is(0, AF_INET6)], Act::Allow),
    ];
    Rule { cases, otherwise: Act::Refuse }
}

fn no_fast_open(flags: usize) -> Rule {
    refuse_when(&[Condition::AnyOf { arg: flags, mask: 0x2000_0000 }])
}
