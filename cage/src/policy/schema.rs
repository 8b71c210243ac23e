//! Every key that a policy may ever have, and what this build makes of it.
//!
//! A key or value that the design knows but this build cannot enforce is refused by name: nothing
//! degrades silently. A key that nobody knows is refused with the nearest one that exists.

use super::error::Problem;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Table,
    Built,
    /// These values only; the others are known and not built.
    Only {
        built: &'static [&'static str],
        later: &'static [&'static str],
    },
    /// Only `false`.
    OnlyFalse,
    Later,
    /// A table whose keys are the operator's own.
    Open,
}

const fn only(built: &'static [&'static str], later: &'static [&'static str]) -> Rule {
    Rule::Only { built, later }
}

/// In the order of the documentation.
const KEYS: &[(&str, Rule)] = &[
    ("version", Rule::Built),
    ("name", Rule::Built),
    ("extends", Rule::Built),
    ("require", Rule::Built),
    ("fs", Rule::Table),
    ("fs.read", Rule::Built),
    ("fs.write", Rule::Built),
    ("fs.tmpfs", Rule::Table),
    ("fs.tmpfs.path", Rule::Built),
    ("fs.tmpfs.size", Rule::Built),
    ("fs.hide", Rule::Built),
    ("fs.protect", Rule::Built),
    ("fs.workspace", only(&["direct", "overlay", "copy"], &[])),
    ("fs.home", only(&["private", "persistent:"], &["none"])),
    ("fs.missing", Rule::Built),
    ("fs.git", Rule::Later),
    ("net", Rule::Table),
    ("net.mode", only(&["none"], &["allow", "host"])),
    ("net.allow", Rule::Later),
    ("net.private_ranges", Rule::Later),
    ("net.provider", Rule::Later),
    ("net.socket", Rule::Table),
    ("net.socket.listen", Rule::Built),
    ("net.socket.connect", Rule::Built),
    ("limits", Rule::Table),
    ("limits.memory", Rule::Built),
    ("limits.swap", Rule::Built),
    ("limits.pids", Rule::Built),
    ("limits.cpu", Rule::Built),
    ("limits.nofile", Rule::Built),
    ("limits.fsize", Rule::Built),
    ("limits.core", Rule::Built),
    ("limits.ptys", Rule::Built),
    ("limits.walltime", Rule::Built),
    ("limits.idle", Rule::Built),
    ("limits.workspace_bytes", Rule::Built),
    ("limits.workspace_inodes", Rule::Built),
    ("limits.io", Rule::Built),
    ("limits.output_bytes", Rule::Built),
    ("limits.oom", only(&["group"], &[])),
    ("process", Rule::Table),
    ("process.seccomp", only(&["default"], &["strict", "dev", "log"])),
    ("process.landlock", only(&["require"], &["prefer", "off"])),
    ("process.user", only(&["operator"], &["isolated"])),
    ("process.hostname", Rule::Built),
    ("env", Rule::Table),
    ("env.pass", Rule::Built),
    ("env.set", Rule::Open),
    ("env.secrets", Rule::Later),
    ("terminal", Rule::Table),
    ("terminal.enabled", Rule::Built),
    ("terminal.cols", Rule::Built),
    ("terminal.rows", Rule::Built),
    ("terminal.scrollback_lines", Rule::Built),
    ("terminal.scrollback_bytes", Rule::Built),
    ("terminal.record", Rule::Built),
    ("terminal.record_bytes", Rule::Built),
    ("terminal.remote_rate", Rule::Later),
    ("terminal.flow", only(&["resync"], &["block", "drop"])),
    ("terminal.filter", only(&["default"], &["strict", "off"])),
    ("terminal.record_input", Rule::OnlyFalse),
    ("suspend", Rule::Table),
    ("suspend.grace", Rule::Built),
    ("suspend.on_refuse", only(&["freeze", "fail"], &[])),
];

/// The first key or value that is not for this build.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) problem: Problem,
    pub(super) key: String,
    pub(super) at: Range<usize>,
    pub(super) message: String,
}

