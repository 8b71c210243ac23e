//! A file that readers see whole or not at all, in a folder that was opened before anything ran.
//!
//! The folder may lie in the workspace of the program that is about to run: what the program makes of the
//! path meanwhile (a link that leads out of it, a file under the temporary name) leads nowhere.

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A file that is to be written.
#[derive(Debug)]
pub(crate) struct Whole {
    folder: OwnedFd,
    name: OsString,
}

impl Whole {
    /// Makes the folders that are missing; the file itself is left as it is.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        let folder = folder(path.parent().unwrap_or(Path::new("/")))?;
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

/// A folder by its path, made where it is missing. Links on the way are the operator's.
pub(crate) fn folder(path: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(path)?;
    Ok(File::open(path)?.into())
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
        let whole = Whole::open(&path).unwrap();
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
        let whole = Whole::open(&reports.join("key")).unwrap();
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
        assert!(Whole::open(folder.path()).is_err(), "a folder");
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(Whole::open(&folder.path().join("file/report")).is_err(), "below a file");
    }
}
