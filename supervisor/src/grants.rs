//! Grants: an operator's leave to start cages in their name while they are away (PROTOCOL.md 7).
//!
//! `<state>/sup/grants/<id>.json`, the supervisor's alone, one file each: written whole and on the disk
//! before anything is answered or done by it. Of a key only its hash is kept. A use is counted in the
//! file before its cage has so much as a record: a crash can cost a use, and never gives one too many.
//!
//! | | is written | then |
//! | --- | --- | --- |
//! | mint | the file | the key is told, this once |
//! | use | the cage's id into it | the cage is built |
//! | revoke | the time into it | it is answered |
//!
//! Who holds a key chooses the command; session, policy, flags and workspace are the grant's, and whom
//! the host lets in, with which ceilings and caps, is asked again at each use.

mod record;

use crate::admission::Operator;
use crate::clock;
use crate::supervisor::Supervisor;
use ::cage::hash::sha256;
use ::cage::plan::CagePlan;
use link::failpoint;
use record::Grant;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use wire::grant::{GRANT_CAGES_MAX, GRANT_MS_MAX, GRANTS_MAX};
use wire::supervisor::Minted;
use wire::{
    CageId, ErrorCode, GrantId, GrantKey, GrantState, SessionId, SpawnSpec, Standing, WireError,
};

/// How long one that is over is still told of.
const KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Of one operator, those that are over included: who mints and revokes all day must not fill the disk.
const KEPT_MAX: usize = 4 * GRANTS_MAX;

/// A grant that somebody asks by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByGrant {
    pub(crate) grant: GrantId,
    /// Whose connection came with the request.
    pub(crate) asker: u32,
}

impl ByGrant {
    pub(crate) fn told(self) -> wire::EventBody {
        wire::EventBody::CageGranted { grant: self.grant, uid: self.asker }
    }
}

/// What a grant binds its cages to.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    session: SessionId,
    /// The policy's name.
    policy: String,
    /// Over the policy's text, the flags and the folder.
    hash: String,
}

impl Terms {
    pub(crate) fn of(spec: &SpawnSpec, plan: &CagePlan) -> Self {
        let overrides = serde_json::to_vec(&spec.overrides).unwrap_or_default();
        let folder = plan.workspace.host.as_bytes();
        let hash = sha256(&[plan.policy_hash.as_bytes(), &overrides, folder]);
        Self { session: spec.session, policy: plan.policy.clone(), hash }
    }
}

#[derive(Debug)]
pub(crate) struct Grants {
    folder: PathBuf,
    kept: RefCell<BTreeMap<GrantId, Grant>>,
}

