//! The recording of one terminal, `<pty>.rec`: repeated
//! `u8 kind · u64 ms since start · u32 length · payload`, little-endian, appended as it comes.
//!
//! | kind | name | payload |
//! | --- | --- | --- |
//! | 1 | data | bytes as the program wrote them |
//! | 2 | size | u16 cols, u16 rows |
//! | 3 | cut | u64: bytes of output that are missing here; 0 if it is not known how many |
//!
//! While it is written, what comes after the first half of the budget lies in two more files,
//! used in turn ([`part_names`]); at the end they are appended. If the broker died before that,
//! [`join`] does it. A record that is not whole ends the recording; an unknown kind is passed over.

use crate::{PtyId, Size};

/// What is before the payload of each record, in bytes.
pub const HEADER_BYTES: usize = 13;

const DATA: u8 = 1;
const SIZE: u8 = 2;
const CUT: u8 = 3;

/// `ms`: since the start of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Data { ms: u64, bytes: &'a [u8] },
    Size { ms: u64, size: Size },
    Cut { ms: u64, missing: u64 },
}

/// The file of a terminal's recording, and the two that exist while it is written.
#[must_use]
pub fn part_names(pty: PtyId) -> [String; 3] {
    [format!("{pty}.rec"), format!("{pty}.rec.a"), format!("{pty}.rec.b")]
}

impl Record<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data { ms, bytes } => {
                header(DATA, *ms, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Self::Size { ms, size } => {
                header(SIZE, *ms, 4, out);
                out.extend_from_slice(&size.cols.to_le_bytes());
                out.extend_from_slice(&size.rows.to_le_bytes());
            }
            Self::Cut { ms, missing } => {
                header(CUT, *ms, 8, out);
                out.extend_from_slice(&missing.to_le_bytes());
            }
        }
    }

    #[must_use]
    pub fn ms(&self) -> u64 {
        match self {
            Self::Data { ms, .. } | Self::Size { ms, .. } | Self::Cut { ms, .. } => *ms,
        }
    }
}

/// The records of a file that was read.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    #[must_use]
    pub fn new(file: &'a [u8]) -> Self {
        Self { rest: file }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let (kind, ms, payload) = split_record(&mut self.rest)?;
            match kind {
                DATA => return Some(Record::Data { ms, bytes: payload }),
                SIZE => return parse_size(payload).map(|size| Record::Size { ms, size }),
                CUT => {
                    let missing = u64::from_le_bytes(payload.try_into().ok()?);
                    return Some(Record::Cut { ms, missing });
                }
                _ => {}
            }
        }
    }
}

/// Exactly the program's output bytes, as far as they are kept.
#[must_use]
pub fn raw(file: &[u8]) -> Vec<u8> {
    let data = Records::new(file).filter_map(|record| match record {
        Record::Data { bytes, .. } => Some(bytes),
        Record::Size { .. } | Record::Cut { .. } => None,
    });
    data.collect::<Vec<_>>().concat()
}

/// One recording from the files of a broker that died while it wrote them (empty if not there).
#[must_use]
pub fn join(head: &[u8], tails: [&[u8]; 2]) -> Vec<u8> {
    let mut out =
        Vec::with_capacity(head.len() + tails.iter().map(|tail| tail.len()).sum::<usize>());
    append_whole(head, &mut out);
    let start = |tail: &[u8]| Records::new(tail).next().map(|record| record.ms());
    let mut tails: Vec<_> =
        tails.into_iter().filter_map(|tail| start(tail).map(|ms| (ms, tail))).collect();
    tails.sort_by_key(|(ms, _)| *ms);
    // With both in use, one may have been emptied and used again.
    if let [(ms, _), _] = tails.as_slice() {
        Record::Cut { ms: *ms, missing: 0 }.encode(&mut out);
    }
    tails.iter().for_each(|(_, tail)| append_whole(tail, &mut out));
    out
}

/// A record that is not whole would swallow the head of the next file.
fn append_whole(file: &[u8], out: &mut Vec<u8>) {
    Records::new(file).for_each(|record| record.encode(out));
}

fn header(kind: u8, ms: u64, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&ms.to_le_bytes());
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn split_record<'a>(rest: &mut &'a [u8]) -> Option<(u8, u64, &'a [u8])> {
    let (kind, after) = rest.split_first()?;
    let (ms, after) = after.split_first_chunk::<8>()?;
    let (length, after) = after.split_first_chunk::<4>()?;
    let (payload, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = after;
    Some((*kind, u64::from_le_bytes(*ms), payload))
}

fn parse_size(payload: &[u8]) -> Option<Size> {
    let [c0, c1, r0, r1] = *payload else { return None };
    Some(Size { cols: u16::from_le_bytes([c0, c1]), rows: u16::from_le_bytes([r0, r1]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size { cols: 80, rows: 24 };

    fn encoded(records: &[Record<'_>]) -> Vec<u8> {
        let mut file = Vec::new();
        records.iter().for_each(|record| record.encode(&mut file));
        file
    }

    #[test]
    fn records_come_back_and_raw_is_the_output() {
        let records = [
            Record::Size { ms: 0, size: SMALL },
            Record::Data { ms: 5, bytes: b"one" },
            Record::Cut { ms: 9, missing: 1 << 40 },
            Record::Data { ms: 1 << 33, bytes: b"\x1b[mtwo" },
        ];
        let file = encoded(&records);
        assert_eq!(Records::new(&file).collect::<Vec<_>>(), records);
        assert_eq!(raw(&file), b"one\x1b[mtwo");
        assert_eq!(file.get(..13), Some(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0][..]));
    }

    #[test]
    fn a_record_that_is_not_whole_ends_it() {
        let file =
            encoded(&[Record::Data { ms: 1, bytes: b"ab" }, Record::Data { ms: 2, bytes: b"cd" }]);
        for length in 15..file.len() {
            assert_eq!(raw(&file[..length]), b"ab", "{length}");
        }
    }

    #[test]
    fn what_a_dead_broker_left_is_joined_in_order() {
        let head = encoded(&[
            Record::Data { ms: 1, bytes: b"head" },
            Record::Data { ms: 2, bytes: b"half" },
        ]);
        let older = encoded(&[Record::Data { ms: 50, bytes: b"older" }]);
        let newer = encoded(&[Record::Data { ms: 90, bytes: b"newer" }]);
        let joined = join(&head[..head.len() - 1], [&newer, &older]);
        assert_eq!(raw(&joined), b"headoldernewer");
        let cuts = Records::new(&joined).filter(|record| matches!(record, Record::Cut { .. }));
        assert_eq!(cuts.count(), 1);
        assert_eq!(join(&head, [b"", b""]), head);
    }
}
