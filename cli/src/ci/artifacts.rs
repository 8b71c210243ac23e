//! `--artifacts`: files of the workspace that an operator wants to have at the end.
//!
//! The workspace is what an untrusted program has left: links, FIFOs, names and depths are its own. So: its
//! folder is opened before anything runs, nothing but regular files is taken, no link is followed, nothing
//! is looked up but beneath that folder, and files, bytes and entries that are looked at have a bound.

use crate::failure::Failure;
use crate::whole::{self, beneath, made_beneath};
use cage::glob::{Glob, Places};
use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::api::LayerDone;
use wire::{Arg, ChangeKind, Changes, EntryKind};

/// Most files.
const FILES_MAX: usize = 10_000;
/// Most entries of folders that are looked at.
const ENTRIES_MAX: usize = 1_000_000;
/// Most folders above a file.
const DEPTH_MAX: usize = 100;
/// Most that is told of what was left.
const LEFT_MAX: usize = 100;

/// What is wanted, and where it goes.
#[derive(Debug)]
pub(crate) struct Artifacts {
    globs: Vec<Glob>,
    bytes_max: u64,
    workspace: OwnedFd,
    target: Option<Target>,
    /// Somebody has told us to end: what is taken by now is all.
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Target {
    folder: OwnedFd,
    path: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Taken {
    pub(crate) files: Vec<Taking>,
    /// Matched, and not taken.
    pub(crate) left: Vec<Left>,
    /// The folder that has copies; without one they are in the workspace.
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Taking {
    pub(crate) path: Arg,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Left {
    pub(crate) path: Arg,
    pub(crate) why: String,
}

/// A folder on the way, and how far each pattern has come there.
struct Stop {
    path: Vec<u8>,
    places: Vec<Places>,
    depth: usize,
}

fn glob(text: &str) -> Result<Glob, Failure> {
    Glob::parse(text).ok_or_else(|| {
        let words = format!("--artifacts {text:?}: a pattern is a path below the workspace");
        Failure::usage(words).next("mews run --artifacts 'out/**' -- CMD")
    })
}

impl Artifacts {
    /// Before anything runs.
    pub(crate) fn open(
        globs: &[String],
        bytes_max: u64,
        workspace: &Path,
        folder: Option<&Path>,
    ) -> Result<Self, Failure> {
        let failed = |path: &Path, error: io::Error| {
            Failure::new(format!("the folder {} cannot be used: {error}", path.display()))
                .next("mews run --artifacts 'out/**' --artifacts-dir DIR -- CMD")
        };
        let target = |path: &Path| -> Result<Target, Failure> {
            let folder =
                whole::folder(path, Some(workspace)).map_err(|error| failed(path, error))?;
            Ok(Target { folder, path: path.to_owned() })
        };
        Ok(Self {
            globs: globs.iter().map(|text| glob(text)).collect::<Result<_, _>>()?,
            bytes_max,
            workspace: File::open(workspace).map_err(|error| failed(workspace, error))?.into(),
            target: folder.map(target).transpose()?,
            stopped: AtomicBool::new(false),
        })
    }

    /// For another thread that takes them.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Of a workspace that is the folder itself.
    pub(crate) fn taken_from_folder(&self) -> Taken {
        let mut taking = self.nothing();
        let places = self.globs.iter().map(Glob::start).collect();
        let mut stops = vec![Stop { path: Vec::new(), places, depth: 0 }];
        let mut entries = 0;
        while let Some(stop) = stops.pop() {
            if self.is_stopped() {
                taking.leave(&stop.path, TOLD_TO_END);
                break;
            }
            // One more than there may be, so that it is noticed.
            let names = match self.names(&stop.path, ENTRIES_MAX + 1 - entries) {
                Ok(names) => names,
                Err(error) => {
                    taking.leave(&stop.path, &error.to_string());
                    continue;
                }
            };
            entries += names.len();
            if entries > ENTRIES_MAX {
                taking.leave(&stop.path, "there is more in the workspace than is looked at");
                break;
            }
            for name in names.iter().rev().take_while(|_name| !self.is_stopped()) {
                self.visit(&stop, name, &mut stops, &mut taking);
            }
        }
        taking.files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        taking
    }

    fn visit(&self, stop: &Stop, name: &[u8], stops: &mut Vec<Stop>, taking: &mut Taken) {
        let places: Vec<Places> = self
            .globs
            .iter()
            .zip(&stop.places)
            .map(|(glob, places)| glob.step(places, name))
            .collect();
        if places.iter().all(Places::is_empty) {
            return;
        }
        let wanted = self.globs.iter().zip(&places).any(|(glob, places)| glob.is_match(places));
        let path = joined(&stop.path, name);
        match self.look(&path) {
            Ok(found) if is(&found, SFlag::S_IFDIR) => {
                if stop.depth == DEPTH_MAX {
                    taking.leave(&path, "it lies too deep");
                } else if !self.is_target(&found) {
                    stops.push(Stop { path, places, depth: stop.depth + 1 });
                }
            }
            Ok(found) if wanted && is(&found, SFlag::S_IFREG) => self.take(&path, taking),
            Ok(found) if wanted && is(&found, SFlag::S_IFLNK) => {
                taking.leave(&path, "it is a link; links are not followed");
            }
            Ok(_other) if wanted => taking.leave(&path, "it is no regular file"),
            Err(error) if wanted => taking.leave(&path, &error.to_string()),
            Ok(_) | Err(_) => {}
        }
    }

    /// What of these changes is wanted, to be applied; the rest of what matches is left.
    pub(crate) fn among(&self, changes: &Changes) -> (Vec<Arg>, Taken) {
        let mut taking = self.nothing();
        let (mut paths, mut bytes) = (Vec::new(), 0_u64);
        for change in &changes.changes {
            let path = change.path.as_bytes();
            let is_there = change.kind != ChangeKind::Deleted && change.entry != EntryKind::Folder;
            if !is_there || !self.globs.iter().any(|glob| glob.matches(path)) {
                continue;
            }
            let size = change.bytes.unwrap_or(0);
            if let Some(why) = &change.conflict {
                taking.leave(path, why);
            } else if change.entry != EntryKind::File {
                taking.leave(path, "it is no regular file");
            } else if paths.len() == FILES_MAX {
                taking.leave(path, TOO_MANY);
            } else if bytes.saturating_add(size) > self.bytes_max {
                taking.leave(path, TOO_MUCH);
            } else {
                bytes = bytes.saturating_add(size);
                paths.push(change.path.clone());
            }
        }
        if changes.truncated {
            taking.leave(b".", "more has changed than is listed");
        }
        (paths, taking)
    }

    /// What was brought to the folder of those, and what was not.
    pub(crate) fn applied(&self, mut taking: Taken, done: &LayerDone) -> Taken {
        for change in &done.left.changes {
            taking
                .leave(change.path.as_bytes(), change.conflict.as_deref().unwrap_or("it is left"));
        }
        for change in done.done.changes.iter().filter(|done| done.entry == EntryKind::File) {
            match self.is_stopped() {
                true => taking.leave(change.path.as_bytes(), TOLD_TO_END),
                false => self.take(change.path.as_bytes(), &mut taking),
            }
        }
        taking
    }

    fn nothing(&self) -> Taken {
        let folder = self.target.as_ref().map(|target| target.path.clone());
        Taken { folder, ..Taken::default() }
    }

    fn take(&self, path: &[u8], taking: &mut Taken) {
        let taken: u64 = taking.files.iter().map(|file| file.bytes).sum();
        let room = self.bytes_max.saturating_sub(taken);
        match self.copy(path, room, taking.files.len()) {
            Ok(bytes) => taking.files.push(Taking { path: Arg(path.to_vec()), bytes }),
            Err(error) => taking.leave(path, &error.to_string()),
        }
    }

    /// Its size, and a copy of it where copies are wanted.
    fn copy(&self, path: &[u8], room: u64, count: usize) -> io::Result<u64> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::from(beneath(self.workspace.as_fd(), path, flags)?);
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if count >= FILES_MAX {
            return Err(io::Error::other(TOO_MANY));
        }
        if meta.len() > room {
            return Err(io::Error::other(TOO_MUCH));
        }
        let Some(target) = &self.target else { return Ok(meta.len()) };
        let (folder, name) = split(path);
        let folder = made_beneath(target.folder.as_fd(), folder)?;
        let is_program = std::os::unix::fs::MetadataExt::mode(&meta) & 0o111 != 0;
        let mode = Mode::from_bits_truncate(if is_program { 0o777 } else { 0o666 });
        let mut copied = 0;
        whole::put(folder.as_fd(), OsStr::from_bytes(name), mode, |copy| {
            // It may grow while it is read.
            copied = io::copy(&mut file.take(room), copy)?;
            Ok(())
        })?;
        Ok(copied)
    }

    fn names(&self, path: &[u8], max: usize) -> io::Result<Vec<Vec<u8>>> {
        let at = if path.is_empty() { b".".as_slice() } else { path };
        let folder = beneath(self.workspace.as_fd(), at, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let mut names = Vec::new();
        for found in Dir::from_fd(folder)?.iter() {
            let found = found?;
            let name = found.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            if names.len() == max {
                break;
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// What is there, without opening it; of a link the link.
    fn look(&self, path: &[u8]) -> io::Result<FileStat> {
        let found = beneath(self.workspace.as_fd(), path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        Ok(fstat(found)?)
    }

    /// Copies are not copied again.
    fn is_target(&self, found: &FileStat) -> bool {
        let target = self.target.as_ref().and_then(|target| fstat(&target.folder).ok());
        target.is_some_and(|target| (target.st_dev, target.st_ino) == (found.st_dev, found.st_ino))
    }
}

const TOO_MUCH: &str = "it is more than --artifacts-max allows";
pub(crate) const TOLD_TO_END: &str = "mews was told to end";
const TOO_MANY: &str = "10000 files are taken already, and no more are";

impl Taken {
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn failed(why: &str) -> Self {
        let mut taken = Self::default();
        taken.leave(b".", why);
        taken
    }

    fn leave(&mut self, path: &[u8], why: &str) {
        let (path, why) = match self.left.len() {
            LEFT_MAX => (b".".as_slice(), "and more that is not listed"),
            count if count > LEFT_MAX => return,
            _room => (path, why),
        };
        self.left.push(Left { path: Arg(path.to_vec()), why: why.to_owned() });
    }
}

fn is(found: &FileStat, kind: SFlag) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scene {
        root: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("ws/out/deep")).unwrap();
            std::fs::write(root.path().join("secret"), "secret").unwrap();
            Self { root }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(name), text).unwrap();
        }

        fn wanted(&self, globs: &[&str], bytes_max: u64) -> Artifacts {
            let globs: Vec<String> = globs.iter().map(|&glob| glob.to_owned()).collect();
            let target = self.path("target");
            Artifacts::open(&globs, bytes_max, &self.path("ws"), Some(&target)).unwrap()
        }
    }

    fn paths(taken: &Taken) -> Vec<String> {
        taken.files.iter().map(|file| file.path.lossy()).collect()
    }

    #[test]
    fn regular_files_that_match_are_copied() {
        let scene = Scene::new();
        scene.write("ws/out/a", "1");
        scene.write("ws/out/deep/b", "22");
        scene.write("ws/other", "333");
        let program = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(scene.path("ws/out/a"), program).unwrap();
        let taken = scene.wanted(&["out/**"], 100).taken_from_folder();
        assert_eq!((paths(&taken), taken.bytes()), (vec!["out/a".into(), "out/deep/b".into()], 3));
        assert_eq!(std::fs::read_to_string(scene.path("target/out/deep/b")).unwrap(), "22");
        let mode = std::fs::metadata(scene.path("target/out/a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o4111, 0o111, "{mode:o}");
        assert!(!scene.path("target/other").exists() && taken.left.is_empty());
    }

    #[test]
    fn links_and_fifos_are_left_and_lead_nowhere() {
        let scene = Scene::new();
        symlink(scene.path("secret"), scene.path("ws/out/link")).unwrap();
        symlink("../../secret", scene.path("ws/out/up")).unwrap();
        symlink(scene.root.path(), scene.path("ws/out/folder")).unwrap();
        symlink("/proc/self/root", scene.path("ws/out/magic")).unwrap();
        nix::unistd::mkfifo(&scene.path("ws/out/fifo"), Mode::S_IRWXU).unwrap();
        let taken = scene.wanted(&["out/**", "out/folder/secret"], 100).taken_from_folder();
        assert_eq!(paths(&taken), Vec::<String>::new());
        assert_eq!(taken.left.len(), 5, "{:?}", taken.left);
        assert_eq!(std::fs::read_dir(scene.path("target")).unwrap().count(), 0);
    }

    #[test]
    fn a_workspace_that_became_a_link_is_not_followed() {
        let scene = Scene::new();
        scene.write("ws/out/a", "1");
        let wanted = scene.wanted(&["**"], 100);
        std::fs::rename(scene.path("ws"), scene.path("moved")).unwrap();
        symlink(scene.root.path(), scene.path("ws")).unwrap();
        assert_eq!(paths(&wanted.taken_from_folder()), ["out/a"]);
    }

    #[test]
    fn a_target_with_links_in_it_is_not_left() {
        let scene = Scene::new();
        scene.write("ws/out/a", "1");
        scene.write("ws/top", "2");
        let wanted = scene.wanted(&["**"], 100);
        std::fs::create_dir(scene.path("outside")).unwrap();
        symlink(scene.path("outside"), scene.path("target/out")).unwrap();
        symlink(scene.path("secret"), scene.path("target/top")).unwrap();
        let taken = wanted.taken_from_folder();
        assert_eq!((paths(&taken), taken.left.len()), (vec!["top".into()], 1));
        assert_eq!(std::fs::read_dir(scene.path("outside")).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(scene.path("secret")).unwrap(), "secret");
    }

    #[test]
    fn bytes_and_depth_have_a_bound() {
        let scene = Scene::new();
        scene.write("ws/a", "12345");
        scene.write("ws/b", "123456");
        scene.write("ws/c", "12345");
        let taken = scene.wanted(&["?"], 10).taken_from_folder();
        assert_eq!(paths(&taken), ["a", "c"]);
        assert_eq!(taken.left.len(), 1);
        let deep = scene.path("ws").join("d/".repeat(DEPTH_MAX + 5));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("f"), "").unwrap();
        let taken = scene.wanted(&["d/**"], 10).taken_from_folder();
        assert_eq!((taken.files.len(), taken.left.len()), (0, 1));
    }

    #[test]
    fn a_sparse_giant_is_left() {
        let scene = Scene::new();
        File::create(scene.path("ws/giant")).unwrap().set_len(1 << 40).unwrap();
        let taken = scene.wanted(&["*"], 1 << 30).taken_from_folder();
        assert_eq!((taken.files.len(), taken.left.len()), (0, 1));
    }

    #[test]
    fn copies_within_the_workspace_are_not_copied_again() {
        let scene = Scene::new();
        scene.write("ws/out/a", "1");
        let globs = ["**".to_owned()];
        let (ws, target) = (scene.path("ws"), scene.path("ws/copies"));
        for _round in 0..2 {
            let wanted = Artifacts::open(&globs, 100, &ws, Some(&target)).unwrap();
            assert_eq!(paths(&wanted.taken_from_folder()), ["out/a"]);
        }
    }
}
