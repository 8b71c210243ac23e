//! What the scrollback gets: every line once, whole, in order; and what the end of `logs` shows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;
use ptybroker::screen::{Guarded, Screen};
use ptybroker::scrollback::Scrollback;
use wire::Size;

fn fed(size: Size, pieces: &[&[u8]]) -> (Scrollback, Screen) {
    let mut scrollback = Scrollback::new(100_000, 64 << 20);
    let mut screen = Screen::new(size);
    pieces.iter().for_each(|piece| screen.feed(piece, &mut scrollback));
    (scrollback, screen)
}

fn lines(scrollback: &Scrollback, screen: &Screen) -> Vec<String> {
    let left = scrollback.last(usize::MAX).map(<[u8]>::to_vec);
    left.chain(screen.rendered_lines()).map(|line| String::from_utf8(line).unwrap()).collect()
}

const SMALL: Size = Size { cols: 10, rows: 4 };

#[test]
fn cases() {
    for (what, bytes, expected) in [
        (
            "wrapped lines are one",
            "0123456789abcdefghijXYZ\r\nb\r\nc\r\nd\r\ne",
            vec!["0123456789abcdefghijXYZ", "b", "c", "d", "e"],
        ),
        (
            "colours, fewest sequences",
            "\x1b[31m\x1b[1mab\x1b[0m  \r\n\x1b[32mx\r\n\x1b[0m\r\n\r\n\r\nz",
            vec!["\x1b[1;31mab\x1b[m", "\x1b[32mx\x1b[m", "", "", "", "z"],
        ),
        (
            "what was overwritten is gone",
            "aaaa\rbb\x1b[K\r\n1\r\n2\r\n3\r\n4",
            vec!["bb", "1", "2", "3", "4"],
        ),
        ("clear keeps the screen's lines", "a\r\nb\x1b[H\x1b[2J\x1b[3Jc", vec!["a", "b", "c"]),
        (
            "the alternate screen gives nothing",
            "a\r\nb\x1b[?1049hx\r\ny\r\nz\r\n1\r\n2\r\n3\x1b[?1049lc",
            vec!["a", "bc"],
        ),
        ("reset keeps the lines", "a\r\nb\x1bcc", vec!["a", "b", "c"]),
        ("a region at the top scrolls out", "\x1b[1;2r1\r\n2\r\n3\r\n4", vec!["1", "2", "3", "4"]),
        ("a region below does not", "\x1b[2;4r\x1b[2;1Ha\r\nb\r\nc\r\nd", vec!["", "b", "c", "d"]),
        ("scroll up by sequence", "a\r\nb\x1b[99S\x1b[Hc", vec!["a", "b", "c"]),
        (
            "wide characters wrap whole",
            "12345678\u{4e2d}\u{6587}x\r\n1\r\n2\r\n3",
            vec!["12345678\u{4e2d}\u{6587}x", "1", "2", "3"],
        ),
        (
            "wide at the edge",
            "123456789\u{4e2d}\r\n1\r\n2\r\n3",
            vec!["123456789\u{4e2d}", "1", "2", "3"],
        ),
        ("a tab is blanks", "a\tb\r\n", vec!["a       b"]),
        (
            "a line that was restarted",
            "0123456789abcdefghij0123456789abcdefghijk\x1b[H\x1b[2Knew\r\n",
            vec!["0123456789", "new", "0123456789abcdefghijk"],
        ),
    ] {
        let (scrollback, screen) = fed(SMALL, &[bytes.as_bytes()]);
        assert_eq!(lines(&scrollback, &screen), expected, "{what}");
    }
}

#[test]
fn lines_above_the_cursor_are_settled() {
    for (what, bytes, expected) in [
        ("a line that is begun is not", "a\r\nb", vec!["a"]),
        ("a line whose end has come is", "a\r\nb\r\n", vec!["a", "b"]),
        ("a blank one waits for the next", "a\r\n\r\n", vec!["a"]),
        ("and comes with it", "a\r\n\r\nb\r\n", vec!["a", "", "b"]),
        ("a wrapped one ends where its last row ends", "0123456789abc", vec![]),
        ("and is one", "0123456789abc\r\n", vec!["0123456789abc"]),
        ("a cursor that went up unsettles", "a\r\nb\r\nc\r\n\x1b[2A", vec!["a"]),
        (
            "a line whose beginning has left",
            "0123456789ab\r\n1\r\n2\r\n3",
            vec!["0123456789ab", "1", "2"],
        ),
        ("the alternate screen settles nothing", "a\r\nb\x1b[?1049hx\r\ny\r\n", vec!["a"]),
        ("the cursor alone is no line", "\x1b[4;1H", vec![]),
    ] {
        let (scrollback, screen) = fed(SMALL, &[bytes.as_bytes()]);
        assert_eq!(scrollback.len(), 0, "{what}");
        let settled = screen.settled_lines();
        let settled: Vec<String> =
            settled.into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(settled, expected, "{what}");
    }
}

