//! Reading `host.toml` so that what was checked is what is read: one descriptor.

use super::file::{BYTES_MAX, HostAccounts, parse};
use super::{FILE_NAME, HostPolicy};
use crate::policy::PolicyError;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_file, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum HostPolicyError {
    /// Whoever can write to it would be the host's admin.
    #[error("{} is not believed: {why}. Type: chown root: {} && chmod go-w {}", path.display(), path.display(), path.display())]
    Unsafe { path: PathBuf, why: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Wrong(#[from] PolicyError),
}

/// The file of this configuration folder; `None`: there is none. File and folder must be `owner`'s
/// (root's, in system mode) and writable by nobody else.
///
/// # Errors
/// It is not safe to believe, cannot be read, or is wrong.
pub fn open(folder: &Path, owner: u32) -> Result<Option<HostPolicy>, HostPolicyError> {
    let path = folder.join(FILE_NAME);
    let failed = |path: &Path, errno: Errno| HostPolicyError::Io {
        path: path.to_owned(),
        source: errno.into(),
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = match open_file(folder, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(failed(folder, errno)),
        Ok(dir) => dir,
    };
    // A FIFO must not make us wait, and a link could lead to what somebody else writes.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(&dir, FILE_NAME, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP) => {
            let why = "it is a link".to_owned();
            return Err(HostPolicyError::Unsafe { path, why });
        }
        Err(errno) => return Err(failed(&path, errno)),
        Ok(file) => file,
    };
    check(folder, &fstat(&dir).map_err(|errno| failed(folder, errno))?, owner, SFlag::S_IFDIR)?;
    check(&path, &fstat(&file).map_err(|errno| failed(&path, errno))?, owner, SFlag::S_IFREG)?;
    let mut text = String::new();
    let cap = u64::try_from(BYTES_MAX).unwrap_or(u64::MAX);
    let read = File::from(file).take(cap + 1).read_to_string(&mut text);
    read.map_err(|source| HostPolicyError::Io { path: path.clone(), source })?;
    if text.len() > BYTES_MAX {
        let why = format!("it is larger than {BYTES_MAX} bytes");
        return Err(HostPolicyError::Unsafe { path, why });
    }
    Ok(Some(parse(&path.to_string_lossy(), &text, &HostAccounts)?))
}

fn check(path: &Path, stat: &FileStat, owner: u32, kind: SFlag) -> Result<(), HostPolicyError> {
    let mode = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    let why = if mode != kind {
        "it is no ordinary file".to_owned()
    } else if stat.st_uid != owner {
        format!("it belongs to uid {}, not to uid {owner}", stat.st_uid)
    } else if stat.st_mode & 0o022 != 0 {
        format!("others may write to it (mode {:03o})", stat.st_mode & 0o777)
    } else {
        return Ok(());
    };
    Err(HostPolicyError::Unsafe { path: path.to_owned(), why })
}
