//! What the broker is given: the boot text at descriptor 3 and the descriptors that it names.

use crate::sys;
use cage::cgroup::{Version, io_bytes};
use cage::launch::{BOOT_FD, Boot, CounterFile};
use link::Listener;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use wire::Usage;
use wire::hello::{self, Hello};

const BOOT_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("no boot text at descriptor {BOOT_FD} ({0}); mews-supervisor starts this program")]
    Read(io::Error),
    #[error("the boot text is not understood: {0}")]
    Parse(serde_json::Error),
    #[error(
        "this broker is {ours}, its supervisor speaks protocol {theirs}: they were not installed \
         together. Install mews again, then `mews daemon restart`"
    )]
    Proto { ours: Hello, theirs: u32 },
    #[error("descriptor {fd} of the boot text: {error}")]
    Descriptor { fd: RawFd, error: io::Error },
}

/// Everything inherited, owned.
#[derive(Debug)]
pub struct Booted {
    pub boot: Boot,
    pub listener: Listener,
    pub tether: OwnedFd,
    pub state_dir: StateDir,
    pub launch: LaunchFds,
    pub seccomp: Option<OwnedFd>,
    pub counters: Counters,
    pub oom_event: Option<OwnedFd>,
}

/// What the stub and bwrap need; closed in the broker once bwrap runs.
#[derive(Debug)]
pub struct LaunchFds {
    pub bwrap: OwnedFd,
    pub args: OwnedFd,
    pub init: OwnedFd,
    pub inherited: Vec<OwnedFd>,
    pub cgroup_procs: Vec<OwnedFd>,
}

/// The cgroup's own counts.
#[derive(Debug, Default)]
pub struct Counters {
    pub memory: Option<Counter>,
    pub pids: Option<Counter>,
    peak: Option<File>,
    cpu: Option<Counter>,
    pids_peak: Option<File>,
    io: Option<(Version, File)>,
}

#[derive(Debug)]
pub struct Counter {
    file: File,
    key: String,
}

/// `<state>/cages/<id>`, the only place that a locked-up broker can write to.
#[derive(Debug)]
pub struct StateDir(OwnedFd);

/// What this broker says of itself on its link.
pub fn hello() -> Hello {
    Hello::speaking("mews-ptybroker", link::failpoint::variable(hello::SPEAKS).as_deref())
}

/// Reads descriptor 3 and takes over all that it names.
///
/// # Errors
/// Not started by a supervisor, or by one that speaks otherwise.
pub fn take() -> Result<Booted, BootError> {
    let text = sys::inherit(BOOT_FD)
        .and_then(|fd| link::memfd::read(fd, BOOT_BYTES_MAX))
        .map_err(BootError::Read)?;
    let boot: Boot = serde_json::from_slice(&text).map_err(BootError::Parse)?;
    let ours = hello();
    // Exactly: a boot text is read by the broker that was opened together with its supervisor.
    if boot.proto != ours.proto {
        return Err(BootError::Proto { ours, theirs: boot.proto });
    }
    let mut taken = Taken::default();
    let fds = boot.fds.clone();
    let counter = |taken: &mut Taken, file: Option<CounterFile>| {
        file.map(|file| Ok(Counter { file: taken.take(file.fd)?.into(), key: file.key }))
            .transpose()
    };
    let booted = Booted {
        listener: Listener::from_fd(taken.take(fds.listener)?),
        tether: taken.take(fds.tether)?,
        state_dir: StateDir(taken.take(fds.state_dir)?),
        launch: LaunchFds {
            bwrap: taken.take(fds.bwrap)?,
            args: taken.take(fds.args)?,
            init: taken.take(fds.init)?,
            inherited: taken.take_all(&fds.inherited)?,
            cgroup_procs: taken.take_all(&fds.cgroup_procs)?,
        },
        seccomp: taken.take_if(fds.seccomp)?,
        counters: Counters {
            memory: counter(&mut taken, fds.memory_events)?,
            pids: counter(&mut taken, fds.pids_events)?,
            peak: taken.take_if(fds.memory_peak)?.map(File::from),
            cpu: counter(&mut taken, fds.cpu_usage)?,
            pids_peak: taken.take_if(fds.pids_peak)?.map(File::from),
            io: match fds.io_usage {
                Some(file) => Some((file.version(), taken.take(file.fd)?.into())),
                None => None,
            },
        },
        oom_event: taken.take_if(fds.oom_event)?,
        boot,
    };
    // What was not named is nobody's business, least of all the cage's.
    sys::close_on_exec_from(BOOT_FD)
        .map_err(|error| BootError::Descriptor { fd: BOOT_FD, error })?;
    Ok(booted)
}

