//! Where the probes run: in real cages, and in the controls.

use super::baits::{self, Baits};
use super::probes::Probes;
use super::table::{Case, Control};
use crate::talk::text;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::process::{self, Finished};
use testkit::{Caller, Sandbox, pause};

/// A hundred probes, one of which floods its terminal for half a second.
const PASS_WITHIN: Duration = Duration::from_secs(30);
/// Less than what the memory bomb touches, more than what fits into /dev/shm.
const MEMORY: &str = "512M";

/// `OPEN`, `BLOCKED`, … and the rest of the line, by probe.
pub(super) type Report = BTreeMap<String, (String, String)>;

/// One pass of all probes in one cage.
pub(super) struct Pass {
    /// `who/policy/how`.
    pub(super) label: String,
    pub(super) by_user: bool,
    pub(super) report: Report,
}

pub(super) struct Places<'a> {
    pub(super) cases: &'a [Case],
    pub(super) probes: &'a Probes,
    pub(super) baits: &'a Baits,
}

impl Places<'_> {
    /// The passes in one cage of the policy: its first command, and a second one on a terminal and
    /// on pipes; then a cage for each probe that ends its own.
    pub(super) fn cage(&self, sandbox: &Sandbox, policy: &str) -> anyhow::Result<Vec<Pass>> {
        let provider = sandbox.root().join(format!("provider-{policy}.sock"));
        let _listener = UnixListener::bind(&provider)?;
        let bin = self.probes.bin().display().to_string();
        let provider = format!("unix:{}", provider.display());
        let mut options = vec!["--policy", policy, "--memory", MEMORY, "--read", &bin];
        if matches!(policy, "agent-offline" | "pi") {
            options.extend(["--provider", &provider]);
        }
        let words = self.words(sandbox, "first")?;
        let script = ["sh", "-c", "\"$@\"; exec sleep 1000", "sh"];
        let mut run: Vec<&str> = ["--json", "run", "-d"].to_vec();
        run.extend(&options);
        run.push("--");
        run.extend(script);
        run.extend(words.iter().map(String::as_str));
        let told = self.mews(sandbox, &run)?.expect(0)?.json()?;
        let session = text(&told, "/session")?;
        let mut passes = vec![self.pass(sandbox, policy, "first")?];
        for (how, option) in [("exec", "-d"), ("exec-pipes", "--no-tty")] {
            let words = self.words(sandbox, how)?;
            let mut exec = vec!["exec", option, &session, "--"];
            exec.extend(words.iter().map(String::as_str));
            self.mews(sandbox, &exec)?.expect(0)?;
            passes.push(self.pass(sandbox, policy, how)?);
        }
        sandbox.mews(["kill", &session])?.expect(0)?;
        passes.push(self.alone(sandbox, policy, &options)?);
        Ok(passes)
    }

    /// `run OUT BIN NAME=VALUE… -- ID…`
    fn words(&self, sandbox: &Sandbox, how: &str) -> anyhow::Result<Vec<String>> {
        let workspace = sandbox.workspace();
        let out = workspace.join(format!("verdicts-{how}"));
        fs::remove_file(&out).ok();
        let mut words: Vec<String> = [self.probes.run(), out, self.probes.bin()]
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        words.extend(self.baits.words(&workspace)?);
        words.push("--".to_owned());
        words.extend(self.cases.iter().filter(|case| !case.alone).map(|case| case.id.clone()));
        Ok(words)
    }

    fn pass(&self, sandbox: &Sandbox, policy: &str, how: &str) -> anyhow::Result<Pass> {
        let (label, by_user) = label(sandbox, policy, how);
        let report = verdicts(&sandbox.workspace().join(format!("verdicts-{how}")))
            .with_context(|| label.clone())?;
        Ok(Pass { label, by_user, report })
    }

    fn alone(&self, sandbox: &Sandbox, policy: &str, options: &[&str]) -> anyhow::Result<Pass> {
        let (label, by_user) = label(sandbox, policy, "alone");
        let mut report = Report::new();
        for case in self.cases.iter().filter(|case| case.alone) {
            let status = sandbox.workspace().join("status.json");
            let (status_file, probe) =
                (status.display().to_string(), self.probes.bin().join(&case.id));
            let probe = probe.display().to_string();
            let mut run = vec!["run", "--no-tty", "--status-file", &status_file];
            run.extend(options);
            run.extend(["--", &probe]);
            let done = self.mews(sandbox, &run)?;
            let told: serde_json::Value = serde_json::from_slice(&fs::read(&status)?)?;
            let cause = told.pointer("/exit/cause").and_then(serde_json::Value::as_str);
            let verdict = match cause {
                Some("oom") => ("BLOCKED".to_owned(), "the cage ended by oom".to_owned()),
                _ => split(&done.out()),
            };
            report.insert(case.id.clone(), verdict);
        }
        Ok(Pass { label, by_user, report })
    }

    /// `mews ARGS` by a careless caller.
    fn mews(&self, sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<Finished> {
        let plain = sandbox.command(args)?;
        let mut command = self.careless(sandbox.caller().uid(), "-");
        command.arg(plain.get_program()).args(plain.get_args());
        command.envs(sandbox.env()?).current_dir(sandbox.workspace());
        process::run(&mut command, b"", PASS_WITHIN)
    }

    fn careless(&self, uid: u32, tty: &str) -> Command {
        let (id, group) = (uid.to_string(), self.baits.group.to_string());
        let mut command = Command::new(self.probes.launch());
        command.args([&id, &id, &group, baits::OPEN_FOLDER, tty, "--"]).env_clear();
        command.env(baits::SECRET.0, baits::SECRET.1).env("SSH_AUTH_SOCK", baits::SOCKET);
        command.env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
        command
    }

    /// The same programs with the walls left out.
    pub(super) fn control(&self, control: Control) -> anyhow::Result<Report> {
        let uid = if control.by_root() { 0 } else { self.baits.uid };
        let workspace = self.probes.folder().join(format!("{control:?}"));
        fs::create_dir(&workspace)?;
        chown(&workspace, Some(uid), Some(uid))?;
        let out = workspace.join("verdicts");
        let mut command = self.careless(uid, "tty");
        if control.in_bwrap() {
            command.args(bwrap(&workspace));
        }
        command.args([self.probes.run(), out.clone(), self.probes.bin()]);
        command.args(self.baits.words(&workspace)?).arg("--");
        let of_this = self.cases.iter(); //TMP
        command.args(of_this.map(Case::control_word));
        let done = process::run(command.current_dir(&workspace), b"", PASS_WITHIN)?;
        done.expect(0).with_context(|| format!("control {control:?}"))?;
        verdicts(&out)
    }
}

fn bwrap(workspace: &Path) -> Vec<String> {
    let folder = workspace.display().to_string();
    let words =
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"];
    let bind = ["--bind".to_owned(), folder.clone(), folder];
    words.map(str::to_owned).into_iter().chain(bind).collect()
}

fn label(sandbox: &Sandbox, policy: &str, how: &str) -> (String, bool) {
    let by_user = sandbox.caller() != Caller::Me;
    (format!("{}/{policy}/{how}", if by_user { "user" } else { "root" }), by_user)
}

/// The file appears when the pass has ended.
fn verdicts(file: &PathBuf) -> anyhow::Result<Report> {
    let text = pause::until("the probes have run", PASS_WITHIN, || fs::read(file).ok())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(id, rest)| (id.to_owned(), split(rest))).collect())
}

fn split(line: &str) -> (String, String) {
    let (word, detail) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    (word.to_owned(), detail.to_owned())
}
