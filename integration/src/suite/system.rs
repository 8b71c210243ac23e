//! mews as an admin installs it: the real units under systemd, cages below another unit's cgroup,
//! operators who find the system by themselves. Only in the guests of `cargo xtask vm`, since it
//! restarts and kills what is installed.

mod cages;
mod inheritance;
mod operators;
mod restarts;
mod units;
mod without;

use super::operators::{allow, people};
use crate::runner::{Test, need_root, skip};
use crate::talk::text;
use anyhow::{Context as _, ensure};
use people::Person;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use testkit::process::{self, Finished, LIMIT};
use testkit::{Sandbox, pause};

/// Where the units put cages.
const BASE: &str = "/sys/fs/cgroup/mews.slice/mews-cages.service/cages/mews";
const MEWS: &str = "/usr/bin/mews";
const SUPERVISOR: &str = "mews-supervisor.service";
const HOST_POLICY: &str = "/etc/mews/host.toml";

pub(crate) fn tests() -> Vec<Test> {
    let tests: [(&str, Body); 18] = [
        ("the_units_are_up", units::up),
        ("three_operators", operators::three),
        ("limits_are_of_cgroup_v2", cages::limits),
        ("memory_dies_as_one", cages::memory),
        ("stands_still_by_the_kernels_freezer", cages::stands),
        ("killed_while_frozen", cages::killed_while_frozen),
        ("out_of_memory_while_frozen", cages::oom_while_frozen),
        ("checkpoint_and_rollback", cages::checkpoint),
        ("nothing_of_the_unit_is_inherited", inheritance::compared),
        ("cages_outlive_a_restart", restarts::restart),
        ("cages_outlive_another_installation", restarts::installed_again),
        ("cages_outlive_kill_9", restarts::kill_9),
        ("a_socket_that_waits_while_it_is_stopped", restarts::stopped),
        ("the_watchdog_ends_a_supervisor_that_hangs", restarts::watchdog),
        ("stopping_the_cages_unit_ends_cages", restarts::stop_cages),
        ("a_user_whom_nobody_let_in", without::own_daemons),
        ("a_user_with_a_delegated_group", without::delegated),
        ("the_journal_has_no_error", units::journal),
    ];
    tests.map(|(name, body)| Test::new(format!("system.{name}"), body)).into()
}

type Body = fn(&Sandbox) -> anyhow::Result<()>;

fn need_guest() -> anyhow::Result<()> {
    need_root()?;
    match std::env::var_os("MEWS_VM") {
        Some(_) => Ok(()),
        None => Err(skip("only in a guest of `cargo xtask vm`")),
    }
}

fn systemctl(words: &[&str]) -> anyhow::Result<Finished> {
    process::run(Command::new("systemctl").args(words), b"", LIMIT)
}

/// One property of a unit, as systemd has it now.
fn property(unit: &str, name: &str) -> anyhow::Result<String> {
    let told = systemctl(&["show", "--value", "--property", name, unit])?.expect(0)?.out();
    Ok(told.trim().to_owned())
}

fn main_pid() -> anyhow::Result<i32> {
    let pid: i32 = property(SUPERVISOR, "MainPID")?.parse()?;
    ensure!(pid > 0, "the supervisor does not run");
    Ok(pid)
}

fn until_active(unit: &str) -> anyhow::Result<()> {
    let active = || property(unit, "ActiveState").is_ok_and(|state| state == "active");
    pause::until(&format!("{unit} is active"), LIMIT, || active().then_some(()))
}

