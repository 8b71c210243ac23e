//! What the supervisor does for others, as one table: request, who, phase, once, trail,
//! handler.
//!
//! A request whose verb is not here closes the connection it came on. Everything else that is wrong
//! with a request is answered and changes nothing.

use crate::admission::{self, Operator, check_connection};
use crate::cage::Cage;
use crate::grants::{self, ByGrant};
use crate::requests as handle;
use crate::supervisor::Supervisor;
use crate::trail;
use serde_json::Value;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use wire::supervisor::{Phase, SupervisorRequest};
use wire::{CageId, ErrorCode, EventBody, GrantKey, WireError, control};

/// An answer: a value, and descriptors beside it.
pub(crate) type Reply = Result<(Value, Vec<OwnedFd>), WireError>;
type Handler = fn(Rc<Supervisor>, Call) -> Pin<Box<dyn Future<Output = Reply>>>;

/// Who may ask, beside having the link (whose peer was checked when it was made).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// An operator whose own open connection comes with the request, first of its descriptors. For
    /// a cage: its operator, or an admin.
    Operator,
    /// The same; or by a grant whose key comes with the request, over anybody's connection: it is then
    /// whose grant it is.
    OperatorOrGrant,
    /// By a grant alone.
    Grant,
    /// An operator; where no connection comes, sessiond itself, for a cage that has ended.
    OperatorOrAfterEnd,
    /// An operator, for what is about all cages: the operator of a user's own mews; root of a shared one.
    Owner,
    /// sessiond itself.
    Link,
}

/// What must be known of the cage that the request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// It names none.
    NoCage,
    /// It names one that is not there yet.
    Unknown,
    /// It is known, living or ended.
    Known,
    /// It runs; `ending` and `gone` are refused.
    Running,
    /// It has ended.
    Ended,
}

/// How often the request may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    OncePerCage,
    Any,
}

/// Whether the journal is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trail {
    /// Always.
    Act,
    /// Where it is refused, or about what is another's.
    Look,
    /// sessiond's own housekeeping.
    No,
}

pub(crate) struct Permit {
    pub(crate) verb: &'static str,
    pub(crate) who: Who,
    pub(crate) when: When,
    pub(crate) times: Times,
    /// Descriptors beside the request, the authority not counted.
    pub(crate) fds: usize,
    pub(crate) trail: Trail,
    handler: Handler,
}

macro_rules! permit {
    ($verb:literal, $who:ident, $when:ident, $times:ident, $fds:literal, $trail:ident, $handler:path) => {
        Permit {
            verb: $verb,
            who: Who::$who,
            when: When::$when,
            times: Times::$times,
            fds: $fds,
            trail: Trail::$trail,
            handler: |supervisor, call| Box::pin($handler(supervisor, call)),
        }
    };
}

