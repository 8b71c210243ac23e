//! A program's output as text for reports: no escape sequences, no controls, no bytes that are none.

use crate::escape::rendered;

/// Longest line that is quoted.
const LINE_CHARS_MAX: usize = 400;

/// Lines as they were printed; what a carriage return overwrote stands on a line of its own.
pub(crate) fn plain(bytes: &[u8]) -> String {
    let mut lines = Vec::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        match (byte, bytes.get(at + 1)) {
            (b'\r', Some(b'\n' | b'\r')) => {}
            (b'\r', _) => lines.push(b'\n'),
            _ => lines.push(byte),
        }
    }
    let text = String::from_utf8_lossy(&rendered(&lines, false)).into_owned();
    text.chars().filter(|&c| is_text(c)).collect()
}

/// C1 controls came as UTF-8; XML knows no U+FFFE and U+FFFF.
fn is_text(c: char) -> bool {
    c == '\n' || c == '\t' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

/// The last lines that are not empty, each of bearable length.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    let cut = |line: &&str| line.trim_end().chars().take(LINE_CHARS_MAX).collect::<String>();
    lines.get(from..).unwrap_or_default().iter().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_text() {
        assert_eq!(plain(b"\x1b[31mred\x1b[0m\r\n10%\r20%\x07\n"), "red\n10%\n20%\n");
        assert_eq!(plain(b"\xff\x00a\xc2\x9bm\xef\xbf\xbf\x7f\tb"), "\u{fffd}am\tb");
        let every: Vec<u8> = (0..=255).collect();
        assert!(plain(&every).chars().all(is_text));
    }

    #[test]
    fn the_last_lines_are_those_with_something_on_them() {
        assert_eq!(last_lines("a\n\nb\nc  \n\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
        assert_eq!(last_lines(&"x".repeat(1000), 5).len(), LINE_CHARS_MAX);
    }
}
