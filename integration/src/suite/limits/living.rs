//! Limits of a living cage: shown, changed, refused, and what outlives the daemons.

use super::{Neighbour, cgroup_file, ended, limits_met, met, policy};
use crate::runner::need_root;
use crate::talk::{daemon_pids, event_types, events, number, start, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Act, Sandbox, Terminal, pause};

pub(super) const FAILPOINTS: [&str; 3] = ["limits.meant", "limits.applied", "limits.told"];

const WAITS: &str = "touch up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";

fn waiting(sandbox: &Sandbox, limits: &str) -> anyhow::Result<crate::talk::Background> {
    let policy = policy(sandbox, limits)?;
    let run = start(sandbox, &["--name", "living", "-p", &policy], &["bash", "-c", WAITS])?;
    let up = sandbox.workspace().join("up");
    pause::until("it runs", LIMIT, || up.exists().then_some(()))?;
    Ok(run)
}

fn ends_by_itself(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/stop", "")?;
    let exit = ended(sandbox, "living")?;
    ensure!(exit.pointer("/code").is_some_and(|code| code == 6), "{exit}");
    Ok(())
}

/// The row of one limit, as `mews limits --json` has it.
fn limit(sandbox: &Sandbox, name: &str) -> anyhow::Result<Value> {
    let view = sandbox.json(["limits", "living"])?;
    let rows = view.pointer("/limits").and_then(Value::as_array).context("no limits")?;
    let row = rows.iter().find(|row| row.pointer("/limit").is_some_and(|it| it == name));
    row.cloned().with_context(|| format!("no {name} in {view}"))
}

fn value(sandbox: &Sandbox, name: &str) -> anyhow::Result<Option<i64>> {
    Ok(limit(sandbox, name)?.pointer("/value").and_then(Value::as_i64))
}

fn changes(sandbox: &Sandbox) -> anyhow::Result<Vec<Value>> {
    let mut all = events(sandbox, "living")?;
    all.retain(|event| event.pointer("/type").is_some_and(|it| it == "cage.limits"));
    Ok(all)
}

pub(super) fn shown(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "walltime = \"1h\"")?;
    let page = sandbox.mews(["limits", "living"])?.expect(0)?.out();
    for words in ["memory", "walltime", "1h", "the broker", "ptys", "rlimit", "no limit asked for"]
    {
        ensure!(page.contains(words), "no {words} in {page}");
    }
    ensure!(limit(sandbox, "ptys")?.pointer("/fixed").is_some(), "ptys can change");
    ensure!(limit(sandbox, "walltime")?.pointer("/fixed").is_none(), "walltime cannot change");
    ends_by_itself(sandbox)?;
    let over = sandbox.mews(["limits", "living"])?.expect(3)?;
    ensure!(over.err().contains("has ended"), "{}", over.err());
    Ok(())
}

