//! What a pattern of `fs.hide` or `fs.protect` means on the host: names as they are now.

use super::mounts::Tree;
use crate::glob::{Glob, Places};
use crate::policy::GUARDS_MAX;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many names are looked at for all patterns together: about an eighth of a second.
const NAMES_MAX: usize = 250_000;

#[derive(Debug, Default)]
pub(super) struct Meant {
    /// Nothing behind a link, and nothing in a folder that is meant itself.
    pub(super) things: Vec<String>,
    /// Of each folder that the operator cannot read, words that follow the pattern.
    pub(super) unread: Vec<String>,
}

/// A folder on the way, and how far the pattern has come there.
struct Stop {
    folder: PathBuf,
    places: Places,
}

/// # Errors
/// Why the pattern cannot be kept, in words that follow it: too many names, too many things, a name
/// that cannot be written down.
pub(super) fn meant(
    glob: &Glob,
    folder: &str,
    tree: &Tree<'_>,
    walked: &mut usize,
) -> Result<Meant, String> {
    let mut meant = Meant::default();
    let folder = tree.host.canonical(Path::new(folder));
    let mut stops: Vec<Stop> =
        folder.into_iter().map(|folder| Stop { folder, places: glob.start() }).collect();
    while let Some(stop) = stops.pop() {
        // Of what is not lent there is nothing to guard.
        if tree.spots(utf8(&stop.folder)?).is_empty() {
            continue;
        }
        let mut wrong = None;
        let looked = tree.host.list(&stop.folder, &mut |name, is_folder| {
            let next = glob.step(&stop.places, name.as_bytes());
            *walked += 1;
            if *walked > NAMES_MAX {
                wrong = Some(format!(
                    "is looked for among more than {NAMES_MAX} names; write a pattern for a smaller \
                     folder"
                ));
            } else if glob.is_match(&next) {
                match utf8(&stop.folder.join(name)) {
                    Ok(path) => meant.things.push(path.to_owned()),
                    Err(why) => wrong = Some(why),
                }
            } else if is_folder && !next.is_empty() {
                stops.push(Stop { folder: stop.folder.join(name), places: next });
            }
            if meant.things.len() > GUARDS_MAX {
                wrong =
                    Some(format!("means more than {GUARDS_MAX} things; name the folders above"));
            }
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(why) = wrong {
            return Err(why);
        }
        meant.unread.extend(looked.err().and_then(|error| unread(&stop.folder, &error)));
    }
    Ok(meant)
}

/// What is no folder, or has gone meanwhile, holds nothing.
fn unread(folder: &Path, error: &io::Error) -> Option<String> {
    let is_nothing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let words = || format!("is looked for in {}, which cannot be read: {error}", folder.display());
    (!is_nothing).then(words)
}

fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("meets {path:?}, whose name is not UTF-8; rename it"))
}
