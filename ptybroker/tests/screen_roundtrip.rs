//! The snapshot, fed to another terminal, gives the same terminal: cell for cell, cursor, modes,
//! and (by doing) what no accessor shows: scroll region, tab stops, charsets.

use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Cell;
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
                let mut cell = grid[Line(row as i32)][Column(column)].clone();
                normalise(&mut cell);
                if cell != Cell::default() {
                    facts.push(format!("{row},{column}: {cell:?}"));
                }
            }
        }
        let mut cursor = grid.cursor.clone();
        normalise(&mut cursor.template);
        facts.push(format!("cursor {cursor:?}"));
        facts.push(format!("modes {:?}", self.term.mode()));
        facts.push(format!(
            "colors {:?}",
            (0..260).map(|i| self.term.colors()[i]).collect::<Vec<_>>()
        ));
        facts
    }
}

/// A tab that moved over blanks is a blank; a link without a name is given a new one each time.
fn normalise(cell: &mut Cell) {
    if cell.c == '\t' {
        cell.c = ' ';
    }
    if let Some(link) = cell.hyperlink() {
        let link = alacritty_terminal::term::cell::Hyperlink::new(Some("x"), link.uri().to_owned());
        cell.set_hyperlink(Some(link));
    }
    if cell.extra.as_deref() == Some(&Default::default()) {
        cell.extra = None;
    }
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "bin") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for place in 1..=25 {
            let cut = bytes.len() * place / 25;
            let what = format!("{} at {cut}", path.display());
            compare(Size { cols: 100, rows: 30 }, &bytes[..cut], &what);
        }
    }
}