/// In the kernel, in the rows, in an event that says from what to what.
pub(super) fn changed(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let run = waiting(sandbox, "memory = \"256M\"\ncpu = 1.0\nio = \"50M\"")?;
    let said = sandbox
        .mews(["limits", "living", "memory=1G", "swap=64M", "pids=99", "cpu=0.5", "walltime=2h"])?
        .expect(0)?
        .err();
    ensure!(said.contains("memory 256M → 1G") && said.contains("walltime none → 2h"), "{said}");
    let v1 = cgroup_file(sandbox, &run.cage, "memory.limit_in_bytes");
    let memory = v1.or_else(|_v2| cgroup_file(sandbox, &run.cage, "memory.max"))?;
    ensure!(memory == (1_u64 << 30).to_string(), "memory {memory}");
    ensure!(cgroup_file(sandbox, &run.cage, "pids.max")? == "99", "pids");
    let stats = sandbox.json(["stats", "living"])?;
    for (pointer, want) in [
        ("/stats/memory/swap_limit_bytes", 64 << 20),
        ("/stats/cpu/limit_milli", 500),
        ("/stats/pids/limit", 99),
    ] {
        ensure!(number(&stats, pointer)? == want, "{pointer}: {stats}");
    }
    let told = changes(sandbox)?;
    ensure!(told.len() == 1, "{told:?}");
    let first = told.first().context("an event")?;
    ensure!(text(first, "/data/changes/0/limit")? == "memory", "{first}");
    ensure!(number(first, "/data/changes/0/from")? == 256 << 20, "{first}");
    ensure!(number(first, "/data/changes/0/to")? == 1 << 30, "{first}");
    let shown = sandbox.json(["inspect", "living"])?;
    let walls = shown.pointer("/cages/0/enforced").context("walls")?.to_string();
    ensure!(walls.contains(", 1G") && walls.contains("2h"), "{walls}");
    // Back, and away altogether.
    sandbox.mews(["limits", "living", "memory=64M", "swap=0", "cpu=none"])?.expect(0)?;
    ensure!(value(sandbox, "cpu")?.is_none(), "cpu");
    ensure!(value(sandbox, "memory")? == Some(64 << 20), "memory");
    let nothing = sandbox.mews(["limits", "living", "memory=64M"])?.expect(0)?;
    ensure!(nothing.err().contains("nothing to change"), "{}", nothing.err());
    ensure!(changes(sandbox)?.len() == 2, "events");
    ends_by_itself(sandbox)
}

/// By name, with the reason; and of several, none is set if one cannot be.
pub(super) fn refused(sandbox: &Sandbox) -> anyhow::Result<()> {
    waiting(sandbox, "walltime = \"1h\"")?;
    for (pairs, status, words) in [
        (&["walltime=3h", "nofile=9"][..], 5, "limits.nofile"),
        (&["walltime=3h", "ptys=9"], 5, "devpts"),
        (&["walltime=3h", "memroy=1G"], 2, "known are memory"),
        (&["walltime=soon"], 2, "walltime"),
        (&["walltime=3h", "walltime=4h"], 2, "twice"),
        (&["walltime"], 2, "KEY=VALUE"),
        (&["walltime=1ms"], 5, "it has run for"),
    ] {
        let words_of = ["limits", "living"].into_iter().chain(pairs.iter().copied());
        let told = sandbox.mews(words_of)?.expect(status)?;
        ensure!(told.err().contains(words), "{pairs:?}: {}", told.err());
        ensure!(value(sandbox, "walltime")? == Some(3_600_000), "{pairs:?} changed something");
    }
    ensure!(changes(sandbox)?.is_empty(), "an event of nothing");
    ends_by_itself(sandbox)
}

/// What a limit below would kill is told, and nobody is killed.
pub(super) fn below_use(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let policy = policy(sandbox, "memory = \"256M\"")?;
    let script = "x = b'x' * (80 << 20)\nopen('up', 'w').close()\nimport os, time\n\
                  while not os.path.exists('stop'): time.sleep(0.02)\nraise SystemExit(6)";
    start(sandbox, &["--name", "living", "-p", &policy], &["/usr/bin/python3", "-c", script])?;
    let up = sandbox.workspace().join("up");
    pause::until("it has its memory", LIMIT, || up.exists().then_some(()))?;
    let told = sandbox.mews(["limits", "living", "memory=32M", "walltime=5h"])?.expect(5)?;
    ensure!(told.err().contains("would kill it; nothing is changed"), "{}", told.err());
    ensure!(value(sandbox, "memory")? == Some(256 << 20), "memory");
    ensure!(value(sandbox, "walltime")?.is_none(), "walltime");
    sandbox.mews(["limits", "living", "memory=200M"])?.expect(0)?;
    ends_by_itself(sandbox)
}

