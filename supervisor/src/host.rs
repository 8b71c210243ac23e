//! Where and as whom this supervisor works: folders, mode, uids.

use crate::files;
use crate::uids::{Range, RangeError};
use nix::unistd::{User, geteuid};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wire::dirs::Dirs;
use wire::hello::{self, Hello};

#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("{}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{} belongs to uid {owner}; mews will not use it. Remove it, or set MEWS_RUN_DIR", path.display())]
    Foreign { path: PathBuf, owner: u32 },
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("uid {uid}, as which mews-sessiond runs, cannot walk to {}. Type: chmod o+x {}", path.display(), folder.display())]
    Unreachable { path: PathBuf, folder: PathBuf, uid: u32 },
    #[error("user database: {0}")]
    Users(nix::Error),
}

/// Root that may give its cages uids of their own, or an ordinary user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Root(Range),
    User,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) dirs: Dirs,
    /// Persistent homes; a one-shot shares them with the daemons.
    pub(crate) homes: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) one_shot: bool,
    pub(crate) sessiond: Ids,
    /// What we say of ourselves on every link.
    pub(crate) hello: Hello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Host {
    pub(crate) fn find(one_shot: bool) -> Result<Self, HostError> {
        let uid = geteuid().as_raw();
        let mut dirs = Dirs::resolve(uid, |name| std::env::var(name).ok());
        let homes = dirs.homes();
        let mode = mode_of(uid)?;
        let gid = nix::unistd::getegid().as_raw();
        let sessiond = match mode {
            // Nobody is looked up for a one-shot, which has no sessiond: that may load a library.
            Mode::Root(range) if one_shot => Ids { uid: range.first, gid: range.first },
            Mode::Root(range) => sessiond_ids(range)?,
            Mode::User => Ids { uid, gid },
        };
        if one_shot {
            // Its own folders: a daemon that starts meanwhile must not take its cages over.
            let name = format!("one-shot-{}", std::process::id());
            dirs.run.push(&name);
            dirs.state.push(&name);
        }
        let speaks = link::failpoint::variable(hello::SPEAKS);
        let hello = Hello::speaking("mews-supervisor", speaks.as_deref());
        Ok(Self { dirs, homes, mode, uid, gid, one_shot, sessiond, hello })
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.mode, Mode::Root(_))
    }

    /// Makes the folders that are not there, with the modes of PROTOCOL.md 2.
    pub(crate) fn make_folders(&self) -> Result<(), HostError> {
        let open = if self.is_root() { 0o711 } else { 0o700 };
        let dirs = &self.dirs;
        if self.one_shot {
            for path in [&dirs.run, &dirs.state] {
                make(path.parent().unwrap_or(path), open, self.uid)?;
            }
        }
        for (path, mode) in [
            (dirs.run.clone(), open),
            (dirs.sup_run(), 0o700),
            (dirs.mnt(), open),
            (dirs.state.clone(), open),
            (dirs.sup_state(), 0o700),
            (dirs.grants(), 0o700),
            // Each folder in it is its cage's own uid's, which gets it by descriptor.
            (dirs.cages(), 0o700),
            (dirs.layers(), 0o700),
        ] {
            make(&path, mode, self.uid)?;
        }
        if !self.one_shot {
            if self.is_root() {
                for path in [&dirs.run, &dirs.state] {
                    self.check_reachable(path)?;
                }
            }
            let db = dirs.state.join("db");
            make_for(&db, self.sessiond)?;
        }
        Ok(())
    }

    /// sessiond opens its sockets and its database by path.
    fn check_reachable(&self, path: &Path) -> Result<(), HostError> {
        let closed = path
            .ancestors()
            .find(|folder| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 == 0));
        match closed {
            None => Ok(()),
            Some(folder) => Err(HostError::Unreachable {
                path: path.to_owned(),
                folder: folder.to_owned(),
                uid: self.sessiond.uid,
            }),
        }
    }

    /// `<state>/homes/<uid>/<name>`, made if it is not there.
    pub(crate) fn make_home(&self, path: &Path, owner: Ids) -> Result<(), HostError> {
        let Some(of_operator) = path.parent() else { return Ok(()) };
        let open = if self.is_root() { 0o711 } else { 0o700 };
        make(&self.homes, open, self.uid)?;
        make_for(of_operator, owner)?;
        make_for(path, owner)
    }
}

fn mode_of(uid: u32) -> Result<Mode, HostError> {
    if uid != 0 {
        return Ok(Mode::User);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let range = match Range::of(&map) {
        Ok(range) => range,
        Err(RangeError::NothingElse) => {
            tracing::warn!("only uid 0 is mapped here: working as for an ordinary user");
            return Ok(Mode::User);
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Mode::Root(range))
}

/// User `mews`, else the first uid of our range.
fn sessiond_ids(range: Range) -> Result<Ids, HostError> {
    Ok(match User::from_name("mews").map_err(HostError::Users)? {
        Some(user) if !user.uid.is_root() => Ids { uid: user.uid.as_raw(), gid: user.gid.as_raw() },
        Some(_) | None => Ids { uid: range.first, gid: range.first },
    })
}

/// A private folder of theirs, in one that may be theirs, too.
fn make_for(path: &Path, ids: Ids) -> Result<(), HostError> {
    let failed = |source| HostError::Folder { path: path.to_owned(), source };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = files::open_folder(parent).map_err(failed)?;
    match files::make_folder_in(&parent, name, (ids.uid, ids.gid)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    check(path, ids.uid)
}

fn make(path: &Path, mode: u32, owner: u32) -> Result<(), HostError> {
    let failed = |source| HostError::Folder { path: path.to_owned(), source };
    match std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    check(path, owner)?;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(failed)
}

/// A folder, no link, of the right owner: the fallback below /tmp may have been made by anybody.
fn check(path: &Path, owner: u32) -> Result<(), HostError> {
    let failed = |source| HostError::Folder { path: path.to_owned(), source };
    let meta = std::fs::symlink_metadata(path).map_err(failed)?;
    if !meta.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if meta.uid() != owner {
        return Err(HostError::Foreign { path: path.to_owned(), owner: meta.uid() });
    }
    Ok(())
}
