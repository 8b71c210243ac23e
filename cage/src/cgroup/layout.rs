//! Which limits this host can enforce, and where: found by doing (make, write, read back, remove).

use super::group::{Controller, Version};
use super::hierarchy::{ASIDE, Hierarchy, Mount, mounts};
use super::{CgroupError, GroupPath, Limits, io, limits};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How each limit can be enforced; absent: not by a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFacts {
    pub memory: Option<Version>,
    /// Also where the host has no swap to limit.
    pub swap: Option<Version>,
    pub pids: Option<Version>,
    pub cpu: Option<Version>,
    /// Of those devices that can be throttled.
    pub io: Option<Version>,
    /// `cgroup.kill`, `cgroup.events` and `cgroup.freeze` of a v2 tree, with or without controllers.
    pub kill: bool,
}

/// The hierarchies that can be used. Found once per process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    hierarchies: Vec<Hierarchy>,
    swap: bool,
}

impl Layout {
    /// `setting`: `auto`, `self`, or a path below each hierarchy's root (`MEWS_CGROUP_PARENT`).
    /// Where nothing can be made, as for most ordinary users, the layout is empty.
    ///
    /// # Errors
    /// A setting that is none of these.
    pub fn probe(setting: &str) -> Result<Self, CgroupError> {
        let parent = Parent::parse(setting)?;
        let mountinfo = read("/proc/self/mountinfo");
        let own = read("/proc/self/cgroup");
        let usable: Vec<(Hierarchy, bool)> = mounts(&mountinfo)
            .into_iter()
            .filter_map(|mount| usable(&parent, mount, &own))
            .collect();
        let swap = usable.iter().any(|(_hierarchy, swap)| *swap);
        let usable = usable.into_iter().map(|(hierarchy, _swap)| hierarchy).collect();
        let hierarchies = without_doubles(usable);
        hierarchies.iter().for_each(Hierarchy::remove_base);
        Ok(Self { hierarchies, swap })
    }

    #[must_use]
    pub fn facts(&self) -> LimitFacts {
        let by = |controller| {
            let carries = |hierarchy: &&Hierarchy| hierarchy.controllers().contains(&controller);
            self.hierarchies.iter().find(carries).map(Hierarchy::version)
        };
        LimitFacts {
            memory: by(Controller::Memory),
            swap: by(Controller::Memory).filter(|_| self.swap),
            pids: by(Controller::Pids),
            cpu: by(Controller::Cpu),
            io: by(Controller::Io),
            kill: self.hierarchies.iter().any(|hierarchy| hierarchy.version() == Version::V2),
        }
    }

    /// Our base in each hierarchy, for `doctor` and for tests that look for leftovers.
    #[must_use]
    pub fn bases(&self) -> Vec<GroupPath> {
        self.hierarchies.iter().map(Hierarchy::place).collect()
    }

    /// Removes the bases that are empty: the last thing that a supervisor does.
    pub fn tidy(&self) {
        self.hierarchies.iter().for_each(Hierarchy::remove_base);
    }

    pub(super) fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }
}

/// Where our base goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parent {
    /// `/mews` of the hierarchy for root; for others below the group they were started in, where a
    /// delegated one is theirs to write.
    Auto,
    /// Below the group that we were started in.
    Own,
    Path(PathBuf),
}

impl Parent {
    fn parse(setting: &str) -> Result<Self, CgroupError> {
        match setting {
            "" | "auto" => Ok(Self::Auto),
            "self" => Ok(Self::Own),
            path => {
                let plain =
                    |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
                let path = Path::new(path);
                let good = path.is_absolute()
                    && path.components().all(plain)
                    && path.components().count() > 1;
                good.then(|| Self::Path(path.to_owned()))
                    .ok_or_else(|| CgroupError::BadParent(setting.to_owned()))
            }
        }
    }

    fn base(&self, mount: &Mount, own: &str) -> PathBuf {
        let below = |path: &str| mount.path.join(path.trim_start_matches('/'));
        match self {
            Self::Auto if nix::unistd::geteuid().is_root() => mount.path.join("mews"),
            Self::Auto | Self::Own => above_leaf(below(&own_group(own, mount))).join("mews"),
            Self::Path(path) if is_ours(path) => below(&path.to_string_lossy()),
            Self::Path(path) => below(&path.to_string_lossy()).join("mews"),
        }
    }
}

/// Whoever was moved into the leaf beside the cages starts the next ones where the first ones are.
fn above_leaf(own: PathBuf) -> PathBuf {
    match own.parent().filter(|_| own.file_name().is_some_and(|name| name == ASIDE)) {
        Some(above) => above.to_owned(),
        None => own,
    }
}

/// A base is made and removed by us, so it bears our name; one that an admin has made and named
/// stays, and ours is made in it.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"mews"))
}

/// The path of the caller's own group in this hierarchy, from `/proc/self/cgroup`.
fn own_group(text: &str, mount: &Mount) -> String {
    let is_ours = |controllers: &str| match mount.version {
        Version::V2 => controllers.is_empty(),
        Version::V1 => controllers
            .split(',')
            .any(|name| mount.controllers.iter().any(|known| known.name(Version::V1) == name)),
    };
    text.lines()
        .find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            is_ours(controllers).then(|| path.to_owned())
        })
        .unwrap_or_else(|| "/".to_owned())
}

