//! Every request, in a form that would do something if it were allowed.

use super::link::{Link, Told};
use super::object;
use link::memfd;
use serde_json::{Value, json};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use wire::{CageId, CheckpointId, GrantId, PtyId, RunId, SessionId};

#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) session: SessionId,
    pub(super) cage: CageId,
    pub(super) pty: PtyId,
    pub(super) uid: u32,
}

impl Target {
    /// Of which there is nothing yet.
    pub(super) fn new(uid: u32) -> Self {
        Self { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cage,
    Host,
}

#[derive(Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    kind: Kind,
}

const fn of_cage(name: &'static str) -> Verb {
    Verb { name, kind: Kind::Cage }
}

/// All of the permit table that want an operator, but `spawn`, which has its own form.
pub(super) const VERBS: &[Verb] = &[
    Verb { name: "admit", kind: Kind::Host },
    Verb { name: "shutdown", kind: Kind::Host },
    Verb { name: "layer", kind: Kind::Host },
    Verb { name: "mint", kind: Kind::Host },
    Verb { name: "revoke", kind: Kind::Host },
    of_cage("checkpoint"),
    of_cage("stats"),
    of_cage("limits"),
    of_cage("set_limits"),
    of_cage("exec"),
    of_cage("attach"),
    of_cage("input"),
    of_cage("type"),
    of_cage("watch"),
    of_cage("resize"),
    of_cage("signal"),
    of_cage("suspend"),
    of_cage("resume"),
    of_cage("kill"),
    of_cage("end"),
    of_cage("plan"),
    of_cage("scrollback"),
];

impl Verb {
    pub(super) fn names_a_cage(&self) -> bool {
        self.kind == Kind::Cage
    }

    pub(super) fn wants_an_operator(&self) -> bool {
        true
    }
}

pub(super) fn body(verb: &str, target: &Target) -> Value {
    let base = match verb {
        "admit" => json!({}),
        "shutdown" => json!({ "cages": "kill" }),
        "layer" => json!({ "session": target.session }),
        "mint" => json!({ "grant": GrantId::new(), "cages": 1, "for_ms": 60_000 }),
        "revoke" => json!({ "grant": GrantId::new() }),
        _of_a_cage => json!({ "cage": target.cage }),
    };
    let more = match verb {
        "exec" => json!({ "pty": PtyId::new() }),
        "checkpoint" => json!({ "checkpoint": CheckpointId::new() }),
        "set_limits" => json!({ "set": { "walltime": "none" } }),
        "attach" => json!({ "pty": target.pty, "options": {} }),
        "input" | "type" => json!({ "pty": target.pty }),
        "watch" => json!({ "pty": target.pty, "watch": { "for": "x" } }),
        "resize" => json!({ "pty": target.pty, "size": { "cols": 90, "rows": 30 } }),
        "signal" => json!({ "pty": target.pty, "signal": 18 }),
        "kill" | "end" => json!({ "cause": "cancelled" }),
        "scrollback" => json!({ "pty": target.pty, "form": "raw" }),
        _nothing_more => json!({}),
    };
    object(&object(&base, &more), &json!({ "verb": verb }))
}

/// What goes beside it, the authority not counted.
pub(super) fn gifts(verb: &str) -> anyhow::Result<Vec<OwnedFd>> {
    Ok(match verb {
        "exec" => vec![memfd::sealed("exec", json!({ "argv": ["true"] }).to_string().as_bytes())?],
        "attach" => {
            let (ours, _theirs) = UnixStream::pair()?;
            vec![ours.into(), memfd::sealed("read", b"")?]
        }
        "layer" => vec![memfd::sealed("layer", json!({ "do": "diff" }).to_string().as_bytes())?],
        "mint" => {
            let target = Target::new(0);
            vec![memfd::sealed("mint", spec(&target, Path::new("/tmp")).to_string().as_bytes())?]
        }
        "type" => {
            let typing = json!({ "pieces": [{ "text": "exit" }, { "key": "enter" }] });
            vec![memfd::sealed("typing", typing.to_string().as_bytes())?]
        }
        "watch" => vec![UnixStream::pair()?.0.into()],
        "input" => vec![memfd::sealed("input", b"exit\n")?],
        _none => Vec::new(),
    })
}

pub(super) fn ask(
    link: &mut Link,
    verb: &str,
    authority: Option<&OwnedFd>,
    target: &Target,
) -> anyhow::Result<String> {
    let gifts = gifts(verb)?;
    Ok(link.ask(&body(verb, target), &beside(authority, &gifts))?.word())
}

pub(super) fn beside<'a>(
    authority: Option<&'a OwnedFd>,
    gifts: &'a [OwnedFd],
) -> Vec<BorrowedFd<'a>> {
    authority.into_iter().chain(gifts).map(AsFd::as_fd).collect()
}

/// `more` is laid over the spec, and its unknown keys over the request as well.
pub(super) fn spawn(
    link: &mut Link,
    authority: Option<&OwnedFd>,
    target: &Target,
    workspace: &Path,
    more: Value,
) -> anyhow::Result<String> {
    let spec = object(&spec(target, workspace), &more);
    let gifts = [memfd::sealed("spawn", spec.to_string().as_bytes())?];
    let body = object(&more, &json!({ "verb": "spawn", "cage": target.cage }));
    let told = link.ask(&body, &beside(authority, &gifts))?;
    Ok(match told {
        Told::Done(..) => "done".to_owned(),
        Told::Refused(_) | Told::Closed => told.word(),
    })
}

pub(super) fn spec(target: &Target, workspace: &Path) -> Value {
    json!({
        "session": target.session, "run": RunId::new(), "cage": target.cage, "pty": target.pty,
        "name": "hostile", "policy": { "name": "shell" }, "workspace": workspace,
        "exec": { "argv": ["sleep", "1000"], "tty": { "cols": 80, "rows": 24 } },
    })
}
