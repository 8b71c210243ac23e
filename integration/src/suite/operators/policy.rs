//! `host.toml`: which policies, how much of each, how many.

use super::people::{Person, host, need_accounts};
use crate::talk::{daemon_pids, text};
use anyhow::{Context as _, ensure};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;
use testkit::{Sandbox, pause};

pub(super) fn policies_and_ceilings(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    sandbox.folder("config/policies")?;
    sandbox.file("config/policies/team-a.toml", "version = 1\nextends = \"shell\"\n")?;
    let policy = format!(
        "version = 1\n[[allow]]\nusers = [{:?}]\npolicies = [\"shell\", \"team-*\"]\nwiden = false\n\
         [allow.limits]\nmemory = \"256M\"\npids = 64\nwalltime = \"2h\"\n\
         [[allow]]\nusers = [{:?}]\n",
        ann.name, bob.name
    );
    host(sandbox, &policy, || {
        std::fs::write(ann.project().join("own.toml"), "version = 1\nextends = \"shell\"\n")?;
        for (options, said) in [
            (vec!["-p", "ci"], "does not let you use policy 'ci'"),
            (vec!["-p", "./own.toml"], "policy files of your own"),
            (vec!["--read", "/opt"], "leave --read out"),
            (vec!["--write", "/tmp"], "leave --write out"),
            (vec!["--env", "HOME"], "leave --env out"),
            (vec!["--home", "h"], "leave --home out"),
        ] {
            let told = ann.caged(&options, "true")?.expect(125)?.err();
            ensure!(told.contains(said), "{options:?}: {told}");
        }
        ann.caged(&["-p", "team-a"], "true")?.expect(0)?;
        bob.caged(&["-p", "ci"], "true")?;
        bob.caged(&["--read", "/opt"], "true")?.expect(0)?;
        // More than the ceiling is the ceiling, whoever says it; less stays.
        for (options, memory, walltime) in [
            (vec![], 256 << 20, 7_200_000),
            (vec!["--memory", "2G", "--timeout", "1d"], 256 << 20, 7_200_000),
            (vec!["--memory", "64M", "--timeout", "1m"], 64 << 20, 60_000),
        ] {
            let words = [&["run", "-d"], &options[..], &["--", "sleep", "1000"]].concat();
            let started = ann.json(&words)?;
            let session = text(&started, "/session")?;
            let plan = ann.json(&["inspect", "--plan", &session])?;
            let plan = plan.to_string();
            for wanted in [format!("\"value\":{memory}"), format!("\"walltime_ms\":{walltime}")] {
                ensure!(plan.contains(&wanted), "{options:?}: {wanted} is not in {plan}");
            }
            ann.mews(&["kill", &session])?.expect(0)?;
        }
        // Nor does a living cage get more than that.
        let living = text(&ann.json(&["run", "-d", "--", "sleep", "1000"])?, "/session")?;
        for above in ["memory=1G", "memory=none swap=none", "pids=65", "walltime=3h"] {
            let pairs: Vec<&str> = above.split(' ').collect();
            let told = ann.mews(&[&["limits", &*living], &pairs[..]].concat())?;
            ensure!(told.code == 4 && told.err().contains("at most"), "{above}: {told:?}");
        }
        for (within, said) in [("memory=128M", "256M → 128M"), ("memory=256M", "128M → 256M")] {
            let told = ann.mews(&["limits", &living, within])?.expect(0)?;
            ensure!(told.err().contains(said), "{within}: {told:?}");
        }
        ann.mews(&["kill", &living])?.expect(0)?;
        // Held by the kernel, not only written down.
        let hog = "x=$(head -c 400M /dev/zero | tr '\\0' x); echo survived";
        let told = ann.caged(&["--memory", "2G"], hog)?;
        ensure!(told.code == 137 && !told.out().contains("survived"), "{told:?}");
        Ok(())
    })
}

