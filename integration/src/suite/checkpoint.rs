//! What a session changes is kept apart, and a checkpoint brings it back as it was.

mod faults;
mod layer;
mod rollback;

use crate::runner::Test;
use crate::talk::start;
use anyhow::ensure;
use faults::*;
use layer::*;
use rollback::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

type Body = fn(&Sandbox, &str) -> anyhow::Result<()>;

/// What must hold in both modes, as root and as an ordinary user.
const BODIES: [(&str, Body); 7] = [
    ("the_folder_stays_as_it_is", folder_stays),
    ("apply_brings_all_of_it", apply_all),
    ("what_both_have_changed_is_left", conflict),
    ("discard_takes_it_back", discard),
    ("rollback_brings_files_back", files_come_back),
    ("restart_after_a_rollback", restart),
    ("hostile_names_and_links", hostile),
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("checkpoint.without_a_layer", direct),
        Test::new("checkpoint.wrong_requests", wrong),
        Test::new("checkpoint.it_asks_first", asks),
        Test::new("checkpoint.screens_and_processes", screens),
        Test::new("checkpoint.other_sessions_are_not_touched", others),
        Test::new("checkpoint.the_oldest_is_archived", archived),
        Test::new("checkpoint.rm_removes_it", removed),
        Test::new("checkpoint.a_later_run_goes_on_with_the_layer", layer_goes_on),
        Test::new("checkpoint.setuid_is_not_applied", setuid),
        Test::new("checkpoint.mounts_below_the_folder", mounts_below),
        Test::new("checkpoint.alone_it_is_thrown_away", alone),
    ];
    for mode in ["overlay", "copy"] {
        for (name, body) in BODIES {
            let flag = format!("--{mode}");
            let also = flag.clone();
            tests.push(Test::new(format!("checkpoint.{mode}.{name}"), move |s| body(s, &flag)));
            let name = format!("checkpoint.{mode}.for_an_ordinary_user.{name}");
            let as_user = move |_root: &Sandbox| super::users::as_user(1, |s| body(s, &also));
            tests.push(Test::new(name, as_user));
        }
    }
    for step in TAKING {
        let name = format!("checkpoint.a_daemon_dies_at_{step}");
        tests.push(Test::new(name, move |s| dies_taking(s, step)));
    }
    for step in BACK {
        let name = format!("checkpoint.sessiond_dies_at_{step}");
        tests.push(Test::new(name, move |s| dies_going_back(s, step)));
    }
    tests
}

/// For whoever wants to die at one of them.
pub(crate) fn steps() -> impl Iterator<Item = &'static str> {
    TAKING.into_iter().chain(BACK)
}

/// Some files of the operator's.
fn furnish(sandbox: &Sandbox) -> anyhow::Result<()> {
    for folder in ["ws/src", "ws/src/deep", "ws/old"] {
        sandbox.folder(folder)?;
    }
    for (name, content) in [
        ("ws/README", "read me\n"),
        ("ws/src/main", "one\ntwo\n"),
        ("ws/src/deep/leaf", "leaf\n"),
        ("ws/old/gone", "to be deleted\n"),
        ("ws/untouched", "untouched\n"),
    ] {
        sandbox.file(name, content)?;
    }
    Ok(())
}

/// Each kind of change once.
const CHANGES: &str = "set -e
echo three >> src/main
echo new > made; mkdir -p 'new folder'/sub; echo x > 'new folder'/sub/x
rm -r old
chmod 700 README
ln -s ../untouched src/link
mkfifo src/fifo";

const CHANGED: [&str; 9] = [
    "A made",
    "A new folder/",
    "A new folder/sub/",
    "A new folder/sub/x",
    "A src/fifo",
    "A src/link",
    "D old/",
    "M README  mode 644 → 700",
    "M src/main",
];

/// A cage that waits to be told what to do.
fn waiting(sandbox: &Sandbox, flag: &str, name: &str) -> anyhow::Result<()> {
    start(sandbox, &[flag, "--name", name], &["sleep", "1000"]).map(drop)
}

fn inside(sandbox: &Sandbox, name: &str, script: &str) -> anyhow::Result<String> {
    Ok(sandbox.mews(["exec", name, "--", "sh", "-c", script])?.expect(0)?.out())
}

/// The lines of `mews diff`, sorted.
fn diff(sandbox: &Sandbox, name: &str) -> anyhow::Result<Vec<String>> {
    let told = sandbox.mews(["diff", name])?;
    let mut lines: Vec<String> = told.out().lines().map(str::to_owned).collect();
    let code = i32::from(!lines.is_empty());
    told.expect(code)?;
    lines.sort();
    Ok(lines)
}

/// A folder as text: kind, mode and contents of everything in it.
fn picture(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            let facts = std::fs::symlink_metadata(&path)?;
            let mode = facts.permissions().mode();
            let content = if facts.is_symlink() {
                std::fs::read_link(&path)?.display().to_string()
            } else if facts.is_file() {
                String::from_utf8_lossy(&std::fs::read(&path)?).into_owned()
            } else {
                String::new()
            };
            if facts.is_dir() {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(folder)?.display().to_string();
            all.insert(name, format!("{mode:o} {content}"));
        }
    }
    Ok(all)
}

/// Takes one and says its id.
fn checkpoint(sandbox: &Sandbox, name: &str, options: &[&str]) -> anyhow::Result<String> {
    let args: Vec<&str> = ["checkpoint", name].iter().chain(options).copied().collect();
    Ok(sandbox.mews(args)?.expect(0)?.out().trim().to_owned())
}

fn checkpoints(sandbox: &Sandbox, name: &str) -> anyhow::Result<Vec<Value>> {
    sandbox.mews(["--json", "checkpoints", name])?.expect(0)?.json_lines()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn until_empty(folder: &Path) -> anyhow::Result<()> {
    pause::until("the folder is empty", LIMIT, || is_empty(folder).then_some(()))
}

fn must_be<T: PartialEq + std::fmt::Debug>(found: T, want: T) -> anyhow::Result<()> {
    ensure!(found == want, "found {found:#?}\nwant {want:#?}");
    Ok(())
}
