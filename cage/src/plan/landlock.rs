//! The Landlock rules of a plan: rights for each place, by where it came from.

use super::paths::{ancestors, within};
use super::{Mount, MountKind, Role, Source};
use crate::orders::{Access, LandlockProgram, LandlockRule};
use std::collections::BTreeMap;

/// The mounts are the first wall and say what is there; the rules say it once more in the kernel's
/// other words, so that one mistake is not enough.
pub(super) fn program(abi: u32, mounts: &[Mount], sources: &[Source]) -> LandlockProgram {
    let mut rules: BTreeMap<&str, Access> = BTreeMap::new();
    // The root is built up from what is lent, so its names tell nothing that is not there; `ls /` and
    // `find /` are the first things that people and agents try.
    rules.insert("/", Access::List);
    // Synthetic files, links and lent files; each lent folder of /etc has its own mount.
    rules.insert("/etc", Access::Read);
    for mount in mounts {
        let Some(access) = access(mount, sources) else { continue };
        let given = ancestors(&mount.dest).find_map(|parent| rules.get(parent));
        if given.is_none_or(|given| !covers(*given, access)) {
            rules.insert(&mount.dest, access);
        }
    }
    let rules =
        rules.into_iter().map(|(path, access)| LandlockRule { path: path.to_owned(), access });
    LandlockProgram {
        abi,
        required: true,
        rules: rules.collect(),
        // The network namespace has only loopback, where the payload's own servers are.
        connect_ports: None,
    }
}

fn access(mount: &Mount, sources: &[Source]) -> Option<Access> {
    match &mount.kind {
        MountKind::Proc => Some(Access::Read),
        MountKind::Dev => Some(Access::Device),
        MountKind::Tmpfs { .. } => Some(Access::Write),
        MountKind::Bind { source, writable } => {
            let role = sources.get(*source).map(|source| source.role);
            match (role, writable) {
                // Reached through the forwarder; connecting is no access to a file.
                (Some(Role::Socket), _) => None,
                (_, true) => Some(Access::Write),
                (_, false) if within(&mount.dest, "/etc") => Some(Access::Read),
                (_, false) => Some(Access::ReadExecute),
            }
        }
        // Empty: read, where no rule from above gives more.
        MountKind::Hidden { .. } => Some(Access::Read),
        MountKind::Dir | MountKind::Symlink { .. } | MountKind::Data => None,
    }
}

const fn covers(given: Access, wanted: Access) -> bool {
    match given {
        Access::List => matches!(wanted, Access::List),
        Access::Write => !matches!(wanted, Access::Device),
        Access::ReadExecute => !matches!(wanted, Access::Write | Access::Device),
        Access::Read => matches!(wanted, Access::List | Access::Read),
        Access::Device => !matches!(wanted, Access::ReadExecute | Access::Write),
    }
}
