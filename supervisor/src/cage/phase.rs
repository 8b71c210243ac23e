//! The life of a cage, as one table.
//!
//! ```text
//! Starting ──Went──▶ Running ──Ending──▶ Ending ──Emptied──▶ Gone
//!     │        Suspended ▼ ▲ Resumed       ▲
//!     │              Suspended ──Ending────┤
//!     └──Failed / Ending───────────────────┘
//! ```

use wire::supervisor::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The attestation matched and `go` was answered.
    Went,
    /// All of it stands still, as read back.
    Suspended,
    Resumed,
    /// Told to end, its first payload has ended, its broker is lost, or it could not be built.
    Ending,
    /// Pid 1 is reaped and the cgroup is empty.
    Emptied,
}

/// The next phase. A moment that comes late or twice changes nothing.
pub(crate) fn step(phase: Phase, moment: Moment) -> Phase {
    match (phase, moment) {
        (Phase::Starting, Moment::Went) | (Phase::Suspended, Moment::Resumed) => Phase::Running,
        (Phase::Running, Moment::Suspended) => Phase::Suspended,
        (Phase::Starting | Phase::Running | Phase::Suspended, Moment::Ending) => Phase::Ending,
        (Phase::Starting | Phase::Running | Phase::Suspended | Phase::Ending, Moment::Emptied) => {
            Phase::Gone
        }
        (
            same @ (Phase::Running | Phase::Suspended | Phase::Ending | Phase::Gone),
            Moment::Went,
        )
        | (
            same @ (Phase::Starting | Phase::Running | Phase::Ending | Phase::Gone),
            Moment::Resumed,
        )
        | (
            same @ (Phase::Starting | Phase::Suspended | Phase::Ending | Phase::Gone),
            Moment::Suspended,
        )
        | (same @ (Phase::Ending | Phase::Gone), Moment::Ending)
        | (same @ Phase::Gone, Moment::Emptied) => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_back_but_a_resume() {
        let phases =
            [Phase::Starting, Phase::Running, Phase::Suspended, Phase::Ending, Phase::Gone];
        let rank = |phase: Phase| phases.iter().position(|p| *p == phase).unwrap();
        for phase in phases {
            for moment in [Moment::Went, Moment::Suspended, Moment::Ending, Moment::Emptied] {
                assert!(rank(step(phase, moment)) >= rank(phase), "{phase:?} {moment:?}");
            }
            assert_eq!(step(phase, Moment::Emptied), Phase::Gone);
        }
        assert_eq!(step(Phase::Starting, Moment::Went), Phase::Running);
        assert_eq!(step(Phase::Running, Moment::Suspended), Phase::Suspended);
        assert_eq!(step(Phase::Suspended, Moment::Resumed), Phase::Running);
        for phase in [Phase::Starting, Phase::Ending, Phase::Gone] {
            assert_eq!(step(phase, Moment::Suspended), phase);
            assert_eq!(step(phase, Moment::Resumed), phase);
        }
        assert_eq!(step(Phase::Ending, Moment::Went), Phase::Ending);
    }
}
