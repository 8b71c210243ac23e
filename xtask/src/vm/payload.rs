//! The guest's second disk: the programs, the suites, and what they need of the repository.

use crate::build::Profile;
use crate::steps::{must, root, target};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 7] = [
    "mews",
    "mews-sessiond",
    "mews-supervisor",
    "mews-ptybroker",
    "mews-layer",
    "mews-cage-init",
    "mews-integration",
];
/// What `packaging/install.sh` installs, and what the suites read.
const SOURCES: [&str; 4] = ["packaging", "docs", "policies", "integration/escape"];
/// Beside what is on it: the file system's own tables.
const SLACK_BYTES: u64 = 32 << 20;

/// # Errors
/// A program is missing, or the disk is full.
pub(super) fn make(profile: Profile, suites: &[String]) -> anyhow::Result<PathBuf> {
    let vm = target().join("vm");
    let folder = vm.join("payload");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin)?;
    for name in PROGRAMS {
        copy(&profile.folder().join(name), &bin.join(name))?;
    }
    for name in SOURCES {
        let to = folder.join("repository").join(name);
        let parent = to.parent().context("a folder in the payload")?;
        std::fs::create_dir_all(parent)?;
        must(Command::new("cp").arg("-a").arg(root().join(name)).arg(&to))?;
    }
    copy(&root().join("integration/vm/guest.sh"), &folder.join("guest.sh"))?;
    std::fs::write(folder.join("suites"), suites.join("\n") + "\n")?;
    // The suites know the repository by the name that it had when they were built.
    std::fs::write(folder.join("built-at"), format!("{}\n", root().display()))?;
    disk(&folder, &vm.join("payload.img"))
}

fn disk(folder: &Path, disk: &Path) -> anyhow::Result<PathBuf> {
    let bytes = size(folder)? / 10 * 11 + SLACK_BYTES;
    std::fs::File::create(disk)?.set_len(bytes)?;
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.env("PATH", path).args(["-q", "-F", "-E", "root_owner=0:0", "-d"]);
    must(mkfs.arg(folder).arg(disk))?;
    Ok(disk.to_owned())
}

fn size(path: &Path) -> anyhow::Result<u64> {
    let facts = std::fs::symlink_metadata(path)?;
    if !facts.is_dir() {
        return Ok(facts.len());
    }
    std::fs::read_dir(path)?.try_fold(0, |sum, entry| Ok(sum + size(&entry?.path())?))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to).map(drop).with_context(|| format!("copy of {}", from.display()))
}
