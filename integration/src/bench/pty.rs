//! What a terminal that outlives its viewer costs, beside a bare one that is read in a tight loop
//! (the floor), dtach (keeps nothing) and tmux (keeps a screen and history); PTY.md 10.
//!
//! All run the same jobs in the same folder, one after the other, round by round. Run it with
//! optimised programs: `MEWS_BIN_DIR`.

mod client;
mod job;
mod memory;
mod system;

use super::rounds;
use super::table::{Aim, Series, Table};
use client::Client;
pub(super) use job::Jobs;
use job::{DONE, READY, seconds};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};
pub(super) use system::{Kind, Systems};
use testkit::Sandbox;

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);
const KEYS: usize = 1000;

/// Samples of each system.
type Samples = BTreeMap<&'static str, Series>;

/// Whether every row is within twice its aim.
///
/// # Errors
/// Something could not be started at all.
pub(crate) fn run(rows: &[String]) -> anyhow::Result<bool> {
    let wants = |row: &str| rows.is_empty() || rows.iter().any(|asked| asked == row);
    let sandbox = Sandbox::new()?;
    let jobs = Jobs::new(sandbox.workspace())?;
    jobs.write_text()?;
    let systems = Systems::new(&sandbox, &jobs);
    systems.mews(&["daemon", "start"])?;
    let mut table = Table::new("terminals, beside the floor", "floor");
    if wants("flood") {
        let samples = each(&Kind::ALL, rounds(5), |kind| flood(&systems, kind))?;
        show(&mut table, "flood, s", &samples, Aim::AtMost(1.15));
    }
    if wants("zero") {
        let samples = each(&Kind::ALL, rounds(5), |kind| zero(&systems, kind))?;
        show(&mut table, "zero, s", &samples, Aim::AtMost(1.05));
    }
    if wants("echo") {
        let (mut middle, mut slow) = (Samples::new(), Samples::new());
        each(&Kind::ALL, rounds(5), |kind| {
            let keys = echo(&systems, kind)?;
            middle.entry(kind.name()).or_default().push(keys.median());
            slow.entry(kind.name()).or_default().push(keys.percentile(99));
            Ok(0.0)
        })?;
        show(&mut table, "echo p50, us", &middle, Aim::AtMost(2.2));
        show(&mut table, "echo p99, us", &slow, Aim::None);
    }
    if wants("reattach") {
        reattach(&systems, &mut table)?;
    }
    if wants("memory") {
        memory::rows(&systems, &mut table)?;
    }
    sandbox.finish()?;
    Ok(table.all_met())
}

/// Measures every system once a round, in turn.
fn each(
    kinds: &[Kind],
    rounds: usize,
    mut measure: impl FnMut(Kind) -> anyhow::Result<f64>,
) -> anyhow::Result<Samples> {
    let mut samples = Samples::new();
    for _ in 0..rounds {
        for kind in kinds.iter().filter(|kind| kind.is_installed()) {
            samples.entry(kind.name()).or_default().push(measure(*kind)?);
        }
    }
    Ok(samples)
}

/// Each system beside the floor; the aim is ours alone.
fn show(table: &mut Table, row: &str, samples: &Samples, aim: Aim) {
    let Some(floor) = samples.get(Kind::Bare.name()) else { return };
    for kind in [Kind::Dtach, Kind::Tmux, Kind::Mews] {
        let Some(series) = samples.get(kind.name()) else { continue };
        let aim = if kind == Kind::Mews { aim } else { Aim::None };
        table.compare(&format!("{row}: {}", kind.name()), floor, series, aim);
    }
}

/// Seconds from the start of `cat` to the last byte at the viewer's terminal.
fn flood(systems: &Systems<'_>, kind: Kind) -> anyhow::Result<f64> {
    let mut client = systems.start_attached(kind, "flood", SMALL)?;
    let end = read_behind_gate(systems, &mut client, DONE)?;
    let took = seconds(end) - systems.jobs.stamp("t0")?;
    systems.end(kind, Some(client))?;
    Ok(took)
}

/// Seconds that `cat` takes with nobody attached; on a bare terminal, read in a tight loop.
fn zero(systems: &Systems<'_>, kind: Kind) -> anyhow::Result<f64> {
    let client = if kind == Kind::Bare {
        let mut client = systems.start_attached(kind, "flood", SMALL)?;
        read_behind_gate(systems, &mut client, DONE)?;
        Some(client)
    } else {
        systems.start(kind, "flood", SMALL)?;
        None
    };
    let took = systems.jobs.stamp("t1")? - systems.jobs.stamp("t0")?;
    systems.end(kind, client)?;
    Ok(took)
}

