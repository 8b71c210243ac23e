//! The system call filter: a plain table, and its compiler to classic BPF.
//!
//! An allow list: numbers that nobody decided about answer ENOSYS, so that C libraries fall back;
//! what is known and refused answers EPERM. [`verdict`] is the table's own word and what `explain`
//! says; a test proves that the compiled program agrees with it.

mod compile;
mod table;

pub use table::{Act, Call, Condition, Rule, calls, rule_of};

/// Which table. More come with the policies that need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    #[default]
    Default,
}

/// The filter as an array of `struct sock_filter` in native byte order.
#[must_use]
pub fn compile(profile: Profile) -> Vec<u8> {
    compile::program(profile).into_iter().flat_map(compile::Instruction::to_bytes).collect()
}

/// What the table says about this call. `arch` and `number` as in `struct seccomp_data`.
#[must_use]
pub fn verdict(profile: Profile, arch: u32, number: u32, args: [u64; 6]) -> Act {
    if arch != table::AUDIT_ARCH {
        return Act::Unknown;
    }
    rule_of(profile, number).map_or(Act::Unknown, |rule| rule.verdict(args))
}

#[cfg(test)]
mod tests;
