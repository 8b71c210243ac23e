//! Finding the programs of mews, and bwrap: opened once at the start, by descriptor from then on.

use ::cage::probe::{BwrapError, is_static, open_bwrap};
use link::memfd;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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
        let find = |name| open_ours(name, is_root);
        Ok(Self {
            broker: find("mews-ptybroker")?,
            layer: find("mews-layer")?,
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

fn open_ours(name: &'static str, is_root: bool) -> Result<OwnedFd, ProgramError> {
    let own = PathBuf::from("/proc/self/exe");
    for folder in folders().map_err(|source| ProgramError::Io { path: own.clone(), source })? {
        let path = folder.join(name);
        match open_program(&path, is_root) {
            Err(ProgramError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Ok((fd, _stat)) => return Ok(fd),
            Err(error) => return Err(error),
        }
    }
    Err(ProgramError::NotFound { name })
}

fn open_program(path: &Path, is_root: bool) -> Result<(OwnedFd, FileStat), ProgramError> {
    let failed =
        |errno: nix::Error| ProgramError::Io { path: path.to_owned(), source: errno.into() };
    let fd = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    let stat = fstat(&fd).map_err(failed)?;
    let is_file = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let others_may_write = stat.st_mode & 0o022 != 0;
    if !is_file || (is_root && (stat.st_uid != 0 || others_may_write)) {
        return Err(ProgramError::Unsafe { path: path.to_owned() });
    }
    Ok((fd, stat))
}

/// Once, into a memfd whose descriptor every bwrap inherits: no bind, no path inside.
fn read_init(file: OwnedFd) -> Result<OwnedFd, ProgramError> {
    let failed = |source| ProgramError::Io { path: PathBuf::from("mews-cage-init"), source };
    let file = File::from(file);
    if !is_static(&file).map_err(failed)? {
        return Err(ProgramError::Dynamic);
    }
    let bytes = memfd::read(file.into(), 64 << 20).map_err(failed)?;
    memfd::sealed_program("mews-cage-init", &bytes).map_err(failed)
}
