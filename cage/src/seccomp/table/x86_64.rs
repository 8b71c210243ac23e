//! What only x86_64 has: calls that younger architectures left out.

use super::{Names, Rule, no_setid, no_setid_when_creating, numbers};

/// `AUDIT_ARCH_X86_64`.
pub(crate) const AUDIT_ARCH: u32 = 0xc000_003e;

pub(super) const ALLOWED: Names = numbers![
    SYS_stat SYS_lstat SYS_newfstatat SYS_access SYS_pipe SYS_dup2 SYS_poll SYS_select SYS_pause
    SYS_alarm SYS_fork SYS_vfork SYS_rename SYS_renameat SYS_mkdir SYS_rmdir SYS_link SYS_unlink
    SYS_symlink SYS_readlink SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_getpgrp
    SYS_getdents SYS_time SYS_signalfd SYS_eventfd SYS_epoll_create SYS_epoll_wait
    SYS_inotify_init SYS_arch_prctl
];

pub(super) const REFUSED: Names = numbers![
    SYS_iopl SYS_ioperm SYS_modify_ldt SYS_kexec_file_load SYS_uselib
];

pub(super) fn rules() -> Vec<(&'static str, libc::c_long, Rule)> {
    vec![
        ("SYS_open", libc::SYS_open, no_setid_when_creating(1, 2)),
        ("SYS_creat", libc::SYS_creat, no_setid(1)),
        ("SYS_chmod", libc::SYS_chmod, no_setid(1)),
        ("SYS_mknod", libc::SYS_mknod, no_setid(1)),
    ]
}
