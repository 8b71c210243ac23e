//! Ordinary users: the same walls without root, and nothing of each other.

use super::cage::{check_refusals, forbidden_acts};
use crate::exchange;
use crate::runner::{Test, need_root, skip};
use crate::talk::{Mode, in_workspace, run, run_with_status, start, text, wall};
use anyhow::{Context as _, ensure};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Caller, Sandbox};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("users.the_same_walls", same_walls),
        Test::new("users.exit_statuses", statuses),
        Test::new("users.files_are_theirs", files),
        Test::new("users.absent_limits_are_said", absent),
        Test::new("users.ci_refuses_by_name", ci_refuses),
        Test::new("users.two_see_nothing_of_each_other", two),
        Test::new("users.an_account_with_its_own_folders", account),
        Test::new("users.names_exchanged_while_a_cage_is_built", exchanged),
    ]
}

/// Runs with a sandbox of an ordinary user, which must be left clean as well.
pub(super) fn as_user(
    number: u32,
    body: impl FnOnce(&Sandbox) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let sandbox = Sandbox::of(Caller::ordinary(number))?;
    let done = body(&sandbox).map_err(|error| error.context(sandbox.logs()));
    let finish = sandbox.finish();
    done.and(finish)
}

fn same_walls(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        let command = forbidden_acts(sandbox)?;
        check_refusals(&run(sandbox, Mode::Daemons, &[], &command)?.expect(0)?.out())?;
        let shown = run(sandbox, Mode::Daemons, &[], &["id", "-u"])?.expect(0)?.out();
        ensure!(shown.trim() == sandbox.caller().uid().to_string(), "{shown}");
        Ok(())
    })
}

/// As a program in another cage can that works in the folder above: what the plan has looked at is lent,
/// or nothing runs.
fn exchanged(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        sandbox.folder("ws/sub")?;
        let other = sandbox.folder("other")?.to_string_lossy().into_owned();
        let (sub, link) = (in_workspace(sandbox, "sub"), in_workspace(sandbox, "link"));
        std::os::unix::fs::symlink(sandbox.run_dir(), &link)?;
        let name = sub.to_string_lossy();
        let options = ["-w", &*other, "--write", &*name];
        let script = format!("test ! -S {name}/api.sock || echo reached");
        exchange::meanwhile((&sub, &link), |_number| {
            let told = run(sandbox, Mode::Daemons, &options, &["sh", "-c", &script])?;
            ensure!(!told.out().contains("reached"), "mews's own folder was lent");
            Ok(told.code != 125)
        })
    })
}

fn statuses(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        for mode in Mode::BOTH {
            run(sandbox, mode, &[], &["sh", "-c", "exit 7"])?.expect(7)?;
            run(sandbox, mode, &[], &["sh", "-c", "kill -9 $$"])?.expect(137)?;
            run(sandbox, mode, &[], &["no-such-program"])?.expect(127)?;
            run(sandbox, mode, &["--timeout", "500ms"], &["sleep", "60"])?.expect(124)?;
        }
        Ok(())
    })
}

fn files(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        run(sandbox, Mode::Daemons, &[], &["touch", "made"])?.expect(0)?;
        let facts = std::fs::metadata(in_workspace(sandbox, "made"))?;
        ensure!(facts.uid() == sandbox.caller().uid(), "belongs to {}", facts.uid());
        Ok(())
    })
}

fn absent(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        let options = ["--memory", "256M", "--pids", "50"];
        let (finished, status) = run_with_status(sandbox, Mode::Daemons, &options, &["true"])?;
        finished.expect(0)?;
        let enforced = status.pointer("/enforced").context("enforced")?;
        ensure!(wall(enforced, "cgroup.memory")? == "absent", "{enforced}");
        ensure!(wall(enforced, "cgroup.pids")? == "emulated", "{enforced}");
        ensure!(wall(enforced, "landlock")? == "enforced", "{enforced}");
        let session = text(&status, "/session")?;
        let shown = sandbox.mews(["inspect", &session])?.expect(0)?.out();
        ensure!(shown.contains("ABSENT") && shown.contains("cgroup.memory"), "{shown}");
        let events = crate::talk::events(sandbox, &session)?;
        let told = events.iter().filter_map(|event| event.pointer("/data/enforced")).next();
        ensure!(wall(told.context("an event with walls")?, "cgroup.memory")? == "absent", "");
        Ok(())
    })
}

