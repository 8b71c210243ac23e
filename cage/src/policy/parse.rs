//! Text → [`PolicyFile`], with the line of whatever is wrong.

use super::error::{PolicyError, Problem};
use super::file::{Leaf, Listed, PolicyFile, Said};
use super::paths::PathRule;
use super::schema;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Largest policy file, in bytes.
pub(super) const FILE_BYTES_MAX: usize = 256 * 1024;

pub(super) fn parse(file: &str, text: &str) -> Result<PolicyFile, PolicyError> {
    let at = |problem, span: Option<Range<usize>>, key, message: String| PolicyError {
        problem,
        file: file.to_owned(),
        line: span.map(|span| Lines::of(text).at(span.start)),
        key,
        message,
    };
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        return Err(at(Problem::Syntax, None, None, message));
    }
    let table = DeTable::parse(text)
        .map_err(|error| at(Problem::Syntax, error.span(), None, error.message().to_owned()))?;
    check_version(table.get_ref()).map_err(|(span, message)| {
        at(Problem::Version, span, Some("version".to_owned()), message)
    })?;
    schema::check(table.get_ref()).map_err(|refused| {
        at(refused.problem, Some(refused.at), Some(refused.key), refused.message)
    })?;
    let mut parsed: PolicyFile = toml::from_str(text).map_err(|error| {
        let message = error.message().trim_end().replace('\n', "; ");
        let span = error.span().map(|span| narrowed(table.get_ref(), span, &message));
        let key = span.as_ref().and_then(|span| key_at(table.get_ref(), span.start));
        at(Problem::BadValue, span, key, message)
    })?;
    let lines = Lines::of(text);
    parsed.extends_line = table.get_ref().get("extends").map(|at| lines.at(at.span().start));
    parsed.fs.said = said(table.get_ref(), &lines, &parsed, file);
    parsed.leaves = vec![Arc::new(leaves(table.get_ref(), (text, &lines), file))];
    Ok(parsed)
}

/// The lines of the lists of paths, in their order.
fn said(table: &DeTable<'_>, starts: &Lines, parsed: &PolicyFile, file: &str) -> Vec<Said> {
    let rules = |list| match list {
        Listed::Read => &parsed.fs.read,
        Listed::Write => &parsed.fs.write,
        Listed::Hide => &parsed.fs.hide,
        Listed::Protect => &parsed.fs.protect,
    };
    let fs = table.get("fs").and_then(|fs| fs.get_ref().as_table());
    let lines = |key: &str| {
        let list = fs.and_then(|fs| fs.get(key)).and_then(|list| list.get_ref().as_array());
        let spans = list.into_iter().flat_map(|list| list.iter().map(Spanned::span));
        spans.map(|span| starts.at(span.start)).collect::<Vec<_>>()
    };
    let one = |(rule, line): (&PathRule, usize), list| Said {
        rule: rule.clone(),
        list,
        file: file.to_owned(),
        line,
        required: false,
    };
    let each = |list: Listed| {
        let key = list.key().trim_start_matches("fs.");
        let told = rules(list).iter().zip(lines(key)).map(|at| one(at, list));
        told.collect::<Vec<_>>()
    };
    Listed::ALL.into_iter().flat_map(each).collect()
}

/// Every value of a file, each item of a list for itself, and where it stands.
fn leaves(table: &DeTable<'_>, (text, lines): (&str, &Lines), file: &str) -> Vec<Leaf> {
    let mut found = Vec::new();
    walk("", table, &mut |key, value| {
        let items = value.get_ref().as_array().filter(|items| !items.is_empty());
        let whole = std::slice::from_ref(value);
        for item in items.map_or(whole, |items| items.as_ref()) {
            let line = lines.at(item.span().start);
            let value = words(item, text);
            found.push(Leaf { key: key.to_owned(), value, file: file.to_owned(), line });
        }
    });
    found
}

fn walk<'a, 'i>(
    above: &str,
    table: &'a DeTable<'i>,
    each: &mut impl FnMut(&str, &'a Spanned<DeValue<'i>>),
) {
    for (name, value) in table {
        let key = schema::join(above, name.get_ref());
        match value.get_ref().as_table() {
            Some(inner) => walk(&key, inner, each),
            None => each(&key, value),
        }
    }
}

/// A value as people read it.
fn words(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    if let Some(plain) = value.get_ref().as_str() {
        return plain.to_owned();
    }
    if let Some(table) = value.get_ref().as_table() {
        let pairs = table
            .iter()
            .map(|(name, value)| format!("{} = {}", name.get_ref(), words(value, text)));
        return pairs.collect::<Vec<_>>().join(", ");
    }
    text.get(value.span()).unwrap_or_default().to_owned()
}

/// The span of a bad list is the whole list: our own messages quote the value that they are about,
/// so it is looked up in there.
fn narrowed(table: &DeTable<'_>, span: Range<usize>, message: &str) -> Range<usize> {
    let quoted = |item: &&Spanned<DeValue<'_>>| {
        item.get_ref().as_str().is_some_and(|text| message.starts_with(&format!("{text:?}")))
    };
    let array = table.values().find_map(|value| array_at(value, &span));
    array.and_then(|array| array.iter().find(quoted)).map_or(span, Spanned::span)
}

fn array_at<'a, 'i>(
    value: &'a Spanned<DeValue<'i>>,
    span: &Range<usize>,
) -> Option<&'a DeArray<'i>> {
    let inner = value.get_ref().as_table();
    let here = value.get_ref().as_array().filter(|_array| value.span() == *span);
    here.or_else(|| inner?.values().find_map(|value| array_at(value, span)))
}

/// First, so that a file of another version is not picked at key by key.
fn check_version(table: &DeTable<'_>) -> Result<(), (Option<Range<usize>>, String)> {
    let Some(version) = table.get("version") else {
        return Err((None, "it is missing; begin the file with version = 1".to_owned()));
    };
    let is_one = version.get_ref().as_integer().is_some_and(|int| int.as_str() == "1");
    if is_one {
        return Ok(());
    }
    let words = "this version of mews reads version = 1 only";
    Err((Some(version.span()), words.to_owned()))
}

/// Where each line ends: a hostile file has an item at every few bytes.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line of a byte, from 1.
    fn at(&self, byte: usize) -> usize {
        self.0.partition_point(|end| *end < byte) + 1
    }
}

/// The dotted key of the innermost value that covers this byte.
fn key_at(table: &DeTable<'_>, byte: usize) -> Option<String> {
    table.iter().find_map(|(name, value)| {
        let covers = value.span().contains(&byte) || name.span().contains(&byte);
        let inner = inner_key(value.get_ref(), byte);
        match inner {
            Some(inner) => Some(format!("{}.{inner}", name.get_ref())),
            None => covers.then(|| name.get_ref().to_string()),
        }
    })
}

fn inner_key(value: &DeValue<'_>, byte: usize) -> Option<String> {
    match value {
        DeValue::Table(table) => key_at(table, byte),
        DeValue::Array(array) => array.iter().find_map(|item| inner_key(item.get_ref(), byte)),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}
