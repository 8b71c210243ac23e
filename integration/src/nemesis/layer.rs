//! The files of a session that works on a layer: what execs have left there, and what each checkpoint
//! has of it.

use crate::talk::text;
use anyhow::{Context as _, ensure};
use std::collections::{BTreeMap, BTreeSet};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// File and whether it must be there: one whose exec was not acknowledged may be.
type Marks = BTreeMap<String, bool>;

#[derive(Debug, Default)]
pub(super) struct Layer {
    marks: Marks,
    count: usize,
    /// As it was at each checkpoint that is kept.
    saved: Vec<Marks>,
}

impl Layer {
    /// A name that was never used.
    pub(super) fn next_mark(&mut self, name: &str) -> String {
        self.count += 1;
        format!("mark-{name}-{}", self.count)
    }

    pub(super) fn marked(&mut self, file: String, must: bool) {
        self.marks.insert(file, must);
    }

    pub(super) fn has_checkpoint(&self) -> bool {
        !self.saved.is_empty()
    }

    /// One was asked for. Half done it is whole, or it is not there.
    pub(super) fn checkpoint_asked(
        &mut self,
        sandbox: &Sandbox,
        name: &str,
        acknowledged: bool,
    ) -> anyhow::Result<()> {
        let (known, taken) = (self.saved.len(), taken(sandbox, name)?);
        let may = taken == known + 1 || (!acknowledged && taken == known);
        ensure!(may, "{taken} checkpoints, and there were {known}; acknowledged: {acknowledged}");
        if taken > known {
            self.saved.push(self.marks.clone());
        }
        Ok(())
    }

    /// To the newest one.
    pub(super) fn rolled_back(&mut self) {
        if let Some(saved) = self.saved.last() {
            self.marks = saved.clone();
        }
    }

    /// What is in the layer is what the model knows.
    pub(super) fn holds(&self, sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
        let told = sandbox.mews(["diff", name])?;
        ensure!(matches!(told.code, 0 | 1), "diff exits {}: {}", told.code, told.err());
        let out = told.out();
        let found: BTreeSet<&str> = out
            .lines()
            .filter_map(|line| line.strip_prefix("A "))
            .filter(|file| file.starts_with("mark-"))
            .collect();
        let unknown: Vec<&&str> =
            found.iter().filter(|it| !self.marks.contains_key(**it)).collect();
        ensure!(unknown.is_empty(), "{unknown:?} are in its layer, not {:?}", self.marks);
        let due = self.marks.iter().filter(|(_file, must)| **must);
        let lost: Vec<&String> =
            due.map(|(file, _must)| file).filter(|file| !found.contains(file.as_str())).collect();
        ensure!(lost.is_empty(), "{lost:?} are not in its layer: {out}");
        Ok(())
    }
}

/// How many checkpoints are whole, as soon as none is under way.
fn taken(sandbox: &Sandbox, name: &str) -> anyhow::Result<usize> {
    let mut states = Vec::new();
    pause::until("no checkpoint is under way", LIMIT, || {
        let rows = sandbox.mews(["--json", "checkpoints", name]).ok()?.json_lines().ok()?;
        states = rows.iter().filter_map(|row| text(row, "/state").ok()).collect::<Vec<String>>();
        states.iter().all(|state| state == "taken" || state == "failed").then_some(())
    })
    .with_context(|| format!("{states:?}"))?;
    Ok(states.iter().filter(|state| *state == "taken").count())
}
