//! The snapshot, fed to another terminal, gives the same terminal: cell for cell, cursor, modes,
//! and (by doing) what no accessor shows: scroll region, tab stops, charsets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line, Point};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::test::TermSize;
use alacritty_terminal::term::{Config, Term};
use alacritty_terminal::vte::ansi::Processor;
use ptybroker::screen::Screen;
use ptybroker::scrollback::Scrollback;
use wire::Size;

/// A terminal of the library's own, without our handler before it.
struct Terminal {
    term: Term<VoidListener>,
    parser: Processor,
}

impl Terminal {
    fn new(size: Size) -> Self {
        let size = TermSize::new(size.cols.into(), size.rows.into());
        let config = Config { scrolling_history: 0, ..Config::default() };
        Self { term: Term::new(config, &size, VoidListener), parser: Processor::new() }
    }

    fn fed(size: Size, bytes: &[u8]) -> Self {
        let mut terminal = Self::new(size);
        terminal.feed(bytes);
        terminal
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.term, bytes);
        self.parser.stop_sync(&mut self.term);
    }

    /// Everything that can be seen of it, one line for each fact.
    fn facts(&self) -> Vec<String> {
        let grid = self.term.grid();
        let mut facts = Vec::new();
        for row in 0..grid.screen_lines() {
            for column in 0..grid.columns() {
                let mut cell = grid[at(row, column)].clone();
                normalise(&mut cell);
                if cell != Cell::default() {
                    facts.push(format!("{row},{column}: {cell:?}"));
                }
            }
        }
        let cursor = &grid.cursor;
        let pen = (cursor.template.fg, cursor.template.bg, cursor.template.flags);
        let underline = cursor.template.underline_color();
        let link = cursor.template.hyperlink().map(|link| link.uri().to_owned());
        facts.push(format!("cursor {:?} wraps {}", cursor.point, cursor.input_needs_wrap));
        facts.push(format!("pen {pen:?} {underline:?} {link:?} {:?}", cursor.charsets));
        facts.push(format!("modes {:?}", self.term.mode()));
        facts.push(format!(
            "colors {:?}",
            (0..260).map(|i| self.term.colors()[i]).collect::<Vec<_>>()
        ));
        facts
    }

    /// What another emulator keeps too: characters, attributes, the cursor's place, modes.
    fn looks(&self) -> Vec<String> {
        let grid = self.term.grid();
        let mut facts = Vec::new();
        for row in 0..grid.screen_lines() {
            for column in 0..grid.columns() {
                let mut cell = grid[at(row, column)].clone();
                normalise(&mut cell);
                let flags = cell.flags - Flags::WRAPLINE;
                facts.push(format!(
                    "{row},{column}: {:?} {:?} {:?} {flags:?}",
                    cell.c, cell.fg, cell.bg
                ));
            }
        }
        let point = grid.cursor.point;
        facts.push(format!("cursor {point:?}"));
        facts.push(format!("modes {:?}", self.term.mode()));
        facts
    }
}

/// A tab that moved over blanks is a blank, and a blank has no colour of text and no weight; a
/// link without a name is given a new one each time.
fn normalise(cell: &mut Cell) {
    if cell.c == '\t' {
        cell.c = ' ';
    }
    let shows = Flags::INVERSE | Flags::ALL_UNDERLINES | Flags::STRIKEOUT;
    if cell.c == ' ' && !cell.flags.intersects(shows) {
        cell.fg = Cell::default().fg;
        cell.flags -= Flags::BOLD | Flags::DIM | Flags::ITALIC | Flags::HIDDEN;
    }
    if let Some(link) = cell.hyperlink() {
        let link = alacritty_terminal::term::cell::Hyperlink::new(Some("x"), link.uri().to_owned());
        cell.set_hyperlink(Some(link));
    }
    if cell.extra.as_deref() == Some(&Default::default()) {
        cell.extra = None;
    }
}

fn at(row: usize, column: usize) -> Point {
    Point::new(Line(i32::try_from(row).unwrap()), Column(column))
}

/// Recordings of real programs on 100x30.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let recordings = files.filter(|path| path.extension().is_some_and(|ext| ext == "bin"));
    recordings.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

/// The last place at or before `cut` where no sequence or character is half done.
fn boundary(bytes: &[u8], cut: usize) -> usize {
    let whole =
        |at: &usize| *at == 0 || *at == bytes.len() || bytes[at - 1] == b'\n' || bytes[*at] == 0x1b;
    (0..=cut).rev().find(whole).unwrap()
}

fn screen_fed(size: Size, bytes: &[u8]) -> Screen {
    let mut screen = Screen::new(size);
    screen.feed(bytes, &mut Scrollback::new(1000, 1 << 20));
    screen
}

/// Bytes whose effect depends on what no accessor shows.
const PROBES: [&[u8]; 5] = [
    b"",
    b"\x1b[?6l\x1b[999;1H\r\nA\nB\nC\x1b[1;1H\x1bMD\x1bME",
    b"\r\tA\tB\tC\tD",
    b"qqq\x0eqqq\x0fqqq",
    b"\x1b[?1049lafter\x1b8saved",
];

