//! Whatever a test left behind: processes, cgroups, mounts, sockets, folders.
//!
//! Found from outside, by the name of the sandbox's folder in `/proc` and by the name of its cgroup
//! parent, so that mews cannot hide what it forgot. Our daemons are not dumpable, so an ordinary
//! user cannot read that of them: there they are known as descendants of the test program, which
//! takes every orphan in ([`adopt_orphans`]).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// From now on whatever loses its parent below this process becomes its child, so that daemons can
/// be found by descent. Tests that rely on it must run one after another.
///
/// # Errors
/// The kernel refuses.
pub fn adopt_orphans() -> anyhow::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Everything of this sandbox that is there now, in words.
#[must_use]
pub fn find(root: &Path, cgroup_parent: &str) -> Vec<String> {
    let mut found = processes(root);
    found.extend(cgroups(cgroup_parent));
    found.extend(mounts(root));
    found.extend(sockets(&root.join("run")));
    found.extend(folders(root));
    found
}

/// Every process that names the folder in its environment, arguments, mounts or working folder.
#[must_use]
pub fn processes(root: &Path) -> Vec<String> {
    let needle = root.as_os_str().as_encoded_bytes();
    let me = std::process::id().to_string();
    let others = pids().filter(|pid| *pid != me);
    let named = others.filter_map(|pid| {
        let how = names_it(&Path::new("/proc").join(&pid), needle)?;
        Some(format!("process {pid} ({how}): {}", arguments(&pid).join(" ")))
    });
    named.collect()
}

/// Every process with these arguments, one after the other.
#[must_use]
pub fn with_arguments(words: &[&str]) -> Vec<String> {
    let given = pids().map(|pid| arguments(&pid));
    given
        .filter(|all| all.windows(words.len()).any(|some| some == words))
        .map(|all| all.join(" "))
        .collect()
}

/// What everybody may read of any process.
#[must_use]
pub fn arguments(pid: &str) -> Vec<String> {
    let line = fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split_terminator('\0').map(str::to_owned).collect()
}

fn pids() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

fn names_it(process: &Path, needle: &[u8]) -> Option<&'static str> {
    let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    // Everybody may read the first one.
    for file in ["cmdline", "environ", "mountinfo"] {
        match fs::read(process.join(file)) {
            Ok(bytes) if holds(&bytes) => return Some(file),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return is_living_descendant(process).then_some("descent");
            }
            Ok(_) | Err(_) => {}
        }
    }
    let cwd = fs::read_link(process.join("cwd")).ok()?;
    holds(cwd.as_os_str().as_encoded_bytes()).then_some("cwd")
}

fn is_living_descendant(process: &Path) -> bool {
    let me = std::process::id().to_string();
    let Some((state, mut parent)) = state_and_parent(process) else { return false };
    if state == "Z" {
        return false;
    }
    while parent != me {
        let Some((_state, above)) = state_and_parent(&Path::new("/proc").join(&parent)) else {
            return false;
        };
        parent = above;
    }
    true
}

/// Fields 3 and 4 of `/proc/PID/stat`, which everybody may read.
fn state_and_parent(process: &Path) -> Option<(String, String)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name may hold spaces and parentheses: count from the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Every group below this parent, with the processes in it.
#[must_use]
pub fn cgroups(parent: &str) -> Vec<String> {
    let name = parent.trim_start_matches('/');
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    hierarchies
        .map(|hierarchy| hierarchy.path().join(name))
        .chain(std::iter::once(PathBuf::from("/sys/fs/cgroup").join(name)))
        .filter(|path| path.is_dir())
        .flat_map(|path| groups_in(&path))
        .collect()
}

/// This group and those below it, with the processes in them.
fn groups_in(group: &Path) -> Vec<String> {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let members = members.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = vec![format!("cgroup {} [{members}]", group.display())];
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(groups_in(&entry.path()));
        }
    }
    found
}

fn mounts(root: &Path) -> Vec<String> {
    let needle = root.to_string_lossy().into_owned();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter(|line| line.contains(&needle))
        .map(|line| format!("mount {line}"))
        .collect()
}

fn sockets(run: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(run, &mut |path, kind| {
        if kind.is_socket() {
            found.push(format!("socket {}", path.display()));
        }
    });
    found
}

/// Folders of single cages: below `<run>/sup`, `<run>/mnt`.
fn folders(root: &Path) -> Vec<String> {
    ["run/sup", "run/mnt"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten().flatten())
        .map(|entry| format!("left in the run folder: {}", entry.path().display()))
        .collect()
}

fn walk(folder: &Path, see: &mut impl FnMut(&Path, fs::FileType)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        see(&entry.path(), kind);
        if kind.is_dir() {
            walk(&entry.path(), see);
        }
    }
}
