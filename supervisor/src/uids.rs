//! Which uid a cage gets when root starts it.
//!
//! A number is used again only when its cage is forgotten: then no cgroup, process or file of it is
//! left. Where the numbers start is drawn anew for each supervisor, so that two of them on one host
//! (a daemon and a one-shot) do not meet.

use std::collections::BTreeSet;

/// Ours if `/proc/self/uid_map` covers it.
const RANGE_START: u32 = 0x7000_0000;
const RANGE_SIZE: u32 = 1 << 24;
/// Where less is mapped: so many from the top.
const SMALL_RANGE_SIZE: u32 = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// sessiond's, where there is no user `mews`.
    pub(crate) first: u32,
    pub(crate) size: u32,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum RangeError {
    #[error("only uid 0 is mapped here (a rootless container): there is no uid for a cage")]
    NothingElse,
    #[error("/proc/self/uid_map is not understood")]
    Unreadable,
}

impl Range {
    /// From the text of `/proc/self/uid_map`.
    pub(crate) fn of(uid_map: &str) -> Result<Self, RangeError> {
        let mut top = 0_u64;
        for line in uid_map.lines() {
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(inside)), Some(Ok(_outside)), Some(Ok(count))) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(RangeError::Unreadable);
            };
            let ours = u64::from(RANGE_START)..u64::from(RANGE_START) + u64::from(RANGE_SIZE);
            if inside <= ours.start && ours.end <= inside + count {
                return Ok(Self { first: RANGE_START, size: RANGE_SIZE });
            }
            if count > u64::from(SMALL_RANGE_SIZE) {
                top = top.max(inside + count);
            }
        }
        let first = top.checked_sub(SMALL_RANGE_SIZE.into()).ok_or(RangeError::NothingElse)?;
        let first = u32::try_from(first).map_err(|_beyond| RangeError::Unreadable)?;
        Ok(Self { first, size: SMALL_RANGE_SIZE })
    }
}

impl Range {
    pub(crate) fn includes(self, uid: u32) -> bool {
        uid.checked_sub(self.first).is_some_and(|offset| offset < self.size)
    }
}

/// The numbers of this supervisor's cages. Those of operators, under which their own cages run, are
/// none of them.
#[derive(Debug)]
pub(crate) struct Uids {
    range: Range,
    next: u32,
    taken: BTreeSet<u32>,
    freed: Vec<u32>,
}

impl Uids {
    /// `seed` is any random number.
    pub(crate) fn new(range: Range, seed: u64) -> Self {
        let cages = u64::from(range.size.saturating_sub(1)).max(1);
        let next = u32::try_from(seed % cages).unwrap_or(0);
        Self { range, next, taken: BTreeSet::new(), freed: Vec::new() }
    }

    /// Of a cage that was found.
    pub(crate) fn adopt(&mut self, uid: u32) {
        if self.range.includes(uid) {
            self.taken.insert(uid);
        }
    }

    /// `None`: all are taken.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(uid) = self.freed.pop()
            && self.taken.insert(uid)
        {
            return Some(uid);
        }
        // The first of the range is sessiond's.
        let cages = self.range.size.checked_sub(1).filter(|size| *size > 0)?;
        for _try in 0..cages {
            let uid = self.range.first + 1 + self.next % cages;
            self.next = (self.next + 1) % cages;
            if self.taken.insert(uid) {
                return Some(uid);
            }
        }
        None
    }

    pub(crate) fn free(&mut self, uid: u32) {
        if self.taken.remove(&uid) {
            self.freed.push(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_follows_the_map() {
        let small = SMALL_RANGE_SIZE;
        for (map, want) in [
            ("0 0 4294967295", Ok(Range { first: RANGE_START, size: RANGE_SIZE })),
            ("0 100000 65536", Ok(Range { first: 65536 - small, size: small })),
            ("0 1000 1\n1 100000 65536", Ok(Range { first: 65537 - small, size: small })),
            ("0 1000 1", Err(RangeError::NothingElse)),
            ("junk", Err(RangeError::Unreadable)),
        ] {
            assert_eq!(Range::of(map), want, "{map}");
        }
    }

    #[test]
    fn the_uid_of_an_operator_is_never_given_to_a_cage_of_another() {
        let mut uids = Uids::new(Range { first: 100, size: 4 }, 0);
        for own in [1000, 99, 104] {
            uids.adopt(own);
            uids.free(own);
        }
        let got: BTreeSet<u32> = std::iter::from_fn(|| uids.take()).collect();
        assert_eq!(got, BTreeSet::from([101, 102, 103]));
    }

    #[test]
    fn a_uid_is_never_given_twice_nor_the_first_of_the_range() {
        let mut uids = Uids::new(Range { first: 100, size: 4 }, 7);
        uids.adopt(102);
        let got: BTreeSet<u32> = [uids.take(), uids.take()].into_iter().flatten().collect();
        assert_eq!(got, BTreeSet::from([101, 103]));
        assert_eq!(uids.take(), None);
        uids.free(102);
        assert_eq!(uids.take(), Some(102));
        assert_eq!(uids.take(), None);
    }
}