/// Walks a parsed file.
pub(super) fn check(table: &DeTable<'_>) -> Result<(), Refused> {
    walk("", table)
}

fn walk(prefix: &str, table: &DeTable<'_>) -> Result<(), Refused> {
    for (name, value) in table {
        let key = join(prefix, name.get_ref());
        let Some((_, rule)) = KEYS.iter().find(|(known, _)| *known == key) else {
            return Err(unknown(prefix, key, name.span()));
        };
        check_value(*rule, key, name.span(), value)?;
    }
    Ok(())
}

fn check_value(
    rule: Rule,
    key: String,
    key_at: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), Refused> {
    let unsupported = |at, what: String, mend: &str| {
        let message = format!("{what} is not supported by this version; {mend}");
        Err(Refused { problem: Problem::Unsupported, key: key.clone(), at, message })
    };
    match rule {
        Rule::Built | Rule::Open => Ok(()),
        Rule::Later => unsupported(key_at, format!("{key:?}"), "remove the key"),
        Rule::OnlyFalse => match value.get_ref().as_bool() {
            Some(true) => unsupported(value.span(), "true".to_owned(), "write false"),
            _ => Ok(()),
        },
        Rule::Only { built, later } => match value.get_ref().as_str() {
            Some(text) if later.contains(&text) => {
                unsupported(value.span(), format!("{text:?}"), &choices(built))
            }
            _ => Ok(()),
        },
        Rule::Table => tables(value.get_ref()).try_for_each(|table| walk(&key, table)),
    }
}

/// The table itself, or each table of an array. What is neither is told by the typed parse.
fn tables<'a, 'i>(value: &'a DeValue<'i>) -> impl Iterator<Item = &'a DeTable<'i>> {
    let array = value.as_array().into_iter().flat_map(|array| array.iter());
    value.as_table().into_iter().chain(array.filter_map(|item| item.get_ref().as_table()))
}

fn choices(built: &[&str]) -> String {
    let words: Vec<String> = built
        .iter()
        .map(
            |word| {
                if word.ends_with(':') { format!("\"{word}NAME\"") } else { format!("{word:?}") }
            },
        )
        .collect();
    format!("write {}", words.join(" or "))
}

fn unknown(prefix: &str, key: String, at: Range<usize>) -> Refused {
    let near = nearest(prefix, &key);
    let message = match near {
        Some(near) => format!("there is no such key; did you mean {near:?}?"),
        None => format!("there is no such key; known here are {}", siblings(prefix).join(", ")),
    };
    Refused { problem: Problem::UnknownKey, key, at, message }
}

fn siblings(prefix: &str) -> Vec<&'static str> {
    KEYS.iter()
        .filter(|(_, rule)| *rule != Rule::Later)
        .filter_map(|(known, _)| {
            let (parent, name) = known.rsplit_once('.').unwrap_or(("", known));
            (parent == prefix).then_some(name)
        })
        .collect()
}

/// The known key with the fewest edits, if it is near enough to be meant; a key of another table
/// with the same last word counts too.
fn nearest(prefix: &str, key: &str) -> Option<&'static str> {
    let word = key.rsplit('.').next().unwrap_or(key);
    let here = KEYS
        .iter()
        .filter(|(known, _)| known.rsplit_once('.').map_or("", |(parent, _)| parent) == prefix)
        .map(|(known, _)| (edits(known.rsplit('.').next().unwrap_or(known), word), *known))
        .min()
        .filter(|(distance, _)| *distance <= 2 && *distance < word.len());
    let elsewhere = || KEYS.iter().find(|(known, _)| known.rsplit('.').next() == Some(word));
    here.map(|(_, known)| known).or_else(|| elsewhere().map(|(known, _)| *known))
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let kept = diagonal + usize::from(from != *to);
            *cell = kept.min(above + 1).min(left + 1);
            diagonal = above;
            left = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

pub(super) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance() {
        for (a, b, wanted) in
            [("", "ab", 2), ("memory", "memroy", 2), ("pids", "pid", 1), ("x", "x", 0)]
        {
            assert_eq!(edits(a, b), wanted, "{a} {b}");
        }
    }
}