#[rustfmt::skip]
pub(crate) const TABLE: [Permit; 33] = [
    //      request         who                 phase    once         fds  trail  handler
    permit!("admit",        Operator,           NoCage,  Any,         0,   Look,  handle::admit),
    permit!("spawn",        OperatorOrGrant,    Unknown, OncePerCage, 1,   Act,   handle::spawn),
    permit!("dry_run",      Operator,           NoCage,  Any,         1,   Look,  handle::dry_run),
    permit!("mint",         Operator,           NoCage,  Any,         1,   Act,   handle::mint),
    permit!("grant",        Grant,              NoCage,  Any,         0,   Look,  handle::grant),
    permit!("grants",       Link,               NoCage,  Any,         0,   No,    handle::grants),
    permit!("revoke",       Operator,           NoCage,  Any,         0,   Act,   handle::revoke),
    permit!("audit",        Link,               NoCage,  Any,         0,   No,    handle::audit),
    permit!("forget_grant", Link,               NoCage,  Any,         0,   No,    handle::forget_grant),
    permit!("exec",         Operator,           Running, Any,         1,   Act,   handle::exec),
    permit!("attach",       Operator,           Known,   Any,         2,   Act,   handle::attach),
    permit!("input",        Operator,           Running, Any,         1,   Look,  handle::input),
    permit!("type",         Operator,           Running, Any,         1,   Look,  handle::type_keys),
    permit!("watch",        Operator,           Known,   Any,         1,   Look,  handle::watch),
    permit!("resize",       Operator,           Running, Any,         0,   Look,  handle::pass),
    permit!("signal",       Operator,           Running, Any,         0,   Act,   handle::pass),
    permit!("suspend",      Operator,           Running, Any,         0,   Act,   handle::suspend),
    permit!("resume",       Operator,           Running, Any,         0,   Act,   handle::resume),
    permit!("stats",        Operator,           Running, Any,         0,   Look,  handle::stats),
    permit!("limits",       Operator,           Running, Any,         0,   Look,  handle::limits),
    permit!("set_limits",   Operator,           Running, Any,         0,   Act,   handle::set_limits),
    permit!("kill",         Operator,           Known,   Any,         0,   Act,   handle::kill),
    permit!("end",          Operator,           Known,   Any,         0,   Act,   handle::end),
    permit!("plan",         Operator,           Known,   Any,         0,   Look,  handle::plan),
    permit!("scrollback",   OperatorOrAfterEnd, Known,   Any,         0,   Look,  handle::scrollback),
    permit!("checkpoint",   Operator,           Running, Any,         0,   Act,   handle::checkpoint),
    permit!("layer",        Operator,           NoCage,  Any,         1,   Act,   handle::layer),
    permit!("layers",       Link,               NoCage,  Any,         0,   No,    handle::layers),
    permit!("forget_layer", Link,               NoCage,  Any,         0,   No,    handle::forget_layer),
    permit!("list",         Link,               NoCage,  Any,         0,   No,    handle::list),
    permit!("ack",          Link,               Known,   Any,         0,   No,    handle::ack),
    permit!("forget",       Link,               Ended,   OncePerCage, 0,   No,    handle::forget),
    permit!("shutdown",     Owner,              NoCage,  Any,         0,   Act,   handle::shutdown),
];

/// A request that passed the table.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: SupervisorRequest,
    /// Who asks, for the requests of operators.
    pub(crate) operator: Option<Operator>,
    /// The grant that they are asked for by, and who really asks.
    pub(crate) by: Option<ByGrant>,
    /// The cage that it names, if it is known.
    pub(crate) cage: Option<Rc<Cage>>,
    /// Without the authority.
    pub(crate) fds: Vec<OwnedFd>,
}

impl Call {
    pub(crate) fn cage(&self) -> Result<Rc<Cage>, WireError> {
        self.cage.clone().ok_or_else(no_cage)
    }

    pub(crate) fn take_fd(&mut self) -> Result<OwnedFd, WireError> {
        if self.fds.is_empty() {
            return Err(WireError::new(ErrorCode::BadRequest, "a descriptor is missing"));
        }
        Ok(self.fds.remove(0))
    }
}

/// The request is outside the table: the connection is to be closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outside(pub(crate) String);

/// The row for a request, by its verb.
pub(crate) fn find(body: &Value) -> Result<&'static Permit, Outside> {
    let verb = body.get("verb").and_then(Value::as_str).unwrap_or_default();
    TABLE.iter().find(|permit| permit.verb == verb).ok_or_else(|| Outside(verb.to_owned()))
}

impl Permit {
    /// Checks everything that the row says, then does it; written down before and after.
    pub(crate) async fn run(
        &self,
        supervisor: Rc<Supervisor>,
        body: Value,
        fds: Vec<OwnedFd>,
    ) -> Reply {
        let id = cage_of(&body)?;
        let mut asker = None;
        let call = self.check(&supervisor, (id, &mut asker), body, fds);
        let call = call.inspect_err(|error| {
            trail::refused(&supervisor, self, (asker, id), error);
        })?;
        let claim = self.claim(&supervisor, id)?;
        let written = trail::asked(&supervisor, self, &call);
        let reply = match written {
            Ok(written) => {
                let reply = (self.handler)(Rc::clone(&supervisor), call).await;
                trail::outcome(&supervisor, written, reply.as_ref().err());
                reply
            }
            Err(error) => Err(error),
        };
        if let (Some(claim), true) = (claim, reply.is_err()) {
            supervisor.claims.borrow_mut().remove(&claim);
        }
        reply
    }

