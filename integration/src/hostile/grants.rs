//! Keys of grants in the hands of a sessiond that was taken over: what they open, it can open while
//! somebody is connected, and nothing more.

use super::link::{Link, Told};
use super::verbs::{self, Target};
use super::{Hostile, authorities};
use anyhow::{Context as _, bail};
use link::memfd;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use wire::supervisor::Minted;
use wire::{GrantId, GrantState, Standing};

pub(super) struct Given {
    ann: u32,
    project: PathBuf,
    session: Target,
    /// For two cages.
    good: Minted,
    revoked: Minted,
    short: Minted,
}

/// While ann is connected.
pub(super) fn minted(
    hostile: &Hostile,
    link: &mut Link,
    (ann, anns): (u32, &OwnedFd),
    project: &Path,
) -> anyhow::Result<Given> {
    let session = Target::new(ann);
    let mut mint = |cages: u32, for_ms: u64| -> anyhow::Result<Minted> {
        let spec = verbs::spec(&session, project).to_string();
        let gifts = [memfd::sealed("mint", spec.as_bytes())?];
        let grant = GrantId::new();
        let body = json!({ "verb": "mint", "grant": grant, "cages": cages, "for_ms": for_ms });
        match link.ask(&body, &verbs::beside(Some(anns), &gifts))? {
            Told::Done(value, _fds) => Ok(serde_json::from_value(value)?),
            other @ (Told::Refused(_) | Told::Closed) => bail!("mint: {}", other.word()),
        }
    };
    let (good, revoked, short) = (mint(2, 3_600_000)?, mint(2, 3_600_000)?, mint(2, 1_000)?);
    hostile.note("control mint", "done")?;
    let body = json!({ "verb": "revoke", "grant": revoked.grant.id });
    let told = link.ask(&body, &verbs::beside(Some(anns), &[]))?;
    hostile.note("control revoke", &told.word().to_owned())?;
    Ok(Given { ann, project: project.to_owned(), session, good, revoked, short })
}

/// After ann has gone; bob is there.
pub(super) fn used(
    hostile: &Hostile,
    link: &mut Link,
    given: &Given,
    (closed, bobs): (&OwnedFd, &OwnedFd),
    bobs_project: &Path,
) -> anyhow::Result<()> {
    let key = &given.good.key;
    let fresh = || Target { session: given.session.session, ..Target::new(given.ann) };
    let ask = |link: &mut Link, by: Option<&OwnedFd>, target: &Target, more: Value| {
        let quick = json!({ "exec": { "argv": ["true"], "tty": null } });
        let more = super::object(&super::object(&quick, &json!({ "grant": key })), &more);
        verbs::spawn(link, by, target, &given.project, more)
    };
    let none = || json!({});

    for authority in authorities::all(hostile, closed)? {
        let told = ask(link, authority.connection.as_ref(), &fresh(), none())?;
        hostile.note(&format!("by grant, {}", authority.name), &told)?;
    }
    for (name, more) in [
        ("another policy", json!({ "policy": { "name": "ci" } })),
        ("a wider one", json!({ "overrides": { "write": [given.project.join("..")] } })),
        ("another folder", json!({ "workspace": bobs_project })),
        ("another secret", json!({ "grant": key_with(key, &"0".repeat(64)) })),
        ("the secret of another", json!({ "grant": key_with(key, &given.short.key.secret) })),
        ("no key", json!({ "grant": "mews-grant" })),
        ("what was revoked", json!({ "grant": given.revoked.key })),
    ] {
        let told = ask(link, Some(bobs), &fresh(), more)?;
        hostile.note(&format!("by grant: {name}"), &told)?;
    }
    let told = ask(link, Some(bobs), &Target::new(given.ann), none())?;
    hostile.note("by grant: another session", &told)?;
    expired(link, given.short.grant.id)?;
    let told = ask(link, Some(bobs), &fresh(), json!({ "grant": given.short.key }))?;
    hostile.note("by grant: what has expired", &told)?;
    for verb in ["mint", "revoke"] {
        let gifts = verbs::gifts(verb)?;
        let claims =
            json!({ "grant": given.good.grant.id, "uid": given.ann, "operator": given.ann });
        let body = super::object(&verbs::body(verb, &given.session), &claims);
        let told = link.ask(&body, &verbs::beside(Some(bobs), &gifts))?;
        hostile.note(&format!("bob's connection: {verb} of ann's grant"), &told.word())?;
    }

    // What it is for, whatever is said beside it; and then no more.
    let claims = json!({ "uid": 0, "operator": 0, "gid": 0, "is_admin": true });
    for number in 1..=2 {
        let target = fresh();
        let told = ask(link, Some(bobs), &target, claims.clone())?;
        hostile.note(&format!("control by grant {number}"), &told)?;
        let state = link.state_of(target.cage)?.context("a cage by grant")?;
        let whose = if state.uid == given.ann { "done" } else { "another uid" };
        hostile.note("control it is ann's cage", whose)?;
        let told = if link.exit_of(target.cage)? == Some(0) { "done" } else { "it failed" };
        hostile.note("control it ran", told)?;
        let again = ask(link, Some(bobs), &target, none())?;
        hostile.note("by grant: the same cage again", &again)?;
    }
    hostile.note("by grant: one more", &ask(link, Some(bobs), &fresh(), none())?)?;
    // Nor by forgetting what was counted.
    let forgotten = json!({ "verb": "forget_grant", "grant": given.good.grant.id });
    hostile.note("control forget it", &link.ask(&forgotten, &[])?.word())?;
    hostile.note("by grant: forgotten", &ask(link, Some(bobs), &fresh(), none())?)
}

fn key_with(key: &wire::GrantKey, secret: &str) -> wire::GrantKey {
    wire::GrantKey { secret: secret.to_owned(), ..key.clone() }
}

/// Waits until the supervisor itself says so.
fn expired(link: &mut Link, id: GrantId) -> anyhow::Result<()> {
    let limit = std::time::Duration::from_secs(20);
    testkit::pause::until("the grant has expired", limit, || {
        let Told::Done(_null, fds) = link.ask(&json!({ "verb": "grants" }), &[]).ok()? else {
            return None;
        };
        let bytes = memfd::read(fds.into_iter().next()?, 1 << 20).ok()?;
        let grants: Vec<GrantState> = serde_json::from_slice(&bytes).ok()?;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        let now = i64::try_from(since.as_millis()).ok()?;
        grants.iter().any(|it| it.id == id && it.standing(now) == Standing::Expired).then_some(())
    })
}
