//! What root keeps of its powers: the smallest set of capabilities with which the chain works, each
//! with the reason (docs/system.md has the same table). Everything else goes at the start, from the
//! bounding set too, so that nothing that we become or start can have it again.

use caps::{CapSet, Capability, CapsHashSet};

/// A row for each, with the first thing that fails without it.
pub(crate) const NEEDED: [(Capability, &str); 9] = [
    (Capability::CAP_CHOWN, "a cage's folder and sessiond's database are given to their uids"),
    (Capability::CAP_SETUID, "brokers and sessiond become who they are"),
    (Capability::CAP_SETGID, "and lose every group of ours"),
    (Capability::CAP_SETPCAP, "and their bounding set"),
    (Capability::CAP_SYS_ADMIN, "mount namespaces and idmapped clones for root's cages"),
    (
        Capability::CAP_DAC_OVERRIDE,
        "what a broker left in its own closed folder is read and removed",
    ),
    (
        Capability::CAP_FOWNER,
        "in an overlay a cage changes modes and times with the rights of who mounted it",
    ),
    (Capability::CAP_SYS_PTRACE, "a cage's namespaces are looked at from outside before go"),
    (Capability::CAP_KILL, "processes of other uids are ended where no cgroup does it"),
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum PrivilegeError {
    #[error(
        "root lacks the capability {name}: {why}. Start mews as an ordinary user, or give the container (or unit) this capability"
    )]
    Missing { name: Capability, why: &'static str },
    #[error("capabilities ({set:?}): {source}")]
    Change { set: CapSet, source: caps::errors::CapsError },
    #[error("capabilities ({set:?}) are not what was set: {got:?}")]
    Mismatch { set: CapSet, got: CapsHashSet },
}

/// Keeps what is needed, drops the rest, and reads that back.
///
/// # Errors
/// One is missing; its name. Or the kernel refused.
pub(crate) fn keep_needed() -> Result<(), PrivilegeError> {
    let needed = needed();
    let permitted = read(CapSet::Permitted)?;
    for (name, why) in NEEDED {
        if needed.contains(&name) && !permitted.contains(&name) {
            return Err(PrivilegeError::Missing { name, why });
        }
    }
    for name in read(CapSet::Bounding)?.difference(&needed) {
        caps::drop(None, CapSet::Bounding, *name).map_err(changing(CapSet::Bounding))?;
    }
    let none = CapsHashSet::new();
    // The ambient set first: it cannot hold what the others have lost. It came with Linux 4.3.
    for (set, wanted) in [
        (CapSet::Ambient, &none),
        (CapSet::Inheritable, &none),
        (CapSet::Effective, &needed),
        (CapSet::Permitted, &needed),
    ] {
        caps::set(None, set, wanted).map_err(changing(set))?;
        let got = read(set)?;
        if got != *wanted {
            return Err(PrivilegeError::Mismatch { set, got });
        }
    }
    let got = read(CapSet::Bounding)?;
    if got.is_subset(&needed) {
        Ok(())
    } else {
        Err(PrivilegeError::Mismatch { set: CapSet::Bounding, got })
    }
}

/// In debug builds `MEWS_WITHOUT_CAPABILITY` leaves one out, to show what it is for.
fn needed() -> CapsHashSet {
    let all = NEEDED.iter().map(|(name, _why)| *name);
    #[cfg(debug_assertions)]
    let all = {
        let without = std::env::var("MEWS_WITHOUT_CAPABILITY").unwrap_or_default();
        all.filter(move |name| name.to_string() != without)
    };
    all.collect()
}

fn read(set: CapSet) -> Result<CapsHashSet, PrivilegeError> {
    caps::read(None, set).map_err(changing(set))
}

fn changing(set: CapSet) -> impl Fn(caps::errors::CapsError) -> PrivilegeError {
    move |source| PrivilegeError::Change { set, source }
}