fn compare(size: Size, bytes: &[u8], what: &str) {
    let snapshot = screen_fed(size, bytes).snapshot();
    for probe in PROBES {
        let mut expected = Terminal::fed(size, bytes);
        expected.feed(probe);
        // A terminal with a history of its own, in another state.
        let mut got = Terminal::fed(
            size,
            b"junk\x1b[31m\x1b[?1049h\x1b[2;4r\x1b[?6hmore\x1b(0\x1b[?1003h\x1b]0;ti",
        );
        got.feed(&snapshot);
        got.feed(probe);
        let (expected, got) = (expected.facts(), got.facts());
        let differing = expected.iter().zip(&got).find(|(a, b)| a != b);
        assert!(
            expected == got,
            "{what}, then {:?}: {} and {} facts; first: {differing:#?}\n{:?}",
            String::from_utf8_lossy(probe),
            expected.len(),
            got.len(),
            String::from_utf8_lossy(&snapshot),
        );
    }
}

#[test]
fn cases_made_by_hand() {
    let size = Size { cols: 12, rows: 6 };
    for (what, bytes) in [
        ("plain", &b"one\r\ntwo"[..]),
        ("scroll region", b"a\r\nb\r\nc\r\nd\r\ne\x1b[2;4r\x1b[3;2H"),
        ("origin", b"\x1b[2;4r\x1b[?6h\x1b[2;3Hx"),
        ("line drawing", b"\x1b(0lqk\x1b)0\x1b(B\x0e"),
        ("tab stops", b"\x1b[3g\x1b[1;4H\x1bH\x1b[1;7H\x1bH\r"),
        ("wide at the edge", "abcdefghijk\u{4e2d}x".as_bytes()),
        ("wide last", "abcdefghij\u{4e2d}".as_bytes()),
        ("wide overwritten", "\u{4e2d}\u{6587}\x1b[1;2Hx".as_bytes()),
        ("pending wrap", b"abcdefghijkl"),
        ("pending wrap, coloured, in the last row", b"\x1b[6;1H\x1b[41mabcdefghijkl\x1b[32m"),
        ("wrapped", b"abcdefghijklmnop\r\nx"),
        ("wrapped and erased", b"abcdefghijklmnop\r\x1b[2K\x1b[3;3H"),
        ("alternate", b"primary\r\n\x1b[33mtwo\x1b[?1049h\x1b[2J\x1b[3;3Halt"),
        ("alternate with pending wrap beneath", b"abcdefghijkl\x1b[?1049hx"),
        ("saved cursor", b"\x1b[3;3H\x1b[1;35m\x1b7\x1b[m\x1b[5;5Hx"),
        ("attributes", b"\x1b[1;2;3;4;7;8;9mA\x1b[22mB\x1b[4:3;58:2::1:2:3mC\x1b[58:5:9mD\x1b[59mE\x1b[0;21;38;5;200mF\x1b[48;2;9;8;7mG"),
        ("background to the end", b"\x1b[44m\x1b[2K\x1b[2;3Hx\x1b[K\x1b[m"),
        ("modes", b"\x1b[?1h\x1b=\x1b[?2004h\x1b[?1004h\x1b[?1002h\x1b[?1006h\x1b[?25l\x1b[4h\x1b[20h"),
        ("no wrap", b"\x1b[?7labcdefghijklmnop"),
        ("combining", "e\u{301}a\u{308}\u{323}".as_bytes()),
        ("link", b"\x1b]8;;https://example.org/a;b\x1b\\text\x1b]8;;\x1b\\ no"),
        ("link with id, still open", b"\x1b]8;id=7;https://example.org\x07text"),
        ("colours", b"\x1b]4;1;rgb:11/22/33\x07\x1b]11;#010203\x07"),
        ("insert and delete", b"abcdef\x1b[1;3H\x1b[2@\x1b[1;8H\x1b[P\x1b[2;1H\x1b[L"),
        ("half a sequence", b"abc\x1b[3"),
        ("half a command", b"abc\x1b]0;tit"),
        ("half a character", b"abc\xe4\xb8"),
        ("decaln", b"\x1b#8\x1b[2;2H"),
    ] {
        compare(size, bytes, what);
    }
}

#[test]
fn recordings_at_25_places() {
    for (name, bytes) in corpus() {
        for place in 1..=25 {
            let cut = bytes.len() * place / 25;
            let what = format!("{name} at {cut}");
            compare(Size { cols: 100, rows: 30 }, &bytes[..cut], &what);
        }
    }
}

/// The same with a terminal of another library between: it reads our snapshot and writes its own.
#[test]
fn another_emulator_understands_the_snapshot() {
    let size = Size { cols: 100, rows: 30 };
    let mut compared = 0;
    for (name, bytes) in corpus() {
        for place in 1..=25 {
            let cut = boundary(&bytes, bytes.len() * place / 25);
            let other_size =
                shpool_vterm::Size { width: size.cols.into(), height: size.rows.into() };
            let mut other = shpool_vterm::Term::new(0, other_size);
            other.process(&screen_fed(size, &bytes[..cut]).snapshot());
            let dump = other.contents(shpool_vterm::ContentRegion::All);
            let expected = Terminal::fed(size, &bytes[..cut]).looks();
            let got = Terminal::fed(size, &dump).looks();
            let differing = expected.iter().zip(&got).find(|(a, b)| a != b);
            assert!(expected == got, "{name} at {cut}: {differing:#?}");
            compared += 1;
        }
    }
    assert!(compared >= 25 * 5);
}
