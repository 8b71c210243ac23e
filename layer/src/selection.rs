//! Which changes a list of named paths means.

use crate::compare::Found;
use crate::path::{above, clean};
use crate::problem::Problem;
use std::collections::BTreeSet;
use wire::{Arg, Change, ChangeKind, EntryKind};

#[derive(Debug)]
pub(crate) struct Selection {
    /// Empty: all.
    tops: BTreeSet<Vec<u8>>,
}

impl Selection {
    /// # Errors
    /// A path that leads out of the workspace, or is none.
    pub(crate) fn new(named: &[Arg]) -> Result<Self, Problem> {
        Ok(Self { tops: named.iter().map(clean).collect::<Result<_, _>>()? })
    }

    pub(crate) fn is_all(&self) -> bool {
        self.tops.is_empty()
    }

    /// The paths that lie below no other of them.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &[u8]> {
        let outermost = |top: &&Vec<u8>| !above(top).any(|folder| self.tops.contains(folder));
        self.tops.iter().filter(outermost).map(Vec::as_slice)
    }

    pub(crate) fn selects(&self, path: &[u8]) -> bool {
        self.is_all() || self.top_of(path).is_some()
    }

    fn top_of<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        above(path).chain([path]).find(|folder| self.tops.contains(*folder))
    }

    /// New folders that must come so that what is selected has a place.
    pub(crate) fn needed(&self, found: &[(Found, Option<String>)]) -> BTreeSet<Vec<u8>> {
        let selected = found.iter().filter(|(found, _)| self.selects(&found.path));
        let folders: BTreeSet<&[u8]> = selected.flat_map(|(found, _)| above(&found.path)).collect();
        found
            .iter()
            .filter(|(found, _)| found.kind == ChangeKind::Added && found.brings_folder())
            .filter(|(found, _)| folders.contains(found.path.as_slice()))
            .map(|(found, _)| found.path.clone())
            .collect()
    }

    /// Named paths that mean no change, with why.
    pub(crate) fn without_change(&self, found: &[(Found, Option<String>)]) -> Vec<Change> {
        let all: BTreeSet<&[u8]> = found.iter().map(|(found, _)| found.path.as_slice()).collect();
        let used: BTreeSet<&[u8]> = all
            .iter()
            .flat_map(|path| above(path).chain([*path]))
            .filter(|path| self.tops.contains(*path))
            .collect();
        let unused = self.tops.iter().filter(|top| !used.contains(top.as_slice()));
        unused
            .map(|top| {
                let words = match above(top).find(|folder| all.contains(folder)) {
                    Some(folder) => {
                        format!("it is part of the change of {:?}: name that", Arg(folder.to_vec()))
                    }
                    None => "the session has not changed it".to_owned(),
                };
                Change {
                    path: Arg(top.clone()),
                    kind: ChangeKind::Modified,
                    entry: EntryKind::File,
                    bytes: None,
                    mode: None,
                    conflict: Some(words),
                }
            })
            .collect()
    }
}
