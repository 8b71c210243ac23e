//! systemd restarts, kills and stops what is ours; cages live on until their own unit is stopped.

use super::*;
use crate::talk::number;
use link::PidFd;

/// One cage of each person, with the pid that its program has.
fn living(people: &[Person]) -> anyhow::Result<Vec<i64>> {
    people
        .iter()
        .map(|person| {
            start(person, "lives", &[], WAITS)?;
            pid_of(person)
        })
        .collect()
}

fn pid_of(person: &Person) -> anyhow::Result<i64> {
    number(&json(person, &["inspect", "lives"])?, "/cages/0/pid")
}

/// Everybody's is the same process, can be worked with, and ends with its own status.
fn as_before(people: &[Person], pids: &[i64]) -> anyhow::Result<()> {
    for (person, pid) in people.iter().zip(pids) {
        ensure!(pid_of(person)? == *pid, "another process");
        let shown = mews(person, &["exec", "lives", "--", "id", "-u"])?.expect(0)?.out();
        ensure!(shown.trim() == person.uid.to_string(), "{shown}");
        let listed = mews(person, &["ls"])?.expect(0)?.out();
        ensure!(listed.contains("running"), "{listed}");
        // A new one beside it.
        caged(person, &[], "exit 3")?.expect(3)?;
    }
    for person in people {
        std::fs::write(person.project().join("stop"), "")?;
        let exit = ended(person, "lives")?;
        ensure!(exit.pointer("/code").is_some_and(|code| code == 7), "{exit}");
    }
    Ok(())
}

pub(super) fn restart(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<3>(sandbox, |people| {
        let pids = living(people)?;
        let first = main_pid()?;
        systemctl(&["restart", SUPERVISOR])?.expect(0)?;
        ensure!(main_pid()? != first, "the same supervisor");
        as_before(people, &pids)
    })
}

pub(super) fn kill_9(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<3>(sandbox, |people| {
        let pids = living(people)?;
        let before: u32 = property(SUPERVISOR, "NRestarts")?.parse()?;
        PidFd::open(main_pid()?)?.signal(libc::SIGKILL)?;
        // Nobody waits for systemd: what is asked meanwhile is answered by the next one.
        as_before(people, &pids)?;
        until_active(SUPERVISOR)?;
        let after: u32 = property(SUPERVISOR, "NRestarts")?.parse()?;
        ensure!(after == before + 1, "{after} restarts instead of {}", before + 1);
        Ok(())
    })
}

/// As an admin installs another version: the files are replaced, then the daemons are told.
pub(super) fn installed_again(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<2>(sandbox, |people| {
        let pids = living(people)?;
        let first = main_pid()?;
        let mut install = Command::new("packaging/install.sh");
        install.args(["--from", "/mews/bin"]).current_dir("/mews/repository");
        process::run(&mut install, b"", LIMIT)?.expect(0)?;
        let told = process::run(Command::new(MEWS).args(["daemon", "restart"]), b"", LIMIT)?;
        ensure!(told.expect(0)?.err().contains("2 cages ran on"), "what it said");
        until_active(SUPERVISOR)?;
        ensure!(main_pid()? != first, "the same supervisor");
        let ours = process::run(Command::new("pidof").arg("mews-supervisor"), b"", LIMIT)?.out();
        ensure!(ours.trim() == main_pid()?.to_string(), "one supervisor, and systemd's: {ours}");
        as_before(people, &pids)
    })
}

/// A stop ends no cage. What ends meanwhile is told by the next supervisor, which the first question
/// starts.
pub(super) fn stopped(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<2>(sandbox, |people| {
        let pids = living(people)?;
        systemctl(&["stop", SUPERVISOR])?.expect(0)?;
        ensure!(property(SUPERVISOR, "ActiveState")? == "inactive", "it runs on");
        let [ann, _bob] = people;
        let handle = PidFd::open(i32::try_from(*pids.first().context("a pid")?)?)?;
        ensure!(handle.is_alive(), "a stop ended a cage");
        std::fs::write(ann.project().join("stop"), "")?;
        pause::until("hers ends by itself", LIMIT, || (!handle.is_alive()).then_some(()))?;
        let exit = ended(ann, "lives")?;
        ensure!(exit.pointer("/code").is_some_and(|code| code == 7), "{exit}");
        until_active(SUPERVISOR)?;
        as_before(people.get(1..).unwrap_or_default(), pids.get(1..).unwrap_or_default())
    })
}

const DROP_IN: &str = "/run/systemd/system/mews-supervisor.service.d";

/// One that does not answer is ended by systemd; cages notice nothing.
pub(super) fn watchdog(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |people| {
        let pids = living(people)?;
        std::fs::create_dir_all(DROP_IN)?;
        let shorter = "[Service]\nWatchdogSec=8\nTimeoutAbortSec=2\n";
        std::fs::write(format!("{DROP_IN}/shorter.conf"), shorter)?;
        let tried = hang(people, &pids);
        std::fs::remove_dir_all(DROP_IN)?;
        systemctl(&["daemon-reload"])?.expect(0)?;
        systemctl(&["restart", SUPERVISOR])?.expect(0)?;
        tried
    })
}

fn hang(people: &[Person], pids: &[i64]) -> anyhow::Result<()> {
    systemctl(&["daemon-reload"])?.expect(0)?;
    systemctl(&["restart", SUPERVISOR])?.expect(0)?;
    let hung = PidFd::open(main_pid()?)?;
    hung.signal(libc::SIGSTOP)?;
    pause::until("systemd ends it", LIMIT, || (!hung.is_alive()).then_some(()))?;
    as_before(people, pids)
}

/// Everything that runs in cages ends, and is told by the supervisor that the next question starts, with
/// the unit that its cages are below.
pub(super) fn stop_cages(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<2>(sandbox, |people| {
        living(people)?;
        let [ann, _bob] = people;
        mews(ann, &["pause", "lives"])?.expect(0)?;
        systemctl(&["stop", "mews-cages.service"])?.expect(0)?;
        ensure!(cages_of_the_host().is_empty(), "{:?}", cages_of_the_host());
        for person in people {
            let exit = ended(person, "lives")?;
            ensure!(exit.pointer("/signal").is_some_and(|it| it == 9 || it == 15), "{exit}");
        }
        let enforced = |person: &Person| {
            let told = start(person, "after", &["--memory", "64M"], WAITS)?;
            let cage = text(&told, "/cage")?;
            group_file(person, &cage, "memory.max")
        };
        until_active("mews-cages.service")?;
        for person in people {
            ensure!(enforced(person)? == (64_u64 << 20).to_string(), "its limit");
        }
        Ok(())
    })
}