/// A limit that is set while it lives holds as one that was there before.
pub(super) fn new_limits_hold(sandbox: &Sandbox) -> anyhow::Result<()> {
    let near = Neighbour::start(sandbox)?;
    for (pair, cause, limit) in [
        ("idle=1s", "idle", "idle"),
        ("walltime=1s", "walltime", "walltime"),
        ("output_bytes=100K", "limit", "output_bytes"),
    ] {
        let script = match limit {
            "output_bytes" => "while [ ! -e go ]; do sleep 0.02; done; exec yes",
            _ => "exec sleep 300",
        };
        let run = start(sandbox, &[], &["bash", "-c", script])?;
        let set = sandbox.mews(["limits", &run.session, pair])?;
        // The shorter of its times may be over before it is set.
        if limit == "walltime" && set.code == 5 {
            sandbox.mews(["limits", &run.session, "walltime=6s"])?.expect(0)?;
        } else {
            set.expect(0)?;
        }
        if limit == "output_bytes" {
            sandbox.file("ws/go", "")?;
        }
        met(&ended(sandbox, &run.session)?, cause, limit)?;
        ensure!(limits_met(sandbox, &run.session)? == [limit], "{pair}: the event");
    }
    near.ends_unharmed(sandbox)
}

/// A walltime that is taken away does not ring any more.
pub(super) fn taken_away(sandbox: &Sandbox) -> anyhow::Result<()> {
    let begun = std::time::Instant::now();
    waiting(sandbox, "walltime = \"5s\"\nidle = \"5s\"")?;
    sandbox.mews(["limits", "living", "walltime=none", "idle=none"])?.expect(0)?;
    pause::until("more time than it had", LIMIT, || {
        (begun.elapsed().as_millis() > 5500).then_some(())
    })?;
    ends_by_itself(sandbox)
}

/// What was changed stays so when both daemons die, and can be changed again.
pub(super) fn daemons_die(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = waiting(sandbox, "walltime = \"1h\"")?;
    sandbox.mews(["limits", "living", "walltime=2h", "idle=1h"])?.expect(0)?;
    let (sessiond, supervisor) = daemon_pids(sandbox)?;
    for pid in [supervisor, sessiond] {
        link::PidFd::open(pid)?.signal(libc::SIGKILL)?;
    }
    ensure!(value(sandbox, "walltime")? == Some(7_200_000), "walltime");
    sandbox.mews(["limits", "living", "walltime=3h", "idle=1s"])?.expect(0)?;
    ensure!(value(sandbox, "walltime")? == Some(10_800_000), "walltime again");
    met(&ended(sandbox, &run.session)?, "idle", "idle")
}

/// A change that was begun is brought to its end, told once; it holds.
pub(super) fn supervisor_dies(sandbox: &Sandbox, failpoint: &str) -> anyhow::Result<()> {
    let run = waiting(sandbox, "walltime = \"1h\"")?;
    sandbox.arm(failpoint, Act::Kill)?;
    let is_root = testkit::caller::is_root();
    let pairs: &[&str] = if is_root {
        &["limits", "living", "walltime=2h", "pids=99"]
    } else {
        &["limits", "living", "walltime=2h"]
    };
    // Its supervisor dies on the way; the next one is asked again.
    sandbox.mews(pairs)?.expect(0)?;
    ensure!(sandbox.has_met(failpoint), "{failpoint} was not reached");
    ensure!(value(sandbox, "walltime")? == Some(7_200_000), "walltime");
    if is_root {
        ensure!(cgroup_file(sandbox, &run.cage, "pids.max")? == "99", "pids");
    }
    let types = event_types(&events(sandbox, "living")?)?;
    let count = |kind: &str| types.iter().filter(|it| *it == kind).count();
    ensure!(count("cage.adopted") == 1 && count("cage.limits") == 1, "{types:?}");
    sandbox.mews(["limits", "living", "walltime=none", "idle=1s"])?.expect(0)?;
    met(&ended(sandbox, &run.session)?, "idle", "idle")
}