#[test]
fn resizing_loses_and_doubles_nothing() {
    let mut scrollback = Scrollback::new(1000, 1 << 20);
    let mut screen = Screen::new(Size { cols: 20, rows: 10 });
    let text: Vec<String> = (0..9).map(|n| format!("line {n} {}", "x".repeat(n * 2))).collect();
    screen.feed(text.join("\r\n").as_bytes(), &mut scrollback);
    for (cols, rows) in [(20, 5), (8, 5), (30, 3), (30, 20), (5, 4), (40, 30), (2, 2), (80, 24)] {
        screen.resize(Size { cols, rows }, &mut scrollback);
        let joined = lines(&scrollback, &screen).concat();
        assert_eq!(joined.replace(' ', ""), text.concat().replace(' ', ""), "{cols}x{rows}");
    }
}

#[test]
fn resizing_beneath_the_alternate_screen_keeps_the_primary_one() {
    let mut scrollback = Scrollback::new(1000, 1 << 20);
    let mut screen = Screen::new(Size { cols: 20, rows: 6 });
    screen.feed(b"1\r\n2\r\n3\r\n4\r\n5\x1b[?1049halt", &mut scrollback);
    screen.resize(Size { cols: 10, rows: 3 }, &mut scrollback);
    assert_eq!(lines(&scrollback, &screen), ["1", "2", "3", "4", "5"]);
    screen.feed(b"\x1b[?1049l", &mut scrollback);
    assert_eq!(lines(&scrollback, &screen), ["1", "2", "3", "4", "5"]);
}

#[test]
fn an_endless_line_is_cut_with_a_mark() {
    let (scrollback, screen) = fed(SMALL, &[&[b'x'; 40_000]]);
    let lines = lines(&scrollback, &screen);
    assert_eq!(lines.len(), 3);
    assert!(lines[0].ends_with('\u{21b5}') && lines[0].len() < 17_000);
    assert_eq!(lines.concat().matches('x').count(), 40_000);
}

#[test]
fn queries_are_answered_and_notices_taken_once() {
    let (mut scrollback, mut screen) =
        fed(SMALL, &[b"ab\x1b[c\x1b[6n\x1b[?2004$p\x1b[18t\x1b]11;?\x07\x1b[?u"]);
    let replies = screen.take_replies();
    let expected = "\x1b[?62;22c\x1b[1;3R\x1b[?2004;2$y\x1b[8;4;10t\x1b]11;rgb:0000/0000/0000\x07";
    assert_eq!(String::from_utf8(replies).unwrap(), expected);
    assert!(screen.take_replies().is_empty());
    screen.feed(&b"\x1b[c".repeat(10_000), &mut scrollback);
    assert!(screen.take_replies().len() <= 4096);
    screen.feed(b"\x1b]2;a\xc2\x85title\x07\x07", &mut scrollback);
    assert_eq!(screen.take_title().as_deref(), Some("atitle"));
    assert_eq!(screen.take_title(), None);
    assert!(screen.take_bell() && !screen.take_bell());
}

#[test]
fn hostile_output_is_bounded() {
    let mut scrollback = Scrollback::new(100, 1 << 20);
    let mut screen = Screen::new(Size::MAX);
    // An endless command, a tower of marks, repeats, full stacks.
    screen.feed(b"\x1b]0;", &mut scrollback);
    (0..100).for_each(|_| screen.feed(&[b't'; 65536], &mut scrollback));
    screen.feed(b"\x07visible", &mut scrollback);
    assert_eq!(screen.visible_lines()[0], "visible");
    screen.feed(format!("\ra{}", "\u{301}".repeat(100_000)).as_bytes(), &mut scrollback);
    assert!(screen.visible_lines()[0].chars().count() < 20);
    screen.feed(&b"\x1b[65535b".repeat(100), &mut scrollback);
    screen.feed(&b"\x1b[22t\x1b[>1u".repeat(10_000), &mut scrollback);
    screen.feed(&b"\x1b#8".repeat(1000), &mut scrollback);
    assert!(screen.snapshot().len() < 1 << 20);
}

proptest! {
    #[test]
    fn no_output_crashes_the_model(
        pieces in proptest::collection::vec(piece(), 0..120),
        sizes in proptest::collection::vec((1_u16..30, 1_u16..12), 1..6),
    ) {
        let mut scrollback = Scrollback::new(50, 10_000);
        let mut screen = Guarded::new(Size::DEFAULT);
        for (index, piece) in pieces.iter().enumerate() {
            if let Some((cols, rows)) = sizes.get(index / 20) {
                screen.resize(Size { cols: *cols, rows: *rows }, &mut scrollback);
            }
            screen.feed(piece, &mut scrollback);
            let _dump = (screen.snapshot(), screen.rendered_lines());
            prop_assert!(!screen.is_lost());
        }
    }
}

/// Sequences of the kinds that move, scroll, erase and switch, and text.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[a-z\u{4e2d}\u{301}\t\r\n]{0,40}".prop_map(String::into_bytes),
        3 => ("[0-9;]{0,6}", "[@A-HJ-MPSTXZb-fhlmnqrsu`]")
            .prop_map(|(numbers, end)| format!("\x1b[{numbers}{end}").into_bytes()),
        1 => "[0-9]{1,4}[hl]".prop_map(|mode| format!("\x1b[?{mode}").into_bytes()),
        1 => prop_oneof![Just("1049h"), Just("1049l"), Just("6h"), Just("6l"), Just("7l"), Just("47h"), Just("1048l")]
            .prop_map(|mode| format!("\x1b[?{mode}").into_bytes()),
        1 => "[78cDEHM=>]".prop_map(|end| format!("\x1b{end}").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}