/// Numbers that were taken: owning one twice would close it under its owner.
#[derive(Debug, Default)]
struct Taken(BTreeSet<RawFd>);

impl Taken {
    fn take(&mut self, fd: RawFd) -> Result<OwnedFd, BootError> {
        let refuse = |error| BootError::Descriptor { fd, error };
        if fd <= 2 || !self.0.insert(fd) {
            return Err(refuse(io::Error::new(
                io::ErrorKind::InvalidInput,
                "named twice or stdio",
            )));
        }
        sys::inherit(fd).map_err(refuse)
    }

    fn take_if(&mut self, fd: Option<RawFd>) -> Result<Option<OwnedFd>, BootError> {
        fd.map(|fd| self.take(fd)).transpose()
    }

    fn take_all(&mut self, fds: &[RawFd]) -> Result<Vec<OwnedFd>, BootError> {
        fds.iter().map(|fd| self.take(*fd)).collect()
    }
}

impl Counter {
    /// The count now; zero if it cannot be read.
    #[must_use]
    pub fn read(&self) -> u64 {
        read_text(&self.file)
            .lines()
            .find_map(|line| line.strip_prefix(self.key.as_str())?.trim().parse().ok())
            .unwrap_or(0)
    }

    /// A descriptor to wait on: cgroup files wake their pollers when they change.
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}

impl Counters {
    /// Processes of the cage that the kernel killed for their memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.memory.as_ref().map_or(0, Counter::read)
    }

    /// Forks that were refused.
    #[must_use]
    pub fn pids_met(&self) -> u64 {
        self.pids.as_ref().map_or(0, Counter::read)
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        read_text(self.peak.as_ref()?).trim().parse().ok()
    }

    /// Of the whole cage so far, as far as it is counted.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let cpu = self.cpu.as_ref();
        let io = self.io.as_ref().map(|(version, file)| io_bytes(*version, &read_text(file)));
        Usage {
            memory_peak_bytes: self.memory_peak_bytes(),
            // v1 counts nanoseconds, and has no key.
            cpu_us: cpu.map(|cpu| cpu.read() / if cpu.key.is_empty() { 1000 } else { 1 }),
            pids_peak: self.pids_peak.as_ref().and_then(|file| read_text(file).trim().parse().ok()),
            read_bytes: io.map(|(read, _)| read),
            write_bytes: io.map(|(_, written)| written),
            ..Usage::default()
        }
    }
}

fn read_text(file: &File) -> String {
    let mut bytes = [0_u8; 4096];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
}

impl StateDir {
    /// # Errors
    /// Not a folder.
    pub fn open(path: &std::path::Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// A new file for reading and writing; an older one is emptied.
    ///
    /// # Errors
    /// ENOSPC, EACCES.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::from_bits_truncate(0o600))?.into())
    }

    /// # Errors
    /// ENOENT.
    pub fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Not synced: it survives the broker, not a loss of power.
    ///
    /// # Errors
    /// ENOSPC, EACCES.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.create(name)?.write_all(bytes)
    }

    /// The whole file or none of it, also over a loss of power.
    ///
    /// # Errors
    /// ENOSPC, EACCES.
    pub fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!(".{name}.new");
        let mut file = self.create(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // Half a file of ours is of no use; that it may stay hides nothing.
            let flag = nix::unistd::UnlinkatFlags::NoRemoveDir;
            let _stays = nix::unistd::unlinkat(&self.0, temporary.as_str(), flag);
            return Err(error);
        }
        nix::fcntl::renameat(&self.0, temporary.as_str(), &self.0, name)?;
        nix::unistd::fsync(&self.0)?;
        Ok(())
    }

    /// # Errors
    /// ENOENT.
    pub fn read_all(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl AsFd for StateDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