/// Opens the gate from another thread, so that nothing waits to be read meanwhile.
fn read_behind_gate(
    systems: &Systems<'_>,
    client: &mut Client,
    text: &str,
) -> anyhow::Result<SystemTime> {
    let mut keyboard = client.lend_keyboard()?;
    let (end, opened) = std::thread::scope(|scope| {
        let gate = scope.spawn(|| systems.jobs.open_gate(&mut keyboard));
        let end = client.read_until(text);
        (end, gate.join())
    });
    client.return_keyboard(keyboard);
    opened.unwrap_or_else(|_| anyhow::bail!("the gate's thread panicked"))?;
    end
}

/// Microseconds of single keys to a program that sends each back.
pub(super) fn echo(systems: &Systems<'_>, kind: Kind) -> anyhow::Result<Series> {
    let mut client = systems.start_attached(kind, "echo", SMALL)?;
    read_behind_gate(systems, &mut client, READY)?;
    // Whatever else was typed comes back before this.
    client.type_keys(b"~")?;
    client.read_key(b'~')?;
    let mut series = Series::default();
    for key in b"#&_".iter().cycle().take(KEYS) {
        // A typist's pause, as far as the machine is concerned: everything sleeps again.
        nix::poll::poll(&mut [], 1_u8).ok();
        let start = Instant::now();
        client.type_keys(&[*key])?;
        client.read_key(*key)?;
        series.push(start.elapsed().as_secs_f64() * 1e6);
    }
    systems.end(kind, Some(client))?;
    Ok(series)
}

/// PTY.md 10: until painted, with 10,000 lines of 200 columns behind it.
const REATTACH_MS: f64 = 3.0;

/// Milliseconds from a client's start to the last line on its terminal. dtach draws nothing, tmux
/// the screen alone. With lines above it the floor is `cat` of as many bytes: the kernel's
/// terminal takes its time for them, whoever writes.
fn reattach(systems: &Systems<'_>, table: &mut Table) -> anyhow::Result<()> {
    let [mut screen, mut lines, mut tmux, mut floor] = std::array::from_fn(|_| Series::default());
    let mut sent = 0;
    for kind in [Kind::Tmux, Kind::Mews].into_iter().filter(|kind| kind.is_installed()) {
        let mut client = systems.start_attached(kind, "fill", LARGE)?;
        client.type_keys(b"\r")?;
        client.read_until(DONE)?;
        systems.jobs.stamp("t1")?;
        client.hang_up()?;
    }
    for round in 0..=rounds(20) {
        let look = |client: &dyn Fn() -> anyhow::Result<Client>, series: &mut Series| {
            let start = Instant::now();
            let mut client = client()?;
            client.read_until(DONE)?;
            if round > 0 {
                series.push_ms(start.elapsed());
            }
            let bytes = client.bytes();
            client.hang_up()?;
            anyhow::Ok(bytes)
        };
        let attach = |kind, options| move || systems.attach(kind, options, LARGE);
        if Kind::Tmux.is_installed() {
            look(&attach(Kind::Tmux, &[]), &mut tmux)?;
        }
        look(&attach(Kind::Mews, &["--scrollback", "none"]), &mut screen)?;
        sent = look(&attach(Kind::Mews, &[]), &mut lines)?;
        let painted = systems.jobs.lines(sent)?;
        look(&|| systems.start_bare(&["cat", painted], LARGE), &mut floor)?;
    }
    for kind in [Kind::Tmux, Kind::Mews].into_iter().filter(|kind| kind.is_installed()) {
        systems.end(kind, None)?;
    }
    // The aim is the design's own; the ratio to tmux says how much of the time is this machine's.
    table.alone("reattach, ms: the screen", screen.median(), Aim::AtMost(REATTACH_MS));
    let row = format!("reattach, ms: {} KB of lines too", sent / 1000);
    table.compare(&row, &floor, &lines, Aim::None);
    let beyond = lines.median() - floor.median();
    table.alone("reattach, ms: the same, beyond the floor", beyond, Aim::AtMost(REATTACH_MS));
    if Kind::Tmux.is_installed() {
        table.compare("reattach, beside tmux: the screen", &tmux, &screen, Aim::None);
        table.compare("reattach, beside tmux: the lines too", &tmux, &lines, Aim::None);
    }
    Ok(())
}
