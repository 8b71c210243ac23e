//! CPU of everything that we started, daemons and orphans included: a cpuacct cgroup that this
//! process stands in, less what this process itself used.
//!
//! The cages' own cgroups are in other hierarchies, so nothing leaves ours.

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HIERARCHY: &str = "/sys/fs/cgroup/cpuacct";
/// A tree that used nothing for so many looks in a row is at rest.
const QUIET_LOOKS: usize = 3;

#[derive(Debug)]
pub(crate) struct Meter {
    group: PathBuf,
}

impl Meter {
    /// # Errors
    /// No cpuacct hierarchy here, or not ours to write.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let group = Path::new(HIERARCHY).join(format!("mews-bench-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("make {} (as root)", group.display()))?;
        let meter = Self { group };
        fs::write(meter.group.join("cgroup.procs"), "0")?;
        Ok(meter)
    }

    /// CPU of all others so far.
    pub(crate) fn others(&self) -> Duration {
        self.all().saturating_sub(own())
    }

    fn all(&self) -> Duration {
        let text = fs::read_to_string(self.group.join("cpuacct.usage")).unwrap_or_default();
        Duration::from_nanos(text.trim().parse().unwrap_or(0))
    }

    /// How many processes are there.
    pub(crate) fn processes(&self) -> usize {
        let text = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        text.lines().count()
    }

    /// Waits until no more than `processes` are left and they are at rest.
    pub(crate) fn settle(&self, processes: usize) {
        let mut quiet = 0;
        let mut before = self.others();
        let what = "the measured processes come to rest";
        // What does not settle shows as noise in the numbers.
        testkit::pause::until(what, Duration::from_secs(20), || {
            let now = self.others();
            let still = now.saturating_sub(before) < Duration::from_micros(30);
            quiet = if still && self.processes() <= processes { quiet + 1 } else { 0 };
            before = now;
            (quiet >= QUIET_LOOKS).then_some(())
        })
        .ok();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Back to the root of the hierarchy, or the group could not go.
        fs::write(Path::new(HIERARCHY).join("cgroup.procs"), "0").ok();
        fs::remove_dir(&self.group).ok();
    }
}

fn own() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