/// Accounts that the host lets in, for one test; none of their cages is left.
fn with_people<const N: usize>(
    sandbox: &Sandbox,
    body: impl FnOnce(&[Person; N]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    need_guest()?;
    let mut made = Vec::new();
    for _ in 0..N {
        made.push(Person::make(sandbox, &[])?);
    }
    let people: [Person; N] = made.try_into().map_err(|_others| anyhow::anyhow!("{N} people"))?;
    let all: Vec<&Person> = people.iter().collect();
    let_in(&all)?;
    for person in &people {
        let is_in = || mews(person, &["--system", "daemon", "status"]).is_ok_and(|it| it.code == 0);
        pause::until("the host lets them in", LIMIT, || is_in().then_some(()))?;
    }
    let done = body(&people).map_err(|error| error.context(journal()));
    let swept = sweep();
    done.and(swept)
}

fn let_in(people: &[&Person]) -> anyhow::Result<()> {
    let policy = if people.is_empty() { "version = 1\n".to_owned() } else { allow(people) };
    std::fs::write(HOST_POLICY, policy)?;
    systemctl(&["reload", SUPERVISOR])?.expect(0).map(drop)
}

/// Ends and removes every session of the host.
fn sweep() -> anyhow::Result<()> {
    let listed = root(&["--json", "ls", "--all"])?.expect(0)?.json_lines()?;
    for session in listed {
        root(&["rm", "--force", &text(&session, "/id")?])?.expect(0)?;
    }
    let none = || cages_of_the_host().is_empty().then_some(());
    pause::until("no cage has a group", LIMIT, none)
        .with_context(|| format!("{:?}", cages_of_the_host()))
}

/// The groups of cages below the unit's.
fn cages_of_the_host() -> Vec<PathBuf> {
    let folders = |path: PathBuf| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    folders(BASE.into()).into_iter().flat_map(folders).collect()
}

fn root(words: &[&str]) -> anyhow::Result<Finished> {
    process::run(Command::new(MEWS).args(words).env_remove("MEWS_RUN_DIR"), b"", LIMIT)
}

/// `mews ARGS` in the person's project; they find the daemons by themselves.
fn mews(person: &Person, words: &[&str]) -> anyhow::Result<Finished> {
    let mut command = person.command(MEWS);
    process::run(command.args(words).current_dir(person.project()), b"", LIMIT)
}

fn caged(person: &Person, options: &[&str], script: &str) -> anyhow::Result<Finished> {
    mews(person, &[&["run", "--no-tty"], options, &["--", "sh", "-c", script]].concat())
}

fn json(person: &Person, words: &[&str]) -> anyhow::Result<Value> {
    mews(person, &[&["--json"], words].concat())?.expect(0)?.json()
}

/// A script in the background that has begun: it makes `up` in the project.
fn start(person: &Person, name: &str, options: &[&str], script: &str) -> anyhow::Result<Value> {
    let up = person.project().join(format!("{name}.up"));
    let script = format!("touch {name}.up; {script}");
    let words = [&["run", "-d", "--name", name], options, &["--", "bash", "-c", &script]].concat();
    let told = json(person, &words)?;
    pause::until("it runs", LIMIT, || up.exists().then_some(()))?;
    Ok(told)
}

/// Runs until a file `stop` is there.
const WAITS: &str = "while [ ! -e stop ]; do sleep 0.1; done; exit 7";

/// The exit of the newest run of a session, when it has one.
fn ended(person: &Person, id: &str) -> anyhow::Result<Value> {
    mews(person, &["wait", id, "--exit"])?;
    let shown = json(person, &["inspect", id])?;
    shown.pointer("/runs/0/exit").cloned().with_context(|| format!("no exit: {shown}"))
}

/// A file of the group that a person's cage is in.
fn group_file(person: &Person, cage: &str, file: &str) -> anyhow::Result<String> {
    let path = PathBuf::from(BASE).join(format!("u{}", person.uid)).join(cage);
    let path = path.join("payload").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

fn journal() -> String {
    let words = ["--no-pager", "--lines=60", "--output=cat", "-u", "mews-*"];
    let told = process::run(Command::new("journalctl").args(words), b"", LIMIT);
    let log = std::fs::read_to_string("/var/lib/mews/log/mews-sessiond.log").unwrap_or_default();
    format!(
        "{}--- sessiond\n{}",
        told.map(|told| told.out()).unwrap_or_default(),
        process::tail(&log)
    )
}
