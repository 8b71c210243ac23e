//! The peer: bwrap by itself, with the mounts of the same plan, as an ordinary uid.

use anyhow::Context as _;
use cage::bwrap::{self, BwrapFds, Sources};
use cage::plan::{CagePlan, Controller, HostFacts, Operator, RealPaths, Request};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::{Overrides, PolicySource};

/// Nobody's, beside those of cages and of tests.
const UID: u32 = 0x6800_0000;

#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) plan: CagePlan,
    pub(crate) workspace: PathBuf,
    files: Vec<PathBuf>,
}

impl Plain {
    /// # Errors
    /// The plan does not resolve, or `folder` cannot be written.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let workspace = folder.join("plain");
        std::fs::create_dir(&workspace)?;
        chown(&workspace, Some(UID), Some(UID))?;
        let plan = resolve(&facts(), &workspace)?;
        let mut files = Vec::new();
        for (number, data) in bwrap::data_files(&plan).into_iter().enumerate() {
            let path = folder.join(format!("data-{number}"));
            std::fs::write(&path, data.contents)?;
            files.push(path);
        }
        Ok(Self { plan, workspace, files })
    }

    /// bwrap with `payload` in it, not started yet. The files live as long as the command is needed.
    ///
    /// # Errors
    /// A file is gone.
    pub(crate) fn command(&self, payload: &[&str]) -> anyhow::Result<(Command, Vec<File>)> {
        let mut files = Vec::new();
        for path in &self.files {
            let file = File::open(path)?;
            fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            files.push(file);
        }
        let fds = BwrapFds { data: files.iter().map(AsRawFd::as_raw_fd).collect() };
        let args = bwrap::args(&self.plan, &Sources::in_place(&self.plan), &fds)?;
        let args = args.split(|byte| *byte == 0).map(|arg| OsString::from_vec(arg.to_vec()));
        let mut args: Vec<OsString> = args.collect();
        // After the last option's NUL there is nothing; before it stands `--chdir /`, since in a cage
        // pid 1 is not the payload.
        args.truncate(args.len().saturating_sub(3));
        let mut command = Command::new("/usr/bin/bwrap");
        command.args(args).arg("--chdir").arg(&self.plan.workspace.inside).arg("--").args(payload);
        command.uid(UID).gid(UID).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok((command, files))
    }
}

pub(crate) fn facts() -> HostFacts {
    HostFacts {
        userns: true,
        seccomp: true,
        landlock_abi: 7,
        memory: Controller::V1,
        pids: Controller::V1,
        telling: cage::probe::telling(),
        ..HostFacts::default()
    }
}

/// As the supervisor does it, which knows the host's facts since its start.
pub(crate) fn resolve(facts: &HostFacts, workspace: &Path) -> anyhow::Result<CagePlan> {
    let policy = cage::policy::load(&PolicySource::Name("shell".to_owned()), &[])?;
    let request = Request {
        operator: Operator { uid: UID, gid: UID, name: None, home: None },
        uid: UID,
        gid: UID,
        workspace: workspace.to_owned(),
        overrides: Overrides::default(),
        project: None,
        ceiling: Default::default(),
        homes: workspace.join("homes"),
        never: Vec::new(),
        never_write: Vec::new(),
    };
    cage::plan::resolve(&policy, facts, &request, &RealPaths::default())
        .context("the plan of policy shell")
}
