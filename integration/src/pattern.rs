//! Text whose parts vary: `…` in a line stands for any characters of that line, `…` alone on a line
//! for any lines, also none. The pages that tests run are written so.

/// The wildcard.
const ANY: char = '…';

/// Whether all of a text is what the pattern says. Blanks at the ends of lines do not count.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let pattern: Vec<&str> = pattern.lines().map(str::trim_end).collect();
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines_fit(&pattern, &text)
}

fn lines_fit(pattern: &[&str], text: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    if first.trim() == "…" {
        return (0..=text.len()).any(|from| lines_fit(rest, text.get(from..).unwrap_or_default()));
    }
    match text.split_first() {
        Some((line, others)) => line_fits(first, line) && lines_fit(rest, others),
        None => false,
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    let Some((first, rest)) = pattern.split_once(ANY) else { return pattern == line };
    let Some(mut line) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split(ANY).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The first place where it stands leaves most for what follows.
        let Some((_before, after)) = line.split_once(part) else { return false };
        line = after;
    }
    line.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_for_part_of_a_line_or_for_lines() {
        for (pattern, text, want) in [
            ("a", "a", true),
            ("a", "a\n", true),
            ("a", "a  \n", true),
            ("a", "b", false),
            ("a", "a\nb", false),
            ("a…", "abc", true),
            ("…c", "abc", true),
            ("a…c…e", "abcde", true),
            ("a…c…e", "abcd", false),
            ("a…a", "a", false),
            ("a…b…b", "ab", false),
            ("a…", "a\nb", false),
            ("a\n…", "a", true),
            ("a\n…\nz", "a\nb\nc\nz", true),
            ("a\n…\nz", "a\nb\nc", false),
            ("…\nz…\n…", "a\nzb\nc", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, text), want, "{pattern:?} {text:?}");
        }
    }
}
