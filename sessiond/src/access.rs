//! Who may: one function, asked before every act.

use wire::{ErrorCode, WireError};

/// Who stands behind a connection: SO_PEERCRED at accept, nothing that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    pub uid: u32,
}

/// What is done to an object of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Change,
    Attach,
}

/// Who may connect at all, by how the daemon was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// User mode: one operator, and root.
    Only(u32),
    /// System mode: everybody, each with their own objects.
    Everyone,
    /// Started by root without a user of its own: root is the only operator.
    Root,
}

impl Admission {
    #[must_use]
    pub fn admits(self, operator: Operator) -> bool {
        operator.uid == 0
            || match self {
                Self::Only(own) => operator.uid == own,
                Self::Everyone => true,
                Self::Root => false,
            }
    }
}

/// Own objects, in every way. Root sees and ends those of others, which it could do anyhow.
/// Another operator's object does not exist.
///
/// # Errors
/// `not_found`, in the same words as for what is not there.
pub fn may(operator: Operator, verb: Verb, owner: u32, what: &str) -> Result<(), WireError> {
    let allowed = match verb {
        Verb::Read | Verb::Change | Verb::Attach => operator.uid == owner || operator.uid == 0,
    };
    if allowed { Ok(()) } else { Err(not_found(what)) }
}

/// Which owner's rows a list shows: all (`None`) for root.
#[must_use]
pub fn scope(operator: Operator) -> Option<u32> {
    (operator.uid != 0).then_some(operator.uid)
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
        for verb in [Verb::Read, Verb::Change, Verb::Attach] {
            for (uid, owner, allowed) in
                [(1000, 1000, true), (1001, 1000, false), (0, 1000, true), (1000, 0, false)]
            {
                let told = may(Operator { uid }, verb, owner, "session");
                assert_eq!(told.is_ok(), allowed, "{uid} {verb:?} {owner}");
            }
        }
        for (admission, uid, admitted) in [
            (Admission::Only(1000), 1000, true),
            (Admission::Only(1000), 1001, false),
            (Admission::Only(1000), 0, true),
            (Admission::Everyone, 1001, true),
            (Admission::Root, 1001, false),
            (Admission::Root, 0, true),
        ] {
            assert_eq!(admission.admits(Operator { uid }), admitted, "{admission:?} {uid}");
        }
    }
}
