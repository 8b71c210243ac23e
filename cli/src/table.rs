//! Columns that line up.

use unicode_width::UnicodeWidthStr;

/// Rows under a head, columns as wide as their widest cell, two blanks between them.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(cell));
        }
    }
    let mut out = line(head.iter().copied(), &widths);
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str), &widths));
    }
    out
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut out = String::new();
    for (cell, width) in cells.zip(widths) {
        out.push_str(cell);
        let missing = width.saturating_sub(columns(cell)) + 2;
        out.extend(std::iter::repeat_n(' ', missing));
    }
    format!("{}\n", out.trim_end())
}

/// On the screen; what paints a word takes none.
fn columns(cell: &str) -> usize {
    let mut parts = cell.split("\x1b[");
    let first = parts.next().unwrap_or_default().width();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_colour, text)| text).width());
    first + rest.sum::<usize>()
}

/// At most `chars` characters, with a mark where something is left out.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_blanks_at_the_end() {
        let rows =
            [vec!["é-1".to_owned(), "x".to_owned()], vec!["longer".to_owned(), String::new()]];
        assert_eq!(render(&["NAME", "S"], &rows), "NAME    S\né-1     x\nlonger\n");
    }

    #[test]
    fn colours_take_no_column_and_wide_letters_take_two() {
        let rows = [
            vec!["\x1b[32mok\x1b[0m".to_owned(), "x".to_owned()],
            vec!["日本".to_owned(), "y".to_owned()],
        ];
        assert_eq!(render(&["A", "B"], &rows), "A     B\n\x1b[32mok\x1b[0m    x\n日本  y\n");
    }

    #[test]
    fn long_cells_are_cut_with_a_mark() {
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".into(), "abcd".into()));
    }
}
