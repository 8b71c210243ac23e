//! One session as the model knows it, and what must be true of its bytes.

use super::layer::Layer;
use crate::talk::{in_workspace, text};
use anyhow::{Context as _, bail, ensure};
use std::fs::File;
use std::process::{Child, Stdio};
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, Terminal, pause};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    /// There is a session, and its command never began.
    NeverRan,
    Running,
    Paused,
    /// By itself.
    Exited,
    Cancelled,
    BrokerLost,
}

impl State {
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::NeverRan | Self::Exited | Self::Cancelled | Self::BrokerLost)
    }
}

/// Prints numbered lines, floods when told, echoes a typed word once, ends when told. On a loaded
/// machine `read` may time out in the middle of a word: what it had is kept.
const TERMINAL: &str = "stty -echo; n=0; while [ ! -e stop-$0 ]; do
    n=$((n+1)); echo line $n
    if [ -e flood-$0 ]; then rm flood-$0; t=$((n+20000)); while [ $n -lt $t ]; do
      n=$((n+1)); echo line $n; done; fi
    if read -t 0.02 x; then echo got $p$x; p=; else p=$p$x; fi
  done; exit $1";
const PIPES: &str = "n=0; while [ ! -e stop-$0 ]; do
    n=$((n+1)); echo line $n
    if [ -e flood-$0 ]; then rm flood-$0; t=$((n+20000)); while [ $n -lt $t ]; do
      n=$((n+1)); echo line $n; done; fi
    sleep 0.02
  done; exit $1";
/// Processes that each may have; read back from the kernel all along.
pub(super) const PIDS_MAX: &str = "40";

#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) code: u8,
    /// Where its files are kept apart.
    pub(super) layer: Option<Layer>,
    /// A rollback has killed its programs.
    pub(super) is_rolled_back: bool,
    /// As it is told: it has no programs, and could be given others.
    pub(super) is_idle: bool,
    /// The client of a run with pipes.
    runner: Option<Child>,
    viewer: Option<Terminal>,
    typed: u32,
    /// A client died with words in its hands.
    loose: bool,
    /// Files that execs write, and whether they must be there.
    execs: Vec<(String, bool)>,
    /// Lines seen at the last look: never fewer later.
    lines: usize,
    /// The walltime that was acknowledged, in hours.
    hours: Option<u32>,
}

impl Subject {
    pub(super) fn new(name: String, code: u8) -> Self {
        Self {
            name,
            state: State::Absent,
            code,
            layer: None,
            is_rolled_back: false,
            is_idle: false,
            runner: None,
            viewer: None,
            typed: 0,
            loose: false,
            execs: Vec::new(),
            lines: 0,
            hours: None,
        }
    }

    pub(super) fn run_words(&self, pipes: bool) -> Vec<String> {
        let (form, script) = if pipes { ("--no-tty", PIPES) } else { ("-d", TERMINAL) };
        let code = self.code.to_string();
        let apart = self.layer.as_ref().map(|_layer| "--overlay");
        ["run", form, "--pids", PIDS_MAX, "--name", &self.name]
            .into_iter()
            .chain(apart)
            .chain(["--", "bash", "-c", script])
            .chain([self.name.as_str(), code.as_str()])
            .map(str::to_owned)
            .collect()
    }

    fn output(&self, sandbox: &Sandbox) -> std::path::PathBuf {
        sandbox.root().join("home").join(format!("out-{}", self.name))
    }

    /// A client that stays; returns when its first line has come, or it has ended.
    pub(super) fn start_pipes(&mut self, sandbox: &Sandbox) -> anyhow::Result<Child> {
        let path = self.output(sandbox);
        let mut command = sandbox.command(self.run_words(true))?;
        let out = File::create(&path)?;
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        Ok(command.spawn()?)
    }

    pub(super) fn keep_runner(&mut self, runner: Child) {
        self.runner = Some(runner);
    }

    pub(super) fn has_output(&self, sandbox: &Sandbox) -> bool {
        std::fs::metadata(self.output(sandbox)).is_ok_and(|meta| meta.len() > 0)
    }

    /// Nobody watches, and there is a terminal to watch.
    pub(super) fn is_free(&self) -> bool {
        self.viewer.is_none() && self.runner.is_none()
    }

    pub(super) fn exec_file(&mut self) -> String {
        if let Some(layer) = &mut self.layer {
            return layer.next_mark(&self.name);
        }
        format!("exec-{}-{}", self.name, self.execs.len())
    }

