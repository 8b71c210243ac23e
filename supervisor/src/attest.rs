//! What the supervisor sees itself, by pid and pidfd, before it says `go`. The zygote's own word is
//! compared with the plan by `cage`; here the kernel is asked, from outside.
//!
//! Whatever cannot be read counts as wrong.

use crate::cage::Handles;
use crate::layers;
use crate::mounts::Named;
use crate::sys::{self, What};
use ::cage::orders::Attestation;
use ::cage::plan::{CagePlan, Mount, MountKind, Role};
use nix::dir::Dir;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use wire::{SessionId, WorkspaceMode};

/// A wall that is not as it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub(crate) struct Mismatch {
    pub(crate) wall: &'static str,
    pub(crate) message: String,
}

/// What must hold of pid 1.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) ptys_max: u32,
    pub(crate) workspace: Option<Seen<'a>>,
    pub(crate) binds: Binds<'a>,
    pub(crate) attestation: &'a Attestation,
}

/// Checks pid 1 of a cage from outside.
///
/// # Errors
/// The first wall that is not there.
pub(crate) fn check(wanted: &Wanted<'_>, handles: &Handles) -> Result<(), Mismatch> {
    let proc = format!("/proc/{}", wanted.pid);
    let read = |name: &str, wall| {
        std::fs::read_to_string(format!("{proc}/{name}"))
            .map_err(|e| Mismatch { wall, message: format!("{name} of pid 1 is unreadable: {e}") })
    };
    id_map(&read("uid_map", "userns")?, wanted.uid)?;
    id_map(&read("gid_map", "userns")?, wanted.gid)?;
    status_uid(&read("status", "userns")?, wanted.uid)?;
    namespaces(Path::new(&proc), &wanted.attestation.namespaces)?;
    let mounts = read("mountinfo", "ptys")?;
    devpts(&mounts, wanted.ptys_max)?;
    wanted.workspace.as_ref().map_or(Ok(()), |workspace| workspace.check(&mounts))?;
    wanted.binds.check(Path::new(&proc))?;
    if let Some(cgroup) = &handles.cgroup
        && !cgroup.is_absent()
        && !cgroup.contains(wanted.pid)
    {
        return Err(wrong("cgroup", "pid 1 is not in the cage's cgroup"));
    }
    // Still the same process: then everything above was read of it.
    if !handles.init.as_ref().is_some_and(|init| init.is_alive()) {
        return Err(wrong("init", "pid 1 ended while it was looked at"));
    }
    Ok(())
}

/// A workspace whose writes must not reach the operator's folder: itself, and each part of it that has
/// a mount of its own.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// Where, and which part.
    places: Vec<(&'a str, String)>,
    mode: WorkspaceMode,
    session: SessionId,
}

impl<'a> Seen<'a> {
    pub(crate) fn of(plan: &'a CagePlan, session: SessionId) -> Option<Self> {
        let mode = plan.workspace.mode;
        if mode == WorkspaceMode::Direct {
            return None;
        }
        let part = |mount: &'a Mount| match mount.kind {
            MountKind::Bind { source, .. } => {
                let source = plan.sources.get(source)?;
                let rest = source.host.strip_prefix(&plan.workspace.host)?;
                let is_of_it = source.role == Role::Workspace;
                is_of_it.then(|| (mount.dest.as_str(), rest.to_owned()))
            }
            MountKind::Proc
            | MountKind::Dev
            | MountKind::Dir
            | MountKind::Symlink { .. }
            | MountKind::Tmpfs { .. }
            | MountKind::Hidden { .. }
            | MountKind::Data => None,
        };
        let places = plan.mounts.iter().filter_map(part).collect();
        Some(Self { places, mode, session })
    }

    /// The mount at each place is the layer's, and shows that part of it: bwrap finds parts by name.
    fn check(&self, mountinfo: &str) -> Result<(), Mismatch> {
        for (place, part) in &self.places {
            let at = |line: &&str| layers::mount_point(line).as_deref() == Some(*place);
            let line = mountinfo.lines().rfind(at).unwrap_or_default();
            let root = layers::mount_field(line, ROOT).unwrap_or_default();
            let is_so = match self.mode {
                WorkspaceMode::Direct => true,
                WorkspaceMode::Overlay => {
                    let whole = if part.is_empty() { "/" } else { part.as_str() };
                    line.contains(" - overlay ") && root == whole
                }
                WorkspaceMode::Copy => {
                    root.ends_with(&format!("/layers/{}/live/tree{part}", self.session))
                }
            };
            if !is_so {
                return Err(wrong("workspace", format!("the mount at {place} is '{line}'")));
            }
        }
        Ok(())
    }
}

