//! Random folders, random work in a real overlay or a copy, and what must hold then.

use crate::kit::{Picture, Place, Times, picture};
use layer::{Report, Work};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::WorkspaceMode::{self, Copy, Overlay};

/// One or two names: few, so that they collide.
fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abc]", 1..4).prop_map(|names| names.join("/"))
}

fn edit() -> impl Strategy<Value = String> {
    let mode = prop_oneof![Just("755"), Just("700"), Just("500"), Just("000"), Just("644")];
    prop_oneof![
        4 => (path(), "[xyz]{0,3}").prop_map(|(to, text)| format!("printf '{text}' >{to}")),
        2 => path().prop_map(|to| format!("mkdir -p {to}")),
        3 => path().prop_map(|to| format!("rm -rf {to}")),
        2 => (path(), path()).prop_map(|(from, to)| format!("mv {from} {to}")),
        1 => (path(), path()).prop_map(|(from, to)| format!("ln {from} {to}")),
        1 => (path(), path()).prop_map(|(from, to)| format!("cp -a {from} {to}")),
        1 => path().prop_map(|to| format!("ln -s nowhere {to}")),
        1 => path().prop_map(|to| format!("mkfifo {to}")),
        2 => (path(), mode).prop_map(|(to, mode)| format!("test -L {to} || chmod {mode} {to}")),
        1 => path().prop_map(|to| format!("test -p {to} || touch -d 2001-02-03 {to}")),
    ]
}

/// A FIFO is not written to: that would wait for a reader.
fn script() -> impl Strategy<Value = String> {
    proptest::collection::vec(edit(), 0..12).prop_map(|edits| {
        let guarded = edits.iter().map(|edit| match edit.split_once(" >") {
            Some((_, to)) => format!("{{ test -p {to} || {edit}; }} 2>/dev/null || true"),
            None => format!("{{ {edit}; }} 2>/dev/null || true"),
        });
        guarded.chain(["true".to_owned()]).collect::<Vec<_>>().join("\n")
    })
}

fn mode() -> impl Strategy<Value = WorkspaceMode> {
    prop_oneof![Just(Overlay), Just(Copy)]
}

/// What a program sees.
fn view(place: &Place, times: Times) -> BTreeMap<Vec<u8>, Picture> {
    let name = if place.mode == Overlay { "view" } else { "layer/tree" };
    picture(&place.path(name), times)
}

/// Each case mounts; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases.unwrap_or(24)) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_applied_is_the_view(
        mode in mode(), folder in script(), session in script(), more in script(),
    ) {
        let place = Place::new(mode, &folder);
        for session in [session, more] {
            if !place.program(&session) {
                return Ok(());
            }
            let (_, left) = place.apply(&[]);
            prop_assert_eq!(left, Vec::<String>::new());
            prop_assert_eq!(picture(&place.path("origin"), Times::No), view(&place, Times::No));
            prop_assert_eq!(place.diff(), Vec::<String>::new());
        }
    }

    #[test]
    fn what_is_restored_is_the_saved_view_and_what_is_discarded_is_the_folder(
        mode in mode(), folder in script(), session in script(), more in script(),
    ) {
        let place = Place::new(mode, &folder);
        if !place.program(&session) {
            return Ok(());
        }
        let saved = view(&place, Times::Files);
        let report = place.order(Work::Save);
        prop_assert!(matches!(report, Report::Copied(_)), "{:?}", report);
        place.program(&more);
        let same = view(&place, Times::No) == strip(&saved);
        let preview = place.changes(Work::Preview);
        prop_assert_eq!(preview.is_empty(), same, "{:?}", preview);
        let report = place.order(Work::Restore);
        prop_assert!(matches!(report, Report::Copied(_)), "{:?}", report);
        place.program(":");
        prop_assert_eq!(view(&place, Times::Files), saved);
        place.discard(&[]);
        place.program(":");
        prop_assert_eq!(picture(&place.path("origin"), Times::Files), view(&place, Times::Files));
    }

    #[test]
    fn each_path_can_be_discarded_by_itself(
        mode in mode(), folder in script(), session in script(),
    ) {
        let place = Place::new(mode, &folder);
        if !place.program(&session) {
            return Ok(());
        }
        // One at a time, the innermost first; the rest must stay as it is.
        while let Some(change) = place.changes(Work::Diff).pop() {
            let before = place.diff();
            place.order(Work::Discard { paths: vec![change.path.clone()] });
            let after = place.diff();
            prop_assert_eq!(&after[..], &before[..before.len() - 1], "{:?}", change);
        }
        place.program(":");
        prop_assert_eq!(picture(&place.path("origin"), Times::No), view(&place, Times::No));
    }

    #[test]
    fn what_the_operator_has_changed_meanwhile_is_never_touched(
        mode in mode(), folder in script(), session in script(), edits in script(),
    ) {
        let place = Place::new(mode, &folder);
        if !place.program(&session) {
            return Ok(());
        }
        let before = picture(&place.path("origin"), Times::Files);
        place.edit(&edits);
        let edited = picture(&place.path("origin"), Times::Files);
        place.apply(&[]);
        let after = picture(&place.path("origin"), Times::Files);
        for (path, entry) in edited.iter().filter(|(path, entry)| before.get(*path) != Some(*entry)) {
            prop_assert_eq!(after.get(path), Some(entry), "{}", String::from_utf8_lossy(path));
        }
        prop_assert!(!after.keys().any(|path| path.windows(6).any(|part| part == b".mews-")));
    }
}

fn strip(times: &BTreeMap<Vec<u8>, Picture>) -> BTreeMap<Vec<u8>, Picture> {
    let plain = |(path, entry): (&Vec<u8>, &Picture)| {
        (path.clone(), Picture { mtime: None, ..entry.clone() })
    };
    times.iter().map(plain).collect()
}
