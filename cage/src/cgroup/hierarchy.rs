//! One mounted hierarchy and our base in it.

use super::group::{Controller, Group, GroupPath, Version, is_operators, write_file};
use super::{CgroupError, members};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wire::CageId;

/// The leaf that we move into where a group with processes could not give its controllers to cages.
pub(super) const ASIDE: &str = "mews-supervisor";

/// A line of mountinfo that is a cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) version: Version,
    pub(super) path: PathBuf,
    /// v1: the controllers named in its options that we use. v2: those of `cgroup.controllers`.
    pub(super) controllers: Vec<Controller>,
}

/// Every hierarchy in `/proc/self/mountinfo` that is v2 or carries a controller that we use.
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let path = PathBuf::from(before.split(' ').nth(4)?);
    let mut after = after.split(' ');
    let version = match after.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let controllers = match version {
        Version::V1 => named(version, after.nth(1)?.split(',')),
        Version::V2 => {
            let file = std::fs::read_to_string(path.join("cgroup.controllers"));
            named(version, file.unwrap_or_default().split_whitespace())
        }
    };
    let useful = version == Version::V2 || !controllers.is_empty();
    useful.then_some(Mount { version, path, controllers })
}

fn named<'a>(version: Version, names: impl Iterator<Item = &'a str>) -> Vec<Controller> {
    names
        .filter_map(|name| Controller::ALL.into_iter().find(|known| known.name(version) == name))
        .collect()
}

/// A hierarchy in which a cage's groups can be made below `base`.
#[derive(Clone, Debug)]
pub(super) struct Hierarchy {
    mount: Mount,
    base: PathBuf,
}

impl Hierarchy {
    pub(super) fn new(mount: Mount, base: PathBuf) -> Self {
        Self { mount, base }
    }

    pub(super) fn version(&self) -> Version {
        self.mount.version
    }

    pub(super) fn controllers(&self) -> &[Controller] {
        &self.mount.controllers
    }

    pub(super) fn keep_controllers(&mut self, keep: &[Controller]) {
        self.mount.controllers.retain(|controller| keep.contains(controller));
    }

    /// The group `<base>/<name>` (v2: `…/payload` below it).
    pub(super) fn make(
        &self,
        name: &str,
        controllers: &[Controller],
    ) -> Result<Group, CgroupError> {
        let cage = self.base.join(name);
        let path = match self.mount.version {
            Version::V1 => cage.clone(),
            Version::V2 => cage.join("payload"),
        };
        make_folders(&path, &self.mount.path)?;
        if self.mount.version == Version::V2 && !controllers.is_empty() {
            self.enable(&cage, controllers)?;
        }
        Ok(Group::new(self.mount.version, controllers.to_vec(), path))
    }

    /// v2: a controller is there in a group if every group above has it in `subtree_control`.
    fn enable(&self, cage: &Path, controllers: &[Controller]) -> Result<(), CgroupError> {
        let name = |controller: &Controller| controller.name(Version::V2);
        let wanted: Vec<String> = controllers.iter().map(|one| format!("+{}", name(one))).collect();
        let wanted = wanted.join(" ");
        let below_mount = |path: &&Path| path.starts_with(&self.mount.path);
        let mut levels: Vec<&Path> = cage.ancestors().take_while(below_mount).collect();
        levels.reverse();
        for level in levels {
            enable_at(level, controllers, &wanted)?;
        }
        Ok(())
    }

    /// The cages that have a group here.
    pub(super) fn cages(&self) -> Vec<(CageId, Group)> {
        let own = folders_in(&self.base);
        let of_operators = own.iter().filter(|path| is_operators(path));
        let below: Vec<PathBuf> = of_operators.flat_map(|path| folders_in(path)).collect();
        let cage = |path: PathBuf| {
            let id = path.file_name()?.to_str()?.parse().ok()?;
            Some((id, self.found(&path)))
        };
        own.into_iter().chain(below).filter_map(cage).collect()
    }