/// What is lent. bwrap goes to places, and to some sources, by name, and a program of another cage that
/// shares a folder can exchange names meanwhile.
#[derive(Debug)]
pub(crate) struct Binds<'a> {
    pub(crate) plan: &'a CagePlan,
    pub(crate) named: &'a [Named],
}

/// Fields of a line of mountinfo, from 0.
const ROOT: usize = 3;

impl Binds<'_> {
    /// Each is mounted at its place, takes no writes if it should not, and is what its name stood for;
    /// what is hidden is empty.
    fn check(&self, proc: &Path) -> Result<(), Mismatch> {
        let unreadable = |error: io::Error| wrong("files", format!("the cage's root: {error}"));
        let root = sys::open_root(&proc.join("root")).map_err(unreadable)?;
        for mount in &self.plan.mounts {
            let failed = |error: &dyn Display| wrong("files", format!("{}: {error}", mount.dest));
            let (source, writable) = match mount.kind {
                MountKind::Bind { source, writable } => (Some(source), writable),
                MountKind::Hidden { .. } => (None, false),
                MountKind::Proc
                | MountKind::Dev
                | MountKind::Dir
                | MountKind::Symlink { .. }
                | MountKind::Tmpfs { .. }
                | MountKind::Data => continue,
            };
            let there = seen(&root, &mount.dest).map_err(|error| failed(&error))?;
            if !there.is_mount {
                return Err(failed(&"nothing is mounted there"));
            }
            if !writable && !there.is_read_only {
                return Err(failed(&"can be written"));
            }
            let Some(source) = source else {
                hidden(&root, &mount.dest, &mount.kind).map_err(|error| failed(&error))?;
                continue;
            };
            let Some(named) = self.named.iter().find(|named| named.source == source) else {
                continue;
            };
            let meant = sys::what_is(named.what.as_fd()).map_err(|error| failed(&error))?;
            if there.what != meant.what {
                return Err(failed(
                    &"something else has come under this name while it was mounted",
                ));
            }
        }
        Ok(())
    }
}

/// A place in the cage, as seen from its root.
fn seen(root: &OwnedFd, place: &str) -> io::Result<What> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    sys::what_is(openat2(root, place, how)?.as_fd())
}

/// A place in the cage at which there must be nothing to read.
fn hidden(root: &OwnedFd, place: &str, kind: &MountKind) -> io::Result<()> {
    let is_folder = matches!(kind, MountKind::Hidden { folder: true });
    let mut flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_DIRECTORY, is_folder);
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let opened = openat2(root, place, how)?;
    let is_empty = if is_folder {
        let mut folder = Dir::from_fd(opened)?;
        let own = |name: &CStr| name == c"." || name == c"..";
        folder.iter().all(|entry| entry.is_ok_and(|entry| own(entry.file_name())))
    } else {
        let facts = File::from(opened).metadata()?;
        facts.is_file() && facts.len() == 0
    };
    if is_empty { Ok(()) } else { Err(io::Error::other("it is not hidden")) }
}

fn wrong(wall: &'static str, message: impl Into<String>) -> Mismatch {
    Mismatch { wall, message: message.into() }
}

/// One line, `UID UID 1`: one id, and no other number for it inside.
fn id_map(text: &str, id: u32) -> Result<(), Mismatch> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let id = id.to_string();
    if fields == [id.as_str(), id.as_str(), "1"] {
        return Ok(());
    }
    Err(wrong("userns", format!("the id map is '{}', wanted '{id} {id} 1'", fields.join(" "))))
}

/// All four uids as seen from outside.
fn status_uid(status: &str, uid: u32) -> Result<(), Mismatch> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let uid = uid.to_string();
    let mut uids = line.split_whitespace();
    if line.split_whitespace().count() == 4 && uids.all(|field| field == uid) {
        return Ok(());
    }
    Err(wrong("userns", format!("pid 1 runs as{line}, wanted {uid}")))
}

/// Every namespace differs from ours and is the one that the zygote names.
fn namespaces(proc: &Path, attested: &BTreeMap<String, u64>) -> Result<(), Mismatch> {
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let theirs = inode(&proc.join("ns").join(name))?;
        let ours = inode(&Path::new("/proc/self/ns").join(name))?;
        if theirs == ours {
            return Err(wrong("namespaces", format!("the {name} namespace is the host's")));
        }
        if attested.get(name) != Some(&theirs) {
            let words = format!("the {name} namespace is not the one that was attested");
            return Err(wrong("namespaces", words));
        }
    }
    Ok(())
}

