//! What the admin of a shared host gives at most: a meet with what policy and flags ask for.

use super::Policy;
use super::values::{Bytes, Count, CpuMilli, Millis, Requirement};
use serde::Deserialize;

/// Absent: no ceiling. A key holds the same values as in a policy's `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ceiling {
    memory: Option<Bytes>,
    swap: Option<Bytes>,
    pids: Option<Count<8, 4_194_304>>,
    cpu: Option<CpuMilli>,
    nofile: Option<Count<16, 1_048_576>>,
    fsize: Option<Bytes>,
    core: Option<Bytes>,
    ptys: Option<Count<1, 4096>>,
    walltime: Option<Millis>,
}

impl Policy {
    /// Each limit becomes the smaller of its own and the ceiling's; what had none gets the ceiling.
    /// A ceiling is never absent: where the host cannot hold it, there is no cage. Gives a note for
    /// each limit that was lowered.
    #[must_use]
    pub fn below(mut self, ceiling: &Ceiling) -> (Self, Vec<String>) {
        let mut notes = Vec::new();
        let limits = &mut self.limits;
        let bytes = |size: Option<Bytes>| size.map(|Bytes(bytes)| bytes);
        let mut core = Some(limits.core_bytes);
        let mut ptys = Some(u64::from(limits.ptys));
        let (pids, nofile) = (ceiling.pids.map(|it| it.0), ceiling.nofile.map(|it| it.0));
        for (key, own, top) in [
            ("memory", &mut limits.memory_bytes, bytes(ceiling.memory)),
            ("swap", &mut limits.swap_bytes, bytes(ceiling.swap)),
            ("pids", &mut limits.pids, pids),
            ("cpu", &mut limits.cpu_milli, ceiling.cpu.map(|it| it.0)),
            ("nofile", &mut limits.nofile, nofile),
            ("fsize", &mut limits.fsize_bytes, bytes(ceiling.fsize)),
            ("core", &mut core, bytes(ceiling.core)),
            ("ptys", &mut ptys, ceiling.ptys.map(|it| it.0)),
            ("walltime", &mut limits.walltime_ms, ceiling.walltime.map(|Millis(ms)| ms)),
        ] {
            if let (Some(asked), Some(top)) = (*own, top)
                && asked > top
            {
                notes.push(format!("limits.{key}: lowered to what the admin of this host allows"));
            }
            *own = match (*own, top) {
                (Some(asked), Some(top)) => Some(asked.min(top)),
                (asked, top) => asked.or(top),
            };
        }
        limits.core_bytes = core.unwrap_or(0);
        limits.ptys = ptys.and_then(|ptys| u32::try_from(ptys).ok()).unwrap_or(limits.ptys);
        let walls = [
            (ceiling.memory.is_some(), Requirement::CgroupMemory),
            (ceiling.swap.is_some(), Requirement::CgroupSwap),
            (ceiling.cpu.is_some(), Requirement::CgroupCpu),
        ];
        self.require
            .extend(walls.into_iter().filter_map(|(is_there, wall)| is_there.then_some(wall)));
        (self, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::load;
    use proptest::prelude::*;
    use wire::{Overrides, PolicySource};

    fn shell(memory: Option<&str>, pids: Option<u64>) -> Policy {
        let shell = load(&PolicySource::Name("base".into()), &[]).unwrap();
        let memory = memory.map(str::to_owned);
        shell.with_overrides(&Overrides { memory, pids, ..Overrides::default() }).unwrap()
    }

    #[test]
    fn the_smaller_one_holds_and_none_is_the_ceiling() {
        let ceiling: Ceiling = toml::from_str("memory = \"2G\"\npids = 100\ncore = 5").unwrap();
        let (low, notes) = shell(Some("1G"), Some(50)).below(&ceiling);
        assert_eq!((low.limits.memory_bytes, low.limits.pids), (Some(1 << 30), Some(50)));
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(low.limits.core_bytes, 0);
        assert!(low.require.contains(&Requirement::CgroupMemory));
        let (high, notes) = shell(Some("8G"), Some(500)).below(&ceiling);
        assert_eq!((high.limits.memory_bytes, high.limits.pids), (Some(2 << 30), Some(100)));
        assert_eq!(notes.len(), 2, "{notes:?}");
        let mut free = shell(None, None);
        free.limits.memory_bytes = None;
        assert_eq!(free.below(&ceiling).0.limits.memory_bytes, Some(2 << 30));
    }

    proptest! {
        /// Whatever is asked for, nothing is above the ceiling, and twice is the same as once.
        #[test]
        fn a_meet(asked in proptest::option::of(8_u64..4_000_000), top in 8_u64..4_000_000) {
            let ceiling: Ceiling = toml::from_str(&format!("pids = {top}")).unwrap();
            let (once, _notes) = shell(None, asked).below(&ceiling);
            prop_assert!(once.limits.pids.is_some_and(|pids| pids <= top));
            let (twice, notes) = once.clone().below(&ceiling);
            prop_assert_eq!(twice.limits, once.limits);
            prop_assert!(notes.is_empty());
        }
    }
}
