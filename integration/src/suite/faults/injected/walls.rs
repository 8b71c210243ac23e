//! A kernel without one of the walls: the call that puts it up fails, in the daemons from their start,
//! or inside the cage alone. Nothing runs, and the wall is named.

use super::super::{BYSTANDER, flow};
use super::compiled;
use super::syscalls::Strace;
use crate::audit;
use crate::suite::users::as_user;
use crate::talk::{daemon_pids, in_workspace};
use anyhow::ensure;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

/// A system call that fails, and what is said then.
#[derive(Clone, Copy)]
struct Lack {
    call: libc::c_long,
    error: i32,
    says: &'static [&'static str],
}

const LANDLOCK: Lack = Lack {
    call: libc::SYS_landlock_create_ruleset,
    error: libc::ENOSYS,
    says: &["landlock", "mews doctor"],
};
/// The kernel says that it has them, and loads none.
const SECCOMP: Lack = Lack { call: libc::SYS_seccomp, error: libc::EINVAL, says: &["seccomp"] };

pub(super) fn no_landlock(sandbox: &Sandbox) -> anyhow::Result<()> {
    lacks(sandbox, LANDLOCK)?;
    as_user(1, |sandbox| lacks(sandbox, LANDLOCK))
}

pub(super) fn no_seccomp(sandbox: &Sandbox) -> anyhow::Result<()> {
    lacks(sandbox, SECCOMP)?;
    as_user(1, |sandbox| lacks(sandbox, SECCOMP))
}

/// Everything of mews lives without it, the daemons too.
fn lacks(sandbox: &Sandbox, lack: Lack) -> anyhow::Result<()> {
    let denied = compiled(sandbox, "denied.c", "denied", &[])?;
    let mews = |words: &[&str]| -> anyhow::Result<Finished> {
        let mut command = Command::new(&denied);
        command.arg(lack.call.to_string()).arg(lack.error.to_string());
        command.arg(sandbox.programs()?.join("mews")).args(words);
        command.env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
        sandbox.caller().apply(&mut command);
        process::run(&mut command, b"", LIMIT)
    };
    for mode in [&["--no-daemon"][..], &[]] {
        let run = ["run", "--no-tty", "--name", "refused"];
        let words = [&run[..], mode, &["--", "touch", "it-ran"]].concat();
        let refused = mews(&words)?.expect(125)?;
        for word in lack.says {
            ensure!(refused.err().contains(word), "{mode:?}: no {word:?} in: {}", refused.err());
        }
        ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    }
    audit::agrees(sandbox)?;
    sandbox.mews(["rm", "refused"])?.expect(0)?;
    audit::no_cage_is_left(sandbox)
}

/// Daemons that know of it, and a cage that cannot have it all the same.
pub(super) fn inside_alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, BYSTANDER)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    for (wall, inject) in [
        ("landlock", "landlock_create_ruleset:error=ENOSYS"),
        ("landlock", "landlock_restrict_self:error=EPERM"),
        ("seccomp", "seccomp:error=ENOMEM"),
    ] {
        let strace = Strace::over(sandbox, supervisor, true, inject)?;
        let refused = sandbox.mews(["run", "--no-tty", "--", "touch", "it-ran"])?.expect(125)?;
        ensure!(strace.injected() > 0, "{inject}: nothing was injected");
        drop(strace);
        ensure!(refused.err().contains(wall), "{inject}: {}", refused.err());
        ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    }
    ensure!(daemon_pids(sandbox)? == (sessiond, supervisor), "a daemon died");
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    flow::stop(sandbox, BYSTANDER)?;
    audit::agrees(sandbox)
}
