//! What the admin of a shared host gives at most: a meet with what policy and flags ask for.

use super::file::LimitsFile;
use super::values::Requirement;
use super::{Policy, limit_words};
use serde::Deserialize;
use serde_json::json;
use wire::limits::LimitChange;
use wire::{ErrorCode, WireError, WorkspaceMode};

/// Absent: no ceiling. A key holds the same values as in a policy's `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "LimitsFile")]
pub struct Ceiling(LimitsFile);

impl TryFrom<LimitsFile> for Ceiling {
    type Error = &'static str;

    fn try_from(limits: LimitsFile) -> Result<Self, Self::Error> {
        match limits.oom {
            None => Ok(Self(limits)),
            Some(_mode) => Err("oom is no amount, and has no ceiling"),
        }
    }
}

impl Ceiling {
    /// Where no limit of memory holds, none of swap can.
    pub(crate) fn is_swap_alone(&self) -> bool {
        self.0.swap.is_some() && self.0.memory.is_none()
    }

    /// Whether limits of a living cage may become these. Down is always allowed, also to what is still
    /// above a ceiling that was lowered meanwhile.
    ///
    /// # Errors
    /// `forbidden`, with the limit and its ceiling.
    pub fn admits(&self, changes: &[LimitChange]) -> Result<(), WireError> {
        let none = u64::MAX;
        for LimitChange { limit, unit, from, to } in changes {
            let Some(top) = self.0.amount(limit) else { continue };
            let (from, to) = (from.unwrap_or(none), to.unwrap_or(none));
            if to > top && to > from {
                let most = limit_words(*unit, Some(top));
                let words = format!(
                    "the admin of this host allows {limit} of {most} at most, and nothing is changed; \
                     ask for {limit}={most} or less"
                );
                let details = json!({ "limit": limit, "ceiling": top });
                return Err(WireError::new(ErrorCode::Forbidden, words).with(details));
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Each limit becomes the smaller of its own and the ceiling's; what had none gets the ceiling.
    /// A ceiling is never absent: where the host cannot hold it, there is no cage. Gives a note for
    /// each limit that was lowered.
    #[must_use]
    pub fn below(mut self, ceiling: &Ceiling) -> (Self, Vec<String>) {
        let mut notes = Vec::new();
        // The operator's own folder has no bounds of ours.
        let has_layer = self.workspace != WorkspaceMode::Direct;
        self.limits.each(|key, _unit, own| {
            let top = ceiling.0.amount(key).filter(|_| has_layer || !key.starts_with("workspace_"));
            if let (Some(asked), Some(top)) = (*own, top)
                && asked > top
            {
                notes.push(format!("limits.{key}: lowered to what the admin of this host allows"));
            }
            *own = match (*own, top) {
                (Some(asked), Some(top)) => Some(asked.min(top)),
                (asked, top) => asked.or(top),
            };
        });
        let walls = [
            (ceiling.0.memory.is_some(), Requirement::CgroupMemory),
            (ceiling.0.swap.is_some(), Requirement::CgroupSwap),
            (ceiling.0.cpu.is_some(), Requirement::CgroupCpu),
            (ceiling.0.io.is_some(), Requirement::CgroupIo),
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
    use wire::limits::Unit;
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

    #[test]
    fn a_workspace_is_bounded_where_it_has_a_layer() {
        let ceiling: Ceiling =
            toml::from_str("workspace_bytes = \"1G\"\nidle = \"10m\"\nio = \"50M\"").unwrap();
        let direct = shell(None, None).below(&ceiling).0;
        assert_eq!(direct.limits.workspace_bytes, None);
        assert_eq!(direct.limits.idle_ms, Some(600_000));
        assert!(direct.require.contains(&Requirement::CgroupIo));
        let mut apart = shell(None, None);
        apart.workspace = WorkspaceMode::Overlay;
        assert_eq!(apart.below(&ceiling).0.limits.workspace_bytes, Some(1 << 30));
    }

    #[test]
    fn a_living_cage_is_not_raised_above_it() {
        let ceiling: Ceiling = toml::from_str("memory = \"2G\"\nidle = \"10m\"").unwrap();
        let change =
            |limit: &str, unit, from, to| LimitChange { limit: limit.into(), unit, from, to };
        let memory = |from, to| ceiling.admits(&[change("memory", Unit::Bytes, from, to)]);
        assert!(memory(Some(1 << 30), Some(2 << 30)).is_ok());
        assert!(memory(Some(8 << 30), Some(4 << 30)).is_ok());
        for to in [Some(3 << 30), None] {
            let error = memory(Some(1 << 30), to).unwrap_err();
            assert_eq!(error.code, ErrorCode::Forbidden);
            assert!(error.message.contains("memory=2G"), "{error}");
        }
        assert!(ceiling.admits(&[change("idle", Unit::Ms, Some(1), None)]).is_err());
        assert!(ceiling.admits(&[change("pids", Unit::Count, Some(1), None)]).is_ok());
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
