//! Names and labels of sessions, and slugs of projects.

use crate::store::sessions::SessionRow;
use serde_json::json;
use std::collections::BTreeMap;
use wire::api::{LABEL_BYTES_MAX, LABELS_MAX};
use wire::{ErrorCode, WireError};

const NAME_CHARS_MAX: usize = 64;
const SLUG_CHARS_MAX: usize = 64;

/// `[A-Za-z0-9._-]{1,64}`, and not a dash first: that would be a flag.
///
/// # Errors
/// `validation_failed`, with the rule.
pub fn check(name: &str) -> Result<(), WireError> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.chars().all(is_name_char)
        && !name.starts_with('-');
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    Err(WireError::new(
        ErrorCode::ValidationFailed,
        format!(
            "'{}' cannot be a session's name: 1 to 64 of A-Z a-z 0-9 . _ - and no dash first.",
            shown.escape_default()
        ),
    ))
}

/// A name is used once by each operator.
#[must_use]
pub fn taken(by: &SessionRow) -> WireError {
    let words =
        format!("There is a session '{}' already; choose another name or `mews rm {0}`.", by.name);
    WireError::new(ErrorCode::Conflict, words).with(json!({ "session": by.id }))
}

/// A key has no `=`, so that `KEY=VALUE` says which is which.
///
/// # Errors
/// `validation_failed`, with the rule and the label.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), WireError> {
    let wrong = |words: String| Err(WireError::new(ErrorCode::ValidationFailed, words));
    if labels.len() > LABELS_MAX {
        return wrong(format!("A session has at most {LABELS_MAX} labels, not {}.", labels.len()));
    }
    for (key, value) in labels {
        let shown: String = key.chars().take(NAME_CHARS_MAX).collect();
        if key.is_empty() || key.contains('=') {
            let shown = shown.escape_default();
            return wrong(format!("'{shown}' cannot be a label's key: not empty, and no '='."));
        }
        if key.len() > LABEL_BYTES_MAX || value.len() > LABEL_BYTES_MAX {
            return wrong(format!(
                "The label '{}' is too long: key and value have at most {LABEL_BYTES_MAX} bytes \
                 each.",
                shown.escape_default()
            ));
        }
    }
    Ok(())
}

/// The first half of a made name: the program, without its folder.
#[must_use]
pub fn stem(hint: &str) -> String {
    let last = hint.rsplit('/').next().unwrap_or(hint);
    let kept: String = last.chars().filter(|&c| is_name_char(c)).take(48).collect();
    let kept = kept.trim_start_matches('-');
    if kept.is_empty() { "session".to_owned() } else { kept.to_owned() }
}

/// `STEM-N` with the first number from 1 that is free.
#[must_use]
pub fn next_free(stem: &str, taken: &[String]) -> String {
    let numbers: std::collections::HashSet<u64> = taken
        .iter()
        .filter_map(|name| name.strip_prefix(stem)?.strip_prefix('-')?.parse().ok())
        .collect();
    let number = (1..).find(|number| !numbers.contains(number)).unwrap_or(1);
    format!("{stem}-{number}")
}

/// `^[a-z0-9][a-z0-9-]{0,62}[a-z0-9]$` from a folder's last part.
#[must_use]
pub fn slug(folder: &str) -> String {
    let last = folder.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut slug = String::new();
    for c in last.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(SLUG_CHARS_MAX - 6);
    let slug = slug.trim_matches('-');
    match slug.len() {
        0 => "root".to_owned(),
        1 => format!("{slug}0"),
        _ => slug.to_owned(),
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for good in ["a", "bash-1", "A.b_c-9", &"x".repeat(64)] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "a b", "a/b", "é", "a\n", &"x".repeat(65)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn made_names_take_the_first_free_number() {
        let taken = ["bash-1", "bash-3", "bash-x", "bashful-2"].map(str::to_owned);
        assert_eq!(next_free("bash", &taken), "bash-2");
        for (hint, want) in
            [("/usr/bin/bash", "bash"), ("", "session"), ("--x", "x"), ("a b", "ab")]
        {
            assert_eq!(stem(hint), want);
            assert!(check(&next_free(&stem(hint), &[])).is_ok());
        }
    }

    #[test]
    fn slugs_follow_the_rule() {
        for (folder, want) in [
            ("/home/a/My Project", "my-project"),
            ("/", "root"),
            ("/x/a", "a0"),
            ("/x/..é..", "root"),
            ("/x/a--b_", "a-b"),
        ] {
            assert_eq!(slug(folder), want);
        }
    }
}
