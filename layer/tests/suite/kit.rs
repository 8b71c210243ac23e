//! A place with the three folders of an order, and pictures of trees to compare.

use layer::{Folders, Order, Report, Stamp, Work, perform};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::{Arg, Change, Changes, WorkspaceMode};

pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) mode: WorkspaceMode,
    pub(crate) made: Stamp,
}

impl Place {
    /// The operator's folder is made by a shell script.
    pub(crate) fn new(mode: WorkspaceMode, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["origin", "layer", "saved", "merged", "view"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let made = Stamp { seconds: 0, nanoseconds: 0 };
        let mut place = Self { folder, mode, made };
        place.edit(script);
        place.made = place.now();
        assert!(matches!(place.order(Work::Fill), Report::Copied(_)));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// By the clock that stamps files. Waits until that clock, which goes by ticks, has moved on: what
    /// is changed after this has another stamp.
    fn now(&self) -> Stamp {
        let stamp = || {
            let path = self.path("clock");
            fs::write(&path, "").unwrap();
            let found = fs::metadata(&path).unwrap();
            Stamp { seconds: found.ctime(), nanoseconds: found.ctime_nsec() }
        };
        let made = stamp();
        while stamp() == made {}
        made
    }

    /// What the operator does.
    pub(crate) fn edit(&self, script: &str) {
        shell(&self.path("origin"), script);
    }

    /// What a program does: in the copy, or in a real overlay. `false`: no overlay can be mounted.
    pub(crate) fn program(&self, script: &str) -> bool {
        if self.mode == WorkspaceMode::Copy {
            shell(&self.path("layer/tree"), script);
            return true;
        }
        self.mounted(script)
    }

    /// In the mounted overlay; the view that is left is kept in `view`.
    fn mounted(&self, script: &str) -> bool {
        let root = nix_is_root();
        let text = format!(
            "mount -t overlay mews -o lowerdir=origin,upperdir=layer/upper,workdir=layer/work,\
             userxattr,index=off,redirect_dir=nofollow,metacopy=off,xino=off merged || exit 99\n\
             (cd merged && {{ {script}\n}}) || exit 1\n\
             rm -rf view && cp -a merged view && chmod -R u+rwX layer/work || exit 2\n\
             umount merged"
        );
        let flags = if root { "-m" } else { "-Urm" };
        let done = Command::new("unshare")
            .args([flags, "sh", "-c", &text])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        if done.status.code() == Some(99) {
            eprintln!("SKIPPED: no overlay can be mounted here: {done:?}");
            return false;
        }
        assert!(done.status.success(), "{script}: {done:?}");
        true
    }

    pub(crate) fn order(&self, work: Work) -> Report {
        let open = |name| File::open(self.path(name)).unwrap();
        let (origin, layer, saved) = (open("origin"), open("layer"), open("saved"));
        let folders = Folders {
            layer: layer.as_fd(),
            origin: Some(origin.as_fd()),
            saved: Some(saved.as_fd()),
        };
        let order = Order { mode: self.mode, made: self.made, work };
        perform(&order, folders).unwrap_or_else(|problem| Report::Failed(problem.to_wire()))
    }

    pub(crate) fn diff(&self) -> Vec<String> {
        words(&self.changes(Work::Diff))
    }

    pub(crate) fn changes(&self, work: Work) -> Vec<Change> {
        match self.order(work) {
            Report::Changes(Changes { changes, truncated: false }) => changes,
            other => panic!("{other:?}"),
        }
    }

    /// What was done, what is left.
    pub(crate) fn apply(&self, paths: &[&str]) -> (Vec<String>, Vec<String>) {
        let paths = paths.iter().map(|path| Arg::from(*path)).collect();
        outcome(self.order(Work::Apply { paths }))
    }

    pub(crate) fn discard(&self, paths: &[&str]) -> (Vec<String>, Vec<String>) {
        let paths = paths.iter().map(|path| Arg::from(*path)).collect();
        outcome(self.order(Work::Discard { paths }))
    }
}

fn outcome(report: Report) -> (Vec<String>, Vec<String>) {
    match report {
        Report::Applied { done, left } => (words(&done.changes), words(&left.changes)),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn shell(folder: &Path, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{script}: {done:?}");
}

pub(crate) fn nix_is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// `kind entry path mode (conflict)`, short.
pub(crate) fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| {
        let mode = change.mode.map_or(String::new(), |(old, new)| format!(" {old:o}->{new:o}"));
        let conflict =
            change.conflict.as_ref().map_or(String::new(), |words| format!(" ({words})"));
        let (kind, entry) = (format!("{:?}", change.kind), format!("{:?}", change.entry));
        format!(
            "{} {} {}{mode}{conflict}",
            kind.to_lowercase(),
            entry.to_lowercase(),
            change.path.lossy()
        )
    };
    changes.iter().map(word).collect()
}

/// Everything of a tree that a copy keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) kind: &'static str,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) mtime: Option<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Files,
    No,
}

pub(crate) fn picture(top: &Path, times: Times) -> BTreeMap<Vec<u8>, Picture> {
    let mut all = BTreeMap::new();
    let mut next = vec![top.to_path_buf()];
    while let Some(folder) = next.pop() {
        for found in fs::read_dir(&folder).unwrap() {
            let path = found.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = match meta.file_type() {
                kind if kind.is_dir() => ("folder", Vec::new()),
                kind if kind.is_symlink() => {
                    ("symlink", fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
                }
                kind if kind.is_fifo() => ("fifo", Vec::new()),
                kind if kind.is_char_device() => ("device", Vec::new()),
                _ => ("file", fs::read(&path).unwrap()),
            };
            if kind == "folder" {
                next.push(path.clone());
            }
            let timed = times == Times::Files && kind != "folder";
            let shown = Picture {
                kind,
                mode: meta.permissions().mode() & 0o7777,
                content,
                mtime: timed.then(|| (meta.mtime(), meta.mtime_nsec())),
            };
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            all.insert(name, shown);
        }
    }
    all
}

pub(crate) fn metas(top: &Path) -> BTreeMap<Vec<u8>, fs::Metadata> {
    let meta = |path: Vec<u8>| {
        let found = fs::symlink_metadata(top.join(std::ffi::OsStr::from_bytes(&path))).unwrap();
        (path, found)
    };
    picture(top, Times::No).into_keys().map(meta).collect()
}
