//! What is on disk about a layer, and where its parts are.

use crate::files;
use crate::host::Host;
use ::layer::Stamp;
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use wire::dirs::Dirs;
use wire::{CheckpointId, SessionId, WorkspaceMode};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) session: SessionId,
    /// Whose it is.
    pub(crate) operator: u32,
    /// Whose its files are: the uid and group of every cage of the session.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: WorkspaceMode,
    /// The operator's folder, canonical.
    pub(crate) workspace: String,
    /// Absent until it is filled.
    pub(crate) made: Option<Stamp>,
}

#[derive(Clone, Debug)]
pub(crate) struct Layer {
    folder: PathBuf,
    pub(crate) facts: Facts,
}

const RECORD: &str = "layer.json";
/// A checkpoint that is being saved.
const GROWING: &str = ".new";

impl Layer {
    /// The record first, then the folders: whatever is found has an owner.
    pub(super) fn make(host: &Host, facts: Facts) -> io::Result<Self> {
        let folder = host.dirs.layers().join(facts.session.to_string());
        let layer = Self { folder, facts };
        std::fs::DirBuilder::new().mode(0o700).create(&layer.folder)?;
        layer.save()?;
        std::fs::DirBuilder::new().mode(0o700).create(layer.checkpoints())?;
        layer.make_folder(host, &layer.live())?;
        Ok(layer)
    }

    pub(crate) fn find(dirs: &Dirs, session: SessionId) -> io::Result<Option<Self>> {
        let folder = dirs.layers().join(session.to_string());
        match std::fs::read(folder.join(RECORD)) {
            Ok(text) => Ok(Some(Self { folder, facts: serde_json::from_slice(&text)? })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn all(dirs: &Dirs) -> io::Result<Vec<Self>> {
        let mut layers = Vec::new();
        for name in names(&dirs.layers())? {
            let Ok(session) = name.parse() else { continue };
            match Self::find(dirs, session) {
                Ok(Some(layer)) => layers.push(layer),
                // It died before the record: nothing is in it.
                Ok(None) => files::remove_any(&dirs.layers().join(&name))?,
                Err(error) => tracing::error!(name, %error, "a layer's record is unreadable"),
            }
        }
        Ok(layers)
    }

    pub(super) fn save(&self) -> io::Result<()> {
        files::write_whole(&self.folder.join(RECORD), &serde_json::to_vec(&self.facts)?)
    }

    /// A folder of the cage's uid.
    pub(super) fn make_folder(&self, host: &Host, path: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let own = (host.uid, host.gid);
        let owner = if host.is_root() { (self.facts.uid, self.facts.gid) } else { own };
        files::make_folder_in(&files::open_folder(parent)?, name, owner)
    }

    /// What is mounted, or lent, belongs to the cage's uid and is no link.
    pub(super) fn check_parts(&self) -> io::Result<()> {
        let live = files::open_folder(&self.live())?;
        let parts: &[&str] = match self.mode() {
            WorkspaceMode::Direct => &[],
            WorkspaceMode::Overlay => &["upper", "work"],
            WorkspaceMode::Copy => &["tree"],
        };
        for part in parts {
            let folder = files::open_folder_in(&live, part.as_ref())?;
            if fstat(&folder)?.st_uid != self.facts.uid {
                return Err(io::Error::other(format!("{part} of the layer is not its cage's")));
            }
        }
        Ok(())
    }

    /// What the kernel left of an overlay that nobody has mounted: it belongs to whoever mounted it,
    /// which may not be the cage's uid.
    pub(super) fn clear_work(&self, host: &Host) -> io::Result<()> {
        let work = self.live().join("work");
        if self.mode() != WorkspaceMode::Overlay || !work.exists() {
            return Ok(());
        }
        files::remove_any(&work)?;
        self.make_folder(host, &work)
    }

    /// Now, by the clock that stamps files.
    pub(super) fn stamp(&self) -> io::Result<Stamp> {
        self.save()?;
        let meta = std::fs::metadata(self.folder.join(RECORD))?;
        Ok(Stamp { seconds: meta.ctime(), nanoseconds: meta.ctime_nsec() })
    }

    pub(crate) fn mode(&self) -> WorkspaceMode {
        self.facts.mode
    }

    pub(crate) fn uid(&self) -> u32 {
        self.facts.uid
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.folder.join("live")
    }

    /// The private copy, in mode `copy`.
    pub(crate) fn tree(&self) -> PathBuf {
        self.live().join("tree")
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub(super) fn checkpoint(&self, id: CheckpointId) -> PathBuf {
        self.checkpoints().join(id.to_string())
    }

    pub(super) fn growing(&self, id: CheckpointId) -> PathBuf {
        self.checkpoints().join(format!("{id}{GROWING}"))
    }

    /// Whole checkpoints.
    pub(super) fn saved(&self) -> io::Result<Vec<CheckpointId>> {
        Ok(names(&self.checkpoints())?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub(super) fn half_saved(&self) -> io::Result<Vec<PathBuf>> {
        let names = names(&self.checkpoints())?.into_iter();
        Ok(names
            .filter(|name| name.ends_with(GROWING))
            .map(|name| self.checkpoints().join(name))
            .collect())
    }
}

/// Of a folder that may not be there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn parts_that_are_links_or_of_another_uid_are_not_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let facts = |uid| Facts {
            session: SessionId::new(),
            operator: uid,
            uid,
            gid: uid,
            mode: WorkspaceMode::Overlay,
            workspace: "/w".to_owned(),
            made: None,
        };
        let own = nix::unistd::geteuid().as_raw();
        let of = |uid| Layer { folder: folder.path().to_owned(), facts: facts(uid) };
        let part = |name: &str| folder.path().join("live").join(name);
        std::fs::create_dir_all(part("upper")).unwrap();
        of(own).check_parts().unwrap_err();
        std::fs::create_dir(part("work")).unwrap();
        of(own).check_parts().unwrap();
        of(own + 1).check_parts().unwrap_err();
        std::fs::rename(part("upper"), part("other")).unwrap();
        symlink(part("other"), part("upper")).unwrap();
        of(own).check_parts().unwrap_err();
    }
}
