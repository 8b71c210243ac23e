//! Another mews is installed while cages live: they go on, and whoever cannot talk to whom says so
//! by name.

mod files;
mod programs;
mod versions;

use crate::runner::Test;
use crate::suite::faults::flow;
use crate::talk::{daemon_pids, in_workspace, kill, kill_both, start, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

pub(crate) fn tests() -> Vec<Test> {
    [versions::tests(), programs::tests(), files::tests()].into_iter().flatten().collect()
}

/// The cages that every takeover must bring along.
struct Cages {
    viewer: Terminal,
    /// Lines that were typed so far.
    typed: u32,
}

const PRINTS: &str = "prints";
const STANDS: &str = "stands";
const LAYERED: &str = "layered";
const WATCHED: &str = "watched";

impl Cages {
    /// One prints lines, one is paused, one works on a layer and has a checkpoint, one has a viewer.
    fn begin(sandbox: &Sandbox) -> anyhow::Result<Self> {
        flow::begin(sandbox, PRINTS)?;
        flow::begin(sandbox, STANDS)?;
        sandbox.mews(["pause", STANDS])?.expect(0)?;
        sandbox.file("ws/layer-up", "no")?;
        let script = "echo yes > layer-up; while [ ! -e stop-layered ]; do sleep 0.02; done";
        start(sandbox, &["--name", LAYERED, "--copy"], &["sh", "-c", script])?;
        pause::until("the layer differs", LIMIT, || {
            let diff = sandbox.mews(["diff", LAYERED]).ok()?;
            diff.out().contains("layer-up").then_some(())
        })?;
        sandbox.mews(["checkpoint", LAYERED])?.expect(0)?;
        let script = "echo ready; while read line; do echo got $line; done";
        let viewer =
            Terminal::mews(sandbox, &["run", "--name", WATCHED, "--", "sh", "-c", script])?;
        viewer.wait_for("ready")?;
        let mut cages = Self { viewer, typed: 0 };
        cages.type_line()?;
        Ok(cages)
    }

    /// The viewer's own stream ends in the broker, whatever becomes of the daemons.
    fn type_line(&mut self) -> anyhow::Result<()> {
        self.typed += 1;
        self.viewer.send(format!("line-{}\r", self.typed))?;
        self.viewer.wait_for(&format!("got line-{}", self.typed)).map(drop)
    }

    /// What a supervisor that speaks with their brokers must be able to do with them.
    fn go_on(&mut self, sandbox: &Sandbox) -> anyhow::Result<()> {
        self.type_line()?;
        flow::lines(sandbox, PRINTS)?;
        sandbox.mews(["exec", "--no-tty", PRINTS, "--", "true"])?.expect(0)?;
        ensure!(
            state(sandbox, STANDS)? == "paused",
            "it does not stand: {}",
            state(sandbox, STANDS)?
        );
        sandbox.mews(["resume", STANDS])?.expect(0)?;
        sandbox.mews(["pause", STANDS])?.expect(0)?;
        // It exits as diff(1) does.
        let diff = sandbox.mews(["diff", LAYERED])?.expect(1)?.out();
        ensure!(diff.contains("layer-up"), "{diff}");
        sandbox.mews(["checkpoint", LAYERED])?.expect(0)?;
        Ok(())
    }

    /// All end by themselves, with their own status and every line.
    fn end(mut self, sandbox: &Sandbox) -> anyhow::Result<()> {
        sandbox.mews(["resume", STANDS])?.expect(0)?;
        flow::stop(sandbox, STANDS)?;
        flow::stop(sandbox, PRINTS)?;
        let listed = sandbox.mews(["checkpoints", LAYERED])?.expect(0)?.out();
        ensure!(listed.lines().count() >= 3, "{listed}");
        sandbox.mews(["rollback", LAYERED, "-y"])?.expect(0).context("rollback")?;
        self.viewer.send("\u{4}")?;
        let code = self.viewer.wait_exit()?;
        ensure!(code == 0, "the viewer exits {code}: {}", self.viewer.screen().join("\n"));
        self.viewer.check_sane()?;
        ensure!(in_workspace(sandbox, "up-stands").exists(), "the workspace is gone");
        crate::audit::agrees(sandbox)
    }
}

/// As `mews ls` says it.
fn state(sandbox: &Sandbox, name: &str) -> anyhow::Result<String> {
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    let row = listed.lines().find(|line| line.split_whitespace().next() == Some(name));
    let word = row.and_then(|row| row.split_whitespace().nth(1));
    word.map(str::to_owned).with_context(|| format!("no row of {name}: {listed}"))
}

/// `(client, sessiond, supervisor)`, as `mews version` says it.
fn builds(sandbox: &Sandbox) -> anyhow::Result<[String; 3]> {
    let shown = sandbox.json(["version"])?;
    let of = |pointer| text(&shown, pointer);
    Ok([of("/client/build")?, of("/daemons/build")?, of("/daemons/supervisor")?])
}

/// The living cages of other builds: name, build, whether they can be reached.
fn others(sandbox: &Sandbox) -> anyhow::Result<Vec<(String, String, bool)>> {
    let shown = sandbox.json(["version"])?;
    let cages = shown.pointer("/daemons/cages").and_then(Value::as_array).context("no cages")?;
    let mut found = Vec::new();
    for cage in cages {
        let reachable = cage.pointer("/unreachable").is_none_or(Value::is_null);
        found.push((text(cage, "/name")?, text(cage, "/build")?, reachable));
    }
    found.sort();
    Ok(found)
}

/// Both daemons are there, and what the supervisor found is known to sessiond.
fn back(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.mews(["daemon", "start"])?.expect(0).map(drop)
}
