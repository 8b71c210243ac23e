//! Finding the programs of mews: the folder of this one, then `../libexec/mews`; never PATH.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

pub(crate) const BWRAP: &str = "/usr/bin/bwrap";

pub(crate) fn find(name: &str) -> Result<PathBuf, Failure> {
    let own = std::fs::read_link("/proc/self/exe")
        .map_err(|error| Failure::new(format!("cannot find my own folder: {error}")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(name), folder.join("../libexec/mews").join(name)];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| missing(name, &own))
}

/// A program that was replaced while it ran has this behind its name; its folder is the same, and
/// what is installed there now is what is to be started. Only where that folder has nothing of mews
/// any more is it a matter.
const DELETED: &str = " (deleted)";

fn missing(name: &str, own: &Path) -> Failure {
    let shown = own.to_string_lossy();
    match shown.strip_suffix(DELETED) {
        Some(was) => Failure::new(format!(
            "this mews was removed while it ran, and {name} is not where it was ({was})"
        ))
        .next("type it again with the mews that is installed now"),
        None => Failure::new(format!("{name} is not beside {shown}"))
            .next("cargo xtask build, or install mews again"),
    }
}

/// Nothing can be caged without bubblewrap: said before anything is started.
pub(crate) fn require_bwrap() -> Result<(), Failure> {
    if Path::new(BWRAP).is_file() {
        return Ok(());
    }
    let error = wire::WireError::wall("bwrap", format!("bubblewrap is not installed ({BWRAP})"));
    Err(Failure::from(error).next(install_line()))
}

fn install_line() -> &'static str {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is = |word: &str| release.lines().any(|l| l.starts_with("ID") && l.contains(word));
    if is("fedora") || is("rhel") {
        "sudo dnf install bubblewrap"
    } else if is("arch") {
        "sudo pacman -S bubblewrap"
    } else if is("alpine") {
        "sudo apk add bubblewrap"
    } else if is("suse") {
        "sudo zypper install bubblewrap"
    } else {
        "sudo apt-get install bubblewrap"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_removed_is_not_told_a_name_that_nobody_gave() {
        let words = missing("mews-supervisor", Path::new("/opt/mews/mews (deleted)")).error.message;
        assert!(words.ends_with("(/opt/mews/mews)"), "{words}");
        let words = missing("mews-supervisor", Path::new("/opt/mews/mews")).error.message;
        assert_eq!(words, "mews-supervisor is not beside /opt/mews/mews");
    }
}
