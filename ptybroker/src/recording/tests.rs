use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::fd::OwnedFd;
use wire::PtyId;
use wire::recording::{Records, join, part_names, raw};

const SIZE: Size = Size::DEFAULT;

/// Plays `pieces` with a tick after each; the folder has what a crash would leave before `finish`.
fn record(
    pieces: &[(Vec<u8>, u64)],
    record_bytes: u64,
    finish: bool,
) -> (tempfile::TempDir, [Vec<u8>; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let dir = OwnedFd::from(fs::File::open(folder.path()).unwrap());
    let pty = PtyId::new();
    let mut writer = Writer::create(&dir, pty).unwrap();
    let mut recorder = Recorder::new(record_bytes, SIZE, 1000);
    let mut now = 1000;
    for (bytes, wait) in pieces {
        writer.perform(recorder.output(bytes, now)).unwrap();
        now += wait;
        writer.perform(recorder.tick(now)).unwrap();
    }
    if finish {
        writer.perform(recorder.finish(now)).unwrap();
    } else {
        writer.perform(recorder.tick(now + CHUNK_MS)).unwrap();
    }
    let files = part_names(pty).map(|name| fs::read(folder.path().join(name)).unwrap_or_default());
    (folder, files)
}

proptest! {
    #[test]
    fn head_and_tail_are_kept_within_the_budget(
        pieces in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..200), 0_u64..300), 0..60),
        record_bytes in 1200_u64..6000,
        finish in any::<bool>(),
    ) {
        let all: Vec<u8> = pieces.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let (_folder, [head, a, b]) = record(&pieces, record_bytes, finish);
        let on_disk = head.len() + a.len() + b.len();
        // The cut record at the end, and one chunk that alone is larger than a part.
        prop_assert!(on_disk as u64 <= record_bytes + 21 + largest_chunk(&pieces));
        prop_assert!(!finish || a.is_empty() && b.is_empty());
        let file = if finish { head } else { join(&head, [&a, &b]) };
        let cut = Records::new(&file).find_map(|record| match record {
            Record::Cut { missing, .. } => Some(missing),
            Record::Data { .. } | Record::Size { .. } => None,
        });
        let kept = raw(&file);
        let missing = all.len() - kept.len();
        if finish {
            prop_assert_eq!(cut.unwrap_or(0), missing as u64);
        }
        let head_kept = kept.iter().zip(&all).take_while(|(a, b)| a == b).count();
        prop_assert!(head_kept >= kept.len() || all.ends_with(&kept[before_cut(&file)..]));
        prop_assert!(all.starts_with(&kept[..before_cut(&file)]));
    }
}

/// Output before the cut, all of it if there is none.
fn before_cut(file: &[u8]) -> usize {
    let before = Records::new(file).take_while(|record| !matches!(record, Record::Cut { .. }));
    before
        .map(|record| match record {
            Record::Data { bytes, .. } => bytes.len(),
            Record::Size { .. } | Record::Cut { .. } => 0,
        })
        .sum()
}

fn largest_chunk(pieces: &[(Vec<u8>, u64)]) -> u64 {
    // Pieces less than 100 ms apart share a chunk, so all of them may.
    2 * pieces.iter().map(|(bytes, _)| bytes.len() as u64 + 13).sum::<u64>()
}

#[test]
fn chunks_are_written_after_100_ms_or_64_kib() {
    let mut recorder = Recorder::new(1 << 20, SIZE, 0);
    assert_eq!(recorder.deadline_ms(), None);
    assert!(recorder.output(b"a", 10).is_empty());
    assert!(recorder.output(b"b", 90).is_empty());
    assert_eq!(recorder.deadline_ms(), Some(110));
    // With the size that begins the file.
    assert_eq!(recorder.tick(110).len(), 2);
    assert_eq!(recorder.deadline_ms(), None);
    assert!(recorder.output(&[0; CHUNK_BYTES], 200).is_empty());
    assert_eq!(recorder.output(b"c", 201).len(), 1);
}

#[test]
fn sizes_are_in_their_place() {
    let mut recorder = Recorder::new(1 << 20, SIZE, 0);
    let mut file = Vec::new();
    let wide = Size { cols: 200, rows: 50 };
    let mut actions = recorder.output(b"before", 10);
    actions.extend(recorder.size(wide, 20));
    actions.extend(recorder.size(wide, 21));
    actions.extend(recorder.output(b"after", 30));
    actions.extend(recorder.finish(40));
    for action in actions {
        match action {
            Action::Append(Part::Head, ref bytes) => file.extend_from_slice(bytes),
            Action::Append(..) | Action::Truncate(_) | Action::Join { .. } => panic!("{action:?}"),
        }
    }
    assert_eq!(
        Records::new(&file).collect::<Vec<_>>(),
        [
            Record::Size { ms: 0, size: SIZE },
            Record::Data { ms: 10, bytes: b"before" },
            Record::Size { ms: 20, size: wide },
            Record::Data { ms: 30, bytes: b"after" },
        ]
    );
}

#[test]
fn a_budget_of_nothing_records_nothing() {
    let mut recorder = Recorder::new(0, SIZE, 0);
    assert!(recorder.output(b"a", 0).is_empty());
    assert!(recorder.finish(500).is_empty());
}
