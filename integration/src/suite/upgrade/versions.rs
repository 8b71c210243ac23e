//! Builds of protocols that differ, by the versions that debug builds can be told to be.

use super::*;
use crate::suite::terminal::pids_of;
use crate::talk::{event_types, events, finish, wait_exit};

/// Each speaks its own version of the protocol and the one before it.
const TWO: &str = "1..2:0.2.0";
const THREE: &str = "2..3:0.3.0";
const FOUR: &str = "3..4:0.4.0";

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("upgrade.newer_supervisor_older_brokers", |s| takeover(s, TWO, THREE)),
        Test::new("upgrade.older_supervisor_newer_brokers", |s| takeover(s, THREE, TWO)),
        Test::new("upgrade.brokers_of_long_ago_live_on", |s| apart(s, TWO, FOUR)),
        Test::new("upgrade.brokers_of_the_future_live_on", |s| apart(s, FOUR, TWO)),
        Test::new("upgrade.unreachable_is_reached_again", reached_again),
        Test::new("upgrade.a_silent_broker_is_waited_for", silent),
        Test::new("upgrade.newer_supervisor_older_sessiond", |s| sessiond(s, TWO, THREE, true)),
        Test::new("upgrade.older_supervisor_newer_sessiond", |s| sessiond(s, THREE, TWO, true)),
        Test::new("upgrade.foreign_sessiond_is_replaced", |s| sessiond(s, TWO, FOUR, false)),
        Test::new("upgrade.foreign_newer_sessiond_is_replaced", |s| sessiond(s, FOUR, TWO, false)),
        Test::new("upgrade.clients_are_told", clients),
        Test::new("upgrade.one_shot_of_another_build", one_shot),
    ]
}

fn takeover(sandbox: &Sandbox, old: &str, new: &str) -> anyhow::Result<()> {
    sandbox.speak(old);
    let mut cages = Cages::begin(sandbox)?;
    kill_both(sandbox)?;
    sandbox.speak(new);
    back(sandbox)?;
    let (was, is) = (build_of(old), build_of(new));
    ensure!(builds(sandbox)? == [is, is, is], "{:?}", builds(sandbox)?);
    let want =
        [LAYERED, PRINTS, STANDS, WATCHED].map(|name| (name.to_owned(), was.to_owned(), true));
    ensure!(others(sandbox)? == want, "{:?}", others(sandbox)?);
    cages.go_on(sandbox)?;
    let shown = sandbox.mews(["inspect", PRINTS])?.expect(0)?.out();
    ensure!(shown.contains(&format!("mews {was}")), "{shown}");
    cages.end(sandbox)
}

fn build_of(speaks: &str) -> &str {
    speaks.rsplit_once(':').map_or(speaks, |(_range, build)| build)
}

/// Nobody can talk to them: they live, are said, end by themselves or are killed.
fn apart(sandbox: &Sandbox, old: &str, new: &str) -> anyhow::Result<()> {
    sandbox.speak(old);
    let mut cages = Cages::begin(sandbox)?;
    flow::begin(sandbox, "killed")?;
    kill_both(sandbox)?;
    sandbox.speak(new);
    back(sandbox)?;
    let listed = sandbox.mews(["ls"])?.expect(0)?.out();
    let count = listed.lines().filter(|line| line.contains("unreachable")).count();
    ensure!(count == 5, "{listed}");
    ensure!(pids_of(sandbox, "mews-ptybroker").len() == 5, "a broker is gone");
    cages.type_line()?;
    for words in [
        &["exec", "--no-tty", PRINTS, "--", "true"][..],
        &["attach", PRINTS],
        &["pause", PRINTS],
        &["resume", STANDS],
        &["end", PRINTS],
        &["checkpoint", LAYERED],
        &["limits", PRINTS, "walltime=5h"],
        &["kill", "-s", "TERM", PRINTS],
    ] {
        let refused = sandbox.mews(words.iter().copied())?;
        let said = refused.err();
        ensure!(refused.code != 0, "{words:?} is done");
        for needed in [build_of(old), build_of(new), "mews kill"] {
            ensure!(said.contains(needed), "{words:?} does not say {needed}: {said}");
        }
    }
    let shown = sandbox.mews(["inspect", PRINTS])?.expect(0)?.out();
    ensure!(shown.contains("UNREACHABLE"), "{shown}");
    ensure!(
        others(sandbox)?.iter().all(|(_, build, reachable)| build == build_of(old) && !reachable)
    );
    // New ones are as ever.
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    // What is killed tells why; the paused one too.
    for name in ["killed", STANDS, LAYERED] {
        sandbox.mews(["kill", name])?.expect(0)?;
        let shown = sandbox.json(["inspect", name])?;
        let cause = text(&shown, "/runs/0/exit/cause")?;
        ensure!(cause == "cancelled", "{name}: {cause}");
    }
    // What ends by itself has its status and all that it printed.
    sandbox.file("ws/stop-prints", "")?;
    let waited = wait_exit(sandbox, PRINTS)?.expect(0)?.out();
    ensure!(waited.trim() == "7", "{waited}");
    ensure!(flow::lines(sandbox, PRINTS)? > 0, "nothing is kept");
    let types = event_types(&events(sandbox, PRINTS)?)?;
    for kind in ["cage.unreachable", "cage.exited", "cage.gone"] {
        let count = types.iter().filter(|it| *it == kind).count();
        ensure!(count == 1, "{count} × {kind}: {types:?}");
    }
    cages.viewer.send("\u{4}")?;
    let code = cages.viewer.wait_exit()?;
    ensure!(code == 0, "the viewer exits {code}");
    crate::audit::agrees(sandbox)
}

