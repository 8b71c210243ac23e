//! Words for who else looks at a terminal.

use crate::escape::escape;
use wire::Role;
use wire::frame::Others;

/// What to say when it has changed; nothing where it says nothing new.
pub(super) fn changed(
    before: Option<&Others>,
    now: &Others,
    role: Role,
    keys: Option<&str>,
) -> Option<String> {
    let alone = now.writer.is_none() && now.observers.is_empty();
    if before == Some(now) || (before.is_none() && alone) {
        return None;
    }
    let watch = match now.observers.as_slice() {
        [] => None,
        [one] => Some(format!("{} watches", escape(one))),
        [one, rest @ ..] => Some(format!("{} and {} more watch", escape(one), rest.len())),
    };
    let takes = || keys.map_or_else(String::new, |keys| format!("; {keys} takes it"));
    let keyboard = match (&now.writer, role) {
        (_, Role::Writer) => None,
        (Some(writer), Role::Observer) => Some(format!("{} has the keyboard", escape(writer))),
        (None, Role::Observer) => Some(format!("the keyboard is free{}", takes())),
    };
    let words: Vec<String> = keyboard.into_iter().chain(watch).collect();
    Some(if words.is_empty() { "nobody else is here".to_owned() } else { words.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_new() {
        let others = |writer: Option<&str>, observers: &[&str]| Others {
            writer: writer.map(str::to_owned),
            observers: observers.iter().map(|name| (*name).to_owned()).collect(),
        };
        let (none, ann) = (others(None, &[]), others(Some("ann"), &[]));
        let (bob, two) = (others(None, &["bob"]), others(Some("ann"), &["bob", "cem"]));
        for (before, now, role, want) in [
            (None, &none, Role::Writer, None),
            (Some(&none), &none, Role::Writer, None),
            (None, &bob, Role::Writer, Some("bob watches")),
            (Some(&bob), &none, Role::Writer, Some("nobody else is here")),
            (None, &ann, Role::Observer, Some("ann has the keyboard")),
            (Some(&ann), &two, Role::Observer, Some("ann has the keyboard, bob and 1 more watch")),
            (Some(&ann), &none, Role::Observer, Some("the keyboard is free; ^T takes it")),
        ] {
            assert_eq!(changed(before, now, role, Some("^T")).as_deref(), want);
        }
    }
}
