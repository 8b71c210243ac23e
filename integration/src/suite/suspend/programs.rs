//! Programs that run, fork, hide or refuse: all of it stands, and goes on.

use super::{COUNT, count, pause_it, resume_it, resume_it_and_end, stands_and_goes_on, suspension};
use crate::talk::{event_types, events, in_workspace, number, start, text, wait_exit};
use anyhow::ensure;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

pub(super) const STRANGE_NAME: &str =
    "import ctypes\nctypes.CDLL(None).prctl(15, b'\\xff) Z \\n1')\ncount()\n";

pub(super) const DEAF: &str =
    "import signal\nsignal.signal(signal.SIGTSTP, signal.SIG_IGN)\ncount()\n";

pub(super) const NO_FIRST_THREAD: &str = "import ctypes, threading\n\
                               threading.Thread(target=count).start()\n\
                               ctypes.CDLL(None).pthread_exit(None)\n";

/// A program that would rather not be seen.
pub(super) fn hides(sandbox: &Sandbox, body: &str) -> anyhow::Result<()> {
    let count_on = "import os\ndef count():\n    n = 0\n    while not os.path.exists('stop'):\n        \
                    n += 1\n        open('count', 'w').write(str(n))\n    os._exit(6)\n";
    sandbox.file("ws/hides.py", format!("{count_on}{body}"))?;
    start(sandbox, &["--name", "hides"], &["python3", "hides.py"])?;
    count(sandbox)?;
    for _time in 0..3 {
        stands_and_goes_on(sandbox, "hides")?;
    }
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, "hides")?.expect(0)?;
    let shown = sandbox.json(["inspect", "hides"])?;
    ensure!(number(&shown, "/runs/0/exit/code")? == 6, "{shown}");
    Ok(())
}

pub(super) fn stands_still(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "busy"], &["bash", "-c", COUNT])?;
    let first = count(sandbox)?;
    pause::until("it counts", LIMIT, || (count(sandbox).ok()? > first).then_some(()))?;
    for _time in 0..5 {
        stands_and_goes_on(sandbox, "busy")?;
    }
    let told = suspension(sandbox, "busy")?;
    ensure!(number(&told, "/refused")? == 0, "{told}");
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let shown = sandbox.json(["inspect", "busy"])?;
    ensure!(number(&shown, "/runs/0/exit/code")? == 6, "{shown}");
    let types = event_types(&events(sandbox, "busy")?)?;
    let times = |kind: &str| types.iter().filter(|it| *it == kind).count();
    ensure!(times("cage.suspended") == 5 && times("cage.resumed") == 5, "{types:?}");
    Ok(())
}

/// `on_refuse = "fail"`: nothing is half suspended, and it is said who did not stop.
pub(super) fn not_if_refused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy =
        "version = 1\nextends = \"shell\"\n[suspend]\ngrace = \"100ms\"\non_refuse = \"fail\"\n";
    let policy = sandbox.file("ws/strict.toml", policy)?.to_string_lossy().into_owned();
    let program = "import signal, time\nsignal.signal(signal.SIGTSTP, lambda *_: None)\n\
                   n = 0\nwhile True:\n    n += 1\n    open('count', 'w').write(str(n))\n";
    sandbox.file("ws/stubborn.py", program)?;
    let options = ["--name", "stubborn", "--policy", &policy];
    start(sandbox, &options, &["python3", "stubborn.py"])?;
    count(sandbox)?;
    let refused = sandbox.mews(["pause", "stubborn"])?.expect(5)?;
    ensure!(refused.err().contains("python3"), "{}", refused.err());
    let before = count(sandbox)?;
    pause::until("it runs on", LIMIT, || (count(sandbox).ok()? > before).then_some(()))?;
    let shown = sandbox.json(["inspect", "stubborn"])?;
    ensure!(text(&shown, "/state")? == "running", "{shown}");
    sandbox.mews(["kill", "stubborn"])?.expect(0)?;
    Ok(())
}

pub(super) fn fork_loop(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "n=0; while [ ! -e stop ]; do n=$((n+1)); /bin/true; (echo $n > count); done";
    start(sandbox, &["--name", "forks"], &["bash", "-c", script])?;
    count(sandbox)?;
    for _time in 0..5 {
        stands_and_goes_on(sandbox, "forks")?;
    }
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, "forks")?.expect(0)?;
    Ok(())
}

/// A daemon of its own, which no shell knows; beside it the program that the cage is for.
pub(super) fn leaderless(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/count.sh", COUNT)?;
    let script = "setsid -f bash count.sh; while [ ! -e stop ]; do sleep 0.02; done";
    start(sandbox, &["--name", "daemon"], &["bash", "-c", script])?;
    count(sandbox)?;
    stands_and_goes_on(sandbox, "daemon")?;
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, "daemon")?.expect(0)?;
    Ok(())
}

pub(super) fn many(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "for i in $(seq 1000); do sleep 1000 & done; touch up; \
                  while [ ! -e stop ]; do sleep 0.02; done; kill $(jobs -p); exit 8";
    let options = ["--name", "many", "--pids", "1100"];
    start(sandbox, &options, &["bash", "-c", script])?;
    let up = in_workspace(sandbox, "up");
    pause::until("a thousand processes", LIMIT, || up.exists().then_some(()))?;
    pause_it(sandbox, "many")?;
    let told = suspension(sandbox, "many")?;
    let still: i64 = ["tstp", "handler", "stop", "stopped", "frozen"]
        .iter()
        .map(|how| number(&told, &format!("/{how}")).unwrap_or(0))
        .sum();
    ensure!(still >= 1000, "{told}");
    resume_it(sandbox, "many")?;
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, "many")?.expect(0)?;
    let shown = sandbox.json(["inspect", "many"])?;
    ensure!(number(&shown, "/runs/0/exit/code")? == 8, "{shown}");
    Ok(())
}

/// The limit is passed while the cage stands, and not met.
pub(super) fn walltime(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "touch up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let options = ["--name", "wall", "--timeout", "4s"];
    let begun = std::time::Instant::now();
    start(sandbox, &options, &["bash", "-c", script])?;
    let up = in_workspace(sandbox, "up");
    pause::until("it runs", LIMIT, || up.exists().then_some(()))?;
    pause_it(sandbox, "wall")?;
    pause::until("more time than it has", LIMIT, || {
        (begun.elapsed().as_millis() > 4500).then_some(())
    })?;
    sandbox.file("ws/stop", "")?;
    resume_it_and_end(sandbox, "wall", 6)
}
