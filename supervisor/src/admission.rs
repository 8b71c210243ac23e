//! Who is served, and by which rule: the uid and groups that the kernel tells of the operator's own
//! connection against `host.toml`. What sessiond says about people is never asked.

use crate::host::{Host, Mode};
use ::cage::host_policy::{self, HostPolicy, HostPolicyError, Rule, Who};
use link::Peer;
use serde_json::json;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use wire::{ErrorCode, WireError};

/// Whose connection came with a request.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    groups: Rc<[u32]>,
    /// May see and act on what others own.
    pub(crate) is_admin: bool,
}

impl Operator {
    /// As they were when they gave a grant, or attached; whether they are served is asked anew.
    pub(crate) fn with_groups(uid: u32, gid: u32, groups: Vec<u32>) -> Self {
        Self { uid, gid, groups: groups.into(), is_admin: false }
    }

    pub(crate) fn groups(&self) -> &[u32] {
        &self.groups
    }

    fn who(&self) -> Who<'_> {
        Who { uid: self.uid, gid: self.gid, groups: &self.groups }
    }
}

/// The host policy of a supervisor that root started; absent: root alone is served.
#[derive(Debug, Default)]
pub(crate) struct Admission(RefCell<Option<Rc<HostPolicy>>>);

impl Admission {
    /// # Errors
    /// The file is there and is not safe to believe, or wrong.
    pub(crate) fn read(host: &Host) -> Result<Self, HostPolicyError> {
        Ok(Self(RefCell::new(load(host)?)))
    }

    /// Reads it again; what is wrong is told and the old one stays.
    pub(crate) fn reload(&self, host: &Host) -> bool {
        match load(host) {
            Ok(policy) => {
                tracing::info!(is_there = policy.is_some(), "host policy read");
                self.0.replace(policy);
                true
            }
            Err(error) => {
                tracing::error!(%error, "host policy not read; the old one stays");
                false
            }
        }
    }

    /// Whether there are operators beside root.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) fn cages_max(&self) -> Option<u32> {
        self.0.borrow().as_ref()?.cages_max
    }

    /// The rule for this operator's runs; root and admins have none to keep to.
    pub(crate) fn rule_for(&self, operator: &Operator) -> Option<Rule> {
        let policy = self.0.borrow().clone()?;
        (operator.uid != 0).then(|| policy.rule_for(operator.who()).cloned())?
    }

    /// Who stands behind this connection, if they are served.
    ///
    /// # Errors
    /// `forbidden`, with what to do about it.
    pub(crate) fn admit(&self, host: &Host, connection: &OwnedFd) -> Result<Operator, WireError> {
        let peer = Peer::of(connection).map_err(|error| not_one(&error))?;
        let groups = link::peer::groups_of(connection).map_err(|error| not_one(&error))?;
        let operator =
            Operator { uid: peer.uid, gid: peer.gid, groups: groups.into(), is_admin: false };
        self.admit_known(host, operator)
    }

    /// The same of somebody whose uid and groups are known already.
    ///
    /// # Errors
    /// `forbidden`, with what to do about it.
    pub(crate) fn admit_known(
        &self,
        host: &Host,
        mut operator: Operator,
    ) -> Result<Operator, WireError> {
        let uid = operator.uid;
        match host.mode {
            Mode::User if uid != 0 && uid != host.uid => {
                let words =
                    format!("this mews belongs to uid {}. Start your own: `mews run`", host.uid);
                return Err(WireError::new(ErrorCode::Forbidden, words));
            }
            Mode::User => {
                operator.is_admin = uid == 0;
                return Ok(operator);
            }
            Mode::Root(_) if uid == 0 => {
                operator.is_admin = true;
                return Ok(operator);
            }
            Mode::Root(_) => not_ours(host, uid)?,
        }
        let file = host.dirs.config.join(host_policy::FILE_NAME);
        let Some(policy) = self.0.borrow().clone() else {
            let words = format!(
                "this mews was started by root and serves root alone, not uid {}: there is no {}. \
                 Start your own: `mews --user run`",
                uid,
                file.display()
            );
            return Err(WireError::new(ErrorCode::Forbidden, words).with(json!({ "uid": uid })));
        };
        operator.is_admin = policy.is_admin(operator.who());
        if operator.is_admin || policy.rule_for(operator.who()).is_some() {
            return Ok(operator);
        }
        let words = format!(
            "the admin of this host has not let uid {} in: no [[allow]] of {} names it or a group of \
             it. Start your own: `mews --user run`",
            uid,
            file.display()
        );
        Err(WireError::new(ErrorCode::Forbidden, words).with(json!({ "uid": uid })))
    }
}

/// Whoever holds the key of a grant, of whatever uid, but sessiond itself and what runs in cages.
///
/// # Errors
/// `forbidden`.
pub(crate) fn asker(host: &Host, connection: &OwnedFd) -> Result<u32, WireError> {
    let uid = Peer::of(connection).map_err(|error| not_one(&error))?.uid;
    not_ours(host, uid)?;
    Ok(uid)
}

fn not_ours(host: &Host, uid: u32) -> Result<(), WireError> {
    match host.mode {
        Mode::Root(range) if range.includes(uid) || uid == host.sessiond.uid => {
            let words = format!("uid {uid} is one of mews's own and no operator");
            Err(WireError::new(ErrorCode::Forbidden, words))
        }
        Mode::Root(_) | Mode::User => Ok(()),
    }
}

fn load(host: &Host) -> Result<Option<Rc<HostPolicy>>, HostPolicyError> {
    // Nobody but its caller uses a one-shot or a user's own.
    if host.one_shot || !host.is_root() {
        return Ok(None);
    }
    let policy = host_policy::open(&host.dirs.config, host.uid)?;
    for name in policy.iter().flat_map(|policy| &policy.unknown) {
        tracing::warn!(name, "host.toml names somebody that this host does not have");
    }
    Ok(policy.map(Rc::new))
}

/// The operator's connection as sessiond accepted it from our own API socket. Anything else with a
/// name to show (the connecting end of a root daemon's socket, a pair that somebody made) would say
/// who *listens* there, and that is not who asks.
///
/// # Errors
/// `forbidden`.
pub(crate) fn check_connection(
    connection: &OwnedFd,
    listener: Option<&OwnedFd>,
) -> Result<(), WireError> {
    let refused = |why: &str| Err(WireError::new(ErrorCode::Forbidden, why.to_owned()));
    if crate::sys::has_hung_up(connection.as_fd()) {
        return refused("the operator's connection is closed: nobody is there to ask for this");
    }
    let Some(listener) = listener else {
        return refused("the API socket is not known yet; try again");
    };
    let name = |socket: &OwnedFd| link::peer::bound_name(socket).map_err(|error| not_one(&error));
    let (own, theirs) = (name(listener)?, name(connection)?);
    let listens = link::peer::is_listener(connection).map_err(|error| not_one(&error))?;
    if own.is_none() || own != theirs || listens {
        return refused("what came with it is no connection to the API socket of this mews");
    }
    Ok(())
}

fn not_one(error: &std::io::Error) -> WireError {
    WireError::new(ErrorCode::Forbidden, format!("not an operator's connection: {error}"))
}