/// A supervisor that nobody understands comes and goes; the next one finds all as it was.
fn reached_again(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.speak(TWO);
    let mut cages = Cages::begin(sandbox)?;
    kill_both(sandbox)?;
    sandbox.speak(FOUR);
    back(sandbox)?;
    ensure!(state(sandbox, PRINTS)? == "unreachable", "{}", state(sandbox, PRINTS)?);
    cages.type_line()?;
    kill_both(sandbox)?;
    sandbox.speak(THREE);
    back(sandbox)?;
    ensure!(state(sandbox, PRINTS)? == "running", "{}", state(sandbox, PRINTS)?);
    cages.go_on(sandbox)?;
    cages.end(sandbox)
}

fn silent(sandbox: &Sandbox) -> anyhow::Result<()> {
    flow::begin(sandbox, "slow")?;
    let broker = link::PidFd::open(crate::suite::terminal::broker(sandbox)?)?;
    broker.signal(libc::SIGSTOP)?;
    kill_both(sandbox)?;
    back(sandbox)?;
    ensure!(state(sandbox, "slow")? == "unreachable", "{}", state(sandbox, "slow")?);
    let refused = sandbox.mews(["exec", "--no-tty", "slow", "--", "true"])?;
    ensure!(refused.code == 125 && refused.err().contains("does not answer"), "{}", refused.err());
    broker.signal(libc::SIGCONT)?;
    pause::until("it is adopted", LIMIT, || {
        (state(sandbox, "slow").ok()? == "running").then_some(())
    })?;
    sandbox.mews(["exec", "--no-tty", "slow", "--", "true"])?.expect(0)?;
    flow::stop(sandbox, "slow")?;
    // One that never answers again can be killed.
    flow::begin(sandbox, "stuck")?;
    let broker = link::PidFd::open(crate::suite::terminal::broker(sandbox)?)?;
    broker.signal(libc::SIGSTOP)?;
    kill_both(sandbox)?;
    sandbox.mews(["kill", "stuck"])?.expect(0)?;
    ensure!(!broker.is_alive(), "its broker is left");
    crate::audit::agrees(sandbox)
}

