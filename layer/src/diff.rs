//! What a layer has changed, and what a restore would change.

use crate::Stamp;
use crate::applied::Applied;
use crate::compare::{Differences, Found, View, compare};
use crate::judge::{Judge, change};
use crate::manifest::{BASE, Manifest};
use crate::problem::Problem;
use crate::store::top;
use crate::tree::{Tree, lock_leftovers};
use std::os::fd::BorrowedFd;
use wire::{Changes, WorkspaceMode};

/// The two sides, opened, with what is known of their past.
#[derive(Debug)]
pub(crate) struct Sides<'a> {
    pub(crate) layer: BorrowedFd<'a>,
    pub(crate) origin: Tree<'a>,
    pub(crate) tree: Tree<'a>,
    pub(crate) manifest: Option<Manifest>,
    made: Stamp,
    folder: BorrowedFd<'a>,
}

#[derive(Debug)]
pub(crate) struct Judged {
    /// With why each stays, if it does.
    pub(crate) found: Vec<(Found, Option<String>)>,
    pub(crate) truncated: bool,
}

impl<'a> Sides<'a> {
    pub(crate) fn open(
        mode: WorkspaceMode,
        made: Stamp,
        origin: BorrowedFd<'a>,
        layer: BorrowedFd<'a>,
    ) -> Result<Self, Problem> {
        let tree = Tree::layer(layer, top(mode)?)?;
        let manifest = match mode {
            WorkspaceMode::Copy => match Manifest::read(layer, BASE)? {
                Some(manifest) => Some(manifest),
                None => return Err(Problem::NotFilled(BASE.into())),
            },
            WorkspaceMode::Overlay | WorkspaceMode::Direct => None,
        };
        Ok(Self { layer, origin: Tree::origin(origin), tree, manifest, made, folder: origin })
    }

    pub(crate) fn origin_folder(&self) -> BorrowedFd<'a> {
        self.folder
    }

    pub(crate) fn judge(&self) -> Judge<'_> {
        Judge {
            origin: &self.origin,
            tree: &self.tree,
            made: self.made,
            manifest: self.manifest.as_ref(),
        }
    }

    /// What the program sees.
    fn view(&self) -> View<'_> {
        let below = self.manifest.is_none().then_some(&self.origin);
        View { layer: Some(&self.tree), below }
    }

    pub(crate) fn diff(&self, applied: &Applied<'_>) -> Result<Judged, Problem> {
        let folder = View { layer: None, below: Some(&self.origin) };
        let Differences { found, truncated } =
            compare(folder, self.view(), &|path, origin, copy| {
                let manifest = self.manifest.as_ref();
                manifest.is_some_and(|manifest| manifest.surely_equal(path, origin, copy))
            })?;
        Ok(Judged { found: self.judge().all(found, applied)?, truncated })
    }
}

pub(crate) fn diff(sides: &Sides<'_>) -> Result<Changes, Problem> {
    let applied = Applied::read(sides.layer)?;
    let judged = sides.diff(&applied);
    sides.tree.lock_again()?;
    let judged = judged?;
    let changes = judged.found.into_iter().filter_map(|(found, conflict)| change(&found, conflict));
    Ok(Changes { changes: changes.collect(), truncated: judged.truncated })
}

/// From the workspace as it is seen now to the saved one.
pub(crate) fn preview(
    mode: WorkspaceMode,
    origin: BorrowedFd<'_>,
    layer: BorrowedFd<'_>,
    saved: BorrowedFd<'_>,
) -> Result<Changes, Problem> {
    lock_leftovers(saved)?;
    let origin = Tree::origin(origin);
    let (now, then) = (Tree::layer(layer, top(mode)?)?, Tree::layer(saved, top(mode)?)?);
    let below = (mode == WorkspaceMode::Overlay).then_some(&origin);
    let done = compare(
        View { layer: Some(&now), below },
        View { layer: Some(&then), below },
        &|_, _, _| false,
    );
    now.lock_again()?;
    then.lock_again()?;
    let Differences { found, truncated } = done?;
    let changes = found.iter().filter_map(|found| change(found, None)).collect();
    Ok(Changes { changes, truncated })
}
