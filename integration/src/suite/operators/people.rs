//! Accounts made for a test, as `useradd` makes them, and a host that lets some of them in.

use crate::runner::{need_programs, need_root};
use anyhow::Context as _;
use serde_json::Value;
use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox, Terminal, pause};

/// Somebody else may be writing to the user database.
const LOCKED: Duration = Duration::from_secs(20);

thread_local! {
    /// Names of one process never meet.
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug)]
pub(in crate::suite) struct Group(pub(in crate::suite) String);

impl Group {
    pub(in crate::suite) fn make() -> anyhow::Result<Self> {
        let name = fresh("g");
        edit(&["groupadd", &name])?;
        Ok(Self(name))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        edit(&["groupdel", &self.0]).ok();
    }
}

/// An operator with a home folder and a project in it.
#[derive(Debug)]
pub(in crate::suite) struct Person {
    pub(in crate::suite) name: String,
    pub(in crate::suite) uid: u32,
    pub(in crate::suite) gid: u32,
    run_dir: PathBuf,
}

impl Person {
    pub(in crate::suite) fn make(host: &Sandbox, groups: &[&Group]) -> anyhow::Result<Self> {
        let name = fresh("u");
        let groups: Vec<&str> = groups.iter().map(|group| group.0.as_str()).collect();
        let groups = groups.join(",");
        let mut words = vec!["useradd", "--create-home", "--user-group", "--shell", "/bin/bash"];
        if !groups.is_empty() {
            words.extend(["--groups", &groups]);
        }
        words.push(&name);
        edit(&words)?;
        let user = nix::unistd::User::from_name(&name)?.context("the account is there")?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        let person = Self { name, uid, gid, run_dir: host.run_dir() };
        person.sh("chmod 700 . && mkdir project")?.expect(0)?;
        Ok(person)
    }

    pub(in crate::suite) fn home(&self) -> PathBuf {
        PathBuf::from("/home").join(&self.name)
    }

    pub(in crate::suite) fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Any program as this person, with the groups that the account has.
    pub(in crate::suite) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &self.name, "--regid", &self.name, "--init-groups", program]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home());
        command.env("LANG", "C.UTF-8").env("USER", &self.name).env("TERM", "xterm-256color");
        command.current_dir(self.home());
        command
    }

    pub(in crate::suite) fn sh(&self, script: &str) -> anyhow::Result<Finished> {
        process::run(self.command("sh").arg("-c").arg(script), b"", LIMIT)
    }

    /// `mews ARGS` in the project.
    pub(in crate::suite) fn mews_command(&self, args: &[&str]) -> anyhow::Result<Command> {
        let mews = testkit::programs::folder()?.join("mews");
        let mut command = self.command(&mews.to_string_lossy());
        command.args(args).env("MEWS_RUN_DIR", &self.run_dir).current_dir(self.project());
        Ok(command)
    }

    pub(in crate::suite) fn mews(&self, args: &[&str]) -> anyhow::Result<Finished> {
        process::run(&mut self.mews_command(args)?, b"", LIMIT)
    }

    /// `mews ARGS` in the project, on a terminal of its own.
    pub(in crate::suite) fn terminal(
        &self,
        sandbox: &Sandbox,
        args: &[&str],
    ) -> anyhow::Result<Terminal> {
        let command = self.mews_command(args)?;
        let folder = self.project().to_string_lossy().into_owned();
        let set: Vec<String> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut line = vec!["env", "-i", "-C", &folder];
        line.extend(set.iter().map(String::as_str));
        line.push("setpriv");
        line.extend(command.get_args().filter_map(std::ffi::OsStr::to_str));
        Terminal::program(sandbox, &line)
    }

    pub(in crate::suite) fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        self.mews(&[&["--json"], args].concat())?.expect(0)?.json()
    }

    /// A shell script in a cage of this person's.
    pub(in crate::suite) fn caged(
        &self,
        options: &[&str],
        script: &str,
    ) -> anyhow::Result<Finished> {
        let words = [&["run", "--no-tty"], options, &["--", "sh", "-c", script]].concat();
        self.mews(&words)
    }

    /// Something that runs on, under this name.
    pub(in crate::suite) fn start(&self, name: &str) -> anyhow::Result<Value> {
        self.json(&["run", "-d", "--name", name, "--", "sleep", "1000"])
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        edit(&["userdel", "--remove", "--force", &self.name]).ok();
    }
}

fn fresh(kind: &str) -> String {
    let number = NEXT.replace(NEXT.get() + 1);
    format!("mews{kind}{}x{number}", std::process::id() % 1_000_000)
}

/// Runs one of the programs that change the user database; they refuse while another one does.
fn edit(words: &[&str]) -> anyhow::Result<()> {
    let mut last = None;
    let done = pause::until("the user database is free", LOCKED, || {
        let (program, args) = words.split_first()?;
        let tried = match process::run(Command::new(program).args(args), b"", LIMIT) {
            Ok(tried) => tried,
            Err(error) => return Some(Err(error)),
        };
        if tried.code != 0 && tried.err().contains("lock") {
            last = Some(tried.err());
            return None;
        }
        Some(tried.expect(0).map(drop))
    });
    done.with_context(|| last.unwrap_or_default())?
}

/// Writes `host.toml` and starts the daemons as root; then the test; then nothing of it is left, so
/// that the accounts can go.
pub(in crate::suite) fn host<T>(
    sandbox: &Sandbox,
    policy: &str,
    body: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    sandbox.file("config/host.toml", policy)?;
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    let done = body();
    let stopped = sandbox.mews(["daemon", "stop", "--kill"])?.expect(0);
    let done = done?;
    stopped?;
    Ok(done)
}

/// What these tests need: root, and the programs that make accounts.
pub(in crate::suite) fn need_accounts() -> anyhow::Result<()> {
    need_root()?;
    need_programs(&["useradd", "groupadd", "setpriv"])
}
