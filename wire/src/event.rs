//! Events: what happened, in order, from one source. Appended to the source's file before sending.

use crate::limits::LimitChange;
use crate::stats::Stats;
use crate::{CageId, Enforced, Exit, GrantId, PtyId, Role, Size, Suspension};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Broker,
    Supervisor,
}

impl Source {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Supervisor => "supervisor",
        }
    }
}

/// One event. `(cage, source, seq)` is its key: twice sent is harmless.
/// Types are additive; a type that a reader does not know is passed on as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub cage: CageId,
    pub source: Source,
    /// From 1, without holes, per cage and source.
    pub seq: u64,
    /// Milliseconds since 1970, for people; order is by `seq`.
    pub at_ms: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub data: Value,
}

impl Event {
    #[must_use]
    pub fn new(cage: CageId, source: Source, seq: u64, at_ms: i64, body: &EventBody) -> Self {
        let mut tagged = serde_json::to_value(body).unwrap_or(Value::Null);
        let kind = tagged.get("type").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let data = tagged.get_mut("data").map_or(json!({}), Value::take);
        Self { cage, source, seq, at_ms, kind, data }
    }

    /// The typed body, where the type is known to this build.
    #[must_use]
    pub fn body(&self) -> Option<EventBody> {
        serde_json::from_value(json!({ "type": self.kind, "data": self.data })).ok()
    }
}

/// The types that brokers and supervisor write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum EventBody {
    /// supervisor: the plan is made and recorded.
    #[serde(rename = "cage.planned")]
    CagePlanned { plan_hash: String, policy: String, workspace: String },
    /// supervisor: the self-check line matched; this is what is enforced.
    #[serde(rename = "cage.attested")]
    CageAttested { enforced: Enforced },
    /// supervisor: `go` was said.
    #[serde(rename = "cage.started")]
    CageStarted { pid: i32 },
    /// supervisor: a wall could not be put up; nothing ran.
    #[serde(rename = "cage.failed")]
    CageFailed { wall: String, message: String },
    /// broker: the first payload ended (supervisor, if the broker could not say).
    #[serde(rename = "cage.exited")]
    CageExited { exit: Exit },
    /// supervisor: nothing of the cage is left.
    #[serde(rename = "cage.gone")]
    CageGone {},
    #[serde(rename = "cage.oom")]
    CageOom { limit_bytes: Option<u64> },
    /// A limit was met: `pids`, `walltime`, `idle`, `output_bytes`, `ptys`.
    #[serde(rename = "cage.limit")]
    CageLimit { limit: String, message: String },
    /// supervisor: an operator changed limits; all of it is in effect, as read back.
    #[serde(rename = "cage.limits")]
    CageLimits { changes: Vec<LimitChange>, enforced: Enforced },
    /// supervisor: what it had used, when it had ended.
    #[serde(rename = "cage.stats")]
    CageStats { stats: Box<Stats> },
    /// supervisor: every process stands still.
    #[serde(rename = "cage.suspended")]
    CageSuspended(Suspension),
    /// supervisor: they go on; timers and peers saw this time pass.
    #[serde(rename = "cage.resumed")]
    CageResumed { suspended_ms: u64 },
    /// supervisor: found again after a restart.
    #[serde(rename = "cage.adopted")]
    CageAdopted {},
    /// supervisor: found after a restart, alive, and its broker cannot be talked to; `cage.adopted`
    /// ends that.
    #[serde(rename = "cage.unreachable")]
    CageUnreachable { build: Option<String>, message: String },
    /// supervisor: somebody else than the cage's operator acted on it, by an admin's right.
    #[serde(rename = "cage.admin")]
    CageAdmin { uid: u32, verb: String },
    /// supervisor: it was started by a grant; `uid` is who asked, over a connection of theirs.
    #[serde(rename = "cage.granted")]
    CageGranted { grant: GrantId, uid: u32 },
    /// broker: the zygote was killed and made anew; later commands stand in a second domain.
    #[serde(rename = "cage.zygote_replaced")]
    CageZygoteReplaced {},
    #[serde(rename = "pty.allocated")]
    PtyAllocated { pty: PtyId, argv: Vec<String>, tty: bool, size: Option<Size> },
    /// The payload runs. `pid` as the cage sees it.
    #[serde(rename = "pty.started")]
    PtyStarted { pty: PtyId, pid: i32 },
    #[serde(rename = "pty.attached")]
    PtyAttached { pty: PtyId, viewer: String, role: Role },
    #[serde(rename = "pty.detached")]
    PtyDetached { pty: PtyId, viewer: String, reason: String },
    #[serde(rename = "pty.role")]
    PtyRole { pty: PtyId, viewer: String, role: Role },
    /// One per episode.
    #[serde(rename = "pty.output_throttled")]
    PtyOutputThrottled { pty: PtyId, viewer: String, dropped_bytes: u64, episode_ms: u64 },
    #[serde(rename = "pty.idle")]
    PtyIdle { pty: PtyId, idle_ms: u64 },
    /// The payload ended and its output is drained.
    #[serde(rename = "pty.closed")]
    PtyClosed { pty: PtyId, exit: Exit, bytes: u64, lines: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_bodies_round_trip_and_unknown_types_pass() {
        let cage = CageId::new();
        let body = EventBody::CageStarted { pid: 12 };
        let event = Event::new(cage, Source::Supervisor, 1, 5, &body);
        assert_eq!((event.kind.as_str(), &event.data), ("cage.started", &json!({"pid": 12})));
        assert_eq!(event.body(), Some(body));
        let empty = Event::new(cage, Source::Broker, 2, 5, &EventBody::CageGone {});
        assert_eq!(empty.body(), Some(EventBody::CageGone {}));
        let text = json!({"cage": cage, "source": "broker", "seq": 2, "at_ms": 0, "type": "new.kind", "data": {"x": 1}});
        let event: Event = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(event.body(), None);
        assert_eq!(serde_json::to_value(event).unwrap(), text);
    }
}
