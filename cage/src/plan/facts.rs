//! What a plan is made from, beside the policy: the host's facts, the file tree, the request.

use crate::cgroup::Disk;
use crate::policy::{Ceiling, Project};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use wire::Overrides;

/// What this host can enforce, measured once by doing (`cage::probe`).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HostFacts {
    /// An unprivileged process can make a user namespace with a fresh `/proc`.
    pub userns: bool,
    pub seccomp: bool,
    /// 0: none.
    pub landlock_abi: u32,
    pub memory: Controller,
    pub swap: Controller,
    pub pids: Controller,
    pub cpu: Controller,
    pub io: Controller,
    pub freezer: Controller,
    /// Hard rlimits that a cage inherits and cannot raise: `(resource, value)`. What is not named
    /// has no limit.
    pub rlimits_hard: Vec<(u32, u64)>,
    /// Files of `/proc` that everyone may read and that tell about the host.
    pub telling: Vec<String>,
}

/// How one cgroup limit can be set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    #[default]
    Absent,
    V1,
    V2,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    pub uid: u32,
    pub gid: u32,
    /// The account's name, if it has one.
    pub name: Option<String>,
    /// The account's home on the host, for `~` in policies and to tell it from other people's.
    pub home: Option<PathBuf>,
}

/// One spawn, as far as a plan depends on it.
#[derive(Clone, Debug)]
pub struct Request {
    pub operator: Operator,
    /// The cage's uid and gid: the operator's; a throw-away one if the operator is root.
    pub uid: u32,
    pub gid: u32,
    /// Absolute, as the operator named it.
    pub workspace: PathBuf,
    pub overrides: Overrides,
    /// The project file of that workspace.
    pub project: Option<Project>,
    /// What the admin of a shared host gives this operator at most.
    pub ceiling: Ceiling,
    /// `<state>/homes/<operator uid>`: where persistent homes are.
    pub homes: PathBuf,
    /// `<run>`, `<state>` and the like: no cage may see what lies in them, or what contains them.
    pub never: Vec<PathBuf>,
    /// `<config>`: no cage may write there.
    pub never_write: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    Folder,
    File,
    Socket,
    /// A device, a FIFO: never lent.
    Other,
}

/// The host's file tree, asked with the operator's eyes.
pub trait HostPaths {
    /// What the path leads to, links followed; `None`: nothing that the operator can see.
    fn kind(&self, path: &Path) -> Option<PathKind>;
    /// The path with every link resolved.
    fn canonical(&self, path: &Path) -> Option<PathBuf>;
    /// Where the path itself points, if it is a symbolic link.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// The owner.
    fn owner(&self, path: &Path) -> Option<u32>;
    /// How many names a file has: hard links. 1 of a folder, and of what cannot be seen.
    fn names(&self, path: &Path) -> u64;
    /// The whole disk that it lies on, if it lies on one.
    fn disk(&self, path: &Path) -> Option<Disk>;
    /// Each name in a folder, and whether it is a folder itself (and no link to one), with `each` until
    /// that says stop.
    ///
    /// # Errors
    /// It is no folder, or the operator cannot look into it.
    fn list(
        &self,
        folder: &Path,
        each: &mut dyn FnMut(&OsStr, bool) -> ControlFlow<()>,
    ) -> io::Result<()>;
}

/// More links than this on one way lead nowhere, as for the kernel.
const LINKS_MAX: u32 = 40;

/// The real tree, with the eyes of the calling process. Made for one plan: each name is looked at
/// once, as most of what a policy names lies in the same few folders.
#[derive(Debug, Default)]
pub struct RealPaths {
    names: Memory<Name>,
    folders: Memory<PathBuf>,
}

/// What was found at a path. By its letters: to compare paths part by part costs more than to look.
type Memory<T> = RefCell<HashMap<OsString, Option<T>>>;

/// What is found under a name in its real folder.
#[derive(Clone, Debug)]
enum Name {
    Link(PathBuf),
    Real { kind: PathKind, owner: u32, names: u64 },
}

impl RealPaths {
    /// `links` were followed on the way here.
    fn real(&self, path: &Path, links: u32) -> Option<PathBuf> {
        let Some(name) = self.place(path, links) else {
            return if path.file_name().is_some() {
                None
            } else {
                std::fs::canonicalize(path).ok()
            };
        };
        match self.name(&name)? {
            Name::Real { .. } => Some(name),
            Name::Link(_) if links == LINKS_MAX => None,
            // A target that is not absolute starts beside the link.
            Name::Link(target) => self.real(&name.parent()?.join(target), links + 1),
        }
    }

