//! People whom the host's policy does not name: a cage of their own after one command, with what this
//! host cannot give them said; and the whole of it where systemd delegates them a group.

use super::*;
use crate::talk::wall;

/// In a login of the person's, as systemd makes it: its manager, its runtime folder.
fn logged_in(person: &Person, words: &[&str]) -> anyhow::Result<Finished> {
    let uid = person.uid.to_string();
    let mut command = person.command("env");
    command.arg(format!("XDG_RUNTIME_DIR=/run/user/{uid}")).args(words);
    process::run(command.current_dir(person.project()), b"", LIMIT)
}

fn with_login(
    sandbox: &Sandbox,
    body: impl FnOnce(&Person) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    need_guest()?;
    // Whom it named before has a uid that is given again.
    let_in(&[])?;
    let eve = Person::make(sandbox, &[])?;
    let login =
        |word: &str| process::run(Command::new("loginctl").args([word, &eve.name]), b"", LIMIT);
    login("enable-linger")?.expect(0)?;
    let manager = format!("user@{}.service", eve.uid);
    until_active(&manager)?;
    let done = body(&eve).map_err(|error| error.context(journal()));
    let stopped = logged_in(&eve, &[MEWS, "--user", "daemon", "stop", "--kill"]);
    login("disable-linger")?.expect(0)?;
    login("terminate-user")?;
    // The uid is given again: whoever has it next must not be taken for her.
    let forgotten = || login("show-user").ok().filter(|told| told.code != 0).map(drop);
    pause::until("logind has forgotten her", LIMIT, forgotten)?;
    done?;
    stopped.map(drop)
}

fn walls(person: &Person, words: &[&str]) -> anyhow::Result<Value> {
    let file = person.project().join("status.json");
    let name = file.to_string_lossy().into_owned();
    let run = [MEWS, "run", "--no-tty", "--memory", "64M", "--status-file", &name, "--"];
    let words = [words, &run[..], &["sh", "-c", "id -u; touch made"]].concat();
    let told = logged_in(person, &words)?.expect(0)?;
    ensure!(told.out().trim() == person.uid.to_string(), "{told:?}");
    let status: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    status.pointer("/enforced").cloned().context("enforced")
}

pub(super) fn own_daemons(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_login(sandbox, |eve| {
        let enforced = walls(eve, &[])?;
        ensure!(wall(&enforced, "landlock")? == "enforced", "{enforced}");
        ensure!(wall(&enforced, "cgroup.memory")? == "absent", "{enforced}");
        ensure!(wall(&enforced, "cgroup.pids")? == "emulated", "{enforced}");
        let told = logged_in(eve, &[MEWS, "run", "--no-tty", "-p", "ci", "--", "true"])?;
        ensure!(told.code == 125 && told.err().contains("cgroup.memory"), "{told:?}");
        let doctor = logged_in(eve, &[MEWS, "doctor"])?.out();
        ensure!(doctor.contains("Delegate=yes"), "{doctor}");
        Ok(())
    })
}

/// As `mews doctor` says it.
pub(super) fn delegated(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_login(sandbox, |eve| {
        let scope = ["systemd-run", "--quiet", "--user", "--scope", "-p", "Delegate=yes"];
        let enforced = walls(eve, &scope)?;
        for name in ["cgroup.memory", "cgroup.pids", "landlock"] {
            ensure!(wall(&enforced, name)? == "enforced", "{name}: {enforced}");
        }
        let words = [&scope[..], &[MEWS, "run", "--no-tty", "-p", "ci", "--", "true"]].concat();
        logged_in(eve, &words)?.expect(0).map(drop)
    })
}
