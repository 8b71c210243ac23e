//! How fast the screen model takes output. Run by hand:
//! `cargo test --release -p ptybroker --test screen_speed -- --ignored --nocapture`
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ptybroker::screen::Screen;
use ptybroker::scrollback::Scrollback;
use std::time::Instant;
use wire::Size;

const TOTAL_BYTES: usize = 50_000_000;

#[test]
#[ignore = "a measurement, not a check"]
#[expect(clippy::print_stdout, reason = "the numbers are what it is for")]
fn megabytes_per_second() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let line = [&[b'x'; 99][..], b"\r\n"].concat();
    let short = b"123456\r\n".to_vec();
    let recording = |name: &str| std::fs::read(format!("{corpus}/{name}.bin")).unwrap();
    for (name, piece) in [
        ("plain lines", line),
        ("short lines", short),
        ("coloured ls", recording("ls")),
        ("unicode", recording("unicode")),
        ("vim", recording("vim")),
    ] {
        let block: Vec<u8> = piece.iter().copied().cycle().take(1_000_000).collect();
        let mut scrollback = Scrollback::new(10_000, 8 << 20);
        let mut screen = Screen::new(Size { cols: 100, rows: 30 });
        let start = Instant::now();
        for _ in 0..TOTAL_BYTES / block.len() {
            block.chunks(4095).for_each(|chunk| screen.feed(chunk, &mut scrollback));
        }
        let speed = TOTAL_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{name:12} {speed:6.1} MB/s");
    }
}