impl Grants {
    /// What an earlier supervisor kept.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        let kept = RefCell::new(record::load_all(&folder)?);
        let grants = Self { folder, kept };
        grants.drop_old();
        Ok(grants)
    }

    pub(crate) fn list(&self) -> Vec<GrantState> {
        self.drop_old();
        self.kept.borrow().values().map(|grant| grant.state.clone()).collect()
    }

    fn find(&self, id: GrantId) -> Option<Grant> {
        self.kept.borrow().get(&id).cloned()
    }

    /// # Errors
    /// More of it than there may be, or it cannot be written.
    pub(crate) fn mint(
        &self,
        id: GrantId,
        (cages, for_ms): (u32, u64),
        terms: Terms,
        operator: &Operator,
    ) -> Result<Minted, WireError> {
        check_size(cages, for_ms)?;
        self.check_room(id, operator.uid)?;
        let secret = secret().map_err(|error| storage(&error))?;
        let now = clock::now_ms();
        let state = GrantState {
            id,
            session: terms.session,
            uid: operator.uid,
            policy_hash: terms.hash,
            policy: terms.policy,
            cages,
            used: Vec::new(),
            created_at_ms: now,
            expires_at_ms: now.saturating_add(i64::try_from(for_ms).unwrap_or(i64::MAX)),
            revoked_at_ms: None,
        };
        let key = GrantKey { id, secret };
        let grant = Grant {
            state: state.clone(),
            gid: operator.gid,
            groups: operator.groups().to_vec(),
            secret_hash: hash_of(&key),
        };
        self.keep(grant)?;
        failpoint::reach("mint.kept");
        Ok(Minted { grant: state, key })
    }

    /// The grant of a key, of whatever standing, and whose it is: to be asked anew whether they are served.
    ///
    /// # Errors
    /// It is not the key of one, in the same words whether there is such a grant or not.
    pub(crate) fn opened(&self, key: &GrantKey) -> Result<(GrantState, Operator), WireError> {
        let grant = self.find(key.id).filter(|grant| grant.secret_hash == hash_of(key));
        let grant = grant.ok_or_else(|| {
            WireError::new(ErrorCode::NotFound, "there is no grant with this key")
        })?;
        let state = grant.state;
        Ok((state.clone(), Operator::with_groups(state.uid, grant.gid, grant.groups)))
    }

    /// Before anything is planned for it.
    ///
    /// # Errors
    /// It cannot be used any more.
    pub(crate) fn check(&self, id: GrantId) -> Result<(), WireError> {
        self.find(id).ok_or_else(no_grant)?.state.usable(clock::now_ms())
    }

    /// One of its cages is about to be built. Looks at everything again: it was long ago that the key
    /// was shown.
    ///
    /// # Errors
    /// It does not cover this, any more; or that cannot be written, and then nothing is built.
    pub(crate) fn count(&self, id: GrantId, cage: CageId, terms: &Terms) -> Result<(), WireError> {
        let mut grant = self.find(id).ok_or_else(no_grant)?;
        let refused = |words: &str| Err(WireError::new(ErrorCode::Forbidden, words));
        if grant.state.session != terms.session {
            return refused("this grant is for another session");
        }
        grant.state.usable(clock::now_ms())?;
        if grant.state.policy_hash != terms.hash {
            return refused(
                "this grant is for another policy: its text, flags or folder have changed since it \
                 was made. Whoever gave it makes a new one: `mews grants make`",
            );
        }
        grant.state.used.push(cage);
        failpoint::reach("grant.opened");
        self.keep(grant)?;
        failpoint::reach("grant.counted");
        Ok(())
    }

    /// # Errors
    /// There is none, it is another's, or that cannot be written.
    pub(crate) fn revoke(&self, id: GrantId, operator: &Operator) -> Result<GrantState, WireError> {
        let grant = self.find(id);
        let grant = grant.filter(|it| it.state.uid == operator.uid || operator.is_admin);
        let mut grant = grant.ok_or_else(no_grant)?;
        if grant.state.revoked_at_ms.is_none() {
            grant.state.revoked_at_ms = Some(clock::now_ms());
            failpoint::reach("revoke.asked");
            self.keep(grant.clone())?;
        }
        failpoint::reach("revoke.kept");
        Ok(grant.state)
    }

    /// The session that one is for, and whose it is.
    pub(crate) fn about(&self, id: GrantId) -> Option<(SessionId, u32)> {
        self.kept.borrow().get(&id).map(|grant| (grant.state.session, grant.state.uid))
    }

    /// # Errors
    /// It cannot be removed.
    pub(crate) fn forget(&self, id: GrantId) -> Result<(), WireError> {
        if self.kept.borrow().contains_key(&id) {
            record::remove(&self.folder, id).map_err(|error| storage(&error))?;
            self.kept.borrow_mut().remove(&id);
        }
        Ok(())
    }

    /// On the disk first: what could not be written is not so.
    fn keep(&self, grant: Grant) -> Result<(), WireError> {
        record::save(&self.folder, &grant).map_err(|error| storage(&error))?;
        self.kept.borrow_mut().insert(grant.state.id, grant);
        Ok(())
    }

    fn check_room(&self, id: GrantId, uid: u32) -> Result<(), WireError> {
        self.drop_old();
        let kept = self.kept.borrow();
        if kept.contains_key(&id) {
            return Err(WireError::new(ErrorCode::Conflict, "there is a grant of this id already"));
        }
        let now = clock::now_ms();
        let own = || kept.values().filter(|grant| grant.state.uid == uid);
        let good = own().filter(|grant| grant.state.standing(now) == Standing::Good).count();
        for (resource, current, limit) in [
            ("grants of one operator", good, GRANTS_MAX),
            ("grants of one operator, those that are over included", own().count(), KEPT_MAX),
        ] {
            if current >= limit {
                let words = format!(
                    "{current} of at most {limit} {resource} are there already: `mews grants` shows \
                     yours; end sessions that need none"
                );
                let details = json!({ "resource": resource, "limit": limit, "current": current });
                return Err(WireError::new(ErrorCode::LimitReached, words).with(details));
            }
        }
        Ok(())
    }

    /// Those that were over long ago.
    fn drop_old(&self) {
        let before = clock::now_ms() - KEPT_MS;
        let kept = self.kept.borrow();
        let old = kept.values().filter(|grant| grant.state.expires_at_ms < before);
        let old: Vec<GrantId> = old.map(|grant| grant.state.id).collect();
        drop(kept);
        for id in old {
            if let Err(error) = self.forget(id) {
                tracing::warn!(%id, %error, "an old grant");
            }
        }
    }
}

/// The grant's own operator, as `host.toml` stands now.
///
/// # Errors
/// As [`Grants::opened`]; or they are not served any more, or may not grant.
pub(crate) fn operator_of(
    supervisor: &Supervisor,
    key: &GrantKey,
) -> Result<(GrantState, Operator), WireError> {
    let (state, operator) = supervisor.grants.opened(key)?;
    let operator = supervisor.admission.admit_known(&supervisor.host, operator)?;
    check_allowed(supervisor, &operator)?;
    Ok((state, operator))
}

/// # Errors
/// `forbidden`: the host's admin has it so.
pub(crate) fn check_allowed(supervisor: &Supervisor, operator: &Operator) -> Result<(), WireError> {
    supervisor.admission.rule_for(operator).map_or(Ok(()), |rule| rule.admits_grants())
}

fn hash_of(key: &GrantKey) -> String {
    sha256(&[key.id.to_string().as_bytes(), key.secret.as_bytes()])
}

/// 256 bits of the kernel's, in hex.
fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn check_size(cages: u32, for_ms: u64) -> Result<(), WireError> {
    let refused = |words: String| Err(WireError::new(ErrorCode::ValidationFailed, words));
    if !(1..=GRANT_CAGES_MAX).contains(&cages) {
        return refused(format!("a grant is for 1 to {GRANT_CAGES_MAX} cages, not {cages}"));
    }
    if !(1_000..=GRANT_MS_MAX).contains(&for_ms) {
        return refused("a grant lives for one second to 30 days".to_owned());
    }
    Ok(())
}

fn no_grant() -> WireError {
    WireError::new(ErrorCode::NotFound, "there is no such grant; `mews grants` lists yours")
}

fn storage(error: &io::Error) -> WireError {
    let words = format!("the table of grants cannot be written, so nothing is done: {error}");
    WireError::new(ErrorCode::StorageUnavailable, words)
}

#[cfg(test)]
mod tests;
