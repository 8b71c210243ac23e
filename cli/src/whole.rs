//! A file that readers see whole or not at all, in a folder that was opened before anything ran.
//!
//! The folder may lie in the workspace of the program that is about to run: what that program, or one before
//! it, makes of the path (a link that leads out of it, a file under the temporary name) leads nowhere.

use crate::escape::escape;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A file that is to be written.
#[derive(Debug)]
pub(crate) struct Whole {
    folder: OwnedFd,
    name: OsString,
}

impl Whole {
    /// Makes the folders that are missing; the file itself is left as it is.
    pub(crate) fn open(path: &Path, workspace: Option<&Path>) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        let folder = folder(path.parent().unwrap_or(Path::new("/")), workspace)?;
        faccessat(&folder, ".", AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)?;
        let is_folder = fstatat(&folder, Path::new(&name), AtFlags::AT_SYMLINK_NOFOLLOW)
            .is_ok_and(|found| found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits());
        if is_folder { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(Self { folder, name }) }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(0o666);
        put(self.folder.as_fd(), &self.name, mode, |file| {
            file.write_all(bytes)?;
            file.sync_data()
        })
    }
}

/// A folder by its path, made where it is missing. Links on the way are the operator's, but not in the
/// workspace: there an earlier run may have left them, and none is followed.
pub(crate) fn folder(path: &Path, workspace: Option<&Path>) -> io::Result<OwnedFd> {
    if let Some((workspace, rest)) = workspace.and_then(|it| Some((it, within(path, it)?))) {
        return made_beneath(File::open(workspace)?.as_fd(), rest.as_os_str().as_bytes());
    }
    std::fs::create_dir_all(path)?;
    Ok(File::open(path)?.into())
}

/// Its path from the workspace on, which it may reach through a link of the operator's. `None`: it lies
/// elsewhere.
fn within(path: &Path, workspace: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let mut entered = PathBuf::new();
    let mut rest = loop {
        entered.push(parts.next()?);
        if let Ok(real) = entered.canonicalize()
            && let Ok(below) = real.strip_prefix(workspace)
        {
            break below.to_owned();
        }
    };
    // Where no link is followed, `..` is the name before it.
    for part in parts {
        match part {
            Component::ParentDir if !rest.pop() => return None,
            Component::Normal(name) => rest.push(name),
            Component::ParentDir
            | Component::CurDir
            | Component::RootDir
            | Component::Prefix(_) => {}
        }
    }
    Some(rest)
}

/// openat2(2) that follows no link (but a last one that is only named: O_PATH) and stays below `folder`.
pub(crate) fn beneath(folder: BorrowedFd<'_>, path: &[u8], flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    openat2(folder, OsStr::from_bytes(path), how)
}

/// The same for a folder that may have to be made.
pub(crate) fn made_beneath(top: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut at = beneath(top, b".", flags)?;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        match mkdirat(&at, OsStr::from_bytes(name), Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {
                at = beneath(at.as_fd(), name, flags).map_err(|errno| no_link(errno, name))?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(at)
}

fn no_link(errno: Errno, name: &[u8]) -> io::Error {
    if !matches!(errno, Errno::ELOOP | Errno::ENOTDIR) {
        return errno.into();
    }
    let name = escape(&String::from_utf8_lossy(name));
    io::Error::other(format!("{name} is no folder, and links in a workspace are not followed"))
}

/// Under a temporary name that nobody knows, then a rename: it replaces a link, and follows none.
pub(crate) fn put(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    mode: Mode,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = OsString::from(format!(".mews-{}.tmp", unguessable()));
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(folder, temporary.as_os_str(), flags, mode)?);
    let done =
        fill(&mut file).and_then(|()| Ok(renameat(folder, temporary.as_os_str(), folder, name)?));
    done.inspect_err(|_failed| {
        // Nothing is left to do for one that stays.
        unlinkat(folder, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir).ok();
    })
}

/// 80 random bits, in letters and digits.
pub(crate) fn unguessable() -> String {
    wire::RunId::new().to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/s.json");
        let whole = Whole::open(&path, None).unwrap();
        std::fs::write(&path, "old and longer than what comes").unwrap();
        whole.write(b"{}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_became_a_link_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (reports, precious) = (folder.path().join("reports"), folder.path().join("precious"));
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("key"), "secret").unwrap();
        let whole = Whole::open(&reports.join("key"), None).unwrap();
        // As a program would that the workspace belongs to.
        std::fs::rename(&reports, folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&precious, &reports).unwrap();
        let link = folder.path().join("moved/key");
        std::os::unix::fs::symlink(precious.join("key"), &link).unwrap();
        whole.write(b"report").unwrap();
        assert_eq!(std::fs::read_to_string(precious.join("key")).unwrap(), "secret");
        assert!(!link.is_symlink());
        assert_eq!(std::fs::read_to_string(link).unwrap(), "report");
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Whole::open(folder.path(), None).is_err(), "a folder");
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(Whole::open(&folder.path().join("file/report"), None).is_err(), "below a file");
    }

    #[test]
    fn a_link_that_an_earlier_run_left_in_the_workspace_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let (workspace, outside) = (top.join("ws"), top.join("outside"));
        for made in [&workspace, &outside] {
            std::fs::create_dir(made).unwrap();
        }
        std::os::unix::fs::symlink(&outside, workspace.join("logs")).unwrap();
        std::os::unix::fs::symlink(&workspace, top.join("mine")).unwrap();
        let opened = |path: PathBuf| Whole::open(&path, Some(&workspace));
        for path in ["ws/logs/r.xml", "ws/logs/deep/r.xml", "mine/logs/r.xml", "ws/x/../logs/r.xml"]
        {
            let error = opened(top.join(path)).unwrap_err().to_string();
            assert!(error.contains("logs is no folder, and links"), "{path}: {error}");
        }
        for path in ["ws/new/deep/r.xml", "mine/new/r.xml", "ws/new/../r.xml", "ws/../beside/r.xml"]
        {
            opened(top.join(path)).unwrap().write(b"x").unwrap();
        }
        assert!(top.join("beside/r.xml").exists() && workspace.join("new/deep/r.xml").exists());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }
}
