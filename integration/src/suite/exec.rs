//! A second command in a living cage stands behind every wall of the first.

use super::cage::{check_refusals, forbidden_acts};
use crate::runner::Test;
use crate::talk::{Background, in_workspace, read, start, wait_exit};
use anyhow::ensure;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("exec.same_walls_as_the_first", same_walls),
        Test::new("exec.forbidden_acts_fail_there_too", forbidden),
        Test::new("exec.signals_what_the_first_started", signals_siblings),
        Test::new("exec.exit_statuses", statuses),
        Test::new("exec.does_not_hold_the_cage", does_not_hold),
        Test::new("exec.ends_with_the_cage", ends_with_the_cage),
        Test::new("exec.that_ends_the_cage_has_its_status", ends_the_cage),
        Test::new("exec.many_at_once", many),
    ]
}

const FACTS: &str = "
grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status
for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done
ulimit -a; ulimit -Ha; cat /proc/self/cgroup; umask; hostname; pwd
cat /proc/self/mountinfo | wc -l; echo $HOME $USER $PATH
";

fn facts_then_sleep(sandbox: &Sandbox) -> anyhow::Result<Background> {
    sandbox.file("ws/facts.sh", FACTS)?;
    let first = "bash facts.sh > new && mv new first; exec sleep 1000";
    let run = start(sandbox, &["--pids", "64"], &["bash", "-c", first])?;
    wait_for_file(sandbox, "first")?;
    Ok(run)
}

fn wait_for_file(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let path = in_workspace(sandbox, name);
    pause::until(&format!("the file {name}"), LIMIT, || path.exists().then_some(()))
}

fn same_walls(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = facts_then_sleep(sandbox)?;
    let second =
        sandbox.mews(["exec", "--no-tty", &run.session, "--", "bash", "facts.sh"])?.expect(0)?;
    let first = read(sandbox, "first")?;
    for (one, two) in first.lines().zip(second.out().lines()) {
        ensure!(one == two, "the first has {one:?}, the second {two:?}");
    }
    ensure!(first.lines().count() == second.out().lines().count(), "{first}\n{}", second.out());
    ensure!(first.contains("Seccomp:\t2"), "{first}");
    Ok(())
}

fn forbidden(sandbox: &Sandbox) -> anyhow::Result<()> {
    let [python, script] = forbidden_acts(sandbox)?;
    let run = start(sandbox, &[], &["sleep", "1000"])?;
    let words = ["exec", "--no-tty", &run.cage, "--", python, script];
    check_refusals(&sandbox.mews(words)?.expect(0)?.out())
}

fn signals_siblings(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "sleep 1000 & echo $! > new; mv new pid; wait $!; exit 12";
    let run = start(sandbox, &[], &["bash", "-c", script])?;
    wait_for_file(sandbox, "pid")?;
    let pid = read(sandbox, "pid")?;
    let words = ["exec", "--no-tty", &run.session, "--", "kill", "-9", pid.trim()];
    sandbox.mews(words)?.expect(0)?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let shown = sandbox.json(["inspect", &run.session])?;
    let code = shown.pointer("/runs/0/exit/code").and_then(serde_json::Value::as_i64);
    ensure!(code == Some(12), "{shown}");
    Ok(())
}

fn statuses(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "base"], &["sleep", "1000"])?;
    for (command, status) in [
        (vec!["sh", "-c", "exit 9"], 9),
        (vec!["sh", "-c", "kill -INT $$"], 130),
        (vec!["no-such-program"], 127),
        (vec!["/etc/ld.so.cache"], 126),
    ] {
        let words = ["exec", "--no-tty", "base", "--"].into_iter().chain(command);
        sandbox.mews(words)?.expect(status)?;
    }
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    let after = sandbox.mews(["exec", "--no-tty", "base", "--", "true"])?;
    ensure!(after.code != 0, "exec in an ended cage");
    Ok(())
}

/// Who waits for a command hears how it ended, also when the cage ends under it.
fn ends_with_the_cage(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &[], &["sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done"])?;
    let script = "touch up; printf told; exec sleep 1000";
    let words = ["exec", "--no-tty", &run.session, "--", "sh", "-c", script];
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| sandbox.mews(words));
        let ended = wait_for_file(sandbox, "up").and_then(|()| sandbox.file("ws/stop", ""));
        (waits.join(), ended)
    });
    let (Ok(exec), ended) = waits else { anyhow::bail!("panicked") };
    ended?;
    let exec = exec?.expect(137)?;
    ensure!(exec.out() == "told", "{}", exec.out());
    ensure!(exec.err().contains("ended with its first command"), "{}", exec.err());
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

/// Twenty times: a status that is lost is lost to whoever is a moment slower.
fn ends_the_cage(sandbox: &Sandbox) -> anyhow::Result<()> {
    let first =
        "trap 'exit 3' TERM; echo $$ > new; mv new pid; while :; do sleep 1000 & wait; done";
    for _time in 0..20 {
        let run = start(sandbox, &[], &["sh", "-c", first])?;
        wait_for_file(sandbox, "pid")?;
        let script = "p=$(cat pid); rm pid; kill $p; exec sleep 1000";
        let words = ["exec", "--no-tty", &run.session, "--", "sh", "-c", script];
        sandbox.mews(words)?.expect(137)?;
        wait_exit(sandbox, &run.session)?.expect(0)?;
    }
    Ok(())
}

fn does_not_hold(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &[], &["sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done"])?;
    let words = ["exec", "-d", &run.session, "--", "sh", "-c", "touch up; sleep 1000"];
    sandbox.mews(words)?.expect(0)?;
    wait_for_file(sandbox, "up")?;
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

fn many(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &[], &["sleep", "1000"])?;
    let mut children = Vec::new();
    for number in 0..12 {
        let script = format!("echo {number}; exit {number}");
        let mut command =
            sandbox.command(["exec", "--no-tty", &run.session, "--", "sh", "-c", &script])?;
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        children.push((number, command.spawn()?));
    }
    for (number, child) in children {
        let output = child.wait_with_output()?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(number), "{number}: {:?}", output.status);
        ensure!(shown == format!("{number}\n"), "{number}: {shown}");
    }
    Ok(())
}
