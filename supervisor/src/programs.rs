//! Finding the programs of mews, and bwrap: opened once at the start, by descriptor from then on.

use ::cage::probe::{BwrapError, is_static, open_bwrap};
use link::memfd;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Of one that is held in memory; a debug build of the broker is a third of it.
const PROGRAM_BYTES_MAX: usize = 128 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error(
        "{name} is neither beside mews-supervisor nor in ../libexec/mews: the installation is not whole"
    )]
    NotFound { name: &'static str },
    #[error("{source}{}", source.mend().map(|how| format!("; to mend it: {how}")).unwrap_or_default())]
    Bwrap { source: BwrapError },
    #[error(
        "mews-cage-init needs a dynamic linker, which a cage lacks: build it with `cargo xtask build`, or install mews again"
    )]
    Dynamic,
    #[error("{} is not safe to run as root: it must belong to root and be writable by root alone", path.display())]
    Unsafe { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) broker: OwnedFd,
    pub(crate) layer: OwnedFd,
    /// Absent in a one-shot.
    pub(crate) sessiond: Option<OwnedFd>,
    pub(crate) bwrap: OwnedFd,
    /// mews-cage-init in a sealed memfd.
    pub(crate) init: OwnedFd,
}

impl Programs {
    pub(crate) fn open(is_root: bool, one_shot: bool) -> Result<Self, ProgramError> {
        let find = |name| open_ours(name, is_root).map(|(fd, _stat)| fd);
        let find_closed = |name| {
            let (fd, stat) = open_ours(name, is_root)?;
            if is_root { closed(name, fd, &stat) } else { Ok(fd) }
        };
        Ok(Self {
            broker: find_closed("mews-ptybroker")?,
            layer: find_closed("mews-layer")?,
            sessiond: if one_shot { None } else { Some(find("mews-sessiond")?) },
            bwrap: open_bwrap().map_err(|source| ProgramError::Bwrap { source })?.into(),
            init: read_init(find("mews-cage-init")?)?,
        })
    }
}

fn folders() -> io::Result<[PathBuf; 2]> {
    let own = std::env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/")).to_owned();
    let libexec = folder.join("../libexec/mews");
    Ok([folder, libexec])
}

fn open_ours(name: &'static str, is_root: bool) -> Result<(OwnedFd, FileStat), ProgramError> {
    let own = PathBuf::from("/proc/self/exe");
    for folder in folders().map_err(|source| ProgramError::Io { path: own.clone(), source })? {
        let path = folder.join(name);
        match open_program(&path, is_root) {
            Err(ProgramError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
    }
    Err(ProgramError::NotFound { name })
}

fn open_program(path: &Path, is_root: bool) -> Result<(OwnedFd, FileStat), ProgramError> {
    let failed =
        |errno: nix::Error| ProgramError::Io { path: path.to_owned(), source: errno.into() };
    // Only to be executed: those that work under an operator's uid are not readable by it.
    let fd = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    let stat = fstat(&fd).map_err(failed)?;
    let is_file = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let others_may_write = stat.st_mode & 0o022 != 0;
    if !is_file || (is_root && (stat.st_uid != 0 || others_may_write)) {
        return Err(ProgramError::Unsafe { path: path.to_owned() });
    }
    Ok((fd, stat))
}

/// What root starts under an operator's uid holds descriptors that are not the operator's. The kernel
/// makes a program undumpable from its first moment, and so closes its `/proc`, where the uid that it
/// runs under may execute it but not read it. Installed so (0711) it is used as it is.
fn closed(name: &'static str, file: OwnedFd, stat: &FileStat) -> Result<OwnedFd, ProgramError> {
    const READ_BY_OTHERS: u32 = 0o044;
    const EXECUTE_ONLY: u32 = 0o111;
    if stat.st_mode & READ_BY_OTHERS == 0 {
        return Ok(file);
    }
    let failed = |source| ProgramError::Io { path: PathBuf::from(name), source };
    let bytes = memfd::read(readable(&file).map_err(failed)?, PROGRAM_BYTES_MAX).map_err(failed)?;
    memfd::sealed_program(name, &bytes, EXECUTE_ONLY).map_err(failed)
}

fn readable(file: &OwnedFd) -> io::Result<OwnedFd> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map(OwnedFd::from)
}

/// Once, into a memfd whose descriptor every bwrap inherits: no bind, no path inside.
fn read_init(file: OwnedFd) -> Result<OwnedFd, ProgramError> {
    let failed = |source| ProgramError::Io { path: PathBuf::from("mews-cage-init"), source };
    let file = File::from(readable(&file).map_err(failed)?);
    if !is_static(&file).map_err(failed)? {
        return Err(ProgramError::Dynamic);
    }
    let bytes = memfd::read(file.into(), PROGRAM_BYTES_MAX).map_err(failed)?;
    memfd::sealed_program("mews-cage-init", &bytes, 0o555).map_err(failed)
}
