//! Where the programs under test are.

use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const NAMES: [&str; 6] =
    ["mews", "mews-sessiond", "mews-supervisor", "mews-ptybroker", "mews-layer", "mews-cage-init"];

/// The folder of the programs, one that every user may enter: the build folder itself or, where that
/// lies behind a private one, a copy that lives as long as this process.
///
/// # Errors
/// A program is missing: `cargo xtask build` makes them.
pub fn folder() -> anyhow::Result<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOLDER.get_or_init(|| find().map_err(|error| format!("{error:#}"))) {
        Ok(folder) => Ok(folder),
        Err(error) => anyhow::bail!("{error}"),
    }
}

/// Removes the copy, if one was made: the last thing that a test program does.
pub fn forget() {
    if let Ok(folder) = folder()
        && folder == copy_path()
    {
        fs::remove_dir_all(folder).ok();
    }
}

fn find() -> anyhow::Result<PathBuf> {
    let built = built()?;
    for name in NAMES {
        let path = built.join(name);
        anyhow::ensure!(path.exists(), "{} is missing: cargo xtask build", path.display());
    }
    if all_may_enter(&built) { Ok(built) } else { copy(&built) }
}

/// Beside the test program, or above its `deps` folder.
fn built() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("MEWS_BIN_DIR") {
        return Ok(folder.into());
    }
    let me = std::env::current_exe()?;
    let folder = me.parent().context("a program has a folder")?;
    let above = folder.parent().filter(|_| folder.ends_with("deps"));
    Ok(above.unwrap_or(folder).to_owned())
}

fn all_may_enter(folder: &Path) -> bool {
    folder.ancestors().all(|part| {
        fs::metadata(part).is_ok_and(|facts| facts.permissions().mode() & 0o005 == 0o005)
    })
}

fn copy_path() -> PathBuf {
    std::env::temp_dir().join(format!("mews-bin-{}", std::process::id()))
}

fn copy(from: &Path) -> anyhow::Result<PathBuf> {
    let to = copy_path();
    install(from, &to)?;
    Ok(to)
}

/// As a package manager does it: each program is renamed over the one that was there, which goes on
/// as a deleted file in whoever runs it.
///
/// # Errors
/// They cannot be copied.
pub fn install(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for name in NAMES {
        let new = to.join(format!("{name}.new"));
        fs::copy(from.join(name), &new).with_context(|| format!("copy of {name}"))?;
        fs::rename(&new, to.join(name))?;
    }
    Ok(())
}