    /// The same name in its real folder; `None` for the root and for something like `a/..`, too.
    fn place(&self, path: &Path, links: u32) -> Option<PathBuf> {
        let (folder, name) = (path.parent()?, path.file_name()?);
        if let Some(known) = self.folders.borrow().get(folder.as_os_str()) {
            return Some(known.as_ref()?.join(name));
        }
        let real = self.real(folder, links);
        self.folders.borrow_mut().insert(folder.into(), real.clone());
        Some(real?.join(name))
    }

    fn name(&self, path: &Path) -> Option<Name> {
        if let Some(known) = self.names.borrow().get(path.as_os_str()) {
            return known.clone();
        }
        let found = look(path);
        self.names.borrow_mut().insert(path.into(), found.clone());
        found
    }
}

fn look(path: &Path) -> Option<Name> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::symlink_metadata(path).ok()?;
    let kind = match meta.file_type() {
        link if link.is_symlink() => return std::fs::read_link(path).ok().map(Name::Link),
        folder if folder.is_dir() => PathKind::Folder,
        file if file.is_file() => PathKind::File,
        socket if socket.is_socket() => PathKind::Socket,
        _other => PathKind::Other,
    };
    let names = if meta.is_dir() { 1 } else { meta.nlink() };
    Some(Name::Real { kind, owner: meta.uid(), names })
}

impl HostPaths for RealPaths {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        match self.name(&self.canonical(path)?)? {
            Name::Real { kind, .. } => Some(kind),
            Name::Link(_) => None,
        }
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.real(path, 0)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.name(&self.place(path, 0)?)? {
            Name::Link(target) => Some(target),
            Name::Real { .. } => None,
        }
    }

    fn owner(&self, path: &Path) -> Option<u32> {
        match self.name(&self.canonical(path)?)? {
            Name::Real { owner, .. } => Some(owner),
            Name::Link(_) => None,
        }
    }

    fn names(&self, path: &Path) -> u64 {
        let name = self.canonical(path).and_then(|path| self.name(&path));
        match name {
            Some(Name::Real { names, .. }) => names,
            Some(Name::Link(_)) | None => 1,
        }
    }

    fn disk(&self, path: &Path) -> Option<Disk> {
        Disk::of(path)
    }

    fn list(
        &self,
        folder: &Path,
        each: &mut dyn FnMut(&OsStr, bool) -> ControlFlow<()>,
    ) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            // What has gone meanwhile is no folder.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if each(&entry.file_name(), is_folder).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn real_paths_are_those_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        for (target, link) in [
            ("a", "to-folder"),
            ("a/file", "to-file"),
            ("to-folder/b", "through"),
            ("../file", "a/b/up"),
            (".", "here"),
            ("/dev/null", "device"),
            ("nothing", "dangling"),
            ("loop", "loop"),
            ("tock", "tick"),
            ("tick", "tock"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        // As many links as the kernel follows, and one more.
        symlink("a/file", at("chain-1")).unwrap();
        for links in 2..=41 {
            symlink(format!("chain-{}", links - 1), at(&format!("chain-{links}"))).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        let paths = RealPaths::default();
        for name in [
            "a",
            "a/b",
            "a/file",
            "a/socket",
            "a/./b",
            "a/b/..",
            "a/b/../file",
            "a/b/up",
            "to-folder",
            "to-folder/file",
            "to-folder/b",
            "to-folder/b/up",
            "to-file",
            "to-file/x",
            "through",
            "through/..",
            "through/up",
            "here/here/here/a",
            "device",
            "dangling",
            "loop",
            "loop/x",
            "tick",
            "chain-40",
            "chain-41",
            "nothing",
            "nothing/x",
            "a/file/x",
            "a/nothing",
        ] {
            let path = at(name);
            let meta = std::fs::metadata(&path).ok();
            assert_eq!(paths.canonical(&path), std::fs::canonicalize(&path).ok(), "{name}");
            assert_eq!(paths.link(&path), std::fs::read_link(&path).ok(), "{name}");
            assert_eq!(paths.owner(&path), meta.as_ref().map(MetadataExt::uid), "{name}");
            let is = |kind| paths.kind(&path) == Some(kind);
            let is_folder = meta.as_ref().is_some_and(std::fs::Metadata::is_dir);
            assert_eq!(is(PathKind::Folder), is_folder, "{name}");
            assert_eq!(paths.kind(&path).is_some(), meta.is_some(), "{name}");
        }
        let kinds = [
            ("a", PathKind::Folder),
            ("to-file", PathKind::File),
            ("a/socket", PathKind::Socket),
            ("device", PathKind::Other),
        ];
        for (name, kind) in kinds {
            assert_eq!(paths.kind(&at(name)), Some(kind), "{name}");
        }
        assert_eq!(paths.canonical(Path::new("/")), Some(PathBuf::from("/")));
    }
}
