//! A bwrap that does not do what it was told, and says nothing: each guard is looked at before `go`.

use super::attacks::{POLICY, Tree};
use crate::runner::{need_root, skip};
use crate::talk::in_workspace;
use anyhow::ensure;
use std::path::Path;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

/// In the mount namespace of one run, the real bwrap is found under the name of a program that nothing
/// here uses.
const REAL: &str = "/usr/bin/ptx";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/faults/liar.c");

pub(super) fn each_is_read_back(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    if Command::new("gcc").arg("--version").output().is_err() || !Path::new(REAL).exists() {
        return Err(skip("needs gcc and coreutils"));
    }
    let tree = Tree::make(&sandbox.workspace(), sandbox)?;
    let policy = sandbox.file("home/guarded.toml", POLICY)?;
    let policy = policy.to_string_lossy();
    for mode in [&[][..], &["--overlay"]] {
        let told = run_with(sandbox, 0, &[&["-p", &*policy], mode].concat())?;
        ensure!(told.expect(0)?.out() == "ran\n", "a bwrap that does not lie");
        for (lie, words) in [
            (1, "/ws/.env: nothing is mounted there"),
            (2, "/ws/.git/config: can be written"),
            (3, "/ws/.git/hooks: nothing is mounted there"),
            (4, "/ws/keys: nothing is mounted there"),
            (5, "/ws/keys"),
            (6, "/ws/sub/deep: nothing is mounted there"),
            (7, "/ws/keys: can be written"),
        ] {
            let told = run_with(sandbox, lie, &[&["-p", &*policy], mode].concat())?.expect(125)?;
            // An overlay's parts are looked at in the table of mounts, too, and before.
            let said = told.err();
            let found = said.contains(words) || (!mode.is_empty() && said.contains("the mount at"));
            ensure!(found && told.out().is_empty(), "lie {lie} {mode:?}: {} {said}", told.out());
        }
    }
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    tree.unchanged()
}

fn run_with(sandbox: &Sandbox, lie: u32, options: &[&str]) -> anyhow::Result<Finished> {
    let liar = sandbox.root().join(format!("home/liar-{lie}"));
    if !liar.exists() {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", &format!("-DLIE={lie}"), &format!("-DREAL={REAL:?}"), "-o"]);
        process::run(gcc.arg(&liar).arg(SOURCE), b"", LIMIT)?.expect(0)?;
    }
    let command = if lie == 0 { "echo ran" } else { "echo ran; touch it-ran" };
    let words = [&["run", "--no-tty", "--no-daemon"], options, &["--", "sh", "-c", command]];
    let mews = sandbox.command(words.concat())?;
    let script = "mount --bind /usr/bin/bwrap \"$1\"; mount --bind \"$2\" /usr/bin/bwrap; shift 2; \
                  exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh", REAL]);
    command.arg(&liar).arg(mews.get_program()).args(mews.get_args()).env_clear();
    for (name, value) in mews.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    if let Some(folder) = mews.get_current_dir() {
        command.current_dir(folder);
    }
    process::run(&mut command, b"", LIMIT)
}
