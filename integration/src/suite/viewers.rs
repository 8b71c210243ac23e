//! Slow and stuck viewers harm nobody but themselves.

use super::terminal::broker;
use crate::runner::{Test, need_root};
use crate::talk::{in_workspace, start, wait_exit};
use anyhow::{Context as _, ensure};
use link::PidFd;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use testkit::{Sandbox, Terminal, pause};
use wire::api::{BASE, UPGRADE};
use wire::{AttachOptions, Join};

/// The stores of one terminal are 10 MiB at most; the rest is the program itself.
const BROKER_KIB_MAX: u64 = 64 * 1024;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("viewers.a_stuck_one_hinders_nobody", stuck),
        Test::new("viewers.after_lagging_the_screen_is_right", lagging),
        Test::new("viewers.none_at_all", none),
        Test::new("viewers.many_with_one_flood", many),
        Test::new("viewers.memory_is_bounded_under_64_stuck", bounded),
    ]
}

fn stop(terminal: &Terminal) -> anyhow::Result<PidFd> {
    let pid = i32::try_from(terminal.pid().context("a pid")?)?;
    let handle = PidFd::open(pid)?;
    handle.signal(libc::SIGSTOP)?;
    Ok(handle)
}

fn resident_kib(pid: i32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// The newest 256 KiB wait for each viewer, and 1 MiB is for what viewers share: PTY.md 6.
const STUCK: usize = 64;
const QUEUE_KIB: u64 = 256;
const SHARED_KIB: u64 = 1024;

/// Waits for a go, prints a lot, says so in the workspace and on the terminal.
const FLOOD: &str = "while [ ! -e go ]; do sleep 0.02; done; seq 1 1000000; touch flooded; \
                     echo the-end; while [ ! -e stop ]; do sleep 0.02; done";

fn flooded(sandbox: &Sandbox) -> anyhow::Result<Duration> {
    let started = Instant::now();
    sandbox.file("ws/go", "")?;
    let path = in_workspace(sandbox, "flooded");
    pause::until("the flood is over", Duration::from_secs(30), || path.exists().then_some(()))?;
    Ok(started.elapsed())
}

fn stuck(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "flood"], &["bash", "-c", FLOOD])?;
    let stuck = Terminal::mews(sandbox, &["attach", "flood"])?;
    let good = Terminal::mews(sandbox, &["attach", "--observe", "flood"])?;
    sandbox.json(["inspect", "flood"])?;
    pause::until("two viewers", testkit::process::LIMIT, || {
        let shown = sandbox.json(["inspect", "flood"]).ok()?;
        (shown.pointer("/cages/0/ptys/0/viewers")?.as_u64()? == 2).then_some(())
    })?;
    let handle = stop(&stuck)?;
    flooded(sandbox)?;
    good.wait_for("the-end")?;
    let kib = resident_kib(broker(sandbox)?)?;
    ensure!(kib < BROKER_KIB_MAX, "the broker holds {kib} KiB");
    handle.signal(libc::SIGCONT)?;
    stuck.wait_for("the-end")?;
    let (a, b) = (stuck.screen(), good.screen());
    ensure!(a == b, "two screens:\n{}\n--\n{}", a.join("\n"), b.join("\n"));
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let raw = sandbox.mews(["logs", "--raw", "flood"])?.expect(0)?.stdout;
    ensure!(raw == flood_bytes(1_000_000, "the-end\r\n"), "the recording has {} bytes", raw.len());
    Ok(())
}