pub(super) fn caps(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let policy = format!(
        "version = 1\ncages = 3\n[[allow]]\nusers = [{:?}, {:?}]\ncages = 2\n",
        ann.name, bob.name
    );
    host(sandbox, &policy, || {
        let refused = |person: &Person, resource: &str, limit: u64| {
            let words = ["--json", "run", "-d", "--", "sleep", "1000"];
            let error: serde_json::Value =
                serde_json::from_slice(&person.mews(&words)?.expect(125)?.stderr)?;
            let at = |place: &str| error.pointer(&format!("/error{place}")).cloned();
            ensure!(at("/code") == Some("limit_reached".into()), "{error}");
            ensure!(at("/details/resource") == Some(resource.into()), "{error}");
            ensure!(at("/details/limit") == Some(limit.into()), "{error}");
            ensure!(at("/details/current") == Some(limit.into()), "{error}");
            Ok(())
        };
        ann.start("one")?;
        ann.start("two")?;
        refused(&ann, "cages of one operator", 2)?;
        bob.start("three")?;
        refused(&bob, "cages of this host", 3)?;
        // Root can always look for itself.
        crate::talk::sh(sandbox, &[], "true")?.expect(0)?;
        ann.mews(&["kill", "one"])?.expect(0)?;
        bob.start("four")?;
        refused(&bob, "cages of one operator", 2)?;
        // Those that come at the same time cannot share the last place.
        bob.mews(&["kill", "three", "four"])?.expect(0)?;
        let starters = (0..4).map(|_number| {
            let mut command = bob.mews_command(&["run", "-d", "--", "sleep", "1000"])?;
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            Ok(command.spawn()?)
        });
        let starters = starters.collect::<anyhow::Result<Vec<_>>>()?;
        let mut went = 0;
        for mut starter in starters {
            let status = testkit::process::wait(&mut starter, testkit::process::LIMIT)?;
            went += i32::from(status.success());
        }
        ensure!(went == 2, "{went} of 4 went");
        Ok(())
    })
}

pub(super) fn unsafe_file(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let file = sandbox.file("config/host.toml", "version = 1\n")?;
    let refused = |said: &str| {
        let told = sandbox.mews(["daemon", "start"])?.expect(69)?.err();
        ensure!(told.contains(said), "{told}");
        let doctor = sandbox.mews(["doctor"])?;
        ensure!(doctor.out().contains(said), "{}", doctor.out());
        Ok(())
    };
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode));
    mode(0o666)?;
    refused("others may write to it")?;
    mode(0o644)?;
    std::os::unix::fs::chown(&file, Some(1), Some(1))?;
    refused("belongs to uid 1")?;
    std::fs::remove_file(&file)?;
    symlink("/etc/passwd", &file)?;
    refused("it is a link")?;
    std::fs::remove_file(&file)?;
    std::fs::write(&file, "version = 1\nadmin = 1\n")?;
    refused("host.toml:2")?;
    std::fs::write(&file, "version = 1\n[[allow]]\nusers = [\"nobody-of-this-name\"]\n")?;
    let doctor = sandbox.mews(["doctor"])?.expect(0)?.out();
    ensure!(doctor.contains("nobody-of-this-name"), "{doctor}");
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    Ok(())
}

pub(super) fn reload(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &super::allow(&[&ann]), || {
        bob.caged(&[], "true")?.expect(125)?;
        let hangup = |said: &str| hangup(sandbox, said);
        sandbox.file("config/host.toml", super::allow(&[&ann, &bob]))?;
        hangup("host policy read")?;
        bob.caged(&[], "true")?.expect(0)?;
        sandbox.file("config/host.toml", "version = 1\nnonsense = 1\n")?;
        hangup("the old one stays")?;
        bob.caged(&[], "true")?.expect(0)?;
        sandbox.file("config/host.toml", super::allow(&[&ann]))?;
        hangup("host policy read")?;
        bob.caged(&[], "true")?.expect(125)?;
        ann.caged(&[], "true")?.expect(0)?;
        Ok(())
    })
}

/// Asks the supervisor to read the file again, and waits until it says that it has.
fn hangup(sandbox: &Sandbox, said: &str) -> anyhow::Result<()> {
    let (_sessiond, supervisor) = daemon_pids(sandbox)?;
    let log = sandbox.state_dir().join("log/mews-supervisor.log");
    let count = || std::fs::read_to_string(&log).unwrap_or_default().matches(said).count();
    let before = count();
    link::PidFd::open(supervisor)?.signal(libc::SIGHUP)?;
    let told = || (count() > before).then_some(());
    pause::until(said, Duration::from_secs(10), told).context("the supervisor's log")
}

/// Another host policy, in effect when this returns.
pub(in crate::suite) fn put(sandbox: &Sandbox, policy: &str) -> anyhow::Result<()> {
    sandbox.file("config/host.toml", policy)?;
    hangup(sandbox, "host policy read")
}