/// sessiond lives on under another supervisor, or is replaced by that one's own.
fn sessiond(sandbox: &Sandbox, old: &str, new: &str, speaks: bool) -> anyhow::Result<()> {
    sandbox.speak(old);
    flow::begin(sandbox, PRINTS)?;
    let (before, supervisor) = daemon_pids(sandbox)?;
    kill(supervisor)?;
    // The client is of the build of sessiond, or of the supervisor that comes.
    let both = format!("{new} mews={}", if speaks { old } else { new });
    sandbox.speak(&both);
    if !speaks {
        // The old sessiond is still the one that answers.
        let told = sandbox.mews(["ls"])?;
        ensure!(told.code == 0 || told.code == 69, "{}", told.err());
        pause::until("sessiond is replaced", LIMIT, || {
            let shown = sandbox.json(["daemon", "start"]).ok()?;
            (text(&shown, "/versions/build").ok()? == build_of(new)).then_some(())
        })?;
    }
    sandbox.mews(["ls"])?.expect(0)?;
    let (after, _supervisor) = daemon_pids(sandbox)?;
    ensure!((before == after) == speaks, "{before} {after}");
    let [_client, sessiond, supervisor] = builds(sandbox)?;
    let want = if speaks { build_of(old) } else { build_of(new) };
    ensure!(
        (sessiond.as_str(), supervisor.as_str()) == (want, build_of(new)),
        "{sessiond} {supervisor}"
    );
    sandbox.mews(["run", "--no-tty", "--", "true"])?.expect(0)?;
    if speaks {
        flow::stop(sandbox, PRINTS)?;
    } else {
        sandbox.mews(["kill", PRINTS])?.expect(0)?;
    }
    crate::audit::agrees(sandbox)
}

fn clients(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.speak(FOUR);
    flow::begin(sandbox, PRINTS)?;
    // Older: it cannot change the daemons' mind, and nothing is done.
    sandbox.speak(TWO);
    let refused =
        sandbox.mews(["run", "-d", "--name", "never", "--", "touch", "it-ran"])?.expect(125)?;
    for needed in ["mews 0.2.0", "0.4.0", "install mews 0.4.0"] {
        ensure!(refused.err().contains(needed), "{}", refused.err());
    }
    let refused = sandbox.mews(["attach", PRINTS])?.expect(125)?;
    ensure!(refused.err().contains("install mews 0.4.0"), "{}", refused.err());
    let shown = sandbox.mews(["version"])?.expect(0)?;
    ensure!(shown.out().contains("mews 0.2.0") && shown.out().contains("0.4.0"), "{}", shown.out());
    ensure!(shown.err().contains("mews daemon restart"), "{}", shown.err());
    // Newer: it replaces them, and the cage runs on.
    sandbox.speak("4..5:0.5.0");
    sandbox.mews(["ls"])?.expect(0)?;
    sandbox.speak("5..6:0.6.0");
    let refused = sandbox.mews(["ls"])?.expect(69)?;
    ensure!(refused.err().contains("mews daemon restart"), "{}", refused.err());
    sandbox.mews(["daemon", "restart"])?.expect(0)?;
    ensure!(builds(sandbox)? == ["0.6.0", "0.6.0", "0.6.0"], "{:?}", builds(sandbox)?);
    ensure!(state(sandbox, PRINTS)? == "unreachable", "{}", state(sandbox, PRINTS)?);
    sandbox.speak("4..5:0.5.0");
    let restarted = sandbox.mews(["daemon", "restart"])?.expect(0)?;
    ensure!(restarted.err().contains("1 cage ran on"), "{}", restarted.err());
    flow::stop(sandbox, PRINTS)?;
    let names = sandbox.mews(["ls", "-a"])?.expect(0)?.out();
    ensure!(!names.contains("never") && !in_workspace(sandbox, "it-ran").exists(), "{names}");
    crate::audit::agrees(sandbox)
}

/// A client and a supervisor of an installation that is not whole.
fn one_shot(sandbox: &Sandbox) -> anyhow::Result<()> {
    let words = ["run", "--no-daemon", "--no-tty", "--", "sh", "-c", "echo ran >> it-ran"];
    for (speaks, common) in [
        (format!("{TWO} mews-supervisor={FOUR}"), false),
        (format!("{FOUR} mews={TWO}"), false),
        (format!("{TWO} mews={THREE}"), true),
        (format!("{THREE} mews={TWO}"), true),
    ] {
        sandbox.speak(&speaks);
        let mut command = sandbox.command(words)?;
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let told = finish(command.spawn()?)?;
        if common {
            told.expect(0)?;
            continue;
        }
        let said = told.expect(125)?.err();
        for needed in ["mews-supervisor", "0.2.0", "0.4.0", "install mews again"] {
            ensure!(said.contains(needed), "{speaks}: {said}");
        }
        ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    }
    let ran = crate::talk::read(sandbox, "it-ran")?;
    ensure!(ran.lines().count() == 2, "{ran}");
    Ok(())
}
