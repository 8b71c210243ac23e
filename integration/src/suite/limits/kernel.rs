//! What the kernel holds: memory, swap, processes, cpu, io.

use super::{Neighbour, cgroup_file, ended, limits_met, met, policy};
use crate::runner::{need_root, skip};
use crate::talk::{Mode, events, number, run, start, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// Grows until it is stopped, as a child of a shell that would tell of its end.
const HOG: &str = "sleep 300 & tail /dev/zero; echo survived > survived; exit 3";

/// Everything in the cage dies as one, and nothing beside it.
pub(super) fn memory(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let near = Neighbour::start(sandbox)?;
    let policy = policy(sandbox, "memory = \"48M\"")?;
    let run = start(sandbox, &["-p", &policy], &["sh", "-c", HOG])?;
    let exit = ended(sandbox, &run.session)?;
    ensure!(text(&exit, "/cause")? == "oom", "{exit}");
    ensure!(exit.pointer("/signal").is_some_and(|signal| signal == 9), "{exit}");
    ensure!(!sandbox.workspace().join("survived").exists(), "the shell outlived its cage's death");
    let types = crate::talk::event_types(&events(sandbox, &run.session)?)?;
    ensure!(types.iter().filter(|it| *it == "cage.oom").count() == 1, "{types:?}");
    near.ends_unharmed(sandbox)
}

/// A policy that does not say `oom = "group"`: the kernel picks one, the others go on.
pub(super) fn memory_of_one(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let text = "version = 1\nname = \"bare\"\n[fs]\nwrite = [\"$WORKSPACE\"]\n\
                read = [\"/usr\", \"/bin\", \"/lib\", \"/lib64\", \"/etc/alternatives\"]\n\
                tmpfs = [{ path = \"/tmp\" }]\n[limits]\nmemory = \"48M\"\nswap = 0\n";
    let policy = sandbox.file("home/bare.toml", text)?;
    let run = start(sandbox, &["-p", &policy.to_string_lossy()], &["sh", "-c", HOG])?;
    let exit = ended(sandbox, &run.session)?;
    ensure!(exit.pointer("/code").is_some_and(|code| code == 3), "{exit}");
    ensure!(text_of(&exit, "/cause") == "exited", "{exit}");
    ensure!(sandbox.workspace().join("survived").exists(), "the shell died, too");
    Ok(())
}

fn text_of(value: &Value, pointer: &str) -> String {
    text(value, pointer).unwrap_or_default()
}

/// On v1 the kernel counts swap on top of memory, on v2 alone.
pub(super) fn swap(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let policy = policy(sandbox, "memory = \"64M\"\nswap = \"32M\"")?;
    let run = start(sandbox, &["-p", &policy], &["sleep", "100"])?;
    let (both, alone) = (96_u64 << 20, 32_u64 << 20);
    match cgroup_file(sandbox, &run.cage, "memory.memsw.limit_in_bytes") {
        Ok(limit) => ensure!(limit == both.to_string(), "memory and swap: {limit}"),
        Err(_v2) => match cgroup_file(sandbox, &run.cage, "memory.swap.max") {
            Ok(limit) => ensure!(limit == alone.to_string(), "swap: {limit}"),
            Err(_uncounted) => return Err(skip("this kernel does not count swap")),
        },
    }
    let stats = sandbox.json(["stats", &run.session])?;
    let limit = number(&stats, "/stats/memory/swap_limit_bytes")?;
    ensure!(u64::try_from(limit)? == alone, "{stats}");
    Ok(())
}

/// A fork is refused, the program lives, an event tells it.
pub(super) fn pids(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let near = Neighbour::start(sandbox)?;
    let policy = policy(sandbox, "pids = 20")?;
    let script = "import os, time\nn = 0\ntry:\n  while n < 60:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n\
                  except OSError: pass\nopen('met', 'w').write(str(n))\ntime.sleep(300)";
    let run = start(sandbox, &["-p", &policy], &["/usr/bin/python3", "-c", script])?;
    // On v1 the kernel tells nobody; it is told when somebody looks.
    pause::until("a fork was refused", LIMIT, || {
        sandbox.json(["stats", &run.session]).ok()?;
        let met = limits_met(sandbox, &run.session).ok()?;
        (met == ["pids"]).then_some(())
    })?;
    let count: u32 = pause::until("it has counted", LIMIT, || {
        crate::talk::read(sandbox, "met").ok()?.parse().ok()
    })?;
    ensure!((4..20).contains(&count), "{count} processes were made");
    let stats = sandbox.json(["stats", &run.session])?;
    ensure!(number(&stats, "/stats/pids/limit")? == 20, "{stats}");
    ensure!(number(&stats, "/stats/pids/refused")? >= 1, "{stats}");
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    ensure!(text(&ended(sandbox, &run.session)?, "/cause")? == "cancelled", "its cause");
    near.ends_unharmed(sandbox)
}

/// Half a CPU: it is held back, and ends by itself.
pub(super) fn cpu(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let policy = policy(sandbox, "cpu = 0.5")?;
    let script = "while [ ! -e stop ]; do :; done; exit 6";
    let run = start(sandbox, &["-p", &policy], &["sh", "-c", script])?;
    let held = pause::until("it is held back", LIMIT, || {
        let stats = sandbox.json(["stats", &run.session]).ok()?;
        number(&stats, "/stats/cpu/throttled_us").ok().filter(|us| *us > 0).map(|_| stats)
    })?;
    ensure!(number(&held, "/stats/cpu/limit_milli")? == 500, "{held}");
    // Of the wall's time since then it has half at most, and the quota of a period more.
    let times = |stats: &Value| -> anyhow::Result<(i64, i64)> {
        Ok((number(stats, "/stats/cpu/total_us")?, number(stats, "/stats/ran_ms")?))
    };
    let (used, wall) = times(&held)?;
    let (later, wall_later) = pause::until("a second more", LIMIT, || {
        let stats = sandbox.json(["stats", &run.session]).ok()?;
        times(&stats).ok().filter(|(_used, ran)| *ran > wall + 1000)
    })?;
    let (used, wall) = (later - used, wall_later - wall);
    ensure!(used <= wall * 1000 / 2 + 200_000, "{used} µs of cpu in {wall} ms");
    sandbox.file("ws/stop", "")?;
    let exit = ended(sandbox, &run.session)?;
    ensure!(exit.pointer("/code").is_some_and(|code| code == 6), "{exit}");
    Ok(())
}

/// One terminal more than it may have is refused with the limit's name.
pub(super) fn ptys(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = policy(sandbox, "ptys = 1")?;
    let run = start(sandbox, &["--name", "one", "-p", &policy], &["sleep", "100"])?;
    let mut second = testkit::Terminal::mews(sandbox, &["exec", "one", "--", "true"])?;
    ensure!(second.wait_exit()? == 125, "a second terminal");
    ensure!(limits_met(sandbox, &run.session)? == ["ptys"], "the event");
    sandbox.mews(["exec", "one", "--no-tty", "--", "true"])?.expect(0)?;
    Ok(())
}

/// Reads from the disk are no faster than they may be; what is read is counted.
pub(super) fn io(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let policy = policy(sandbox, "io = \"4M\"")?;
    sandbox.file("ws/big", vec![7_u8; 12 << 20])?;
    std::fs::File::open(sandbox.workspace().join("big"))?.sync_all()?;
    let begun = Instant::now();
    let read = ["dd", "if=big", "of=/dev/null", "bs=1M", "iflag=direct"];
    let (finished, status) =
        crate::talk::run_with_status(sandbox, Mode::Daemons, &["-p", &policy], &read)?;
    let state = crate::talk::wall(status.pointer("/enforced").context("enforced")?, "cgroup.io")?;
    if state == "absent" {
        return Err(skip("no disk below the workspace, or no controller"));
    }
    finished.expect(0)?;
    ensure!(begun.elapsed() > Duration::from_millis(1900), "12M in {:?}", begun.elapsed());
    let bytes = number(&status, "/usage/read_bytes")?;
    ensure!(bytes >= 12 << 20, "{bytes} bytes were counted");
    Ok(())
}

/// Where nothing can hold it, that is said, and who requires it is refused.
pub(super) fn io_absent(_root: &Sandbox) -> anyhow::Result<()> {
    crate::suite::users::as_user(1, |sandbox| {
        let lenient = policy(sandbox, "io = \"4M\"")?;
        let (finished, status) =
            crate::talk::run_with_status(sandbox, Mode::Daemons, &["-p", &lenient], &["true"])?;
        finished.expect(0)?;
        let enforced = status.pointer("/enforced").context("enforced")?;
        ensure!(crate::talk::wall(enforced, "cgroup.io")? == "absent", "{enforced}");
        let text =
            "version = 1\nname = \"strict-io\"\nextends = \"shell\"\nrequire = [\"cgroup.io\"]\n";
        let strict = sandbox.file("home/strict.toml", text)?;
        let refused =
            run(sandbox, Mode::Daemons, &["-p", &strict.to_string_lossy()], &["touch", "ran"])?;
        ensure!(refused.expect(125)?.err().contains("cgroup.io"), "the wall's name");
        ensure!(!sandbox.workspace().join("ran").exists(), "it ran");
        Ok(())
    })
}

/// The exit tells which clock it was.
pub(super) fn walltime(sandbox: &Sandbox) -> anyhow::Result<()> {
    let near = Neighbour::start(sandbox)?;
    let policy = policy(sandbox, "walltime = \"1s\"")?;
    let run = start(sandbox, &["-p", &policy], &["sleep", "100"])?;
    met(&ended(sandbox, &run.session)?, "walltime", "walltime")?;
    ensure!(limits_met(sandbox, &run.session)? == ["walltime"], "the event");
    near.ends_unharmed(sandbox)
}
