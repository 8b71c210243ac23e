//! What is told of an order. A caged program decides how many paths there are and how long they are:
//! the list ends where it would be too large for those who read it.

use crate::Report;
use std::io::{self, Write};
use wire::{Change, Changes};

/// A report is at most so large, as JSON.
pub const REPORT_BYTES_MAX: usize = 16 << 20;
/// Of the paths of one list, while they are found: what is known of an entry beside its path is small.
pub(crate) const PATHS_BYTES_MAX: usize = REPORT_BYTES_MAX;
/// Of all lists in a report.
const LISTS_BYTES_MAX: usize = REPORT_BYTES_MAX - (64 << 10);

impl Report {
    /// What fits. A list that is cut is marked so.
    pub(crate) fn shortened(mut self) -> Self {
        match &mut self {
            Self::Changes(changes) => {
                shorten(changes, LISTS_BYTES_MAX);
            }
            Self::Applied { done, left } => {
                let taken = shorten(left, LISTS_BYTES_MAX / 2);
                shorten(done, LISTS_BYTES_MAX - taken);
            }
            Self::Done | Self::Copied(_) | Self::Measured(_) | Self::Failed(_) => {}
        }
        self
    }

    /// Whether these bytes are a report with lists. As they are they are a `wire::supervisor::LayerAnswer`
    /// too, and can be handed on unread.
    #[must_use]
    pub fn has_lists(bytes: &[u8]) -> bool {
        [b"{\"answer\":\"changes\",".as_slice(), b"{\"answer\":\"applied\","]
            .iter()
            .any(|start| bytes.starts_with(start))
    }
}

/// Gives the bytes that are left of it.
fn shorten(list: &mut Changes, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = list.changes.iter().take_while(|change| {
        let with_it = bytes + size(change);
        let fits = with_it <= bytes_max;
        if fits {
            bytes = with_it;
        }
        fits
    });
    let fits = fits.count();
    list.truncated |= fits < list.changes.len();
    list.changes.truncate(fits);
    bytes
}

/// As JSON, with its comma.
fn size(change: &Change) -> usize {
    let mut counted = Counted(1);
    // Nothing is written, so nothing can fail.
    let _counted = serde_json::to_writer(&mut counted, change);
    counted.0
}

struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::supervisor::LayerAnswer;
    use wire::{Arg, ChangeKind, Copied, EntryKind};

    fn list(paths: usize, bytes: usize) -> Changes {
        let change = |number: usize| Change {
            path: Arg(format!("{number:0bytes$}").into_bytes()),
            kind: ChangeKind::Added,
            entry: EntryKind::File,
            bytes: Some(0),
            mode: None,
            conflict: None,
        };
        Changes { changes: (0..paths).map(change).collect(), truncated: false }
    }

    #[test]
    fn a_report_is_never_larger_than_it_may_be() {
        for (report, whole) in [
            (Report::Changes(list(100_000, 60)), true),
            (Report::Changes(list(20_000, 2000)), false),
            (Report::Applied { done: list(50_000, 60), left: list(20_000, 60) }, true),
            (Report::Applied { done: list(20_000, 2000), left: list(20_000, 2000) }, false),
        ] {
            let before = serde_json::to_vec(&report).unwrap().len();
            let report = report.shortened();
            let after = serde_json::to_vec(&report).unwrap().len();
            assert!(after <= REPORT_BYTES_MAX && (after == before) == whole, "{before} {after}");
            let lists = match &report {
                Report::Changes(changes) => vec![changes],
                Report::Applied { done, left } => vec![done, left],
                Report::Done | Report::Copied(_) | Report::Measured(_) | Report::Failed(_) => {
                    panic!("it has no lists")
                }
            };
            for list in lists {
                assert!(list.truncated != whole && list.changes.len() > 1000);
            }
        }
    }

    #[test]
    fn a_report_with_lists_is_an_answer_as_it_is() {
        let applied = || (list(2, 3), Changes::default());
        let ((done, left), (one, other)) = (applied(), applied());
        for (report, answer) in [
            (Report::Changes(list(2, 3)), LayerAnswer::Changes(list(2, 3))),
            (Report::Applied { done, left }, LayerAnswer::Applied { done: one, left: other }),
        ] {
            let bytes = serde_json::to_vec(&report).unwrap();
            assert!(Report::has_lists(&bytes));
            assert_eq!(serde_json::from_slice::<LayerAnswer>(&bytes).unwrap(), answer);
        }
        for report in [Report::Done, Report::Copied(Copied::default())] {
            assert!(!Report::has_lists(&serde_json::to_vec(&report).unwrap()));
        }
    }
}