/// While it stands, and what it stands by holds afterwards.
pub(super) fn paused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = waiting(sandbox, "walltime = \"1h\"")?;
    sandbox.mews(["pause", "living"])?.expect(0)?;
    sandbox.mews(["limits", "living", "idle=1s"])?.expect(0)?;
    let begun = std::time::Instant::now();
    pause::until("more time than it has", LIMIT, || {
        (begun.elapsed().as_millis() > 1500).then_some(())
    })?;
    let state = text(&sandbox.json(["inspect", "living"])?, "/state")?;
    ensure!(state == "paused", "{state}");
    sandbox.mews(["resume", "living"])?.expect(0)?;
    met(&ended(sandbox, &run.session)?, "idle", "idle")
}

/// An ordinary user, who has no cgroups: the broker's limits change, the others say why not.
pub(super) fn as_a_user(_root: &Sandbox) -> anyhow::Result<()> {
    crate::suite::users::as_user(1, |sandbox| {
        waiting(sandbox, "walltime = \"1h\"")?;
        sandbox.mews(["limits", "living", "walltime=2h"])?.expect(0)?;
        let told = sandbox.mews(["limits", "living", "memory=1G"])?.expect(5)?;
        ensure!(told.err().contains("no cgroup controller"), "{}", told.err());
        let told = sandbox.mews(["limits", "living", "pids=77"])?.expect(5)?;
        ensure!(told.err().contains("rlimit"), "{}", told.err());
        let page = sandbox.mews(["stats", "living"])?.expect(0)?.out();
        for words in ["absent    memory", "absent    cpu", "output"] {
            ensure!(page.contains(words), "no {words} in {page}");
        }
        ends_by_itself(sandbox)
    })
}

/// What was used, while it lives, and at its end in the exit and in an event.
pub(super) fn stats(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let policy = policy(sandbox, "memory = \"128M\"")?;
    let script =
        "head -c 70000 /dev/zero; n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; read x";
    let mut terminal = Terminal::mews(
        sandbox,
        &["run", "--name", "living", "-p", &policy, "--", "sh", "-c", script],
    )?;
    let stats = pause::until("it has used something", LIMIT, || {
        let stats = sandbox.json(["stats", "living"]).ok()?;
        let bytes = number(&stats, "/stats/output/bytes").ok()?;
        let cpu = number(&stats, "/stats/cpu/total_us").ok()?;
        (bytes >= 70_000 && cpu > 10_000).then_some(stats)
    })?;
    ensure!(number(&stats, "/stats/memory/limit_bytes")? == 128 << 20, "{stats}");
    for pointer in
        ["/stats/memory/current_bytes", "/stats/memory/peak_bytes", "/stats/pids/current"]
    {
        ensure!(number(&stats, pointer)? > 0, "{pointer}: {stats}");
    }
    ensure!(text(&stats, "/stats/absent/io")?.contains("limits.io"), "{stats}");
    let table = sandbox.mews(["stats"])?.expect(0)?.out();
    ensure!(table.contains("living") && table.contains("of 128M"), "{table}");
    terminal.send("\r")?;
    terminal.wait_exit()?;
    let exit = ended(sandbox, "living")?;
    ensure!(number(&exit, "/usage/cpu_us")? > 10_000, "{exit}");
    let all = events(sandbox, "living")?;
    let told: Vec<&Value> = all
        .iter()
        .filter(|event| event.pointer("/type").is_some_and(|it| it == "cage.stats"))
        .collect();
    ensure!(told.len() == 1, "{told:?}");
    let last = told.first().context("an event")?;
    ensure!(number(last, "/data/stats/output/bytes")? >= 70_000, "{last}");
    ensure!(number(last, "/data/stats/cpu/total_us")? > 10_000, "{last}");
    let over = sandbox.mews(["stats", "living"])?.expect(3)?;
    ensure!(over.err().contains("mews inspect"), "{}", over.err());
    ensure!(sandbox.mews(["stats"])?.expect(0)?.out().is_empty(), "an ended cage is listed");
    Ok(())
}
