//! The model provider of `shared/agents`: it asks for one tool call, then gives its last answer.

use crate::runner::skip;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{Caller, Sandbox, pause, process};

/// The mock of `shared/agents`, on a Unix socket.
pub(super) struct Provider {
    child: Child,
    pub(super) socket: PathBuf,
    log: PathBuf,
}

impl Provider {
    pub(super) fn start(sandbox: &Sandbox, tool_call: &str) -> anyhow::Result<Self> {
        let program = mock()?;
        let socket = sandbox.root().join("provider.sock");
        let log = sandbox.root().join("provider.log");
        let errors = std::fs::File::create(sandbox.root().join("provider.err"))?;
        let child = Command::new("/usr/bin/python3")
            .arg(program)
            .arg(&socket)
            .env("MOCK_LOG", &log)
            .env("MOCK_CMD", tool_call)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()?;
        let provider = Self { child, socket, log };
        pause::until("the provider listens", process::LIMIT, || {
            provider.socket.exists().then_some(())
        })?;
        if let Caller::Uid(uid) = sandbox.caller() {
            std::os::unix::fs::chown(&provider.socket, Some(uid), Some(uid))?;
        }
        Ok(provider)
    }

    pub(super) fn log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("the provider was asked:\n{log}")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn mock() -> anyhow::Result<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a repository")?;
    let beside = repository.parent().context("a folder")?.join("shared/agents/mock_provider.py");
    let set = std::env::var_os("MEWS_MOCK_PROVIDER").map(PathBuf::from);
    let path = set.unwrap_or(beside);
    if path.exists() { Ok(path) } else { Err(skip(&format!("{} is missing", path.display()))) }
}
