//! The zygote's own word about its walls.

use crate::landlock::Domain;
use crate::orders::{Attestation, Rlimit};
use crate::sys::inside as sys;
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// What must be opened or read before Landlock closes /proc.
#[derive(Debug)]
pub(crate) struct Witness {
    status: File,
    namespaces: BTreeMap<String, u64>,
    fds: Vec<i32>,
}

impl Witness {
    pub(crate) fn new() -> io::Result<Self> {
        let mut namespaces = BTreeMap::new();
        for name in NAMESPACES {
            namespaces.insert(name.to_owned(), namespace_inode(name)?);
        }
        let fds = open_descriptors()?;
        Ok(Self { status: File::open("/proc/self/status")?, namespaces, fds })
    }

    /// After the last wall.
    pub(crate) fn attest(
        mut self,
        rlimits: &[Rlimit],
        domain: Domain,
        probed: bool,
    ) -> io::Result<Attestation> {
        let mut text = String::new();
        self.status.rewind()?;
        self.status.read_to_string(&mut text)?;
        let mut word = parse_status(&text);
        for limit in rlimits {
            let (soft, hard) = sys::rlimit(limit.resource, None)?;
            word.rlimits.push(Rlimit { resource: limit.resource, soft, hard });
        }
        word.landlock_abi = domain.abi;
        word.landlock_full = domain.full;
        word.landlock_probed = probed;
        word.namespaces = self.namespaces;
        word.fds = self.fds;
        word.zygote_dumpable = dumpable();
        Ok(word)
    }
}

/// PR_GET_DUMPABLE; what cannot be asked counts as yes.
pub(crate) fn dumpable() -> bool {
    nix::sys::prctl::get_dumpable().unwrap_or(true)
}

/// Whether an act that only this Landlock domain forbids really fails; asked before the seccomp
/// filter is there, which might forbid it too.
///
/// No rule grants the making of devices. The kernel asks Landlock (EACCES) before it asks for the
/// capability (EPERM), so in the cage's `/dev/shm`, where files can be made, the error says which of the
/// two it was. Not device 0:0, overlayfs's whiteout: newer kernels take that for a plain file.
pub(crate) fn probe(domain: Domain) -> bool {
    if domain.abi == 0 {
        return false;
    }
    let device = format!("/dev/shm/.mews-probe-{}", std::process::id());
    let made = mknod(device.as_str(), SFlag::S_IFCHR, Mode::empty(), makedev(1, 3));
    if made.is_ok() {
        // The word that no wall stands there ends the cage; nothing is left in any case.
        drop(std::fs::remove_file(&device));
    }
    made == Err(Errno::EACCES)
}

fn namespace_inode(name: &str) -> io::Result<u64> {
    let link = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
    let text = link.to_string_lossy();
    let inode =
        text.split_once('[').and_then(|(_kind, rest)| rest.trim_end_matches(']').parse().ok());
    inode.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text.into_owned()))
}

fn open_descriptors() -> io::Result<Vec<i32>> {
    let mut fds = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        fds.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    // The descriptor that read the list is closed again by now.
    fds.retain(|fd| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok());
    fds.sort_unstable();
    Ok(fds)
}

fn parse_status(text: &str) -> Attestation {
    let mut word =
        Attestation { zygote_dumpable: true, init_dumpable: true, ..Attestation::default() };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let mut numbers = value.split_ascii_whitespace();
        let mut first = || numbers.next().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        match key {
            "Uid" => word.uid = first(),
            "Gid" => word.gid = first(),
            "Groups" => word.groups = numbers.filter_map(|text| text.parse().ok()).collect(),
            "Seccomp" => word.seccomp = first(),
            "Seccomp_filters" => word.seccomp_filters = first(),
            "NoNewPrivs" => word.no_new_privs = first() == 1,
            "CapInh" | "CapPrm" | "CapEff" | "CapBnd" | "CapAmb" => {
                word.capabilities |= u64::from_str_radix(value.trim(), 16).unwrap_or(u64::MAX);
            }
            _ => {}
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_read() {
        let text = "Uid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t6 7 \nCapInh:\t0000000000000000\n\
                    CapBnd:\t0000000000000400\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let word = parse_status(text);
        assert_eq!((word.uid, word.gid, word.groups.as_slice()), (5, 6, [6, 7].as_slice()));
        assert_eq!((word.seccomp, word.seccomp_filters, word.no_new_privs), (2, 1, true));
        assert_eq!(word.capabilities, 0x400);
        // What was not said counts against the walls.
        assert!(word.zygote_dumpable && word.init_dumpable);
    }
}
