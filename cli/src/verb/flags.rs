//! What a cage is started with, as flags: policy, folder, limits, what is lent beside.

use super::limits;
use crate::failure::Failure;
use crate::request;
use std::path::{Path, PathBuf};
use wire::{Overrides, WorkspaceMode};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Policy: a name (mews policy list), or a file if it has a '/' or ends in .toml
    #[arg(short, long, value_name = "P", default_value = "shell")]
    pub(super) policy: String,
    /// Workspace: the folder that the command may write to [default: this one]
    #[arg(short, long, value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// Most time it may take: 30s, 10m, 1h
    #[arg(long, value_name = "T")]
    timeout: Option<String>,
    /// Most memory: 512M, 2G
    #[arg(long, value_name = "M")]
    memory: Option<String>,
    /// Most processes
    #[arg(long, value_name = "N")]
    pids: Option<u64>,
    /// Any limit of a policy: cpu=1.5, idle=10m, io=50M/s, output_bytes=1G, swap=0 ...
    #[arg(long, value_name = "KEY=VALUE")]
    limit: Vec<String>,
    #[command(flatten)]
    apart: Apart,
    /// One more path that may be read
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// One more path that may be written
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A variable to pass (K) or to set (K=V)
    #[arg(long, value_name = "K[=V]")]
    env: Vec<String>,
    /// A home folder that is kept under this name
    #[arg(long, value_name = "NAME")]
    home: Option<String>,
    /// Network: only 'none' in this version
    #[arg(long, value_name = "MODE")]
    net: Option<String>,
    /// The socket that $PROVIDER stands for: unix:PATH
    #[arg(long, value_name = "unix:PATH")]
    provider: Option<String>,
}

/// Where writes to the workspace go.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Apart {
    /// Keep writes to the workspace apart: mews diff, apply, discard, rollback
    #[arg(long, conflicts_with = "copy")]
    overlay: bool,
    /// Work in a private copy of the workspace: the same verbs
    #[arg(long)]
    copy: bool,
}

impl Apart {
    fn mode(self) -> Option<WorkspaceMode> {
        match (self.overlay, self.copy) {
            (true, _) => Some(WorkspaceMode::Overlay),
            (false, true) => Some(WorkspaceMode::Copy),
            (false, false) => None,
        }
    }
}

impl Flags {
    pub(super) fn overrides(&self) -> Result<Overrides, Failure> {
        let paths = |paths: &[PathBuf]| {
            paths.iter().map(|path| request::absolute(path).into_os_string().into()).collect()
        };
        let env = self.env.iter().map(|text| match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text.clone(), None),
        });
        let provider = self.provider.as_deref().map(|text| match text.strip_prefix("unix:") {
            Some(path) => format!("unix:{}", request::absolute(Path::new(path)).display()),
            None => text.to_owned(),
        });
        Ok(Overrides {
            read: paths(&self.read),
            write: paths(&self.write),
            env: env.collect(),
            memory: self.memory.clone(),
            pids: self.pids,
            walltime: self.timeout.clone(),
            limits: limits::asked(&self.limit)?,
            home: self.home.clone(),
            workspace_mode: self.apart.mode(),
            net: self.net.clone(),
            provider,
        })
    }
}
