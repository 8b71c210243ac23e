//! The plan in bubblewrap's words.
//!
//! 1. Every namespace is unshared by name, so that a kernel that lacks one is an error, and further
//!    user namespaces are switched off inside.
//! 2. A new session and no capabilities; the command is pid 1 itself.
//! 3. The root, parents first. What is ours in it (folders, synthetic files) lies in bwrap's own
//!    tmpfs, which costs no mount each.
//! 4. Telling files of /proc are covered.
//! 5. Last, `/dev` and `/` become read-only: from here on nothing can be added.
//!
//! Not here: `--die-with-parent` (fires on the death of a thread), `--block-fd` (EOF releases it),
//! `--info-fd` and `--json-status-fd` (the broker's own descriptors).

use crate::plan::{CagePlan, Mount, MountKind, User};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where bwrap finds each of the plan's sources: the host path, or its mount point in the broker's
/// own mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(pub Vec<PathBuf>);

impl Sources {
    /// By their own paths, as in user mode.
    #[must_use]
    pub fn in_place(plan: &CagePlan) -> Self {
        Self(plan.sources.iter().map(|source| PathBuf::from(&source.host)).collect())
    }
}

/// Descriptors that bwrap inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BwrapFds {
    /// One for each of [`data_files`], in its order, at offset 0.
    pub data: Vec<i32>,
}

/// A synthetic file, to be put into a memfd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// As seen inside.
    pub dest: String,
    pub contents: Vec<u8>,
}

/// A list does not fit the plan: a mistake of the caller's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    #[error("source {0} of the plan has no path")]
    Source(usize),
    #[error("synthetic file {0} of the plan has no descriptor")]
    Data(String),
}

/// What `--args FD` reads: every option with a NUL behind it.
pub fn args(plan: &CagePlan, sources: &Sources, fds: &BwrapFds) -> Result<Vec<u8>, ArgsError> {
    let mut args = Args(Vec::with_capacity(4096));
    for namespace in ["user", "ipc", "pid", "net", "uts", "cgroup"] {
        args.push([format!("--unshare-{namespace}")]);
    }
    args.push(["--disable-userns", "--new-session", "--cap-drop", "ALL", "--as-pid-1"]);
    args.push(["--clearenv", "--hostname", &plan.hostname]);
    let mut data = fds.data.iter();
    for mount in &plan.mounts {
        args.mount(mount, sources, &mut data)?;
    }
    for path in &plan.masked {
        args.push(["--ro-bind", "/dev/null", path]);
    }
    args.push(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]);
    Ok(args.0)
}

struct Args(Vec<u8>);

impl Args {
    fn push<const N: usize>(&mut self, words: [impl AsRef<[u8]>; N]) {
        for word in words {
            self.0.extend_from_slice(word.as_ref());
            self.0.push(0);
        }
    }

    fn mount<'a>(
        &mut self,
        mount: &Mount,
        sources: &Sources,
        data: &mut impl Iterator<Item = &'a i32>,
    ) -> Result<(), ArgsError> {
        let dest = mount.dest.as_str();
        match &mount.kind {
            MountKind::Proc => self.push(["--proc", dest]),
            MountKind::Dev => self.push(["--dev", dest]),
            MountKind::Dir => self.push(["--dir", dest]),
            MountKind::Symlink { target } => self.push(["--symlink", target, dest]),
            MountKind::Tmpfs { size_bytes, mode } => {
                self.push(["--perms", &format!("{mode:04o}")]);
                if let Some(size) = size_bytes {
                    self.push(["--size", &size.to_string()]);
                }
                self.push(["--tmpfs", dest]);
            }
            MountKind::Bind { source, writable } => {
                let path: &Path = sources.0.get(*source).ok_or(ArgsError::Source(*source))?;
                let option: &[u8] = if *writable { b"--bind" } else { b"--ro-bind" };
                self.push([option, path.as_os_str().as_bytes(), dest.as_bytes()]);
            }
            MountKind::Hidden { folder: true } => {
                self.push(["--perms", "0555", "--size", EMPTY_BYTES, "--tmpfs", dest]);
                self.push(["--remount-ro", dest]);
            }
            MountKind::Hidden { folder: false } => {
                let fd = next(data, mount)?;
                self.push(["--perms", "0444", "--ro-bind-data", &fd, dest]);
            }
            MountKind::Data => {
                let fd = next(data, mount)?;
                self.push(["--perms", "0444", "--file", &fd, dest]);
            }
        }
        Ok(())
    }
}

/// The smallest there is.
const EMPTY_BYTES: &str = "4096";

fn next<'a>(data: &mut impl Iterator<Item = &'a i32>, mount: &Mount) -> Result<String, ArgsError> {
    data.next().map(ToString::to_string).ok_or_else(|| ArgsError::Data(mount.dest.clone()))
}

/// The synthetic files, in the order of the plan's mounts.
#[must_use]
pub fn data_files(plan: &CagePlan) -> Vec<DataFile> {
    let file = |mount: &Mount| match mount.kind {
        MountKind::Data => {
            let contents = contents(&mount.dest, plan).into_bytes();
            Some(DataFile { dest: mount.dest.clone(), contents })
        }
        MountKind::Hidden { folder: false } => {
            Some(DataFile { dest: mount.dest.clone(), contents: Vec::new() })
        }
        MountKind::Proc
        | MountKind::Dev
        | MountKind::Dir
        | MountKind::Symlink { .. }
        | MountKind::Tmpfs { .. }
        | MountKind::Bind { .. }
        | MountKind::Hidden { folder: true } => None,
    };
    plan.mounts.iter().filter_map(file).collect()
}

fn contents(dest: &str, plan: &CagePlan) -> String {
    let User { uid, gid, name, home, shell } = &plan.user;
    let hostname = &plan.hostname;
    match dest {
        // What belongs to others on the host is shown as nobody's.
        "/etc/passwd" => format!(
            "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
             {name}:x:{uid}:{gid}:{name}:{home}:{shell}\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        // tty is named because the terminal's group is, where it is mapped.
        "/etc/group" => format!("root:x:0:\ntty:x:5:\n{name}:x:{gid}:\nnogroup:x:65534:\n"),
        "/etc/nsswitch.conf" => "passwd: files\ngroup: files\nshadow: files\nhosts: files\n\
             networks: files\nprotocols: files\nservices: files\n"
            .to_owned(),
        "/etc/hosts" => format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n"),
        "/etc/resolv.conf" => {
            "# This cage has no network but loopback, and no name server.\n".to_owned()
        }
        _ => String::new(),
    }
}
