//! The compiled program says what the table says.

use super::compile::{
    AND, Instruction, JUMP, JUMP_ANY_BIT, JUMP_EQUAL, JUMP_NOT_BELOW, LOAD, RETURN, program,
};
use super::table::{AUDIT_ARCH, Act, Condition, calls};
use super::{Profile, compile, verdict};
use proptest::prelude::*;
use std::collections::BTreeSet;

const X32_BIT: u32 = 0x4000_0000;
const AUDIT_ARCH_I386: u32 = 0x4000_0003;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;

/// Runs the filter as the kernel would; also how many instructions that took.
fn interpret(code: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> (Act, usize) {
    let mut data = Vec::new();
    data.extend_from_slice(&number.to_ne_bytes());
    data.extend_from_slice(&arch.to_ne_bytes());
    data.extend_from_slice(&[0; 8]);
    args.iter().for_each(|arg| data.extend_from_slice(&arg.to_ne_bytes()));
    let (mut accumulator, mut at, mut steps) = (0, 0, 0);
    loop {
        let Instruction { code: operation, jump_true, jump_false, k } = code[at];
        let branch = |yes| usize::from(if yes { jump_true } else { jump_false });
        at += 1;
        steps += 1;
        match operation {
            LOAD => {
                let offset = k as usize;
                accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            AND => accumulator &= k,
            JUMP => at += k as usize,
            JUMP_EQUAL => at += branch(accumulator == k),
            JUMP_NOT_BELOW => at += branch(accumulator >= k),
            JUMP_ANY_BIT => at += branch(accumulator & k != 0),
            RETURN => {
                let act = match (k & libc::SECCOMP_RET_ACTION_FULL, k & 0xffff) {
                    (libc::SECCOMP_RET_ALLOW, 0) => Act::Allow,
                    (libc::SECCOMP_RET_ERRNO, 1) => Act::Refuse,
                    (libc::SECCOMP_RET_ERRNO, 38) => Act::Unknown,
                    other => panic!("{other:x?}"),
                };
                return (act, steps);
            }
            other => panic!("no such instruction: {other:#x}"),
        }
    }
}

/// Argument values that any condition of the table looks at, and their neighbours.
fn interesting() -> Vec<u64> {
    let mut values: BTreeSet<u32> = BTreeSet::from([0, 1, u32::MAX]);
    for call in calls(Profile::Default).values() {
        for condition in call.rule.cases.iter().flat_map(|(conditions, _act)| conditions) {
            let (mask, value) = match *condition {
                Condition::Is { mask, value, .. } => (mask, value),
                Condition::AnyOf { mask, .. } => (mask, mask & mask.wrapping_neg()),
            };
            values.extend([value, value.wrapping_add(1), value | !mask, mask, value | 0o100]);
        }
    }
    let low = values.into_iter().map(u64::from);
    low.flat_map(|value| [value, value | 0xffff_ffff_0000_0000]).collect()
}

#[test]
fn the_program_equals_the_table() {
    let code = program(Profile::Default);
    let values = interesting();
    let mut longest = 0;
    for number in 0..=600 {
        let looked_at: BTreeSet<usize> = super::rule_of(Profile::Default, number)
            .into_iter()
            .flat_map(|rule| rule.cases.iter().flat_map(|(conditions, _act)| conditions))
            .map(|condition| match *condition {
                Condition::Is { arg, .. } | Condition::AnyOf { arg, .. } => arg,
            })
            .collect();
        for args in combinations(&looked_at.into_iter().collect::<Vec<_>>(), &values) {
            let (act, steps) = interpret(&code, AUDIT_ARCH, number, args);
            assert_eq!(
                act,
                verdict(Profile::Default, AUDIT_ARCH, number, args),
                "{number} {args:x?}"
            );
            longest = longest.max(steps);
        }
        for (arch, number) in [
            (AUDIT_ARCH, number | X32_BIT),
            (AUDIT_ARCH_I386, number),
            (AUDIT_ARCH_AARCH64, number),
        ] {
            assert_eq!(interpret(&code, arch, number, [0; 6]).0, Act::Unknown);
        }
    }
    for number in [u32::MAX, X32_BIT, 0x8000_0000] {
        assert_eq!(interpret(&code, AUDIT_ARCH, number, [0; 6]).0, Act::Unknown);
    }
    // 174 and 27 when this was written: a table that grows may grow them, not multiply them.
    assert!(code.len() < 260 && longest < 40, "{} instructions, {longest} deep", code.len());
    assert_eq!(compile(Profile::Default).len(), code.len() * 8);
}

/// Every pairing of values for up to three arguments; two at a time where there are three.
fn combinations(looked_at: &[usize], values: &[u64]) -> Vec<[u64; 6]> {
    let mut all = vec![[0; 6]];
    for arg in looked_at {
        all = all
            .iter()
            .flat_map(|args| {
                values.iter().map(move |value| {
                    let mut args = *args;
                    args[*arg] = *value;
                    args
                })
            })
            .collect();
    }
    all
}

proptest! {
    #[test]
    fn the_program_equals_the_table_anywhere(number in 0_u32..1024, args: [u64; 6]) {
        let code = program(Profile::Default);
        let (act, _steps) = interpret(&code, AUDIT_ARCH, number, args);
        prop_assert_eq!(act, verdict(Profile::Default, AUDIT_ARCH, number, args));
    }
}

#[test]
fn what_matters_is_decided_as_written() {
    let low = |call: libc::c_long, args: [u64; 6]| {
        verdict(Profile::Default, AUDIT_ARCH, u32::try_from(call).unwrap(), args)
    };
    let thread = 0x003d_0f00;
    for (call, args, act) in [
        (libc::SYS_read, [0; 6], Act::Allow),
        (libc::SYS_clone, [thread, 0, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_clone, [17, 0, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_clone, [0x1000_0011, 0, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_clone, [0x0002_0011, 0, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_clone3, [0; 6], Act::Unknown),
        (libc::SYS_openat2, [0; 6], Act::Unknown),
        (libc::SYS_io_uring_setup, [0; 6], Act::Unknown),
        (libc::SYS_ptrace, [0; 6], Act::Refuse),
        (libc::SYS_mount, [0; 6], Act::Refuse),
        (libc::SYS_unshare, [0; 6], Act::Refuse),
        (libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_ioctl, [0, 0x0001_0000_5412, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_socket, [1, 1, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_socket, [2, 0o2_000_001, 6, 0, 0, 0], Act::Allow),
        (libc::SYS_socket, [2, 1, 262, 0, 0, 0], Act::Refuse),
        (libc::SYS_socket, [2, 0o2_000_003, 1, 0, 0, 0], Act::Refuse),
        (libc::SYS_socket, [16, 0o2_000_003, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_socket, [16, 3, 9, 0, 0, 0], Act::Refuse),
        (libc::SYS_socket, [40, 1, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_socket, [38, 5, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_socket, [17, 3, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_sendto, [0, 0, 0, 0x2000_4000, 0, 0], Act::Refuse),
        (libc::SYS_chmod, [0, 0o4755, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_chmod, [0, 0o1777, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_openat, [0, 0, 0o101, 0o6755, 0, 0], Act::Refuse),
        (libc::SYS_openat, [0, 0, 0, 0o6755, 0, 0], Act::Allow),
        (libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0], Act::Allow),
        (libc::SYS_personality, [0x0004_0000, 0, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_prlimit64, [0, 7, 1, 1, 0, 0], Act::Allow),
        (libc::SYS_prlimit64, [1, 7, 1, 0, 0, 0], Act::Refuse),
        (libc::SYS_seccomp, [1, 8, 0, 0, 0, 0], Act::Refuse),
        (libc::SYS_seccomp, [1, 0, 0, 0, 0, 0], Act::Allow),
    ] {
        assert_eq!(low(call, args), act, "call {call} {args:x?}");
    }
}
