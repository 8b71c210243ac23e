//! What a plan is made from, beside the policy: the host's facts, the file tree, the request.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
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
    pub freezer: Controller,
    /// Hard rlimits that a cage inherits and cannot raise: `(resource, value)`. What is not named
    /// has no limit.
    pub rlimits_hard: Vec<(u32, u64)>,
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
    /// The cage's uid and gid: the operator's in user mode, a throw-away one if root starts it.
    pub uid: u32,
    pub gid: u32,
    /// Absolute, as the operator named it.
    pub workspace: PathBuf,
    pub overrides: Overrides,
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
    /// Everyone may read it (which the telling files of `/proc` are asked).
    fn world_readable(&self, path: &Path) -> bool;
}

/// The real tree, with the eyes of the calling process. Made for one plan: a folder's own links are
/// resolved once, as most of what a policy names lies in the same few.
#[derive(Debug, Default)]
pub struct RealPaths {
    folders: RefCell<BTreeMap<PathBuf, Option<PathBuf>>>,
}

impl RealPaths {
    fn folder(&self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.folders.borrow().get(path) {
            return known.clone();
        }
        let real = self.canonical(path);
        self.folders.borrow_mut().insert(path.to_owned(), real.clone());
        real
    }
}

impl HostPaths for RealPaths {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        use std::os::unix::fs::FileTypeExt;
        let kind = std::fs::metadata(path).ok()?.file_type();
        Some(match () {
            () if kind.is_dir() => PathKind::Folder,
            () if kind.is_file() => PathKind::File,
            () if kind.is_socket() => PathKind::Socket,
            () => PathKind::Other,
        })
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        // The root, or something like `a/..`.
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return std::fs::canonicalize(path).ok();
        };
        let real = self.folder(parent)?.join(name);
        match std::fs::read_link(&real) {
            Ok(_elsewhere) => std::fs::canonicalize(real).ok(),
            // There, and not a link.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Some(real),
            Err(_not_there) => None,
        }
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn owner(&self, path: &Path) -> Option<u32> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|meta| meta.uid())
    }

    fn world_readable(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o004 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("nothing", "dangling"),
            ("loop", "loop"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let paths = RealPaths::default();
        for name in [
            "a",
            "a/b",
            "a/file",
            "a/./b",
            "a/b/..",
            "a/b/../file",
            "to-folder",
            "to-folder/file",
            "to-folder/b",
            "to-file",
            "through",
            "through/..",
            "dangling",
            "loop",
            "loop/x",
            "nothing",
            "nothing/x",
            "a/file/x",
            "a/nothing",
        ] {
            let path = at(name);
            assert_eq!(paths.canonical(&path), std::fs::canonicalize(&path).ok(), "{name}");
        }
        assert_eq!(paths.canonical(Path::new("/")), Some(PathBuf::from("/")));
    }
}
