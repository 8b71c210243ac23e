//! What a private copy began as: the common ancestor of the copy and the operator's folder.
//!
//! The third side of every comparison of a copy: whether the program or the operator has changed an
//! entry is read from it, not guessed.

use crate::entry::{Entry, Kind};
use crate::notes;
use crate::path::is_within;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use wire::Arg;

pub(crate) const BASE: &str = "base";

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The operator's entry.
    pub(crate) origin: Entry,
    /// The copy of it, just made; `None` since a restore has made another one.
    pub(crate) copy: Option<Entry>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    /// The folder that this belongs to: its inode. A restore changes folder and manifest one after
    /// the other; after a kill in between this tells which of two manifests is meant.
    pub(crate) tree: u64,
    pub(crate) entries: BTreeMap<Vec<u8>, Base>,
}

#[derive(Serialize, Deserialize)]
struct Form {
    tree: u64,
    entries: Vec<(Arg, Base)>,
}

impl Manifest {
    pub(crate) fn read(
        holder: BorrowedFd<'_>,
        name: &'static str,
    ) -> Result<Option<Self>, Problem> {
        let Some(bytes) = notes::read(holder, name.as_bytes())? else { return Ok(None) };
        let form: Form = serde_json::from_slice(&bytes)
            .map_err(|error| Problem::Note(name, error.to_string()))?;
        let entries = form.entries.into_iter().map(|(path, base)| (path.0, base)).collect();
        Ok(Some(Self { tree: form.tree, entries }))
    }

    pub(crate) fn write(&self, holder: BorrowedFd<'_>, name: &'static str) -> Result<(), Problem> {
        let entries = self.entries.iter().map(|(path, base)| (Arg(path.clone()), *base)).collect();
        let bytes = serde_json::to_vec(&Form { tree: self.tree, entries })
            .map_err(|error| Problem::Note(name, error.to_string()))?;
        notes::write(holder, name.as_bytes(), &bytes)
    }

    /// Whether the copy and the original of `path` are surely those that the fill has made equal.
    pub(crate) fn surely_equal(&self, path: &[u8], origin: &Entry, copy: &Entry) -> bool {
        self.entries.get(path).is_some_and(|base| {
            base.origin.is_same(origin) && base.copy.is_some_and(|made| made.is_same(copy))
        })
    }

    /// Whether the entry of the copy is other than what it began as.
    pub(crate) fn changed_by_program(&self, path: &[u8], copy: Option<&Entry>) -> bool {
        match (self.entries.get(path), copy) {
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
            (Some(base), Some(copy)) => {
                base.origin.kind != copy.kind
                    || base.origin.mode != copy.mode
                    || (copy.kind != Kind::Folder
                        && (base.origin.size != copy.size || base.origin.mtime != copy.mtime))
            }
        }
    }

    pub(crate) fn forget(&mut self, top: &[u8]) {
        self.entries.retain(|path, _| !is_within(path, top));
    }
}