    /// What a cage takes only once.
    fn claim(
        &self,
        supervisor: &Supervisor,
        id: Option<CageId>,
    ) -> Result<Option<(CageId, &'static str)>, WireError> {
        let (Times::OncePerCage, Some(id)) = (self.times, id) else { return Ok(None) };
        let claim = (id, self.verb);
        if supervisor.claims.borrow_mut().insert(claim) {
            return Ok(Some(claim));
        }
        let words = format!("{} is being done already, or is done", self.verb);
        Err(WireError::new(ErrorCode::Conflict, words))
    }

    fn check(
        &self,
        supervisor: &Supervisor,
        (id, asker): (Option<CageId>, &mut Option<u32>),
        body: Value,
        mut fds: Vec<OwnedFd>,
    ) -> Result<Call, WireError> {
        let request: SupervisorRequest = control::typed(body)?;
        let cage = id.and_then(|id| supervisor.find(id));
        let ended = cage.as_ref().is_some_and(|cage| cage.phase() == Phase::Gone);
        let (operator, by) = match (self.who, key_of(&request)) {
            (Who::Link, _) => (None, None),
            (Who::OperatorOrAfterEnd, _) if fds.is_empty() && ended => (None, None),
            (Who::OperatorOrGrant | Who::Grant, Some(key)) => {
                let (operator, by) = granted(supervisor, (&mut fds, asker), key)?;
                (Some(operator), Some(by))
            }
            (Who::Grant, None) => return Err(no_key()),
            (
                Who::Operator | Who::OperatorOrGrant | Who::OperatorOrAfterEnd | Who::Owner,
                _no_key,
            ) => (Some(authority(supervisor, &mut fds, asker)?), None),
        };
        if fds.len() != self.fds {
            let words = format!("{} wants {} descriptors, got {}", self.verb, self.fds, fds.len());
            return Err(WireError::new(ErrorCode::BadRequest, words));
        }
        if self.who == Who::Owner && operator.as_ref().is_some_and(|it| !is_owner(supervisor, it)) {
            let words = "only root stops the daemons of a shared host";
            return Err(WireError::new(ErrorCode::Forbidden, words));
        }
        let of_another = match (&cage, &operator) {
            (Some(cage), Some(operator)) => operator.uid != cage.operator(),
            (None, _) | (_, None) => false,
        };
        if of_another && !operator.as_ref().is_some_and(|operator| operator.is_admin) {
            return Err(no_cage());
        }
        self.check_phase(cage.as_deref())?;
        if let (true, Some(cage), Some(operator)) = (of_another, &cage, &operator) {
            self.record(cage, operator)?;
        }
        Ok(Call { request, operator, by, cage, fds })
    }

    /// Before the act: an act of an admin on what is another's is never without a trace.
    fn record(&self, cage: &Cage, operator: &Operator) -> Result<(), WireError> {
        let (uid, verb) = (operator.uid, self.verb);
        tracing::info!(uid, verb, cage = %cage.id, owner = cage.operator(), "an admin acts");
        let told = cage.tell(&EventBody::CageAdmin { uid, verb: verb.to_owned() });
        told.map_err(|error| {
            let words = format!("an admin's act could not be recorded, so it is not done: {error}");
            WireError::new(ErrorCode::StorageUnavailable, words)
        })
    }

    fn check_phase(&self, cage: Option<&Cage>) -> Result<(), WireError> {
        let phase = cage.map(Cage::phase);
        match (self.when, phase) {
            (When::NoCage, _) | (When::Unknown, None) | (When::Known, Some(_)) => Ok(()),
            (When::Running, Some(Phase::Running | Phase::Suspended)) => Ok(()),
            (When::Ended, Some(Phase::Gone)) => Ok(()),
            (When::Unknown, Some(_)) => {
                Err(WireError::new(ErrorCode::Conflict, "there is a cage of this id already"))
            }
            (When::Known | When::Running | When::Ended, None) => Err(no_cage()),
            (When::Running, Some(Phase::Starting)) => {
                Err(WireError::new(ErrorCode::Conflict, "the cage is still being built; try again"))
            }
            (When::Running, Some(Phase::Ending | Phase::Gone)) => Err(WireError::new(
                ErrorCode::Gone,
                "the cage has ended; `mews logs` shows what it printed",
            )),
            (
                When::Ended,
                Some(Phase::Starting | Phase::Running | Phase::Suspended | Phase::Ending),
            ) => Err(WireError::new(
                ErrorCode::Conflict,
                "the cage still lives; end it first with `mews kill`",
            )),
        }
    }
}

