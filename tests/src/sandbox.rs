//! The folders, cgroup parent and environment of one test.

use crate::caller::{Caller, is_root};
use crate::process::{self, Finished, LIMIT};
use crate::skip::Skip;
use crate::{leftovers, pause, programs};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// How long the last process may take to be gone after everything was told to stop.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// What an armed step does to the daemon that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Kill,
    Stop,
}

#[derive(Debug)]
pub struct Sandbox {
    root: TempDir,
    cgroup_parent: String,
    caller: Caller,
    finished: bool,
    speaks: Mutex<String>,
    programs: Mutex<Option<PathBuf>>,
}

impl Sandbox {
    /// For whoever runs the tests.
    ///
    /// # Errors
    /// No temporary folder, or the programs are not built.
    pub fn new() -> anyhow::Result<Self> {
        Self::of(Caller::Me)
    }

    /// # Errors
    /// As [`Self::new`].
    pub fn of(caller: Caller) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        programs::folder()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = tempfile::Builder::new().prefix("mews-t-").tempdir_in("/tmp")?;
        let cgroup_parent = format!("/mews-test-{}-{number}", std::process::id());
        let (speaks, programs) = (Mutex::default(), Mutex::default());
        let sandbox = Self { root, cgroup_parent, caller, finished: false, speaks, programs };
        fs::set_permissions(sandbox.root(), fs::Permissions::from_mode(0o755))?;
        for name in ["run", "state", "config", "home", "ws"] {
            sandbox.folder(name)?;
        }
        // sessiond meets its steps under another uid.
        let steps = sandbox.folder("steps")?;
        fs::set_permissions(steps, fs::Permissions::from_mode(0o777))?;
        Ok(sandbox)
    }

    /// A folder of the caller's in the sandbox.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.root().join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        if let Caller::Uid(uid) = self.caller {
            chown(&path, Some(uid), Some(uid))?;
        }
        Ok(path)
    }

    /// A file of the caller's, its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
        let path = self.root().join(name);
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        if let Caller::Uid(uid) = self.caller {
            chown(&path, Some(uid), Some(uid))?;
        }
        Ok(path)
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root().join("ws")
    }

    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.root().join("run")
    }

    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.root().join("state")
    }

    #[must_use]
    pub fn api_socket(&self) -> PathBuf {
        self.run_dir().join("api.sock")
    }

    #[must_use]
    pub fn cgroup_parent(&self) -> &str {
        &self.cgroup_parent
    }

    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// From now on clients, and the daemons that they start, are of these builds, as
    /// [`wire::hello::Hello::speaking`] reads it; nothing: of their own.
    pub fn speak(&self, text: &str) {
        *locked(&self.speaks) = text.to_owned();
    }

    /// From now on `mews` is that of this folder.
    pub fn use_programs(&self, folder: PathBuf) {
        *locked(&self.programs) = Some(folder);
    }

    /// Where `mews` is.
    ///
    /// # Errors
    /// The programs are not built.
    pub fn programs(&self) -> anyhow::Result<PathBuf> {
        match &*locked(&self.programs) {
            Some(folder) => Ok(folder.clone()),
            None => Ok(programs::folder()?.to_owned()),
        }
    }

    /// The whole environment of the caller.
    ///
    /// # Errors
    /// The programs are not built.
    pub fn env(&self) -> anyhow::Result<Vec<(String, String)>> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", text(&self.programs()?));
        let mut variables = [
            ("PATH", path),
            ("HOME", text(&self.root().join("home"))),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "xterm-256color".to_owned()),
            ("RUST_BACKTRACE", "1".to_owned()),
            ("MEWS_RUN_DIR", text(&self.run_dir())),
            ("MEWS_STATE_DIR", text(&self.state_dir())),
            ("MEWS_CONFIG_DIR", text(&self.root().join("config"))),
            ("MEWS_CGROUP_PARENT", self.cgroup_parent.clone()),
            (link::failpoint::VARIABLE, text(&self.root().join("steps"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        let speaks = locked(&self.speaks).clone();
        if !speaks.is_empty() {
            variables.push((wire::hello::SPEAKS.to_owned(), speaks));
        }
        Ok(variables)
    }

    /// `mews ARGS`, in the workspace, not started yet.
    ///
    /// # Errors
    /// The programs are not built.
    pub fn command<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(self.programs()?.join("mews"));
        command.args(args).env_clear().envs(self.env()?).current_dir(self.workspace());
        self.caller.apply(&mut command);
        Ok(command)
    }

    /// Runs `mews ARGS` to its end.
    ///
    /// # Errors
    /// It could not be started or hung.
    pub fn mews<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Finished> {
        process::run(&mut self.command(args)?, b"", LIMIT)
    }

    /// `mews --json ARGS` that must succeed: its JSON document.
    ///
    /// # Errors
    /// It did not.
    pub fn json<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<serde_json::Value> {
        let args: Vec<A> = args.into_iter().collect();
        let flag = std::iter::once(OsStr::new("--json"));
        self.mews(flag.chain(args.iter().map(AsRef::as_ref)))?.expect(0)?.json()
    }

    /// The next daemon that reaches this step dies there, or stands there until SIGCONT.
    ///
    /// # Errors
    /// It cannot be written; [`Skip`] in a release build, which has no steps.
    pub fn arm(&self, step: &str, act: Act) -> anyhow::Result<()> {
        if !cfg!(debug_assertions) {
            return Err(Skip("a release build has no steps to die at".to_owned()).into());
        }
        let order = match act {
            Act::Kill => "kill",
            Act::Stop => "stop",
        };
        let path = self.root().join("steps").join(step);
        fs::write(&path, order).with_context(|| format!("write {}", path.display()))
    }

    /// Whether a daemon has reached a step that was armed.
    #[must_use]
    pub fn has_met(&self, step: &str) -> bool {
        self.root().join("steps").join(format!("{step}.met")).exists()
    }

    /// Stops the daemons, kills the cages, and says what is left all the same.
    ///
    /// # Errors
    /// Anything is left.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.stop()
    }

    /// Its folder stays, for whoever wants to know what happened.
    pub fn keep(&mut self) -> PathBuf {
        self.root.disable_cleanup(true);
        self.root().to_owned()
    }

    /// What the daemons wrote, for the message of a failed test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let folder = self.state_dir().join("log");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let log = fs::read(entry.path()).unwrap_or_default();
            let log = process::tail(&String::from_utf8_lossy(&log));
            text.push_str(&format!("--- {}\n{log}\n", entry.path().display()));
        }
        text
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.finished = true;
        let stopped = if self.daemons_were_there() {
            self.mews(["daemon", "stop", "--kill"])?.expect(0).map(drop)
        } else {
            Ok(())
        };
        let gone = pause::until("nothing of mews is left", GONE_WITHIN, || {
            let left = leftovers::find(self.root(), &self.cgroup_parent);
            left.is_empty().then_some(())
        });
        if gone.is_err() {
            let left = leftovers::find(self.root(), &self.cgroup_parent);
            self.sweep();
            anyhow::bail!("left behind:\n  {}", left.join("\n  "));
        }
        stopped
    }

    fn daemons_were_there(&self) -> bool {
        self.api_socket().exists() || self.run_dir().join("supervisor.sock").exists()
    }

    /// After a failure: the next test must not suffer from this one.
    fn sweep(&self) {
        // A supervisor starts its sessiond again if that one dies first.
        pause::until("every process is killed", GONE_WITHIN, || self.kill_all().then_some(())).ok();
        if is_root()
            && let Ok(layout) = cage::cgroup::Layout::probe(&self.cgroup_parent)
        {
            for (_, cgroup) in cage::cgroup::scan(&layout) {
                cgroup.kill_all(std::time::Instant::now() + GONE_WITHIN).ok();
                cgroup.remove().ok();
            }
            layout.tidy();
        }
    }
}

impl Sandbox {
    /// One SIGKILL to everything that is there now; true if there was nothing.
    fn kill_all(&self) -> bool {
        let found = leftovers::processes(self.root());
        for line in &found {
            let pid = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            if let Some(handle) = pid.and_then(|pid| link::PidFd::open(pid).ok()) {
                handle.signal(libc::SIGKILL).ok();
            }
        }
        found.is_empty()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Sandbox {
    /// For the way out by an error; a test that went well calls [`Sandbox::finish`].
    fn drop(&mut self) {
        if !self.finished {
            self.stop().ok();
        }
    }
}