    fn found(&self, cage: &Path) -> Group {
        let path = match self.mount.version {
            Version::V1 => cage.to_owned(),
            Version::V2 => cage.join("payload"),
        };
        Group::new(self.mount.version, self.mount.controllers.clone(), path)
    }

    /// Removes our base if nothing is in it.
    pub(super) fn remove_base(&self) {
        // Of an operator whose last cage ended while nobody looked.
        for path in folders_in(&self.base).iter().filter(|path| is_operators(path)) {
            std::fs::remove_dir(path).ok();
        }
        // ENOTEMPTY, EBUSY: cages live there; the next one who tidies finds it empty.
        std::fs::remove_dir(&self.base).ok();
    }

    pub(super) fn place(&self) -> GroupPath {
        GroupPath {
            version: self.mount.version,
            controllers: self.mount.controllers.clone(),
            path: self.base.clone(),
        }
    }
}

fn folders_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn enable_at(level: &Path, controllers: &[Controller], wanted: &str) -> Result<(), CgroupError> {
    let file = level.join("cgroup.subtree_control");
    let failed = |source| CgroupError::File { path: file.clone(), source };
    let now = std::fs::read_to_string(&file).map_err(failed)?;
    let has = |name: &str| now.split_whitespace().any(|word| word == name);
    if controllers.iter().all(|controller| has(controller.name(Version::V2))) {
        return Ok(());
    }
    match write_file(&file, wanted) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            step_aside(level)?;
            write_file(&file, wanted).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// v2 refuses controllers below a group that holds processes: we move into a leaf of it, with whoever
/// else is there if the group was delegated to us: a shell, the client that started us.
fn step_aside(level: &Path) -> Result<(), CgroupError> {
    let leaf = level.join(ASIDE);
    make_folders(&leaf, level)?;
    let path = leaf.join("cgroup.procs");
    let failed = |source| CgroupError::File { path: path.clone(), source };
    write_file(&path, "0").map_err(failed)?;
    if is_delegated(level) {
        move_all(&level.join("cgroup.procs"), &path).map_err(failed)?;
    }
    Ok(())
}

/// What systemd says of the groups whose inside is not its business. In any other the processes are
/// not ours to move, and systemd would take the controllers away again.
fn is_delegated(group: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(group.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    crate::sys::attribute(&path, c"user.delegate").is_some_and(|value| value == b"1")
}

/// What is forked meanwhile is found by the next look.
fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    const LOOKS: u32 = 16;
    for _ in 0..LOOKS {
        let there = std::fs::read_to_string(from)?;
        if there.is_empty() {
            break;
        }
        for pid in there.lines() {
            // It has ended meanwhile, or is not ours: then the kernel refuses what comes next.
            write_file(to, pid).ok();
        }
    }
    Ok(())
}

/// Like `create_dir_all`, but a base that another one tidies away meanwhile is made again.
fn make_folders(path: &Path, mount: &Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + std::time::Duration::from_millis(100);
    loop {
        let source = match std::fs::create_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let raced = source.kind() == io::ErrorKind::NotFound && mount.is_dir();
        if !raced || Instant::now() >= deadline {
            return Err(CgroupError::Create { path: path.to_owned(), source });
        }
        members::yield_briefly();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_gives_hierarchies_with_the_controllers_that_we_use() {
        let text = "\
30 24 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /cg/cpu rw shared:10 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /cg/memory rw shared:11 - cgroup cgroup rw,memory
33 30 0:29 / /cg/freezer rw shared:12 - cgroup cgroup rw,freezer
34 30 0:30 / /cg/unified rw shared:13 - cgroup2 cgroup2 rw";
        let found = mounts(text);
        let short: Vec<_> = found
            .iter()
            .map(|mount| (mount.version, mount.path.to_str().unwrap(), mount.controllers.clone()))
            .collect();
        assert_eq!(
            short,
            vec![
                (Version::V1, "/cg/cpu", vec![Controller::Cpu]),
                (Version::V1, "/cg/memory", vec![Controller::Memory]),
                (Version::V2, "/cg/unified", vec![]),
            ]
        );
    }
}
