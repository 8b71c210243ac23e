//! A database that does not come to its turn: somebody else holds its lock.

use super::super::{BYSTANDER, flow};
use super::begin;
use crate::audit;
use crate::talk::{finish, in_workspace, start};
use anyhow::ensure;
use rusqlite::Connection;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

pub(super) fn locked(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let words = ["sh", "-c", "while [ ! -e stop ]; do sleep 0.02; done; touch ended; exit 11"];
    start(sandbox, &["--name", "ends"], &words)?;
    let script = "echo ready; while read line; do echo got $line; done";
    let mut viewer = Terminal::mews(sandbox, &["run", "--name", "seen", "--", "sh", "-c", script])?;
    viewer.wait_for("ready")?;
    viewer.send("one\r")?;
    viewer.wait_for("got one")?;
    let other = Connection::open(sandbox.state_dir().join("db/mews.db"))?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    let waits = begin(sandbox, &["wait", "--exit", "ends"])?;
    sandbox.file("ws/stop", "")?;
    pause::until("it ended", LIMIT, || in_workspace(sandbox, "ended").exists().then_some(()))?;
    // The loop goes on: terminals and reads do not wait for the writer.
    viewer.send("two\r")?;
    viewer.wait_for("got two")?;
    sandbox.mews(["ls"])?.expect(0)?;
    let refused = sandbox.mews(["run", "--no-tty", "--", "touch", "it-ran"])?.expect(125)?;
    ensure!(
        refused.err().contains("database") && refused.err().contains("locked"),
        "{}",
        refused.err()
    );
    sandbox.mews(["ls"])?.expect(0)?;
    other.execute_batch("COMMIT")?;
    drop(other);
    let waited = finish(waits)?.expect(0)?;
    ensure!(waited.out().trim() == "11", "{}", waited.out());
    pause::until("it works again", LIMIT, || {
        let ran = sandbox.mews(["run", "--no-tty", "--", "true"]).ok()?;
        (ran.code == 0).then_some(())
    })?;
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    viewer.send("\u{4}")?;
    ensure!(viewer.wait_exit()? == 0, "the viewer's exit");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