fn cage_of(body: &Value) -> Result<Option<CageId>, WireError> {
    body.get("cage").map(|id| control::typed(id.clone())).transpose()
}

fn is_owner(supervisor: &Supervisor, operator: &Operator) -> bool {
    operator.uid == 0 || operator.uid == supervisor.host.uid
}

/// The key of a grant that a request comes with.
fn key_of(request: &SupervisorRequest) -> Option<&GrantKey> {
    if let SupervisorRequest::Grant { grant }
    | SupervisorRequest::Spawn { grant: Some(grant), .. } = request
    {
        return Some(grant);
    }
    None
}

/// Whose grant it is, as the table of grants has it, asked for over a connection of anybody's.
fn granted(
    supervisor: &Supervisor,
    (fds, asker): (&mut Vec<OwnedFd>, &mut Option<u32>),
    key: &GrantKey,
) -> Result<(Operator, ByGrant), WireError> {
    let connection = open_connection(supervisor, fds)?;
    let uid = admission::asker(&supervisor.host, &connection)?;
    *asker = Some(uid);
    let (state, operator) = grants::operator_of(supervisor, key)?;
    Ok((operator, ByGrant { grant: state.id, asker: uid }))
}

/// Who asks, from the operator's own connection.
fn authority(
    supervisor: &Supervisor,
    fds: &mut Vec<OwnedFd>,
    asker: &mut Option<u32>,
) -> Result<Operator, WireError> {
    let connection = open_connection(supervisor, fds)?;
    *asker = link::Peer::of(&connection).ok().map(|peer| peer.uid);
    supervisor.admission.admit(&supervisor.host, &connection)
}

/// A connection as it was made, and still open.
fn open_connection(supervisor: &Supervisor, fds: &mut Vec<OwnedFd>) -> Result<OwnedFd, WireError> {
    if fds.is_empty() {
        return Err(WireError::new(ErrorCode::Forbidden, "no operator's connection came with it"));
    }
    let connection = fds.remove(0);
    // The caller of a one-shot is its operator: there is no API socket and nobody between.
    if !supervisor.host.one_shot {
        check_connection(&connection, supervisor.api_listener().as_ref())?;
    }
    Ok(connection)
}

fn no_key() -> WireError {
    WireError::new(ErrorCode::BadRequest, "the key of a grant is missing")
}

fn no_cage() -> WireError {
    WireError::new(ErrorCode::NotFound, "there is no such cage; `mews ls` lists yours")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fmt::Write as _;

    /// Reviewers read the difference of this text.
    #[test]
    fn the_table() {
        let mut text = String::new();
        for row in &TABLE {
            let Permit { verb, who, when, times, fds, trail, handler: _ } = row;
            let row = format!("{verb} · {who:?} · {when:?} · {times:?} · {fds} · {trail:?}");
            writeln!(text, "{row}").unwrap();
        }
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/permit.golden");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(golden, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(golden).unwrap());
    }

    #[test]
    fn every_request_of_the_protocol_has_one_row_and_nothing_else_has() {
        let mut verbs: Vec<&str> = TABLE.iter().map(|row| row.verb).collect();
        verbs.sort_unstable();
        verbs.dedup();
        assert_eq!(verbs.len(), TABLE.len());
        for body in [json!({}), json!({"verb": "become_root"}), json!({"verb": 3}), json!([])] {
            assert!(find(&body).is_err(), "{body}");
        }
        // A verb that the protocol does not know would fail here for another reason than its fields.
        for verb in verbs {
            let parsed = control::typed::<SupervisorRequest>(json!({ "verb": verb }));
            let unknown = parsed.err().is_some_and(|e| e.message.contains("unknown variant"));
            assert!(!unknown, "{verb}");
        }
    }
}