fn ci_refuses(_root: &Sandbox) -> anyhow::Result<()> {
    as_user(1, |sandbox| {
        for mode in Mode::BOTH {
            let (finished, status) =
                run_with_status(sandbox, mode, &["--policy", "ci"], &["touch", "it-ran"])?;
            let finished = finished.expect(125)?;
            ensure!(finished.err().contains("cgroup.memory"), "{}", finished.err());
            ensure!(status.to_string().contains("cgroup.memory"), "{status}");
            ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
        }
        Ok(())
    })
}

fn two(_root: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    as_user(1, |one| {
        let run = start(one, &["--name", "of-one"], &["sleep", "1000"])?;
        as_user(2, |two| {
            start(two, &["--name", "of-two"], &["sleep", "1000"])?;
            let shown = two.mews(["ls", "--all"])?.expect(0)?.out();
            ensure!(shown.contains("of-two") && !shown.contains("of-one"), "{shown}");
            // The other's daemons, addressed on purpose.
            for verb in [vec!["ls"], vec!["attach", &run.session], vec!["kill", &run.session]] {
                let mut command = two.command(&verb)?;
                command.env("MEWS_RUN_DIR", one.run_dir()).env("MEWS_STATE_DIR", one.state_dir());
                let tried = process::run(&mut command, b"", LIMIT)?;
                ensure!(tried.code != 0 && !tried.out().contains("of-one"), "{verb:?} {tried:?}");
            }
            let script = format!("ls -d /proc/[0-9]* | wc -l; ls {}", one.root().display());
            let shown = crate::talk::sh(two, &[], &script)?.out();
            ensure!(!shown.contains("state"), "{shown}");
            Ok(())
        })?;
        let shown = one.mews(["ls"])?.expect(0)?.out();
        ensure!(shown.contains("of-one"), "{shown}");
        Ok(())
    })
}

/// An account made for this test, as `useradd` makes them.
struct Account {
    name: String,
}

impl Account {
    fn make() -> anyhow::Result<Self> {
        let name = format!("mewst{}", std::process::id() % 100_000);
        let mut command = Command::new("useradd");
        command.args(["--create-home", "--shell", "/bin/bash", &name]);
        process::run(&mut command, b"", LIMIT)?.expect(0)?;
        Ok(Self { name })
    }

    fn runs(&self, script: &str) -> anyhow::Result<process::Finished> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &self.name, "--regid", &self.name, "--init-groups", "sh", "-c"]);
        command.arg(script).env_clear().current_dir(format!("/home/{}", self.name));
        command.env("HOME", format!("/home/{}", self.name)).env("PATH", "/usr/bin:/bin");
        command.env("LANG", "C.UTF-8").env("USER", &self.name);
        process::run(&mut command, b"", LIMIT)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        Command::new("userdel").args(["--remove", &self.name]).output().ok();
    }
}

fn account(_root: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let account = Account::make().map_err(|error| skip(&format!("no useradd: {error}")))?;
    let mews = testkit::programs::folder()?.join("mews");
    let mews = mews.display();
    let script = format!(
        "mkdir proj && cd proj && {mews} run --no-tty -- sh -c 'id -un; echo $HOME; pwd; echo hi > f; \
         ls -a ~ | wc -l' && cat f && {mews} ls && id -u"
    );
    let ran = account.runs(&script);
    let stopped = account.runs(&format!("{mews} daemon stop --kill"));
    let id = account.runs("id -u")?.out();
    let fallback = std::path::PathBuf::from(format!("/tmp/mews-{}", id.trim()));
    let private = std::fs::metadata(&fallback).map(|facts| facts.mode() & 0o777);
    std::fs::remove_dir_all(&fallback).ok();
    let shown = ran?.expect(0)?.out();
    stopped?.expect(0)?;
    let home = format!("/home/{}", account.name);
    let lines: Vec<&str> = shown.lines().collect();
    ensure!(lines.first() == Some(&&*account.name), "{shown}");
    ensure!(lines.get(1) == Some(&&*home), "{shown}");
    ensure!(lines.get(2) == Some(&&*format!("{home}/proj")), "{shown}");
    ensure!(lines.contains(&"hi"), "{shown}");
    ensure!(private? == 0o700, "the fallback folder is not private");
    Ok(())
}
