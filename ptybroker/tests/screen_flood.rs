//! Floods of plain text take a short way through the model; the outcome is that of the long one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;
use ptybroker::screen::Screen;
use ptybroker::scrollback::Scrollback;
use wire::Size;

/// Too short for the short way.
const SHORT: usize = 999;

#[derive(Debug, PartialEq)]
struct Outcome {
    kept: Vec<String>,
    total: u64,
    on_screen: Vec<String>,
    snapshot: String,
}

fn outcome(size: Size, stream: &[u8], step: usize) -> Outcome {
    let mut scrollback = Scrollback::new(5000, 8 << 20);
    let mut screen = Screen::new(size);
    stream.chunks(step).for_each(|chunk| screen.feed(chunk, &mut scrollback));
    seen(&scrollback, &screen)
}

/// A flood's last lines wait for what follows, as long as more comes.
fn outcome_of_most(size: Size, stream: &[u8], step: usize) -> Outcome {
    let mut scrollback = Scrollback::new(5000, 8 << 20);
    let mut screen = Screen::new(size);
    let mut waiting = Vec::new();
    for chunk in stream.chunks(step) {
        waiting.extend_from_slice(chunk);
        let taken = screen.feed_most(&waiting, &mut scrollback);
        waiting.drain(..taken);
    }
    screen.feed(&waiting, &mut scrollback);
    seen(&scrollback, &screen)
}

fn seen(scrollback: &Scrollback, screen: &Screen) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome {
        kept: scrollback.last(usize::MAX).map(text).collect(),
        total: scrollback.lines_total(),
        on_screen: screen.rendered_lines().iter().map(|line| text(line)).collect(),
        snapshot: text(&screen.snapshot()),
    }
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => "[ -~]{0,50}".prop_map(|text| text.into_bytes()),
        4 => "[ a-z\t]{0,20}".prop_map(|text| text.into_bytes()),
        2 => "[ a-z]{100,300}".prop_map(|text| text.into_bytes()),
        2 => " {0,60}".prop_map(|text| text.into_bytes()),
        1 => Just("\x1b[31mred\x1b[m".as_bytes().to_vec()),
        1 => Just("\u{4e2d}\u{6587} e\u{301}".as_bytes().to_vec()),
    ]
}

/// What may stand before a flood: modes and attributes, and sequences without an end.
const BEFORE: [&[u8]; 20] = [
    b"",
    b"\x1b[31",
    b"\x1b\xe4",
    b"\x1b]0;title",
    b"\x1bP",
    b"\xe4\xb8",
    b"\x1b[2;5r",
    b"\x1b[?1049h",
    b"\x1b[4h",
    b"\x1b[?7l",
    b"\x1b[20h",
    b"\x1b[41m",
    b"\x1b(0",
    b"\x1b[3g",
    b"\x1b[5;5H\x1bH",
    b"\x1b[?6h",
    b"\x1b]8;id=a;http://x\x1b\\",
    b"some text",
    b"\x1b[5;5H\x1b7",
    b"\x1b[99;1Hbelow\r",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_short_way_ends_where_the_long_one_does(
        cols in prop_oneof![2_u16..30, Just(80)], rows in 2_u16..30,
        before in 0..BEFORE.len(),
        lines in proptest::collection::vec(any_line(), 1..400),
        scale in 1_usize..5, step in 3000_usize..70_000,
        last in "[ a-z]{0,100}",
    ) {
        let mut stream = BEFORE[before].to_vec();
        for _ in 0..scale {
            lines.iter().for_each(|line| stream.extend([line, &b"\r\n"[..]].concat()));
        }
        stream.extend(last.as_bytes());
        let size = Size { cols, rows };
        let expected = outcome(size, &stream, SHORT);
        prop_assert_eq!(&outcome(size, &stream, step), &expected);
        prop_assert_eq!(&outcome_of_most(size, &stream, step), &expected);
    }
}

#[test]
fn every_state_that_closes_the_short_way_is_seen() {
    for before in BEFORE {
        for line in ["0123456789", "", "a\tb", "0123456789012345678901234567890123456789"] {
            let flood = format!("{line}\r\n").repeat(1000);
            let stream =
                [before, b"\r\n", b"first\r\n".repeat(30).as_slice(), flood.as_bytes()].concat();
            let size = Size { cols: 20, rows: 10 };
            let expected = outcome(size, &stream, SHORT);
            for step in [4000, 10_000, 65536] {
                let same = outcome(size, &stream, step) == expected
                    && outcome_of_most(size, &stream, step) == expected;
                assert!(same, "{before:?} {line:?} {step}");
            }
        }
    }
}
