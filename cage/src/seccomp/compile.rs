//! From the table to classic BPF: ranges of numbers with one fate, found by binary search.
//!
//! One comparison per number, as usual compilers emit it, costs 1.3 ms per load (the kernel runs the
//! filter for every number then); this form costs a tenth. Jumps go forward only and conditional
//! ones at most 255 places, so the program is built from its end: a target is always known, and one
//! that is too far gets a copy (returns) or an unconditional jump nearby.

use crate::seccomp::Profile;
use crate::seccomp::table::{AUDIT_ARCH, Act, Condition, Rule, calls};
use std::collections::BTreeMap;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) jump_true: u8,
    pub(super) jump_false: u8,
    pub(super) k: u32,
}

impl Instruction {
    pub(super) fn to_bytes(self) -> [u8; 8] {
        let [a, b] = self.code.to_ne_bytes();
        let [c, d, e, f] = self.k.to_ne_bytes();
        [a, b, self.jump_true, self.jump_false, c, d, e, f]
    }
}

// BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_RET|BPF_K, and BPF_JMP|…|BPF_K.
pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const RETURN: u16 = 0x06;
pub(super) const JUMP: u16 = 0x05;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_NOT_BELOW: u16 = 0x35;
pub(super) const JUMP_ANY_BIT: u16 = 0x45;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Where the low half of an argument lies.
fn argument(arg: usize) -> u32 {
    let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
    16 + 8 * u32::try_from(arg).unwrap_or(0) + low_half
}

fn return_value(act: Act) -> u32 {
    let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    match act {
        Act::Allow => libc::SECCOMP_RET_ALLOW,
        Act::Refuse => errno(libc::EPERM),
        Act::Unknown => errno(libc::ENOSYS),
    }
}

pub(super) fn program(profile: Profile) -> Vec<Instruction> {
    let ranges = ranges(profile);
    let mut code = Backwards::default();
    // Behind the search, nearest to those that need them: the rules that look at arguments.
    for (_first, rule) in &ranges {
        code.rule(rule);
    }
    let search = code.search(&ranges);
    let native = code.load(NUMBER, search);
    let foreign = code.act(Act::Unknown);
    let test = code.test(JUMP_EQUAL, AUDIT_ARCH, native, foreign);
    code.load(ARCH, test);
    code.0.instructions.reverse();
    code.0.instructions
}

/// The first number of each range, and its fate. The last range has no end: numbers of younger
/// kernels, and those with the x32 bit.
fn ranges(profile: Profile) -> Vec<(u32, Rule)> {
    let unknown = Rule { cases: Vec::new(), otherwise: Act::Unknown };
    let calls = calls(profile);
    let end = calls.keys().next_back().map_or(0, |last| last + 1);
    let mut ranges: Vec<(u32, Rule)> = Vec::new();
    for number in 0..=end {
        let rule = calls.get(&number).map_or(&unknown, |call| &call.rule);
        if ranges.last().is_none_or(|(_first, last)| last != rule) {
            ranges.push((number, rule.clone()));
        }
    }
    ranges
}

/// An instruction's place, counted from the end of the program.
type Place = usize;

#[derive(Default)]
struct Written {
    instructions: Vec<Instruction>,
    returns: BTreeMap<Act, Place>,
    rules: BTreeMap<Rule, Place>,
}

/// A program that is written from its end.
#[derive(Default)]
struct Backwards(Written);

impl Backwards {
    fn push(&mut self, code: u16, jump_true: u8, jump_false: u8, k: u32) -> Place {
        self.0.instructions.push(Instruction { code, jump_true, jump_false, k });
        self.0.instructions.len() - 1
    }

    /// How many instructions the next one would jump over to get to `place`.
    fn distance(&self, place: Place) -> usize {
        self.0.instructions.len() - 1 - place
    }

    /// A load that goes on to `next`.
    fn load(&mut self, offset: u32, next: Place) -> Place {
        self.follow(next);
        self.push(LOAD, 0, 0, offset)
    }

