//! Reading what a broker wrote, as hostile input; writing files that must be whole.
//!
//! A broker is of the cage's uid and may be taken over: it can put links, FIFOs, devices, huge
//! files and hard links of other people's files into its folder. So: descriptor-relative, never
//! following a link, never blocking, regular files of the cage's own uid only, size-capped.

use link::failpoint;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, fchown, geteuid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Largest `exit.json` and other small record.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Largest file of events that is read back.
pub(crate) const EVENTS_BYTES_MAX: u64 = 64 << 20;
/// Largest recording or scrollback that is handed out.
pub(crate) const STORE_BYTES_MAX: u64 = 1 << 30;

/// The ending of a file's name until it is whole.
const UNFINISHED: &str = "new";

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{name} is not there")]
    Missing { name: String },
    #[error("{name} is not a regular file of its cage")]
    Foreign { name: String },
    #[error("{name} is larger than {max} bytes")]
    TooLarge { name: String, max: u64 },
    #[error("{name} cannot be read: {source}")]
    Io { name: String, source: io::Error },
}

/// A folder, opened without following a link at its end.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    Ok(open(path, flags, Mode::empty())?)
}

/// A new folder, directly in another, of this owner. Whose the other one is may exchange names in it:
/// nothing is done by name but the making.
pub(crate) fn make_folder_in(
    parent: &impl AsFd,
    name: &OsStr,
    (uid, gid): (u32, u32),
) -> io::Result<()> {
    let private = Mode::from_bits_truncate(0o700);
    mkdirat(parent, name, private)?;
    let folder = open_folder_in(parent, name)?;
    if fstat(&folder)?.st_uid != geteuid().as_raw() {
        return Err(io::Error::other("another one has come in its place"));
    }
    fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(fchmod(&folder, private)?)
}

/// No link.
pub(crate) fn open_folder_in(parent: &impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// A regular file of `uid` directly in `folder`, for reading.
pub(crate) fn open_hostile(
    folder: &impl AsFd,
    name: &str,
    uid: u32,
    bytes_max: u64,
) -> Result<File, FileError> {
    let failed = |source| FileError::Io { name: name.to_owned(), source };
    let foreign = || FileError::Foreign { name: name.to_owned() };
    if name.contains('/') || name.starts_with('.') {
        return Err(foreign());
    }
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_CLOEXEC
        | OFlag::O_NOCTTY;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(nix::Error::ENOENT) => return Err(FileError::Missing { name: name.to_owned() }),
        Err(nix::Error::ELOOP | nix::Error::ENXIO) => return Err(foreign()),
        Err(errno) => return Err(failed(errno.into())),
    };
    let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFREG || stat.st_uid != uid || stat.st_nlink != 1 {
        return Err(foreign());
    }
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > bytes_max {
        return Err(FileError::TooLarge { name: name.to_owned(), max: bytes_max });
    }
    Ok(file)
}

/// All of such a file. It may grow while we read: the cap holds all the same.
pub(crate) fn read_hostile(
    folder: &impl AsFd,
    name: &str,
    uid: u32,
    bytes_max: u64,
) -> Result<Vec<u8>, FileError> {
    let file = open_hostile(folder, name, uid, bytes_max)?;
    let mut bytes = Vec::new();
    file.take(bytes_max)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Io { name: name.to_owned(), source })?;
    Ok(bytes)
}

/// Whole or not at all, for readers of the name. No fsync: what these files promise to survive is
/// the death of a daemon, not of the machine.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(UNFINISHED);
    let written = File::create(&temporary).and_then(|mut file| file.write_all(bytes));
    failpoint::reach("record.written");
    if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, path)) {
        // The disk is full: half a file would only take more of it.
        let _absent = std::fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(())
}

/// The same, and on the disk when it returns: for what must survive the machine. Its owner alone reads it.
pub(crate) fn write_durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension(UNFINISHED);
    let mut options = File::options();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let written = opened.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    failpoint::reach("grant.written");
    if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, path)) {
        let _absent = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync_folder(path.parent().unwrap_or(path))
}

/// Removes what a death in the middle of [`write_whole`] left in a folder of ours.
pub(crate) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == UNFINISHED) {
            remove_any(&path)?;
        }
    }
    Ok(())
}

/// A new file that we alone read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().create_new(true).write(true).mode(0o600).open(path)?.write_all(bytes)
}

/// The names in a folder, on the disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::from(open_folder(path)?).sync_all()
}

/// Removes a file or a tree that may be gone already. Never follows a link.
pub(crate) fn remove_any(path: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => match std::fs::remove_dir_all(path) {
            // A program left folders that even their owner may not enter. Root may.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && !geteuid().is_root() =>
            {
                open_up(path)?;
                gone(std::fs::remove_dir_all(path))
            }
            other => gone(other),
        },
        Ok(_file) => gone(std::fs::remove_file(path)),
        Err(error) => gone(Err(error)),
    }
}

/// Lets the owner into every folder of a tree in which nobody else acts any more.
fn open_up(path: &Path) -> io::Result<()> {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_the_cage_within_the_cap_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let uid = geteuid().as_raw();
        std::fs::write(path("good"), b"hello").unwrap();
        std::fs::write(path("linked"), b"x").unwrap();
        std::fs::hard_link(path("linked"), path("hard")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("soft")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let fd = open_folder(folder.path()).unwrap();
        assert_eq!(read_hostile(&fd, "good", uid, 5).unwrap(), b"hello");
        assert!(matches!(read_hostile(&fd, "good", uid, 4), Err(FileError::TooLarge { .. })));
        assert!(matches!(read_hostile(&fd, "none", uid, 9), Err(FileError::Missing { .. })));
        assert!(matches!(read_hostile(&fd, "good", uid + 1, 9), Err(FileError::Foreign { .. })));
        for name in ["hard", "soft", "fifo", "folder", "socket", "../good", ".."] {
            let result = read_hostile(&fd, name, uid, 1 << 20);
            assert!(matches!(result, Err(FileError::Foreign { .. })), "{name}: {result:?}");
        }
    }

    #[test]
    fn removing_what_is_gone_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        remove_any(&path).unwrap();
        std::fs::create_dir_all(path.join("b")).unwrap();
        write_whole(&path.join("b/c"), b"1").unwrap();
        remove_any(&path).unwrap();
        assert!(!path.exists());
    }
}
