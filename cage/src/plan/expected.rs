//! What the zygote's own word must say, and the comparison.

use super::{CagePlan, resource};
use crate::orders::{Attestation, Rlimit};

/// Descriptors of the zygote beyond standard input, output and error: its sockets to pid 1, and the
/// file and folder that it reads its own state from.
const OWN_FDS_MAX: usize = 8;
/// bwrap maps one gid; every other group of the operator's shows as this one.
const OVERFLOW_GID: u32 = 65_534;

/// What an [`Attestation`] must say for this plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub uid: u32,
    pub gid: u32,
    pub landlock_abi: u32,
    pub rlimits: Vec<Rlimit>,
}

/// A wall that is not as the plan says. The cage must be killed: nothing ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wall}: {message}")]
pub struct WallMismatch {
    pub wall: String,
    pub message: String,
}

impl From<WallMismatch> for wire::WireError {
    fn from(mismatch: WallMismatch) -> Self {
        Self::wall(&mismatch.wall, mismatch.to_string())
    }
}

impl CagePlan {
    #[must_use]
    pub fn expected(&self) -> Expected {
        Expected {
            uid: self.user.uid,
            gid: self.user.gid,
            landlock_abi: self.landlock.abi,
            rlimits: self.rlimits.clone(),
        }
    }
}

impl Expected {
    /// The first wall that differs, in the order in which they are put up.
    pub fn check(&self, word: &Attestation) -> Result<(), WallMismatch> {
        self.check_identity(word)?;
        self.check_rlimits(word)?;
        wall("capabilities", word.capabilities == 0, || {
            format!("the zygote still holds capabilities {:#x}", word.capabilities)
        })?;
        wall("no_new_privs", word.no_new_privs, || "no_new_privs is not set".to_owned())?;
        self.check_landlock(word)?;
        wall("seccomp", word.seccomp == 2 && word.seccomp_filters >= 1, || {
            format!("mode {}, {} filters", word.seccomp, word.seccomp_filters)
        })?;
        wall("dumpable", !word.init_dumpable && !word.zygote_dumpable, || {
            "pid 1 or the zygote can be read by the payload".to_owned()
        })?;
        let own = word.fds.iter().filter(|fd| **fd > 2).count();
        wall("descriptors", own <= OWN_FDS_MAX, || format!("open descriptors {:?}", word.fds))
    }

    fn check_identity(&self, word: &Attestation) -> Result<(), WallMismatch> {
        wall("user", word.uid == self.uid && word.gid == self.gid, || {
            format!("runs as {}:{}, not as {}:{}", word.uid, word.gid, self.uid, self.gid)
        })?;
        wall("user", word.uid != 0 && word.gid != 0, || "runs as root".to_owned())?;
        let known = |group: &u32| *group == self.gid || *group == OVERFLOW_GID;
        wall("groups", word.groups.iter().all(known), || {
            format!("is in groups {:?}", word.groups)
        })?;
        let missing = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
            .into_iter()
            .find(|name| !word.namespaces.contains_key(*name));
        wall("namespaces", missing.is_none(), || format!("{missing:?} is not told"))
    }

    fn check_rlimits(&self, word: &Attestation) -> Result<(), WallMismatch> {
        for wanted in &self.rlimits {
            let found = word.rlimits.iter().find(|limit| limit.resource == wanted.resource);
            wall("rlimits", found == Some(wanted), || {
                let name = resource::name(wanted.resource);
                format!("{name} is {found:?}, not {}", wanted.hard)
            })?;
        }
        Ok(())
    }

    fn check_landlock(&self, word: &Attestation) -> Result<(), WallMismatch> {
        wall("landlock", word.landlock_abi == self.landlock_abi && word.landlock_full, || {
            format!(
                "ABI {} ({}), not the whole of ABI {}",
                word.landlock_abi,
                if word.landlock_full { "full" } else { "in part" },
                self.landlock_abi
            )
        })?;
        wall("landlock", word.landlock_probed, || "an act that it forbids succeeded".to_owned())
    }
}

fn wall(name: &str, holds: bool, message: impl FnOnce() -> String) -> Result<(), WallMismatch> {
    if holds {
        return Ok(());
    }
    Err(WallMismatch { wall: name.to_owned(), message: message() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> (Expected, Attestation) {
        let rlimits = vec![Rlimit { resource: resource::NOFILE, soft: 4096, hard: 4096 }];
        let expected = Expected { uid: 7, gid: 7, landlock_abi: 7, rlimits: rlimits.clone() };
        let namespaces = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
        let word = Attestation {
            uid: 7,
            gid: 7,
            groups: vec![7, OVERFLOW_GID],
            seccomp: 2,
            seccomp_filters: 1,
            no_new_privs: true,
            landlock_abi: 7,
            landlock_full: true,
            landlock_probed: true,
            namespaces: namespaces.iter().map(|name| ((*name).to_owned(), 1)).collect(),
            fds: vec![0, 1, 2, 5],
            rlimits,
            ..Attestation::default()
        };
        (expected, word)
    }

    #[test]
    fn each_difference_names_its_wall() {
        let (expected, word) = good();
        assert_eq!(expected.check(&word), Ok(()));
        type Breaker = fn(&mut Attestation);
        let cases: [(&str, Breaker); 14] = [
            ("user", |word| word.uid = 0),
            ("user", |word| word.gid = 8),
            ("groups", |word| word.groups = vec![0]),
            ("namespaces", |word| word.namespaces.clear()),
            ("rlimits", |word| word.rlimits.clear()),
            ("rlimits", |word| word.rlimits = vec![Rlimit { resource: 7, soft: 1, hard: 9999 }]),
            ("capabilities", |word| word.capabilities = 1),
            ("no_new_privs", |word| word.no_new_privs = false),
            ("landlock", |word| word.landlock_abi = 0),
            ("landlock", |word| word.landlock_full = false),
            ("landlock", |word| word.landlock_probed = false),
            ("seccomp", |word| word.seccomp_filters = 0),
            ("dumpable", |word| word.zygote_dumpable = true),
            ("descriptors", |word| word.fds = (0..32).collect()),
        ];
        for (wall, breaks) in cases {
            let mut word = word.clone();
            breaks(&mut word);
            assert_eq!(expected.check(&word).unwrap_err().wall, wall);
        }
    }
}
