//! Names and arguments come from operators and programs: what reaches a terminal is harmless.

/// Control characters (C0, C1, DEL) and those that turn the direction of text become visible.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_direction(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A command line as one would type it.
pub(crate) fn command(argv: &[String]) -> String {
    let quote = |arg: &String| {
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
        if !arg.is_empty() && arg.chars().all(plain) {
            arg.clone()
        } else {
            format!("'{}'", escape(arg).replace('\'', "'\\''"))
        }
    };
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Rendered lines as a terminal may have them: colours stay if wanted, every other control goes.
pub(crate) fn rendered(bytes: &[u8], colours: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            0x1b => {
                let (length, is_colour) = sequence(after);
                if is_colour && colours {
                    out.push(byte);
                    out.extend_from_slice(after.get(..length).unwrap_or_default());
                }
                rest = after.get(length..).unwrap_or_default();
            }
            b'\n' | b'\t' | 0x20..=0x7e | 0x80..=0xff => out.push(byte),
            _ => {}
        }
    }
    out
}

/// Length of what follows an ESC, and whether it is a colour (SGR).
fn sequence(after: &[u8]) -> (usize, bool) {
    match after.first() {
        Some(b'[') => {
            let end = after.iter().skip(1).position(|byte| (0x40..=0x7e).contains(byte));
            match end {
                Some(at) => (at + 2, after.get(at + 1) == Some(&b'm')),
                None => (after.len(), false),
            }
        }
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = after.iter().position(|&byte| byte == 0x07 || byte == 0x1b);
            (end.unwrap_or(after.len()), false)
        }
        Some(_) => (1, false),
        None => (0, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_shown_and_not_done() {
        assert_eq!(escape("a\x1b]0;x\x07b\u{202e}é"), "a\\u{1b}]0;x\\u{7}b\\u{202e}é");
    }

    #[test]
    fn commands_are_quoted_where_a_shell_needs_it() {
        let argv = ["sh", "-c", "exit 7", "it's", ""].map(str::to_owned);
        assert_eq!(command(&argv), r"sh -c 'exit 7' 'it'\''s' ''");
    }

    #[test]
    fn rendered_lines_keep_colours_only() {
        let bytes = b"\x1b[31mred\x1b[0m\x1b[2J\x1b]52;c;eA==\x07\tx\r\n";
        assert_eq!(rendered(bytes, true), b"\x1b[31mred\x1b[0m\tx\n");
        assert_eq!(rendered(bytes, false), b"red\tx\n");
    }
}