/// The hierarchy with the controllers that did what they were told, if it is of any use, and whether
/// it counts swap. Usually one group tells all of it: a memory group costs the kernel much, and a
/// one-shot asks anew each time.
fn usable(parent: &Parent, mount: Mount, own: &str) -> Option<(Hierarchy, bool)> {
    let base = parent.base(&mount, own);
    let mut hierarchy = Hierarchy::new(mount, base);
    let all = hierarchy.controllers().to_vec();
    let memory = all.contains(&Controller::Memory);
    if takes(&hierarchy, &all, memory.then_some(0)) {
        return Some((hierarchy, memory));
    }
    let working: Vec<Controller> =
        all.into_iter().filter(|controller| works(&hierarchy, &[*controller])).collect();
    hierarchy.keep_controllers(&working);
    let useful = match hierarchy.version() {
        Version::V1 => !working.is_empty(),
        Version::V2 => works(&hierarchy, &[]),
    };
    if !useful {
        hierarchy.remove_base();
        return None;
    }
    let swap = working.contains(&Controller::Memory) && counts_swap(&hierarchy);
    Some((hierarchy, swap))
}

/// Whether this group of a working memory controller takes a swap limit too.
fn counts_swap(hierarchy: &Hierarchy) -> bool {
    takes(hierarchy, &[Controller::Memory], Some(0))
}

fn works(hierarchy: &Hierarchy, controllers: &[Controller]) -> bool {
    takes(hierarchy, controllers, None)
}

/// Makes a group, limits it, reads that back, removes it.
fn takes(hierarchy: &Hierarchy, controllers: &[Controller], swap_bytes: Option<u64>) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("probe-{}-{number}", std::process::id());
    let Ok(group) = hierarchy.make(&name, controllers) else { return false };
    let has = |controller| controllers.contains(&controller);
    let limits = Limits {
        memory_bytes: has(Controller::Memory).then_some(64 << 20),
        swap_bytes,
        pids: has(Controller::Pids).then_some(16),
        cpu_milli: has(Controller::Cpu).then_some(500),
        io: None,
        oom_group: false,
        share_of: None,
    };
    let wrote =
        limits::write(&group, &limits).is_ok() && (!has(Controller::Io) || io::can_be_set(&group));
    // Below a group that has become one of threads no process can be.
    let is_domain = group.read("cgroup.type").is_ok_and(|kind| kind.trim() == "domain");
    let can_join = group.open_write("cgroup.procs").is_ok()
        && (hierarchy.version() == Version::V1 || is_domain);
    let can_kill = hierarchy.version() == Version::V1 || group.open_write("cgroup.kill").is_ok();
    let removed = group.remove(Instant::now() + Duration::from_millis(200)).is_ok();
    wrote && can_join && can_kill && removed
}

/// A controller lives in one hierarchy at a time, but that one may be mounted twice.
fn without_doubles(hierarchies: Vec<Hierarchy>) -> Vec<Hierarchy> {
    let mut kept: Vec<Hierarchy> = Vec::new();
    for mut hierarchy in hierarchies {
        let taken: Vec<Controller> =
            kept.iter().flat_map(|other| other.controllers().to_vec()).collect();
        let free: Vec<Controller> = hierarchy
            .controllers()
            .iter()
            .copied()
            .filter(|controller| !taken.contains(controller))
            .collect();
        hierarchy.keep_controllers(&free);
        let second_v2 = hierarchy.version() == Version::V2
            && kept.iter().any(|other| other.version() == Version::V2);
        let useless = hierarchy.version() == Version::V1 && free.is_empty();
        if !second_v2 && !useless {
            kept.push(hierarchy);
        }
    }
    kept
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_settings() {
        assert_eq!(Parent::parse("auto").unwrap(), Parent::Auto);
        assert_eq!(Parent::parse("self").unwrap(), Parent::Own);
        assert_eq!(Parent::parse("/a/b").unwrap(), Parent::Path("/a/b".into()));
        for bad in ["a", "/", "/a/../b", "own"] {
            assert!(Parent::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_base_bears_our_name() {
        let mount = Mount { version: Version::V1, path: "/cg".into(), controllers: vec![] };
        for (setting, want) in [
            ("/mews-test-1", "/cg/mews-test-1"),
            ("/a/mews", "/cg/a/mews"),
            ("/site/slice", "/cg/site/slice/mews"),
        ] {
            assert_eq!(Parent::parse(setting).unwrap().base(&mount, ""), Path::new(want));
        }
    }

    #[test]
    fn who_stepped_aside_finds_the_same_base() {
        let mount = Mount { version: Version::V2, path: "/cg".into(), controllers: vec![] };
        for own in ["/a.scope", "/a.scope/mews-supervisor"] {
            let text = format!("0::{own}\n");
            assert_eq!(Parent::Own.base(&mount, &text), Path::new("/cg/a.scope/mews"), "{own}");
        }
    }

    #[test]
    fn own_group_is_found_by_version_and_controller() {
        let text = "4:memory:/pod/x\n2:cpu,cpuacct:/c\n0::/user.slice\n";
        let mount = |version, controllers: &[Controller]| Mount {
            version,
            path: "/cg".into(),
            controllers: controllers.to_vec(),
        };
        for (mount, want) in [
            (mount(Version::V1, &[Controller::Memory]), "/pod/x"),
            (mount(Version::V1, &[Controller::Cpu]), "/c"),
            (mount(Version::V1, &[Controller::Pids]), "/"),
            (mount(Version::V2, &[Controller::Memory]), "/user.slice"),
        ] {
            assert_eq!(own_group(text, &mount), want);
        }
    }
}