    pub(super) fn expect_exec(&mut self, file: String, must: bool) {
        match &mut self.layer {
            Some(layer) => layer.marked(file, must),
            None => self.execs.push((file, must)),
        }
    }

    /// Its program stops, or floods. What is put into a folder below a layer need not be seen.
    pub(super) fn order(&self, sandbox: &Sandbox, word: &str) -> anyhow::Result<()> {
        let file = format!("{word}-{}", self.name);
        if self.layer.is_none() {
            return sandbox.file(&format!("ws/{file}"), "").map(drop);
        }
        // A daemon may be about to die under it; once more does no harm.
        let words = ["exec", "--no-tty", &self.name, "--", "touch", &file];
        pause::until("the order is there", LIMIT, || {
            let told = sandbox.mews(words).ok()?;
            let over = told.code != 0 && told.err().contains("ended");
            (told.code == 0 || over).then_some(())
        })
    }

    /// Files are as the model has them.
    pub(super) fn files_hold(&self, sandbox: &Sandbox) -> anyhow::Result<()> {
        match &self.layer {
            Some(layer) if !matches!(self.state, State::Absent | State::NeverRan) => {
                layer.holds(sandbox, &self.name)
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn type_word(&mut self) -> anyhow::Result<bool> {
        let Some(viewer) = &self.viewer else { return Ok(false) };
        self.typed += 1;
        viewer.send(format!("w{}\r", self.typed))?;
        Ok(true)
    }

    /// All that was typed has been read by the program.
    pub(super) fn drained(&self, sandbox: &Sandbox) -> anyhow::Result<()> {
        if self.state != State::Running || self.loose || self.typed == 0 {
            return Ok(());
        }
        let last = format!("got w{}", self.typed);
        pause::until(&last, LIMIT, || {
            let raw = sandbox.mews(["logs", "--raw", &self.name]).ok()?.out();
            raw.lines().any(|line| line.trim_end() == last).then_some(())
        })
    }

    /// Half done is either of the two.
    pub(super) fn limit_asked(
        &mut self,
        sandbox: &Sandbox,
        hours: u32,
        acknowledged: bool,
    ) -> anyhow::Result<()> {
        let now = self.walltime(sandbox)?;
        let may = now == Some(hours) || (!acknowledged && now == self.hours);
        ensure!(may, "its walltime is {now:?} h, was {:?}, asked for {hours}", self.hours);
        self.hours = now;
        Ok(())
    }

    fn walltime(&self, sandbox: &Sandbox) -> anyhow::Result<Option<u32>> {
        let view = sandbox.json(["limits", &self.name])?;
        let rows = view.pointer("/limits").and_then(serde_json::Value::as_array);
        let row = rows.and_then(|rows| {
            rows.iter().find(|row| row.pointer("/limit").is_some_and(|it| it == "walltime"))
        });
        let ms = row.context("no walltime")?.pointer("/value").and_then(serde_json::Value::as_u64);
        Ok(ms.map(|ms| u32::try_from(ms / 3_600_000)).transpose()?)
    }

    /// Limits are as they were said to be.
    pub(super) fn limits_hold(&self, sandbox: &Sandbox) -> anyhow::Result<()> {
        if matches!(self.state, State::Running | State::Paused) {
            let now = self.walltime(sandbox)?;
            ensure!(now == self.hours, "its walltime is {now:?} h, not {:?}", self.hours);
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, sandbox: &Sandbox) -> anyhow::Result<()> {
        let viewer = Terminal::undrawn(sandbox, &["attach", &self.name])?;
        viewer.wait_bytes(1)?;
        self.viewer = Some(viewer);
        Ok(())
    }

    pub(super) fn detach(&mut self, sandbox: &Sandbox) -> anyhow::Result<()> {
        self.drained(sandbox)?;
        if let Some(mut viewer) = self.viewer.take() {
            viewer.send([0x1c, 0x04])?;
            let code = viewer.wait_exit()?;
            ensure!(code == 0, "detach exits {code}");
        }
        Ok(())
    }

    pub(super) fn kill_client(&mut self) -> anyhow::Result<()> {
        if let Some(mut viewer) = self.viewer.take() {
            let pid = i32::try_from(viewer.pid().context("a client's pid")?)?;
            link::PidFd::open(pid)?.signal(libc::SIGKILL)?;
            viewer.wait_exit()?;
            self.loose |= self.typed > 0;
        }
        Ok(())
    }

    /// What it is by what is told; what it printed must be whole.
    pub(super) fn look(&mut self, sandbox: &Sandbox) -> anyhow::Result<State> {
        let inspected = sandbox.mews(["--json", "inspect", &self.name])?;
        if inspected.code != 0 {
            ensure!(inspected.err().contains(&self.name), "{}", inspected.err());
            return Ok(State::Absent);
        }
        let shown = inspected.json()?;
        if shown.pointer("/runs/0").is_none() {
            return Ok(State::NeverRan);
        }
        self.is_idle = text(&shown, "/state")? == "idle";
        ensure!(!self.is_idle || self.is_rolled_back, "it is idle: {shown}");
        let state = match text(&shown, "/runs/0/state")?.as_str() {
            "running" => State::Running,
            "suspended" => State::Paused,
            _over => match text(&shown, "/runs/0/exit/cause")?.as_str() {
                "exited" => {
                    let code = crate::talk::number(&shown, "/runs/0/exit/code")?;
                    ensure!(code == i64::from(self.code), "exit {code}, not {}", self.code);
                    State::Exited
                }
                "cancelled" => State::Cancelled,
                "broker_lost" => State::BrokerLost,
                "cage_setup" | "daemon_crash" => State::NeverRan,
                other => bail!("it ended by {other}: {shown}"),
            },
        };
        if state != State::NeverRan {
            self.bytes(sandbox, state)?;
        }
        Ok(state)
    }

    /// Every byte once: numbered lines without hole or double, typed words in their order.
    fn bytes(&mut self, sandbox: &Sandbox, state: State) -> anyhow::Result<()> {
        let text = match &self.runner {
            Some(_) => String::from_utf8_lossy(&std::fs::read(self.output(sandbox))?).into_owned(),
            None => sandbox.mews(["logs", "--raw", &self.name])?.expect(0)?.out(),
        };
        // The last line may be under way.
        let whole = text.rfind('\n').map_or("", |at| text.get(..at).unwrap_or_default());
        let (mut lines, mut words) = (0_usize, 0_u32);
        for line in whole.lines().map(str::trim_end) {
            if let Some(number) = line.strip_prefix("line ") {
                lines += 1;
                ensure!(number == lines.to_string(), "after line {} came {line:?}", lines - 1);
            } else if let Some(word) = line.strip_prefix("got w") {
                let word: u32 = word.parse().with_context(|| line.to_owned())?;
                let follows = if self.loose { word > words } else { word == words + 1 };
                ensure!(follows && word <= self.typed, "after word {words} came {line:?}");
                words = word;
            } else {
                let of_a_kill = line.is_empty() || line.contains("Terminated");
                ensure!(of_a_kill, "nobody printed {line:?}");
            }
        }
        // What a broker had in its hands dies with it; what it had written stays.
        let kept = lines >= self.lines || state == State::BrokerLost;
        ensure!(kept, "{lines} lines, and there were {}", self.lines);
        self.lines = lines;
        for (file, must) in &self.execs {
            let path = in_workspace(sandbox, file);
            let ran = std::fs::read_to_string(path).unwrap_or_default().lines().count();
            let due = *must && state == State::Running;
            ensure!(ran <= 1 && (ran == 1 || !due), "{file} ran {ran} times, must: {must}");
        }
        Ok(())
    }

    /// Its clients end as it ended.
    pub(super) fn clients_end(&mut self, sandbox: &Sandbox) -> anyhow::Result<()> {
        let want = match self.state {
            State::Exited => Some(u32::from(self.code)),
            State::BrokerLost => Some(125),
            State::Absent | State::NeverRan | State::Running | State::Paused | State::Cancelled => {
                None
            }
        };
        if let Some(mut viewer) = self.viewer.take() {
            let code = viewer.wait_exit()?;
            ensure!(want.is_none_or(|want| want == code), "its viewer ends with {code}");
        }
        if let Some(runner) = &mut self.runner {
            let status = process::wait(runner, LIMIT)?;
            let code = u32::try_from(process::code_of(status))?;
            ensure!(want.is_none_or(|want| want == code), "its client ends with {code}");
            let state = self.state;
            self.bytes(sandbox, state)?;
        }
        Ok(())
    }
}
