//! One mounted hierarchy and our base in it.

use super::group::{Controller, Group, GroupPath, Version, is_operators, write_file};
use super::{CgroupError, delegation, members};
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
        if self.mount.version == Version::V2 {
            need_units(&cage)?;
        }
        make_folders(&path, &self.mount.path)?;
        let group = Group::new(self.mount.version, controllers.to_vec(), path);
        if self.mount.version == Version::V2 && !controllers.is_empty() {
            self.enable(&cage, controllers).inspect_err(|_first| {
                // What cannot be removed is found by `scan`.
                group.remove(Instant::now()).ok();
            })?;
        }
        Ok(group)
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
    if holds_processes(level) {
        make_room(level)?;
    }
    write_file(&file, wanted).map_err(failed)
}

/// Of those controllers that count threads (cpu, pids) v2 lets some be given away all the same, and then
/// no group below takes a process any more. So nothing is given away while somebody is there. The root
/// may hold both.
fn holds_processes(level: &Path) -> bool {
    level.join("cgroup.type").exists() && !members_of(level).is_empty()
}

fn members_of(level: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(level.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// We move into a leaf, with whoever else is there if the group was delegated to us: a shell, the client
/// that started us. In any other the processes are not ours to move, and systemd would take the
/// controllers away again.
fn make_room(level: &Path) -> Result<(), CgroupError> {
    /// What is forked meanwhile is found by the next look.
    const LOOKS: u32 = 16;
    let busy = || {
        let source = io::Error::from_raw_os_error(libc::EBUSY);
        CgroupError::File { path: level.join("cgroup.subtree_control"), source }
    };
    let me = std::process::id().to_string();
    if !delegation::is_ours(level) && members_of(level).iter().any(|pid| *pid != me) {
        return Err(busy());
    }
    let leaf = level.join(ASIDE);
    make_folders(&leaf, level)?;
    let procs = leaf.join("cgroup.procs");
    for _ in 0..LOOKS {
        let members = members_of(level);
        if members.is_empty() {
            return Ok(());
        }
        for pid in members {
            // One that has ended meanwhile is gone by the next look; one that is not ours stays.
            write_file(&procs, &pid).ok();
        }
    }
    Err(busy())
}

/// The group of a unit is systemd's to make: one that we made while the unit is stopped would keep
/// systemd from starting it, as it puts the unit's process where cages have their controllers from.
fn need_units(cage: &Path) -> Result<(), CgroupError> {
    let is_unit = |path: &&Path| {
        let kind = path.extension().and_then(std::ffi::OsStr::to_str);
        matches!(kind, Some("service" | "scope" | "slice"))
    };
    let missing = cage.ancestors().filter(is_unit).find(|path| !path.is_dir());
    missing.map_or(Ok(()), |path| {
        let unit = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Err(CgroupError::NoUnit { path: path.to_owned(), unit })
    })
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

    /// A group of the v2 tree with a process in it, where we may make one.
    fn with_somebody(name: &str, body: impl FnOnce(&Path, &str)) {
        let mounted = mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        let Some(tree) = mounted.into_iter().find(|mount| mount.version == Version::V2) else {
            return;
        };
        let group = tree.path.join(format!("mews-unit-{}-{name}", std::process::id()));
        if std::fs::create_dir(&group).is_err() {
            return;
        }
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id().to_string();
        write_file(&group.join("cgroup.procs"), &pid).unwrap();
        body(&group, &pid);
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_dir(group.join(ASIDE)).ok();
        std::fs::remove_dir(&group).unwrap();
    }

    #[test]
    fn nothing_is_given_away_below_a_group_that_is_not_ours() {
        with_somebody("theirs", |group, pid| {
            let error = enable_at(group, &[Controller::Pids], "+pids").unwrap_err();
            assert!(error.to_string().contains("busy"), "{error}");
            assert_eq!(members_of(group), [pid]);
            assert!(!group.join(ASIDE).exists());
        });
    }

    #[test]
    fn whoever_is_in_a_delegated_group_steps_aside() {
        with_somebody("ours", |group, pid| {
            let path = std::ffi::CString::new(group.to_str().unwrap()).unwrap();
            if crate::sys::set_attribute(&path, c"user.delegate", b"1").is_err() {
                return;
            }
            make_room(group).unwrap();
            assert_eq!(members_of(group), [""; 0]);
            assert_eq!(members_of(&group.join(ASIDE)), [pid]);
        });
    }

    #[test]
    fn the_group_of_a_unit_is_not_made_for_systemd() {
        let folder = tempfile::tempdir().unwrap();
        let cage = folder.path().join("a.slice/b.service/mews/cage");
        std::fs::create_dir(folder.path().join("a.slice")).unwrap();
        let error = need_units(&cage).unwrap_err();
        assert!(error.to_string().ends_with("systemctl start b.service"), "{error}");
        std::fs::create_dir(folder.path().join("a.slice/b.service")).unwrap();
        need_units(&cage).unwrap();
    }

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
