//! The systems that keep a terminal, each in the same few words.

use super::client::{Client, Program};
use super::job::Jobs;
use anyhow::Context as _;
use link::PidFd;
use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::Sandbox;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The job on our own terminal: the floor.
    Bare,
    Dtach,
    Tmux,
    Mews,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Dtach, Self::Tmux, Self::Mews];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Dtach => "dtach",
            Self::Tmux => "tmux",
            Self::Mews => "mews",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        let there = |name: &str| Path::new("/usr/bin").join(name).exists();
        match self {
            Self::Bare | Self::Mews => true,
            Self::Dtach | Self::Tmux => there(self.name()),
        }
    }
}

/// Where all of them run.
#[derive(Debug)]
pub(crate) struct Systems<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) jobs: &'a Jobs,
    /// How many servers of peers were started: each has a socket of its own.
    started: Cell<u32>,
}

impl<'a> Systems<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, jobs: &'a Jobs) -> Self {
        Self { sandbox, jobs, started: Cell::new(0) }
    }

    /// Starts a job without anybody attached.
    pub(crate) fn start(&self, kind: Kind, job: &str, size: (u16, u16)) -> anyhow::Result<()> {
        self.started.set(self.started.get() + u32::from(kind != Kind::Mews));
        let script = format!("{job}.sh");
        let (cols, rows) = (size.0.to_string(), size.1.to_string());
        self.jobs.clear();
        match kind {
            Kind::Bare => anyhow::bail!("a bare terminal has always somebody attached"),
            Kind::Dtach => {
                let socket = self.socket();
                self.run(&["dtach", "-n", &socket, "-r", "none", "-E", "-z", "sh", &script, "now"])
            }
            Kind::Tmux => self.tmux_start(&cols, &rows, &format!("sh {script} now")),
            Kind::Mews => self.mews(&["run", "-d", "-n", "bench", "--", "sh", &script, "now"]),
        }
    }

    /// Starts a job that waits for a line, and a client on a terminal of ours.
    pub(crate) fn start_attached(
        &self,
        kind: Kind,
        job: &str,
        size: (u16, u16),
    ) -> anyhow::Result<Client> {
        self.started.set(self.started.get() + u32::from(kind != Kind::Mews));
        let script = format!("{job}.sh");
        let (cols, rows) = (size.0.to_string(), size.1.to_string());
        self.jobs.clear();
        match kind {
            Kind::Bare => return self.start_bare(&["sh", &script], size),
            Kind::Dtach => {
                let socket = self.socket();
                self.run(&["dtach", "-n", &socket, "-r", "none", "-E", "-z", "sh", &script])?;
            }
            Kind::Tmux => self.tmux_start(&cols, &rows, &format!("sh {script}"))?,
            Kind::Mews => self.mews(&["run", "-d", "-n", "bench", "--", "sh", &script])?,
        }
        self.jobs.stamp("up")?;
        self.attach(kind, &[], size)
    }

    /// A program on a terminal of ours.
    pub(crate) fn start_bare(&self, words: &[&str], size: (u16, u16)) -> anyhow::Result<Client> {
        Client::start(&self.program(words)?, self.jobs.folder(), size)
    }

    /// Another client of the one job; `options` for mews.
    pub(crate) fn attach(
        &self,
        kind: Kind,
        options: &[&str],
        size: (u16, u16),
    ) -> anyhow::Result<Client> {
        let socket = self.socket();
        let mews = testkit::programs::folder()?.join("mews").to_string_lossy().into_owned();
        let mut words: Vec<&str> = match kind {
            Kind::Bare => anyhow::bail!("nothing can be attached to a bare terminal"),
            Kind::Dtach => vec!["dtach", "-a", &socket, "-r", "none", "-E", "-z"],
            Kind::Tmux => vec!["tmux", "-S", &socket, "attach", "-t", "bench"],
            Kind::Mews => vec![&mews, "attach", "bench"],
        };
        words.extend(options);
        Client::start(&self.program(&words)?, self.jobs.folder(), size)
    }

    /// Ends the job and whatever kept it.
    pub(crate) fn end(&self, kind: Kind, client: Option<Client>) -> anyhow::Result<()> {
        match kind {
            Kind::Bare => {}
            Kind::Tmux => self.run(&["tmux", "-S", &self.socket(), "kill-server"])?,
            Kind::Dtach => {
                let pid = self.jobs.pid().context("dtach's job")?;
                let job = PidFd::open(pid)?;
                job.signal(libc::SIGKILL)?;
                let socket = self.socket();
                testkit::pause::until("dtach ends", Duration::from_secs(5), || {
                    (!Path::new(&socket).exists()).then_some(())
                })?;
            }
            Kind::Mews => {
                self.mews(&["kill", "bench"])?;
                testkit::pause::until("bench is over", Duration::from_secs(5), || {
                    self.mews(&["rm", "bench"]).ok()
                })?;
            }
        }
        client.map_or(Ok(()), Client::hang_up)
    }

    /// Where tmux says that it serves.
    pub(crate) fn tmux_pid(&self) -> anyhow::Result<i32> {
        let socket = self.socket();
        let words = ["tmux", "-S", &socket, "display", "-p", "#{pid}"];
        let said = self.command(&words)?.output()?;
        Ok(String::from_utf8_lossy(&said.stdout).trim().parse()?)
    }

    fn tmux_start(&self, cols: &str, rows: &str, command: &str) -> anyhow::Result<()> {
        let config =
            self.sandbox.file("tmux.conf", "set -g history-limit 10000\nset -g status off\n")?;
        let (config, socket) = (config.to_string_lossy().into_owned(), self.socket());
        let words = ["tmux", "-S", &socket, "-f", &config, "new-session", "-d"];
        let rest = ["-x", cols, "-y", rows, "-s", "bench", command];
        self.run(&[&words[..], &rest[..]].concat())
    }

    pub(crate) fn mews(&self, args: &[&str]) -> anyhow::Result<()> {
        self.sandbox.mews(args)?.expect(0).map(drop)
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<()> {
        // Not through pipes: a server would keep them open.
        let log = std::fs::File::create(self.sandbox.root().join("peer.log"))?;
        let status = self.command(words)?.stdout(log.try_clone()?).stderr(log).status()?;
        let said = std::fs::read_to_string(self.sandbox.root().join("peer.log"))?;
        anyhow::ensure!(status.success(), "{words:?}: {status}: {said}");
        Ok(())
    }

    fn command(&self, words: &[&str]) -> anyhow::Result<Command> {
        let Program { argv, env } = self.program(words)?;
        let (name, args) = argv.split_first().context("a command has a name")?;
        let mut command = Command::new(name);
        command.args(args).env_clear().envs(env).stdin(Stdio::null());
        command.current_dir(self.jobs.folder());
        Ok(command)
    }

    fn program(&self, words: &[&str]) -> anyhow::Result<Program> {
        let argv = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Program { argv, env: self.sandbox.env()? })
    }

    fn socket(&self) -> String {
        self.sandbox
            .root()
            .join(format!("peer-{}", self.started.get()))
            .to_string_lossy()
            .into_owned()
    }
}
