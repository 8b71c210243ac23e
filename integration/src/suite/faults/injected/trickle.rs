//! Writes that go out one byte at a time and are cut short, and reads that find a part, on every stream of every
//! process that has a dynamic linker (all but the cage's own).

use super::super::{BYSTANDER, flow};
use super::compiled;
use crate::audit;
use crate::runner::need_root;
use crate::suite::terminal::broker;
use crate::suite::viewers::flood_bytes;
use crate::talk::{daemon_pids, event_types, events};
use anyhow::{Context as _, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, Terminal};

/// The supervisor gets it from the client that starts it.
const PRELOADED: [&str; 4] = ["mews", "mews-sessiond", "mews-ptybroker", "mews-layer"];
const LAST: u32 = 2_000;

/// Programs of the sandbox's own, which begin by preloading it.
fn install(sandbox: &Sandbox) -> anyhow::Result<()> {
    // Under the cage's uid the broker must find them again.
    need_root()?;
    let folder = sandbox.root().join("bin");
    testkit::programs::install(testkit::programs::folder()?, &folder)?;
    compiled(sandbox, "trickle.c", "bin/trickle.so", &["-shared", "-fPIC"])?;
    let wrapper = compiled(sandbox, "preloaded.c", "bin/preloaded", &[])?;
    for name in PRELOADED {
        std::fs::rename(folder.join(name), folder.join(format!("{name}.real")))?;
        std::fs::copy(&wrapper, folder.join(name))?;
        // As installed: of one that can be read the supervisor makes a copy, which stands beside nothing.
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o711))?;
    }
    sandbox.use_programs(folder);
    Ok(())
}

fn is_in(pid: i32) -> anyhow::Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    ensure!(maps.contains("/trickle.so"), "process {pid} writes as ever");
    Ok(())
}

pub(super) fn one_byte_at_a_time(sandbox: &Sandbox) -> anyhow::Result<()> {
    install(sandbox)?;
    let script = format!("echo ready; read line; echo got $line; seq 1 {LAST}; exit 5");
    let mut viewer =
        Terminal::mews(sandbox, &["run", "--name", "seen", "--", "sh", "-c", &script])?;
    viewer.wait_for("ready")?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    let client = i32::try_from(viewer.pid().context("a client's pid")?)?;
    for pid in [client, sessiond, supervisor, broker(sandbox)?] {
        is_in(pid)?;
    }
    flow::begin(sandbox, BYSTANDER)?;
    viewer.send("a word\r")?;
    ensure!(viewer.wait_exit()? == 5, "the viewer's exit: {}", viewer.screen().join("\n"));
    viewer.check_sane()?;
    let raw = sandbox.mews(["logs", "--raw", "seen"])?.expect(0)?.out();
    let want = String::from_utf8_lossy(&flood_bytes(LAST, "")).into_owned();
    ensure!(raw.ends_with(&want), "the recording has {} bytes", raw.len());
    ensure!(raw.contains("got a word"), "{}", raw.get(..200).unwrap_or(&raw));
    let shown = viewer.raw();
    ensure!(
        String::from_utf8_lossy(&shown).contains(&want),
        "the viewer has {} bytes",
        shown.len()
    );
    pipes(sandbox)?;
    layer(sandbox)?;
    let types = event_types(&events(sandbox, "seen")?)?;
    ensure!(types.iter().any(|it| it == "run.ended"), "{types:?}");
    sandbox.mews(["pause", BYSTANDER])?.expect(0)?;
    sandbox.mews(["resume", BYSTANDER])?.expect(0)?;
    ensure!(daemon_pids(sandbox)? == (sessiond, supervisor), "a daemon died");
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}

/// What goes in comes out, on both streams.
fn pipes(sandbox: &Sandbox) -> anyhow::Result<()> {
    let given = flood_bytes(LAST, "in ");
    let words = ["run", "--no-tty", "--", "sh", "-c", "cat; seq 1 100 >&2; exit 3"];
    let told = process::run(&mut sandbox.command(words)?, &given, LIMIT)?.expect(3)?;
    ensure!(told.stdout == given, "{} bytes came back of {}", told.stdout.len(), given.len());
    let hundred: String = (1..=100).map(|number| format!("{number}\n")).collect();
    ensure!(told.err().contains(&hundred), "standard error: {}", told.err());
    Ok(())
}

/// Files are copied by a program of its own.
fn layer(sandbox: &Sandbox) -> anyhow::Result<()> {
    let made = "seq 1 1000 > made; exec sleep 1000";
    crate::talk::start(sandbox, &["--overlay", "--name", "apart"], &["sh", "-c", made])?;
    let counted = |want: &str| {
        testkit::pause::until("the file is whole", LIMIT, || {
            let told =
                sandbox.mews(["exec", "--no-tty", "apart", "--", "wc", "-l", "made"]).ok()?;
            (told.out().trim() == want).then_some(())
        })
    };
    counted("1000 made")?;
    sandbox.mews(["checkpoint", "apart", "--resume"])?.expect(0)?;
    let cut = "echo short > made";
    sandbox.mews(["exec", "--no-tty", "apart", "--", "sh", "-c", cut])?.expect(0)?;
    sandbox.mews(["rollback", "apart", "--yes"])?.expect(0)?;
    sandbox.mews(["apply", "apart"])?.expect(0)?;
    let lines = std::fs::read_to_string(Path::new(&sandbox.workspace()).join("made"))?;
    ensure!(lines.lines().count() == 1000, "{} lines", lines.lines().count());
    Ok(())
}
