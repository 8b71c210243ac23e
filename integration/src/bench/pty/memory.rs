//! What terminals take of their broker's memory (or of tmux's server).

use super::super::pss_bytes;
use super::super::table::{Aim, Table};
use super::LARGE;
use super::job::DONE;
use super::system::{Kind, Systems};
use anyhow::Context as _;

/// More terminals in one cage.
const TERMINALS: u32 = 10;

pub(crate) fn rows(systems: &Systems<'_>, table: &mut Table) -> anyhow::Result<()> {
    if Kind::Tmux.is_installed() {
        let filled = filled(systems, Kind::Tmux)?;
        table.alone("10,000 x 200 lines, PSS in MB: tmux", filled, Aim::None);
    }
    let filled = filled(systems, Kind::Mews)?;
    table.alone("10,000 x 200 lines, PSS in MB: mews", filled, Aim::AtMost(3.0));
    let idle = idle(systems)?;
    table.alone("an idle terminal more, PSS in KB: mews", idle, Aim::AtMost(300.0));
    Ok(())
}

/// MB that the scrollback adds.
fn filled(systems: &Systems<'_>, kind: Kind) -> anyhow::Result<f64> {
    let mut client = systems.start_attached(kind, "fill", LARGE)?;
    let pid = match kind {
        Kind::Tmux => systems.tmux_pid()?,
        Kind::Bare | Kind::Dtach | Kind::Mews => broker(systems)?,
    };
    let before = pss_bytes(pid);
    client.type_keys(b"\r")?;
    client.read_until(DONE)?;
    systems.jobs.stamp("t1")?;
    let after = pss_bytes(pid);
    systems.end(kind, Some(client))?;
    Ok((after - before) / 1e6)
}

/// KB that each terminal adds to a broker.
fn idle(systems: &Systems<'_>) -> anyhow::Result<f64> {
    systems.start(Kind::Mews, "idle", LARGE)?;
    systems.jobs.stamp("t1")?;
    let pid = broker(systems)?;
    let before = pss_bytes(pid);
    for _ in 0..TERMINALS {
        systems.jobs.clear();
        systems.mews(&["exec", "-d", "bench", "--", "sh", "idle.sh", "now"])?;
        systems.jobs.stamp("t1")?;
    }
    let each = (pss_bytes(pid) - before) / f64::from(TERMINALS) / 1e3;
    systems.end(Kind::Mews, None)?;
    Ok(each)
}

/// The one broker of the sandbox.
fn broker(systems: &Systems<'_>) -> anyhow::Result<i32> {
    let found = testkit::leftovers::processes(systems.sandbox.root());
    let line = found.iter().find(|line| line.contains("mews-ptybroker"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .with_context(|| format!("no broker in {found:?}"))
}