    /// Makes `next` what comes after the instruction to be written.
    fn follow(&mut self, next: Place) {
        let distance = self.distance(next);
        if distance > 0 {
            self.push(JUMP, 0, 0, u32::try_from(distance).unwrap_or(u32::MAX));
        }
    }

    fn act(&mut self, act: Act) -> Place {
        if let Some(place) = self.0.returns.get(&act).copied()
            && u8::try_from(self.distance(place)).is_ok()
        {
            return place;
        }
        let place = self.push(RETURN, 0, 0, return_value(act));
        self.0.returns.insert(act, place);
        place
    }

    fn test(&mut self, code: u16, k: u32, mut yes: Place, mut no: Place) -> Place {
        // A step for one of them moves the other one place away, so look again until both are near.
        loop {
            let near = (u8::try_from(self.distance(yes)), u8::try_from(self.distance(no)));
            match near {
                (Ok(jump_true), Ok(jump_false)) => {
                    return self.push(code, jump_true, jump_false, k);
                }
                (Err(_far), _) => yes = self.step_towards(yes),
                (_, Err(_far)) => no = self.step_towards(no),
            }
        }
    }

    /// A copy of a return, or a jump to anything else.
    fn step_towards(&mut self, place: Place) -> Place {
        match self.0.instructions.get(place).copied() {
            Some(Instruction { code: RETURN, k, .. }) => self.push(RETURN, 0, 0, k),
            _ => {
                let distance = u32::try_from(self.distance(place)).unwrap_or(u32::MAX);
                self.push(JUMP, 0, 0, distance)
            }
        }
    }

    /// The code for one rule, written once.
    fn rule(&mut self, rule: &Rule) -> Place {
        if rule.cases.is_empty() {
            return self.act(rule.otherwise);
        }
        if let Some(place) = self.0.rules.get(rule) {
            return *place;
        }
        let mut next = self.act(rule.otherwise);
        // Which argument the accumulator holds when `next` is entered by its load.
        let mut loaded = None;
        for (conditions, act) in rule.cases.iter().rev() {
            let matched = self.act(*act);
            (next, loaded) = self.case(conditions, matched, next, loaded);
        }
        self.0.rules.insert(rule.clone(), next);
        next
    }

    /// All of `conditions` lead to `matched`, any failure to `next`.
    fn case(
        &mut self,
        conditions: &[Condition],
        matched: Place,
        next: Place,
        loaded: Option<usize>,
    ) -> (Place, Option<usize>) {
        let mut yes = matched;
        let mut first = None;
        for condition in conditions.iter().rev() {
            let (arg, clobbers) = match *condition {
                Condition::Is { arg, mask, .. } => (arg, mask != u32::MAX),
                Condition::AnyOf { arg, .. } => (arg, false),
            };
            // What follows begins with a load of what is loaded already.
            let no = if loaded == Some(arg) && !clobbers { next - 1 } else { next };
            let test = match *condition {
                Condition::Is { mask, value, .. } => {
                    let test = self.test(JUMP_EQUAL, value, yes, no);
                    if clobbers { self.and(mask, test) } else { test }
                }
                Condition::AnyOf { mask, .. } => self.test(JUMP_ANY_BIT, mask, yes, no),
            };
            yes = self.load(argument(arg), test);
            first = Some(arg);
        }
        (yes, first)
    }

    fn and(&mut self, mask: u32, next: Place) -> Place {
        self.follow(next);
        self.push(AND, 0, 0, mask)
    }

    /// A balanced search among ranges.
    fn search(&mut self, ranges: &[(u32, Rule)]) -> Place {
        match ranges {
            [] => self.act(Act::Unknown),
            [(_first, rule)] => self.rule(rule),
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let border = high.first().map_or(0, |(first, _rule)| *first);
                let not_below = self.search(high);
                let below = self.search(low);
                self.test(JUMP_NOT_BELOW, border, not_below, below)
            }
        }
    }
}
