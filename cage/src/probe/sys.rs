//! One call per wrapper.

/// The Landlock ABI of the running kernel; 0 where there is none (ENOSYS, EOPNOTSUPP).
pub fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    let attributes: *const libc::c_void = std::ptr::null();
    // SAFETY: a null attribute of size 0 with this flag is the documented way to ask for the version;
    // nothing is created.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes, 0, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}
