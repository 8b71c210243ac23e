//! A host without user namespaces: an ordinary user's mews in a namespace of the test's own, in which
//! no further one may be made. The host's own limit is not touched.

use super::super::flow;
use crate::audit;
use crate::runner::skip;
use crate::suite::users::as_user;
use crate::talk::in_workspace;
use anyhow::ensure;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

const REFUSALS: usize = 10;
const NONE_LEFT: &str = "echo 0 > /proc/sys/user/max_user_namespaces";
/// Without what the namespace gave it: an ordinary user again.
const ORDINARY: &str = "setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all --";

/// A script as the sandbox's user, with every right over a user namespace of its own.
fn apart(sandbox: &Sandbox, script: &str) -> anyhow::Result<Finished> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--mount", "--map-current-user", "--keep-caps", "--"]);
    command.args(["sh", "-ec", script]);
    command.env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    sandbox.caller().apply(&mut command);
    process::run(&mut command, b"", LIMIT)
}

fn can_be_apart(sandbox: &Sandbox) -> anyhow::Result<()> {
    match apart(sandbox, NONE_LEFT)?.code {
        0 => Ok(()),
        _ => Err(skip("no user namespace whose limits can be set")),
    }
}

fn mews(sandbox: &Sandbox, words: &str) -> anyhow::Result<String> {
    Ok(format!("{ORDINARY} {} {words}", sandbox.programs()?.join("mews").display()))
}

/// Known from the start: refused by the name of the wall, with what to do.
pub(super) fn none(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        can_be_apart(sandbox)?;
        for mode in ["", "--no-daemon"] {
            let run = mews(sandbox, &format!("run --no-tty {mode} -- touch it-ran"))?;
            let refused = apart(sandbox, &format!("{NONE_LEFT}; exec {run}"))?.expect(125)?;
            for word in ["userns", "user namespaces", "mews doctor"] {
                ensure!(refused.err().contains(word), "no {word:?} in: {}", refused.err());
            }
            ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
        }
        let doctor = mews(sandbox, "doctor")?;
        let told = apart(sandbox, &format!("{NONE_LEFT}; exec {doctor}"))?;
        ensure!(told.code != 0 && told.out().contains("userns"), "{}", told.out());
        audit::agrees(sandbox)
    })
}

/// Used up while mews runs: the cage that lives goes on, the next one is refused with bwrap's words.
pub(super) fn used_up(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        can_be_apart(sandbox)?;
        let lives = mews(
            sandbox,
            "run -d --name lives -- sh -c 'while [ ! -e stop-lives ]; do sleep 0.02; done; exit 7'",
        )?;
        let refused = mews(sandbox, "run --no-tty -- touch it-ran")?;
        let exec = mews(sandbox, "exec --no-tty lives -- touch exec-ran")?;
        // More than once: bwrap fails faster than a busy supervisor looks.
        let all = format!("for n in $(seq {REFUSALS}); do {refused} || echo refused with $?; done");
        let told = apart(sandbox, &format!("{lives}; {NONE_LEFT}; {exec}; {all}"))?.expect(0)?;
        let said = told.err();
        let named =
            said.lines().filter(|line| line.contains("bwrap") && line.contains("namespace"));
        ensure!(named.count() == REFUSALS, "{said}");
        ensure!(told.out().matches("refused with 125").count() == REFUSALS, "{}", told.out());
        ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
        ensure!(in_workspace(sandbox, "exec-ran").exists(), "the living cage takes no command");
        flow::stop(sandbox, "lives")?;
        audit::agrees(sandbox)
    })
}

/// A /proc in which something is hidden, as containers have it: the kernel gives nobody a fresh one.
pub(super) fn masked_proc(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        can_be_apart(sandbox)?;
        let mask = "mount --bind /dev/null /proc/kallsyms";
        for mode in ["", "--no-daemon"] {
            let run = mews(sandbox, &format!("run --no-tty {mode} -- touch it-ran"))?;
            let refused = apart(sandbox, &format!("{mask}; exec {run}"))?.expect(125)?;
            for word in ["bwrap", "proc", "mews doctor"] {
                ensure!(refused.err().contains(word), "no {word:?} in: {}", refused.err());
            }
            ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
        }
        let told = apart(sandbox, &format!("{mask}; exec {}", mews(sandbox, "doctor")?))?;
        ensure!(told.code != 0 && told.out().contains("proc"), "{}", told.out());
        audit::agrees(sandbox)
    })
}
