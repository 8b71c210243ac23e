//! Ids: ULIDs as text, one type for each thing.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use ulid::Ulid;

/// The text is not a ULID.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not an id (26 characters of Crockford base32)")]
pub struct BadId(pub String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Ulid);

        impl $name {
            /// A new id, from the clock and the system's randomness.
            #[must_use]
            pub fn new() -> Self {
                Self(Ulid::new())
            }

            /// The last six characters: what lists show.
            #[must_use]
            pub fn short(&self) -> String {
                self.0.to_string().chars().skip(20).collect()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Ulid::from_string(text).map(Self).map_err(|_bad| BadId(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

id!(/// A persistent context within a project.
    SessionId);
id!(/// One unit of work in a session.
    RunId);
id!(/// A caged process tree of a run; also called subagent in the API.
    CageId);
id!(/// A terminal, or the pipe streams of a command that has none.
    PtyId);
id!(/// A state of a session that can be come back to.
    CheckpointId);
id!(/// An operator's leave to start cages in their name while they are away.
    GrantId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_junk_is_refused() {
        let id = CageId::new();
        assert_eq!(id.to_string().parse::<CageId>(), Ok(id));
        assert_eq!(id.short().len(), 6);
        assert!("".parse::<CageId>().is_err());
        assert!("../../etc/passwd".parse::<CageId>().is_err());
    }
}
