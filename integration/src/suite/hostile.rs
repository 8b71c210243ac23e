//! A sessiond that was taken over cannot start, enter or read a cage of somebody who is not connected,
//! nor act as another uid, nor lend what the connected operator could not.

use super::operators::people::{Person, need_accounts};
use super::operators::routes::copy_of_this_program;
use crate::runner::Test;
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// The whole script, on a loaded machine.
const SCRIPT: Duration = Duration::from_secs(180);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("hostile.a_taken_over_sessiond_gets_nothing", taken_over)]
}

fn taken_over(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let names = format!("users = [{:?}, {:?}]", ann.name, bob.name);
    sandbox.file("config/host.toml", format!("version = 1\n[[allow]]\n{names}\n"))?;
    ann.sh("echo of ann > project/secret")?.expect(0)?;
    bob.sh("echo of bob > project/mine")?.expect(0)?;
    let closed = sandbox.folder("of-root")?;
    std::fs::write(closed.join("secret"), "of root")?;
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700))?;
    // Somebody's daemon, which listens as root and says nothing.
    let socket = sandbox.root().join("root.sock");
    let _listens = UnixListener::bind(&socket)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;

    let program = copy_of_this_program(sandbox)?;
    let bin = sandbox.root().join("bin");
    for name in ["mews", "mews-supervisor", "mews-ptybroker", "mews-layer", "mews-cage-init"] {
        std::fs::copy(testkit::programs::folder()?.join(name), bin.join(name))?;
    }
    std::fs::copy(&program, bin.join("mews-sessiond"))?;
    let mut supervisor = Command::new(bin.join("mews-supervisor"));
    let log = sandbox.root().join("supervisor.log");
    supervisor.env_clear().envs(sandbox.env()?).stdin(Stdio::null());
    supervisor.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
    let mut supervisor = supervisor.spawn()?;
    let report = sandbox.state_dir().join("db/report");
    let lines = || {
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        let lines: Vec<Value> =
            text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        lines
    };
    let done = conversation(sandbox, &program, (&ann, &bob), &lines);
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    let own = std::fs::read_to_string(sandbox.state_dir().join("log/mews-sessiond.log"));
    let stopped = stop(&mut supervisor);
    done.with_context(|| {
        let last = lines().last().map(ToString::to_string).unwrap_or_default();
        let own = own.unwrap_or_default();
        format!("last: {last}\n{own}\n{}", testkit::process::tail(&told))
    })?;
    stopped?;
    judge(&lines())?;
    journal(sandbox, (&ann, &bob))
}

/// What it did and tried stands where it cannot write.
fn journal(sandbox: &Sandbox, (ann, bob): (&Person, &Person)) -> anyhow::Result<()> {
    let path = sandbox.state_dir().join("sup/journal");
    let lines: Vec<Value> = std::fs::read_to_string(path)?
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    for (what, uid, verb, outcome, owner) in [
        ("a cage over ann's connection", ann.uid, "spawn", "done", Some(ann.uid)),
        ("a grant over it", ann.uid, "mint", "done", Some(ann.uid)),
        ("a cage by that, over bob's", bob.uid, "spawn", "done", Some(ann.uid)),
        ("ann's cage, over bob's", bob.uid, "kill", "not_found", None),
        ("ann's grant, over bob's", bob.uid, "revoke", "not_found", None),
    ] {
        let found = lines.iter().any(|line| {
            let owned = owner.is_none_or(|owner| line["owner"] == owner);
            line["uid"] == uid && line["verb"] == verb && line["outcome"] == outcome && owned
        });
        ensure!(found, "{what} is not in the journal");
    }
    Ok(())
}

fn conversation(
    sandbox: &Sandbox,
    program: &str,
    (ann, bob): (&Person, &Person),
    lines: &dyn Fn() -> Vec<Value>,
) -> anyhow::Result<()> {
    pause::until("the API socket is there", LIMIT, || sandbox.api_socket().exists().then_some(()))?;
    let hold = |person: &Person| -> anyhow::Result<Child> {
        let mut command = person.command(program);
        command.arg("hold").arg(sandbox.api_socket()).stdin(Stdio::piped());
        Ok(command.spawn()?)
    };
    let case = |line: &Value| line.pointer("/case").and_then(Value::as_str).map(str::to_owned);
    let wait_for = |what: &str, times: usize| {
        pause::until(what, SCRIPT, || {
            let found =
                lines().iter().filter(|line| case(line).is_some_and(|it| it == what)).count();
            (found >= times).then_some(())
        })
    };
    let mut anns = hold(ann)?;
    let accepted = format!("accepted {}", ann.uid);
    let outcome = (|| {
        wait_for(&accepted, 1)?;
        let mut bobs = hold(bob)?;
        let rest = (|| {
            wait_for("fs.read of ann", 1)?;
            drop(anns.stdin.take());
            testkit::process::wait(&mut anns, LIMIT)?;
            wait_for("control ann has one cage", 1)?;
            anns = hold(ann)?;
            wait_for("end", 1)
        })();
        drop(bobs.stdin.take());
        testkit::process::wait(&mut bobs, LIMIT)?;
        rest
    })();
    drop(anns.stdin.take());
    testkit::process::wait(&mut anns, LIMIT)?;
    outcome
}

fn stop(supervisor: &mut Child) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(supervisor.id())?);
    nix::sys::signal::kill(pid, Signal::SIGTERM)?;
    let status = testkit::process::wait(supervisor, LIMIT)?;
    ensure!(status.success(), "the supervisor ended with {status}");
    Ok(())
}

fn judge(lines: &[Value]) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let (mut refused, mut controls) = (0, 0);
    for line in lines {
        let word = |at: &str| line.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (case, outcome) = (word("/case"), word("/outcome"));
        let is_control =
            case.starts_with("control ") || case.starts_with("accepted ") || case == "end";
        let good = match is_control {
            true => outcome == "done",
            // Said before anything was done; a wall that failed would have been put up first.
            false => {
                outcome == "closed"
                    || (outcome.starts_with("refused ") && !outcome.starts_with("refused internal"))
            }
        };
        if is_control {
            controls += 1;
        } else {
            refused += 1;
        }
        if !good {
            wrong.push(line.to_string());
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(refused > 200 && controls > 10, "{refused} {controls}");
    Ok(())
}
