//! `mews stats`: what cages use now.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::render;
use cage::policy::limit_words;
use serde::{Deserialize, Serialize};
use wire::api::SessionView;
use wire::limits::Unit;
use wire::stats::{CpuUse, IoUse, MemoryUse, OutputUse, PidsUse, Pressure, Pressures, Stats};
use wire::supervisor::Phase;
use wire::{CageId, ErrorCode, SessionId};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without an ID: all living cages, one a line. With one: everything that is known of it. `absent` means
that this host does not count it; nothing is guessed.

Examples:
  mews stats
  mews stats pi-1
  mews stats --json | jq '.stats.memory.current_bytes'")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Of {
    name: String,
    session: SessionId,
    cage: CageId,
    phase: Phase,
    stats: Stats,
}

#[derive(Deserialize)]
struct Sessions {
    sessions: Vec<SessionView>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let mut found = Vec::new();
    if args.ids.is_empty() {
        for session in living(&api).await? {
            for cage in session.cages.iter().filter(|cage| cage.phase != Phase::Gone) {
                // One that is just being built or ends has nothing to tell.
                match of(&api, &session, cage.id).await {
                    Ok(of) => found.push(of),
                    Err(failure)
                        if failure.is(ErrorCode::Gone) || failure.is(ErrorCode::Conflict) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
    for id in &args.ids {
        let named = api.resolve(id).await?;
        let (cage, _pty) = super::attach::terminal_of(&named)?;
        let session: SessionView = api.get(&format!("/sessions/{}", named.session)).await?;
        found.push(of(&api, &session, cage).await.map_err(|failure| ended(failure, id))?);
    }
    if say.json {
        return found.iter().try_for_each(out::json_line).map(|()| 0);
    }
    match found.as_slice() {
        [] => say.note("nothing is running"),
        [one] if !args.ids.is_empty() => out::data(&page(one))?,
        all => out::data(&table(all))?,
    }
    Ok(0)
}

async fn living(api: &Api) -> Result<Vec<SessionView>, Failure> {
    match api.get::<Sessions>("/sessions").await {
        Ok(found) => Ok(found.sessions),
        Err(failure) if failure.is(ErrorCode::NotFound) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// As the daemons say it.
pub(super) async fn asked(api: &Api, session: SessionId, cage: CageId) -> Result<Stats, Failure> {
    api.get(&format!("/sessions/{session}/cages/{cage}/stats")).await
}

async fn of(api: &Api, session: &SessionView, cage: CageId) -> Result<Of, Failure> {
    let stats = asked(api, session.id, cage).await?;
    let phase = session.cages.iter().find(|view| view.id == cage).map(|view| view.phase);
    Ok(Of {
        name: session.name.clone(),
        session: session.id,
        cage,
        phase: phase.unwrap_or(Phase::Running),
        stats,
    })
}

fn ended(failure: Failure, id: &str) -> Failure {
    if failure.is(ErrorCode::Gone) { failure.next(format!("mews inspect {id}")) } else { failure }
}

const ABSENT: &str = "absent";

fn table(all: &[Of]) -> String {
    let head = ["NAME", "CPU", "MEMORY", "PIDS", "READ", "WRITTEN", "PRESSURE", "OUTPUT"];
    render(&head, &all.iter().map(row).collect::<Vec<_>>())
}

fn row(of: &Of) -> Vec<String> {
    let stats = &of.stats;
    let or_absent = |text: Option<String>| text.unwrap_or_else(|| ABSENT.to_owned());
    let paused = if of.phase == Phase::Suspended { " (paused)" } else { "" };
    let memory = |memory: &MemoryUse| {
        let limit = memory.limit_bytes.map(|limit| exact(Unit::Bytes, limit));
        of_limit(bytes(memory.current_bytes), limit)
    };
    let pids = |pids: &PidsUse| {
        of_limit(pids.current.to_string(), pids.limit.map(|limit| limit.to_string()))
    };
    vec![
        format!("{}{paused}", escape(&of.name)),
        or_absent(stats.cpu.as_ref().map(|cpu| seconds(cpu.total_us))),
        or_absent(stats.memory.as_ref().map(memory)),
        or_absent(stats.pids.as_ref().map(pids)),
        or_absent(stats.io.as_ref().map(|io| bytes(io.read_bytes))),
        or_absent(stats.io.as_ref().map(|io| bytes(io.write_bytes))),
        or_absent(stats.pressure.as_ref().map(pressures)),
        or_absent(stats.output.as_ref().map(output)),
    ]
}

/// Of the last ten seconds.
fn pressures(all: &Pressures) -> String {
    let of = |name: &str, part: &Option<Pressure>| {
        part.as_ref().map(|part| format!("{name} {:.0}%", part.some.avg10))
    };
    let parts = [of("cpu", &all.cpu), of("mem", &all.memory), of("io", &all.io)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn page(of: &Of) -> String {
    format!("{:<10}{}  {}\n{}", "cage", escape(&of.name), of.cage, lines(&of.stats))
}

/// A line for each thing that is counted, and for each that is not.
pub(super) fn lines(stats: &Stats) -> String {
    let mut page = Page::default();
    page.line("ran", stats.ran_ms.map(|ran| exact(Unit::Ms, ran)));
    page.line("cpu", stats.cpu.as_ref().map(cpu));
    page.line("memory", stats.memory.as_ref().map(memory));
    page.line("pids", stats.pids.as_ref().map(pids));
    page.line("io", stats.io.as_ref().map(io));
    if let Some(all) = &stats.pressure {
        page.line("pressure", all.cpu.as_ref().map(|part| pressure("cpu", part)));
        page.line("pressure", all.memory.as_ref().map(|part| pressure("memory", part)));
        page.line("pressure", all.io.as_ref().map(|part| pressure("io", part)));
    }
    page.line("output", stats.output.as_ref().map(output));
    for (what, why) in &stats.absent {
        page.line(ABSENT, Some(format!("{}: {}", escape(what), escape(why))));
    }
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, text: Option<String>) {
        if let Some(text) = text {
            self.0.push_str(&format!("{name:<10}{text}\n"));
        }
    }
}

fn cpu(cpu: &CpuUse) -> String {
    let mut text = seconds(cpu.total_us);
    if let (Some(user), Some(system)) = (cpu.user_us, cpu.system_us) {
        text.push_str(&format!(" ({} user, {} system)", seconds(user), seconds(system)));
    }
    if let Some(limit) = cpu.limit_milli {
        text.push_str(&format!(", at most {} CPUs", exact(Unit::MilliCpu, limit)));
    }
    if let Some(held) = cpu.throttled_us {
        text.push_str(&format!(", held back for {}", seconds(held)));
    }
    format!("{text}; {}", cpu.by)
}

fn memory(memory: &MemoryUse) -> String {
    let limit = |bytes: Option<u64>| bytes.map(|bytes| exact(Unit::Bytes, bytes));
    let mut text = of_limit(bytes(memory.current_bytes), limit(memory.limit_bytes));
    if let Some(peak) = memory.peak_bytes {
        text.push_str(&format!(", {} at most", bytes(peak)));
    }
    if let Some(swap) = memory.swap_bytes {
        text.push_str(&format!(", swap {}", of_limit(bytes(swap), limit(memory.swap_limit_bytes))));
    }
    format!("{text}, {} killed for memory; {}", memory.oom_kills, memory.by)
}

fn pids(pids: &PidsUse) -> String {
    let limit = pids.limit.map(|limit| limit.to_string());
    let mut text = of_limit(pids.current.to_string(), limit);
    if let Some(peak) = pids.peak {
        text.push_str(&format!(", {peak} at most"));
    }
    format!("{text}, {} forks refused; {}", pids.refused, pids.by)
}

fn io(io: &IoUse) -> String {
    let mut text = format!("{} read, {} written", bytes(io.read_bytes), bytes(io.write_bytes));
    if let Some(limit) = io.limit_bytes {
        text.push_str(&format!(", at most {}", exact(Unit::BytesPerSecond, limit)));
    }
    format!("{text}; {}", io.by)
}

fn pressure(name: &str, pressure: &Pressure) -> String {
    let some = &pressure.some;
    let mut text = format!(
        "{name}: some waited {:.1}% of 10 s, {:.1}% of 60 s, {} in all",
        some.avg10,
        some.avg60,
        seconds(some.total_us)
    );
    if let Some(full) = &pressure.full {
        text.push_str(&format!("; all waited {:.1}% of 10 s", full.avg10));
    }
    text
}

fn output(output: &OutputUse) -> String {
    of_limit(bytes(output.bytes), output.limit_bytes.map(|limit| exact(Unit::Bytes, limit)))
}

fn of_limit(now: String, limit: Option<String>) -> String {
    match limit {
        Some(limit) => format!("{now} of {limit}"),
        None => now,
    }
}

fn exact(unit: Unit, value: u64) -> String {
    limit_words(unit, Some(value))
}

/// Three digits or so: `1.5M`.
pub(super) fn bytes(value: u64) -> String {
    for (shift, unit) in [(40_u32, "T"), (30, "G"), (20, "M"), (10, "K")] {
        let whole = value >> shift;
        if whole > 0 {
            let tenths = ((value >> (shift - 10)) & 1023) * 10 / 1024;
            return format!("{whole}.{tenths}{unit}");
        }
    }
    format!("{value}")
}

fn seconds(us: u64) -> String {
    format!("{}.{:02}s", us / 1_000_000, us % 1_000_000 / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stats: Stats) -> Of {
        Of {
            name: "pi-1".to_owned(),
            session: SessionId::new(),
            cage: CageId::new(),
            phase: Phase::Running,
            stats,
        }
    }

    #[test]
    fn what_is_not_counted_is_said_to_be_absent() {
        let cpu = CpuUse { by: "cgroup v2".to_owned(), total_us: 1_250_000, ..CpuUse::default() };
        let memory = MemoryUse {
            by: "cgroup v1".to_owned(),
            current_bytes: 3 << 19,
            limit_bytes: Some(4 << 30),
            ..MemoryUse::default()
        };
        let output = OutputUse { bytes: 12, limit_bytes: None };
        let mut stats = Stats {
            cpu: Some(cpu),
            memory: Some(memory),
            output: Some(output),
            ..Stats::default()
        };
        stats.absent.insert("io".to_owned(), "no controller".to_owned());
        let one = of(stats);
        let row = row(&one);
        assert_eq!(row[1..4], ["1.25s", "1.5M of 4G", "absent"]);
        assert_eq!(row[4..], ["absent", "absent", "absent", "12"]);
        let page = page(&one);
        assert!(page.contains("memory    1.5M of 4G"), "{page}");
        assert!(page.contains("absent    io: no controller"), "{page}");
    }
}
