//! Who may: one function, asked before every act.

use wire::{ErrorCode, WireError};

/// Who stands behind a connection: SO_PEERCRED at accept, nothing that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    pub uid: u32,
    /// Sees and acts on what others own: root, and whom the host's policy names.
    pub is_admin: bool,
}

impl Operator {
    /// As far as the connection alone tells.
    #[must_use]
    pub fn new(uid: u32) -> Self {
        Self { uid, is_admin: uid == 0 }
    }
}

/// What is done to an object of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Change,
    Attach,
    /// Something runs as the operator whose it is, or others are given leave for that.
    Start,
}

/// Who may connect at all, by how the daemon was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// User mode: one operator, and root.
    Only(u32),
    /// Everybody, each with their own objects.
    Everyone,
    /// Started by root: root, and whom the supervisor lets in by the host's policy.
    Asked,
}

/// What is known of a caller before anybody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Served,
    Refused,
    Ask,
}

impl Admission {
    #[must_use]
    pub fn of(self, operator: Operator) -> Verdict {
        match self {
            _any if operator.uid == 0 => Verdict::Served,
            Self::Only(own) if operator.uid == own => Verdict::Served,
            Self::Only(_other) => Verdict::Refused,
            Self::Everyone => Verdict::Served,
            Self::Asked => Verdict::Ask,
        }
    }
}

/// Own objects, in every way. Admins see and act on those of others, but start nothing in them: it would
/// run as somebody who did not ask for it. Another operator's object does not exist.
///
/// # Errors
/// `not_found`, in the same words as for what is not there; `forbidden` to an admin.
pub fn may(operator: Operator, verb: Verb, owner: u32, what: &str) -> Result<(), WireError> {
    if operator.uid == owner {
        return Ok(());
    }
    match verb {
        _any if !operator.is_admin => Err(not_found(what)),
        Verb::Read | Verb::Change | Verb::Attach => Ok(()),
        Verb::Start => Err(WireError::new(
            ErrorCode::Forbidden,
            format!(
                "This {what} is another operator's: only they start something in it, or grant that. \
                 Start it in one of your own: `mews run`."
            ),
        )),
    }
}

/// Who stops the daemons: the operator of a user's own, root those of many.
///
/// # Errors
/// `forbidden`.
pub fn may_stop(admission: Admission, operator: Operator) -> Result<(), WireError> {
    if operator.uid == 0 || admission == Admission::Only(operator.uid) {
        return Ok(());
    }
    let words = "Only root stops the daemons of a shared host.";
    Err(WireError::new(ErrorCode::Forbidden, words))
}

/// Which owner's rows a list shows: all (`None`) for an admin.
#[must_use]
pub fn scope(operator: Operator) -> Option<u32> {
    (!operator.is_admin).then_some(operator.uid)
}

#[must_use]
pub fn not_found(what: &str) -> WireError {
    WireError::new(
        ErrorCode::NotFound,
        format!("There is no such {what}. `mews ls -a` lists what there is."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_of_who_may() {
        let (yes, no, hidden) = (None, Some(ErrorCode::Forbidden), Some(ErrorCode::NotFound));
        for (uid, is_admin, owner, told, started) in [
            (1000, false, 1000, yes, yes),
            (1001, false, 1000, hidden, hidden),
            (1001, true, 1000, yes, no),
            (0, true, 1000, yes, no),
            (0, true, 0, yes, yes),
            (1000, false, 0, hidden, hidden),
        ] {
            let who = Operator { uid, is_admin };
            let code = |verb| may(who, verb, owner, "session").err().map(|error| error.code);
            for verb in [Verb::Read, Verb::Change, Verb::Attach] {
                assert_eq!(code(verb), told, "{uid} {verb:?} {owner}");
            }
            assert_eq!(code(Verb::Start), started, "{uid} starts in one of {owner}");
        }
        for (admission, uid, stops) in [
            (Admission::Only(1000), 1000, true),
            (Admission::Only(1000), 0, true),
            (Admission::Asked, 1000, false),
            (Admission::Everyone, 1000, false),
            (Admission::Asked, 0, true),
        ] {
            let told = may_stop(admission, Operator::new(uid)).is_ok();
            assert_eq!(told, stops, "{admission:?} {uid}");
        }
        for (admission, uid, verdict) in [
            (Admission::Only(1000), 1000, Verdict::Served),
            (Admission::Only(1000), 1001, Verdict::Refused),
            (Admission::Only(1000), 0, Verdict::Served),
            (Admission::Everyone, 1001, Verdict::Served),
            (Admission::Asked, 1001, Verdict::Ask),
            (Admission::Asked, 0, Verdict::Served),
        ] {
            assert_eq!(admission.of(Operator::new(uid)), verdict, "{admission:?} {uid}");
        }
    }
}
