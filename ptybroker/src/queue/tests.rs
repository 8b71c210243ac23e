use super::*;
use proptest::prelude::*;
use wire::frame::{Close, CloseReason, Decoder};

const LIMITS: Limits =
    Limits { output_bytes_max: 100, control_bytes_max: 200, grace_ms: 10, stall_ms: 1000 };
const PIECE_MAX: usize = 60;

/// A viewer that applies frames, and a terminal whose output is the count of its bytes.
struct Viewer {
    decoder: Decoder,
    /// The next byte it expects; none after a loss, until a snapshot.
    next: Option<u64>,
    snapshots: usize,
    closed: bool,
}

impl Viewer {
    fn new() -> Self {
        Self { decoder: Decoder::default(), next: Some(0), snapshots: 0, closed: false }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            assert!(!self.closed, "{frame:?} after the close");
            self.apply(frame);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes is wrong")]
    fn apply(&mut self, frame: Frame) {
        match frame {
            Frame::Output { seq, bytes } => {
                // Bytes of a frame that was begun before the loss are in order still.
                assert_eq!(self.next, Some(seq), "a hole without a snapshot");
                bytes.iter().zip(seq..).for_each(|(byte, at)| assert_eq!(*byte, content(at)));
                self.next = Some(seq + bytes.len() as u64);
            }
            Frame::Snapshot { seq, .. } => {
                assert!(self.next.is_none_or(|next| next <= seq));
                self.next = Some(seq);
                self.snapshots += 1;
            }
            Frame::Throttled { from, .. } => {
                assert!(self.next.is_none_or(|next| next <= from));
                self.next = None;
            }
            Frame::Close(_) => self.closed = true,
            Frame::Still(_) | Frame::Bell => {}
            Frame::History(room) => {
                assert_eq!((room.as_slice(), self.snapshots), (&[b'\n'; 23][..], 0))
            }
            other => panic!("{other:?} was never sent"),
        }
    }
}

fn pending(queue: &ViewerQueue) -> Vec<u8> {
    let mut slices = Vec::new();
    queue.slices(&mut slices);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

fn write(queue: &mut ViewerQueue, viewer: &mut Viewer, most: usize, now: u64) -> usize {
    let bytes = pending(queue);
    let count = bytes.len().min(most);
    viewer.take(&bytes[..count]);
    queue.written(count, now);
    count
}

/// The byte with this sequence.
fn content(seq: u64) -> u8 {
    seq.to_le_bytes()[0]
}

fn output(seq: u64, length: usize) -> Bytes {
    (seq..seq + length as u64).map(content).collect::<Vec<u8>>().into()
}

#[derive(Clone, Debug)]
enum Step {
    Output(usize),
    Control,
    Write(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..PIECE_MAX).prop_map(Step::Output),
        1 => Just(Step::Control),
        3 => (1_usize..150).prop_map(Step::Write),
        2 => (1_u64..20).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn every_byte_in_order_or_a_snapshot_after_a_hole(steps in steps()) {
        let (mut queue, mut viewer) = (ViewerQueue::new(LIMITS, 0), Viewer::new());
        let (mut seq, mut now, mut read_while_paused) = (0, 0, 0_u64);
        for step in steps {
            match step {
                Step::Output(_) if queue.paused() && read_while_paused == 0 => read_while_paused = 1,
                Step::Output(length) => {
                    read_while_paused = 0;
                    queue.push_output(seq, &output(seq, length), now);
                    seq += length as u64;
                }
                Step::Control => {
                    let fits = queue.push_control(&Frame::Bell, now);
                    prop_assert!(fits || pending(&queue).len() >= LIMITS.control_bytes_max);
                }
                Step::Write(most) => {
                    write(&mut queue, &mut viewer, most, now);
                }
                Step::Wait(ms) => now += ms,
            }
            queue.tick(now);
            if queue.wants_snapshot() {
                let episode = queue.push_snapshot(seq, Size::DEFAULT, vec![b's'; 70], now);
                prop_assert!(episode.is_some_and(|episode| episode.dropped > 0));
            }
            // Two pieces beyond the bound: the one that reached it, and the head of the frames.
            let heads = 13 * (LIMITS.output_bytes_max + 2 * PIECE_MAX);
            let bound =
                LIMITS.output_bytes_max + 2 * PIECE_MAX + LIMITS.control_bytes_max + 200 + heads;
            prop_assert!(queue.pending_bytes() <= bound, "{}", queue.pending_bytes());
        }
        queue.push_last(&Frame::Close(Close { reason: CloseReason::Detached, exit: None }), now);
        while write(&mut queue, &mut viewer, 7, now) > 0 {}
        prop_assert!(queue.is_done() && viewer.closed);
        prop_assert!(viewer.next.is_none_or(|next| next == seq));
    }
}

#[test]
fn a_viewer_that_pauses_shortly_misses_nothing() {
    let (mut queue, mut viewer) = (ViewerQueue::new(LIMITS, 0), Viewer::new());
    assert_eq!(queue.push_output(0, &output(0, 60), 0), Pushed::Queued);
    assert_eq!(queue.push_output(60, &output(60, 60), 1), Pushed::Pause);
    assert!(queue.paused());
    assert_eq!(queue.deadline_ms(), Some(11));
    while write(&mut queue, &mut viewer, 40, 5) > 0 {}
    assert!(!queue.paused());
    assert_eq!(queue.deadline_ms(), None);
    assert_eq!((viewer.next, viewer.snapshots), (Some(120), 0));
}

#[test]
fn a_viewer_slower_than_the_program_misses_nothing_as_long_as_it_takes_all_in_time() {
    let (mut queue, mut viewer) = (ViewerQueue::new(LIMITS, 0), Viewer::new());
    let (mut seq, mut pauses) = (0, 0);
    for now in 0..1000 {
        if !queue.paused() {
            let pushed = queue.push_output(seq, &output(seq, 50), now);
            seq += 50;
            assert_ne!(pushed, Pushed::Dropped, "{now}");
            pauses += usize::from(pushed == Pushed::Pause);
        }
        write(&mut queue, &mut viewer, 25, now);
        queue.tick(now);
    }
    assert!(pauses > 100, "{pauses}");
    while write(&mut queue, &mut viewer, 40, 1000) > 0 {}
    assert_eq!((viewer.next, viewer.snapshots), (Some(seq), 0));
}

#[test]
fn a_stuck_viewer_gets_one_grace_then_a_snapshot_when_it_comes_back() {
    let (mut queue, mut viewer) = (ViewerQueue::new(LIMITS, 0), Viewer::new());
    queue.push_output(0, &output(0, 60), 0);
    assert_eq!(queue.push_output(60, &output(60, 60), 1), Pushed::Pause);
    assert_eq!(queue.tick(11), Tick::Fine);
    assert!(!queue.paused());
    assert_eq!(queue.push_output(120, &output(120, 30), 12), Pushed::Dropped);
    assert!(!queue.wants_snapshot(), "the notice is not taken yet");
    while write(&mut queue, &mut viewer, 40, 500) > 0 {}
    assert!(queue.wants_snapshot());
    let episode = queue.push_snapshot(150, Size::DEFAULT, vec![b's'; 40], 511);
    assert_eq!(episode, Some(Episode { from: 0, dropped: 150, lasted_ms: 500 }));
    // It has not caught up yet, so a full queue now drops at once.
    queue.push_output(150, &output(150, 90), 512);
    assert_eq!(queue.push_output(240, &output(240, 20), 512), Pushed::Dropped);
    while write(&mut queue, &mut viewer, 40, 600) > 0 {}
    queue.push_snapshot(260, Size::DEFAULT, vec![b's'; 40], 600);
    while write(&mut queue, &mut viewer, 40, 600) > 0 {}
    assert_eq!((viewer.next, viewer.snapshots), (Some(260), 1));
    // Now it has: grace again.
    queue.push_output(260, &output(260, 60), 700);
    assert_eq!(queue.push_output(320, &output(320, 60), 700), Pushed::Pause);
}

#[test]
fn control_goes_first_but_never_into_a_frame() {
    let mut queue = ViewerQueue::new(LIMITS, 0);
    queue.push_output(0, &output(0, 20), 0);
    queue.push_output(20, &output(20, 20), 0);
    queue.written(5, 0);
    assert!(queue.push_control(&Frame::Bell, 0));
    let waiting = pending(&queue);
    let first_rest = 13 + 20 - 5;
    assert_eq!(waiting[first_rest..first_rest + 5], Frame::Bell.to_bytes());
}

#[test]
fn nothing_taken_for_long_is_too_slow_but_nothing_to_take_is_not() {
    let mut queue = ViewerQueue::new(LIMITS, 0);
    assert_eq!(queue.tick(5000), Tick::Fine);
    queue.push_output(0, &output(0, 20), 6000);
    assert_eq!(queue.deadline_ms(), Some(7000));
    queue.written(1, 6500);
    assert_eq!(queue.tick(7400), Tick::Fine);
    assert_eq!(queue.tick(7500), Tick::TooSlow);
}