/// The number in `mnt:[4026531841]`.
fn inode(link: &Path) -> Result<u64, Mismatch> {
    let text = std::fs::read_link(link)
        .map_err(|e| wrong("namespaces", format!("{} is unreadable: {e}", link.display())))?;
    let text = text.to_string_lossy();
    let number = text.split_once(":[").and_then(|(_name, rest)| rest.strip_suffix(']'));
    number
        .and_then(|n| n.parse().ok())
        .ok_or_else(|| wrong("namespaces", format!("'{text}' is no namespace")))
}

/// The cage's own devpts holds at most `max` terminals: the host's pool is shared otherwise.
fn devpts(mountinfo: &str, max: u32) -> Result<(), Mismatch> {
    let option = format!("max={max}");
    let mut found = false;
    for line in mountinfo.lines() {
        let Some((_place, rest)) = line.split_once(" - ") else { continue };
        let mut fields = rest.split_whitespace();
        if fields.next() != Some("devpts") {
            continue;
        }
        found = true;
        if !fields
            .next_back()
            .is_some_and(|super_options| super_options.split(',').any(|o| o == option))
        {
            return Err(wrong("ptys", format!("the cage's devpts is not limited to {option}")));
        }
    }
    if found { Ok(()) } else { Err(wrong("ptys", "the cage has no devpts of its own")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_final_map_of_one_id_will_do() {
        for (map, good) in [
            ("  64001  64001  1\n", true),
            ("", false),
            ("0 64001 1\n", false),
            ("64001 64001 2\n", false),
            ("64001 64001 1\n0 0 1\n", false),
        ] {
            assert_eq!(id_map(map, 64001).is_ok(), good, "{map}");
        }
    }

    #[test]
    fn all_four_uids_count() {
        assert!(status_uid("Name:\tx\nUid:\t5\t5\t5\t5\n", 5).is_ok());
        for bad in ["Uid:\t5\t0\t5\t5\n", "Uid:\t5\t5\t5\n", "", "Uid:\n"] {
            assert!(status_uid(bad, 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_part_of_a_layer_must_be_that_part() {
        let session = SessionId::new();
        let whole = "9 1 0:40 / /ws rw - overlay overlay rw";
        let part =
            |root: &str| format!("{whole}\n9 1 0:40 {root} /ws/.git\\040x rw - overlay o rw");
        let seen = |mode| Seen {
            places: vec![("/ws", String::new()), ("/ws/.git x", "/.git x".to_owned())],
            mode,
            session,
        };
        let overlay = seen(WorkspaceMode::Overlay);
        assert_eq!(overlay.check(&part("/.git\\040x")), Ok(()));
        for wrong in ["/", "/other", "/.git"] {
            assert!(overlay.check(&part(wrong)).is_err(), "{wrong}");
        }
        assert!(overlay.check(whole).is_err(), "the part is not mounted");
        let copy = |session: &SessionId, end: &str| {
            let tree = format!("9 1 0:2 /s/layers/{session}/live/tree");
            format!("{tree} /ws rw - ext4 x rw\n{tree}/{end} /ws/.git\\040x rw - ext4 x rw")
        };
        let seen = seen(WorkspaceMode::Copy);
        assert_eq!(seen.check(&copy(&session, ".git\\040x")), Ok(()));
        assert!(seen.check(&copy(&session, "other")).is_err());
        assert!(seen.check(&copy(&SessionId::new(), ".git\\040x")).is_err());
    }

    #[test]
    fn every_devpts_must_be_limited() {
        let line = |options: &str| {
            format!("7 1 0:9 / /dev/pts rw,nosuid - devpts devpts rw,mode=620,{options}\n")
        };
        assert!(devpts(&line("ptmxmode=666,max=16"), 16).is_ok());
        assert!(devpts(&line("ptmxmode=666"), 16).is_err());
        assert!(devpts(&line("max=160"), 16).is_err());
        assert!(devpts(&(line("max=16") + &line("max=4")), 16).is_err());
        assert!(devpts("7 1 0:9 / / rw - tmpfs tmpfs rw\n", 16).is_err());
    }

    #[test]
    fn our_own_namespaces_are_refused() {
        let result = namespaces(Path::new("/proc/self"), &BTreeMap::new());
        assert_eq!(result.unwrap_err().wall, "namespaces");
    }
}
