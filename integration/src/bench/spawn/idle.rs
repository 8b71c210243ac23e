//! Memory of idle cages: what broker, bwrap and cage-init take beyond the payload.

use super::super::pss_bytes;
use super::link::Supervisor;
use std::collections::BTreeMap;
use std::path::Path;

/// Of the payload, which does not count.
const PAYLOAD: &str = "sleep";

/// PSS of a cage in MB, with `count` of them alive.
///
/// # Errors
/// A cage could not be built.
pub(crate) fn pss_mb(
    supervisor: &mut Supervisor,
    workspace: &Path,
    count: usize,
) -> anyhow::Result<(f64, BTreeMap<String, f64>)> {
    let mut cages = Vec::new();
    for _ in 0..count {
        let cage = supervisor.spawn(workspace, &["/bin/sleep", "1000"])?;
        supervisor.wait_for(cage, "pty.started")?;
        cages.push(cage);
    }
    let parts = of_descendants(i32::try_from(supervisor.pid())?, count);
    let sum = parts.iter().filter(|(name, _)| *name != PAYLOAD).map(|(_, mb)| mb).sum();
    for cage in cages {
        supervisor.kill(cage)?;
    }
    Ok((sum, parts))
}

/// MB for each of `count` cages, by the name of the process.
fn of_descendants(root: i32, count: usize) -> BTreeMap<String, f64> {
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    let mut known = vec![root];
    let processes = processes();
    // Parents may come after their children in /proc.
    loop {
        let new: Vec<_> = processes
            .iter()
            .filter(|process| known.contains(&process.parent) && !known.contains(&process.pid))
            .collect();
        if new.is_empty() {
            return parts;
        }
        for process in new {
            known.push(process.pid);
            *parts.entry(process.name.clone()).or_default() +=
                pss_bytes(process.pid) / 1e6 / count as f64;
        }
    }
}

struct Process {
    pid: i32,
    parent: i32,
    name: String,
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (before, after) = stat.rsplit_once(") ")?;
            let (_pid, name) = before.split_once('(')?;
            let parent = after.split(' ').nth(1)?.parse().ok()?;
            Some(Process { pid, parent, name: name.to_owned() })
        })
        .collect()
}
