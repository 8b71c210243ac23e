//! Columns that line up.

/// Rows under a head, columns as wide as their widest cell, two blanks between them.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
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
        let missing = width.saturating_sub(cell.chars().count()) + 2;
        out.extend(std::iter::repeat_n(' ', missing));
    }
    format!("{}\n", out.trim_end())
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
    fn long_cells_are_cut_with_a_mark() {
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".into(), "abcd".into()));
    }
}
