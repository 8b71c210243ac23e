//! What the host lacks, injected from outside: room, descriptors, processes, a quick database, a
//! daemon that answers. What was acknowledged stands, what cannot be done is said, and when there is
//! enough again everything works without anybody's doing.

mod clock;
mod copies;
mod database;
mod descriptors;
mod disk;
mod exits;
mod launcher;
mod namespaces;
mod oom;
mod processes;
mod sockets;
mod stalled;
mod syscalls;
mod trickle;
mod walls;

use crate::runner::{Test, skip};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::Sandbox;
use testkit::process::{self, LIMIT};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("faults.disk_full", disk::full),
        Test::new("faults.disk_full_while_a_cage_ends", disk::full_at_the_end),
        Test::new("faults.disk_full_at_start", disk::full_at_start),
        Test::new("faults.descriptors_of_sessiond", descriptors::of_sessiond),
        Test::new("faults.descriptors_of_the_supervisor", descriptors::of_the_supervisor),
        Test::new("faults.descriptors_of_a_broker", descriptors::of_a_broker),
        Test::new("faults.no_process_for_the_supervisor", processes::none_left),
        Test::new("faults.a_thousand_exits_at_once", exits::at_once),
        Test::new("faults.database_locked", database::locked),
        Test::new("faults.sessiond_stalled", stalled::sessiond),
        Test::new("faults.supervisor_stalled", stalled::supervisor),
        Test::new("faults.broker_stalled", stalled::broker_stands),
        Test::new("faults.stopped_and_continued_all_the_time", stalled::storm),
        Test::new("faults.interrupted_system_calls", syscalls::interrupted),
        Test::new("faults.database_writes_fail", syscalls::writes_fail),
        Test::new("faults.clocks_of_another_origin", clock::time_namespace),
        Test::new("faults.launcher_killed", launcher::killed),
        Test::new("faults.launcher_killed_of_an_ordinary_user", launcher::killed_of_a_user),
        Test::new("faults.copies_hold_what_was_acknowledged", copies::hold_what_was_acknowledged),
        Test::new("faults.no_user_namespaces", namespaces::none),
        Test::new("faults.user_namespaces_used_up", namespaces::used_up),
        Test::new("faults.masked_proc", namespaces::masked_proc),
        Test::new("faults.something_where_a_socket_is_to_be", sockets::in_the_way),
        Test::new("faults.no_landlock", walls::no_landlock),
        Test::new("faults.no_seccomp", walls::no_seccomp),
        Test::new("faults.no_wall_inside_alone", walls::inside_alone),
        Test::new("faults.one_byte_at_a_time", trickle::one_byte_at_a_time),
        Test::new("faults.no_memory_for_sessiond", oom::sessiond),
        Test::new("faults.no_memory_for_a_broker", oom::broker),
    ]
}

/// `mews ARGS` with pipes, not waited for.
fn begin(sandbox: &Sandbox, words: &[&str]) -> anyhow::Result<Child> {
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command.spawn()?)
}

/// One of `integration/faults`, made into a program of the sandbox's.
fn compiled(
    sandbox: &Sandbox,
    source: &str,
    name: &str,
    flags: &[&str],
) -> anyhow::Result<PathBuf> {
    const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/faults");
    if Command::new("gcc").arg("--version").output().is_err() {
        return Err(skip("needs gcc"));
    }
    let program = sandbox.root().join(name);
    let mut command = Command::new("gcc");
    command.args(["-w", "-O1"]).args(flags).arg("-o").arg(&program);
    command.arg(Path::new(SOURCES).join(source));
    process::run(&mut command, b"", LIMIT).context("gcc")?.expect(0)?;
    Ok(program)
}

/// Microseconds of cpu that a process has used.
fn cpu_us(pid: i32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_name, rest) = text.rsplit_once(')').context("a stat line")?;
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every Linux.
    Ok(ticks * 10_000)
}
