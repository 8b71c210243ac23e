//! Signals of ended children come as one where many end together: each exit is found all the same.

use crate::audit;
use crate::talk::{finish, in_workspace, start};
use anyhow::{Context as _, ensure};
use std::process::Stdio;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

const ORPHANS: u32 = 1000;
const COMMANDS: u8 = 40;

/// Orphans of the cage's pid 1, which wait for the end of a pipe; then it says who is still there.
const FIRST: &str = "
import os, sys, time
r, w = os.pipe()
for n in range(int(sys.argv[1])):
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(w); os.read(r, 1); os._exit(n % 256)
        os._exit(0)
    os.wait()
def here(): return sum(name.isdigit() for name in os.listdir('/proc'))
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.01)
before = here()
os.close(w)
while here() > before - int(sys.argv[1]): time.sleep(0.01)
open('reaped', 'w').close()
time.sleep(1000)
";

pub(super) fn at_once(sandbox: &Sandbox) -> anyhow::Result<()> {
    let many = ORPHANS.to_string();
    let options = ["--name", "many", "--pids", "4000"];
    start(sandbox, &options, &["python3", "-c", FIRST, &many])?;
    let appears = |name: &str| {
        let path = in_workspace(sandbox, name);
        pause::until(name, LIMIT, || path.exists().then_some(()))
    };
    appears("ready")?;
    let mut commands = Vec::new();
    for number in 0..COMMANDS {
        let script =
            format!("touch at-{number}; while [ ! -e go ]; do sleep 0.02; done; exit {number}");
        let words = ["exec", "--no-tty", "many", "--", "sh", "-c", &script];
        let mut command = sandbox.command(words)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        commands.push((number, command.spawn()?));
    }
    for number in 0..COMMANDS {
        appears(&format!("at-{number}"))?;
    }
    sandbox.file("ws/go", "")?;
    for (number, command) in commands {
        let done = finish(command).with_context(|| format!("command {number}"))?;
        ensure!(
            done.code == i32::from(number),
            "command {number} exits {}: {}",
            done.code,
            done.err()
        );
    }
    // No zombie is left either: a process that was not waited for still has its number.
    appears("reaped")?;
    sandbox.mews(["kill", "many"])?.expect(0)?;
    audit::agrees(sandbox)
}
