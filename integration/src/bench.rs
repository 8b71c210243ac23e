//! Measured beside its peers, interleaved; ratios are what counts.
//!
//! `mews-integration bench [spawn|suspend|checkpoint|crowd|load|store|pty [ROW…]]`. MEWS_BENCH_ROUNDS sets how often each is measured.

mod checkpoint;
mod crowd;
mod load;
mod pty;
mod spawn;
mod store;
mod suspend;
mod table;

use std::process::ExitCode;

pub(crate) fn main(args: &[String]) -> ExitCode {
    let (group, rows) = match args.split_first() {
        Some((group, rows)) => (group.as_str(), rows),
        None => ("all", [].as_slice()),
    };
    let mut met = Vec::new();
    if matches!(group, "spawn" | "all") {
        met.push(spawn::run(rows));
    }
    if matches!(group, "suspend" | "all") {
        met.push(suspend::run());
    }
    if matches!(group, "checkpoint" | "all") {
        met.push(checkpoint::run());
    }
    if matches!(group, "crowd" | "all") {
        met.push(crowd::run());
    }
    if matches!(group, "load" | "all") {
        met.push(load::run());
    }
    if matches!(group, "store" | "all") {
        met.push(store::run());
    }
    if matches!(group, "pty" | "all") {
        met.push(pty::run(rows));
    }
    testkit::programs::forget();
    for error in met.iter().filter_map(|result| result.as_ref().err()) {
        println!("bench: {error:#}");
    }
    match met.as_slice() {
        [] => {
            println!(
                "no bench named {group:?}: spawn, suspend, checkpoint, crowd, load, store, pty"
            );
            ExitCode::FAILURE
        }
        met if met.iter().all(|result| matches!(result, Ok(true))) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// How often each thing is measured, `default` unless MEWS_BENCH_ROUNDS says otherwise.
pub(crate) fn rounds(default: usize) -> usize {
    std::env::var("MEWS_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Of one process; zero for one that is gone.
pub(crate) fn pss_bytes(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
