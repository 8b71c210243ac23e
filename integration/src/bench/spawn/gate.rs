//! Two FIFOs in the workspace: the payload says that it runs, and waits to be let go.

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Gate {
    up: File,
    down: File,
}

impl Gate {
    /// # Errors
    /// The FIFOs cannot be made in `folder`.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let open = |name: &str| -> anyhow::Result<File> {
            let path = folder.join(name);
            nix::unistd::mkfifo(&path, Mode::S_IRWXU)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            // Both ways, so that neither side waits for the other to open it.
            Ok(OpenOptions::new().read(true).write(true).open(&path)?)
        };
        Ok(Self { up: open("up")?, down: open("down")? })
    }

    /// What the payload does.
    pub(crate) fn payload() -> [&'static str; 3] {
        ["/bin/sh", "-c", "echo >up; read x <down"]
    }

    /// Returns when the payload runs.
    ///
    /// # Errors
    /// It does not, for too long.
    pub(crate) fn wait(&self) -> anyhow::Result<()> {
        let mut fds = [PollFd::new(self.up.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::try_from(LIMIT).unwrap_or(PollTimeout::MAX))?;
        anyhow::ensure!(ready == 1, "the payload did not run within {LIMIT:?}");
        (&self.up).read_exact(&mut [0]).context("gate")
    }

    /// Lets one payload end.
    ///
    /// # Errors
    /// The FIFO is full.
    pub(crate) fn open(&self) -> anyhow::Result<()> {
        (&self.down).write_all(b"\n").context("gate")
    }
}