/// What `seq 1 LAST` prints on a terminal.
pub(crate) fn flood_bytes(last: u32, after: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 1..=last {
        bytes.extend_from_slice(number.to_string().as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(after.as_bytes());
    bytes
}

fn lagging(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "while [ ! -e go ]; do sleep 0.02; done; seq 1 1000000; printf '\\033[2J\\033[H'; \
                  for i in $(seq 1 20); do echo \"row $i\"; done; touch flooded; read x";
    let run = start(sandbox, &["--name", "lag"], &["bash", "-c", script])?;
    let mut viewer = Terminal::mews(sandbox, &["attach", "lag"])?;
    viewer.wait_raw(b"lag")?;
    let handle = stop(&viewer)?;
    flooded(sandbox)?;
    handle.signal(libc::SIGCONT)?;
    let want: Vec<String> = (1..=20).map(|number| format!("row {number}")).collect();
    viewer.wait_until("the right screen", |lines| lines.starts_with(&want))?;
    viewer.send("\r")?;
    ensure!(viewer.wait_exit()? == 0, "exit");
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

fn none(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "alone"], &["bash", "-c", FLOOD])?;
    flooded(sandbox)?;
    let mut late = Terminal::mews(sandbox, &["attach", "alone"])?;
    late.wait_for("the-end")?;
    let screen = late.screen();
    ensure!(screen.iter().any(|line| line == "1000000"), "{screen:?}");
    sandbox.file("ws/stop", "")?;
    ensure!(late.wait_exit()? == 0, "exit");
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

fn many(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "crowd"], &["bash", "-c", FLOOD])?;
    let crowd: Vec<Terminal> = (0..8)
        .map(|_| Terminal::undrawn(sandbox, &["attach", "--observe", "crowd"]))
        .collect::<anyhow::Result<_>>()?;
    flooded(sandbox)?;
    for viewer in &crowd {
        viewer.wait_raw(b"the-end")?;
    }
    let kib = resident_kib(broker(sandbox)?)?;
    ensure!(kib < BROKER_KIB_MAX, "the broker holds {kib} KiB");
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

/// 60 MB without a viewer, then 300 MB with 64 that never read a byte.
const TWO_FLOODS: &str = "flood() { yes \"$(printf %0100d 0)\" | head -c \"$1\"; touch \"$2\"; }; \
                          until [ -e go-1 ]; do sleep 0.02; done; flood 60000000 done-1; \
                          until [ -e go-2 ]; do sleep 0.02; done; flood 300000000 done-2; \
                          until [ -e stop ]; do sleep 0.02; done";
const FLOOD_LIMIT: Duration = Duration::from_secs(120);

fn bounded(sandbox: &Sandbox) -> anyhow::Result<()> {
    // A user cannot read the memory map of what is not dumpable.
    need_root()?;
    let run = start(sandbox, &["--name", "stuck"], &["bash", "-c", TWO_FLOODS])?;
    let broker = broker(sandbox)?;
    // The stores are full after this: what comes on top is the viewers'.
    let (alone, _) = flood_with(sandbox, broker, 1)?;
    let base = pss_kib(broker)?;
    ensure!(base < BROKER_KIB_MAX, "the broker alone holds {base} KiB");
    let viewers: Vec<UnixStream> =
        (0..STUCK).map(|_| never_reading(sandbox, &run.pty)).collect::<anyhow::Result<_>>()?;
    pause::until("64 viewers", testkit::process::LIMIT, || {
        let shown = sandbox.json(["inspect", "stuck"]).ok()?;
        let count = shown.pointer("/cages/0/ptys/0/viewers")?.as_u64()?;
        (usize::try_from(count).ok()? == STUCK).then_some(())
    })?;
    let (watched, peak) = flood_with(sandbox, broker, 2)?;
    let most = base + STUCK as u64 * QUEUE_KIB + SHARED_KIB;
    ensure!(peak <= most, "the broker held {peak} KiB; {base} alone, {most} at most");
    // Five times the bytes, 100 ms of patience for each at most, and what else the machine does.
    let fair = alone * 5 * 2 + Duration::from_millis(100) * 64;
    ensure!(watched <= fair, "300 MB took {watched:?}; 60 MB without viewers took {alone:?}");
    drop(viewers);
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    Ok(())
}

/// Lets a flood go: how long it took, and the most that the broker held meanwhile.
fn flood_with(sandbox: &Sandbox, broker: i32, number: u32) -> anyhow::Result<(Duration, u64)> {
    let path = in_workspace(sandbox, &format!("done-{number}"));
    let started = Instant::now();
    sandbox.file(&format!("ws/go-{number}"), "")?;
    let mut peak = 0;
    pause::until("the flood is over", FLOOD_LIMIT, || {
        peak = pss_kib(broker).unwrap_or(0).max(peak);
        path.exists().then_some(())
    })?;
    Ok((started.elapsed(), peak))
}

/// Memory that is the process's own, and its share of the rest.
fn pss_kib(pid: i32) -> anyhow::Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("Pss")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// A viewer that asks and then takes nothing, not even the answer.
fn never_reading(sandbox: &Sandbox, pty: &str) -> anyhow::Result<UnixStream> {
    let options = AttachOptions { join: Join::Observe, ..AttachOptions::default() };
    let options: String =
        serde_json::to_vec(&options)?.iter().map(|byte| format!("%{byte:02X}")).collect();
    let mut stream = UnixStream::connect(sandbox.api_socket())?;
    write!(
        stream,
        "GET {BASE}/ptys/{pty}/attach?options={options} HTTP/1.1\r\n\
         host: mews\r\nconnection: upgrade\r\nupgrade: {UPGRADE}\r\n\r\n"
    )?;
    Ok(stream)
}
