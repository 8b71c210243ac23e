//! The guests' disks: made once by `integration/vm/image.sh`, kept outside the repository, made anew
//! when that recipe has changed.

use super::Debian;
use crate::run::is_root;
use crate::steps::{must, root, succeeds};
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: &str = "qemu-system-x86 debootstrap busybox-static cpio xz-utils e2fsprogs kmod";
/// What of them is looked for, to know whether they are there.
const PROGRAMS: [&str; 7] =
    ["qemu-system-x86_64", "debootstrap", "busybox", "cpio", "xz", "mkfs.ext4", "depmod"];

#[derive(Debug)]
pub(super) struct Image {
    pub(super) disk: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

impl Image {
    fn at(folder: &Path) -> Self {
        let file = |name| folder.join(name);
        Self { disk: file("disk.img"), kernel: file("kernel"), initrd: file("initrd.gz") }
    }
}

/// The image of this guest; it is made if need be, which takes minutes, root and the network.
///
/// # Errors
/// Packages are missing, or it cannot be made; what to type is in the message.
pub(super) fn ready(guest: Debian) -> anyhow::Result<Image> {
    need_programs()?;
    let folder = cache().join(format!("debian-{}", guest.number()));
    let recipe = root().join("integration/vm/image.sh");
    let text = std::fs::read(&recipe).with_context(|| recipe.display().to_string())?;
    // Written last, so that an image whose making was cut off is none.
    let made_by = folder.join("recipe");
    if std::fs::read(&made_by).is_ok_and(|old| old == text) {
        return Ok(Image::at(&folder));
    }
    if !is_root() {
        bail!(
            "the image of Debian {} must be made by root once: sudo cargo xtask vm --debian {}",
            guest.number(),
            guest.number()
        );
    }
    std::fs::create_dir_all(&folder)?;
    // What is not there need not be removed.
    std::fs::remove_file(&made_by).ok();
    must(Command::new("sh").arg(&recipe).arg(guest.suite()).arg(&folder))?;
    std::fs::write(&made_by, text)?;
    Ok(Image::at(&folder))
}

/// Root's is everybody's to boot from; only root can make one.
fn cache() -> PathBuf {
    PathBuf::from("/var/cache/mews-vm")
}

fn need_programs() -> anyhow::Result<()> {
    let has = |name: &&str| {
        let find = format!("PATH=$PATH:/usr/sbin:/sbin; command -v {name} >/dev/null");
        Command::new("sh").args(["-c", &find]).status().is_ok_and(|status| status.success())
    };
    let missing: Vec<&str> = PROGRAMS.iter().copied().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line =
        format!("apt-get update && apt-get install --yes --no-install-recommends {PACKAGES}");
    if is_root() && succeeds(Command::new("sh").args(["-c", &line]))? {
        return Ok(());
    }
    bail!("{} is not there. Type: sudo sh -c '{line}'", missing.join(", "))
}
