//! What is on disk about a grant.

use crate::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::{GrantId, GrantState};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) state: GrantState,
    /// Group and groups of its operator when they gave it: what `host.toml` may go by.
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    /// Of id and secret.
    pub(super) secret_hash: String,
}

fn path(folder: &Path, id: GrantId) -> PathBuf {
    folder.join(format!("{id}.json"))
}

pub(super) fn save(folder: &Path, grant: &Grant) -> io::Result<()> {
    files::write_durable(&path(folder, grant.state.id), &serde_json::to_vec(grant)?)
}

pub(super) fn remove(folder: &Path, id: GrantId) -> io::Result<()> {
    files::remove_any(&path(folder, id))?;
    files::sync_folder(folder)
}

/// One that is not understood opens nothing, and is left alone.
pub(super) fn load_all(folder: &Path) -> io::Result<BTreeMap<GrantId, Grant>> {
    files::remove_unfinished(folder)?;
    let mut grants = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(Ok(id)) = name.strip_suffix(".json").map(str::parse::<GrantId>) else { continue };
        match serde_json::from_slice::<Grant>(&std::fs::read(path(folder, id))?) {
            Ok(grant) if grant.state.id == id => drop(grants.insert(id, grant)),
            Ok(_) | Err(_) => tracing::warn!(%id, "a grant's file is not understood"),
        }
    }
    Ok(grants)
}
