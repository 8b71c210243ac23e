//! Grants: an operator's leave to start cages in their name, in one session, by one policy, so many
//! times and until then, for whoever holds the key and whether the operator is there or not.

use crate::{CageId, ErrorCode, GrantId, SessionId, WireError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::str::FromStr;

/// Most cages of one grant.
pub const GRANT_CAGES_MAX: u32 = 1_000;
/// Longest life of a grant: 30 days.
pub const GRANT_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// Grants of one operator that can still be used.
pub const GRANTS_MAX: usize = 100;

/// A grant as its keeper sees it. Nothing in here opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantState {
    pub id: GrantId,
    pub session: SessionId,
    /// Who gave it: whose cages these are.
    pub uid: u32,
    /// SHA-256 over policy, overrides and workspace: nothing else can be started by it.
    pub policy_hash: String,
    /// The policy's name, for people.
    pub policy: String,
    /// How many in all.
    pub cages: u32,
    /// Those that it has counted: each before it was built.
    pub used: Vec<CageId>,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    pub revoked_at_ms: Option<i64>,
}

/// Whether a grant can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Good,
    UsedUp,
    Expired,
    Revoked,
}

impl GrantState {
    #[must_use]
    pub fn standing(&self, now_ms: i64) -> Standing {
        if self.revoked_at_ms.is_some() {
            Standing::Revoked
        } else if now_ms >= self.expires_at_ms {
            Standing::Expired
        } else if self.left() == 0 {
            Standing::UsedUp
        } else {
            Standing::Good
        }
    }

    /// # Errors
    /// It can be used no more: `gone`, or `limit_reached` with counts.
    pub fn usable(&self, now_ms: i64) -> Result<(), WireError> {
        match self.standing(now_ms) {
            Standing::Good => Ok(()),
            Standing::Revoked => Err(WireError::new(ErrorCode::Gone, "this grant was revoked")),
            Standing::Expired => Err(WireError::new(ErrorCode::Gone, "this grant has expired")),
            Standing::UsedUp => {
                let words = format!("all {} cages of this grant have been started", self.cages);
                let details = json!({
                    "resource": "cages of this grant", "limit": self.cages, "current": self.used.len(),
                });
                Err(WireError::new(ErrorCode::LimitReached, words).with(details))
            }
        }
    }

    #[must_use]
    pub fn left(&self) -> u32 {
        self.cages.saturating_sub(u32::try_from(self.used.len()).unwrap_or(u32::MAX))
    }
}

/// What opens a grant. Whoever has it can use it: it is shown once, when it is made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct GrantKey {
    pub id: GrantId,
    /// 256 bits in hex.
    pub secret: String,
}

const PREFIX: &str = "mews-grant";
const SECRET_CHARS: usize = 64;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("this is no key of a grant (mews-grant.ID.SECRET); `mews grants make` prints one")]
pub struct BadKey;

impl FromStr for GrantKey {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        let mut parts = text.trim().splitn(3, '.');
        let (Some(PREFIX), Some(id), Some(secret)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(BadKey);
        };
        let is_hex = secret.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if secret.len() != SECRET_CHARS || !is_hex {
            return Err(BadKey);
        }
        let id = id.parse().map_err(|_bad_id| BadKey)?;
        Ok(Self { id, secret: secret.to_owned() })
    }
}

impl TryFrom<String> for GrantKey {
    type Error = BadKey;
    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

impl From<GrantKey> for String {
    fn from(key: GrantKey) -> Self {
        key.to_string()
    }
}

impl fmt::Display for GrantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.{}", self.id, self.secret)
    }
}

/// Never the secret: what is debugged is logged.
impl fmt::Debug for GrantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.…", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word_and_is_never_shown_by_accident() {
        let key = GrantKey { id: GrantId::new(), secret: "0f".repeat(32) };
        assert_eq!(format!("{key}\n").parse::<GrantKey>(), Ok(key.clone()));
        assert!(!format!("{key:?}").contains("0f0f"));
        let text = key.to_string();
        for bad in
            ["", "mews-grant", &text[..text.len() - 1], &text.replace("0f", "0F"), &text[5..]]
        {
            assert_eq!(bad.parse::<GrantKey>(), Err(BadKey), "{bad}");
        }
    }

    #[test]
    fn the_worst_is_told_first() {
        let mut grant = GrantState {
            id: GrantId::new(),
            session: SessionId::new(),
            uid: 7,
            policy_hash: String::new(),
            policy: String::new(),
            cages: 1,
            used: Vec::new(),
            created_at_ms: 0,
            expires_at_ms: 100,
            revoked_at_ms: None,
        };
        assert_eq!((grant.standing(99), grant.left()), (Standing::Good, 1));
        grant.used.push(CageId::new());
        assert_eq!((grant.standing(99), grant.left()), (Standing::UsedUp, 0));
        assert_eq!(grant.standing(100), Standing::Expired);
        grant.revoked_at_ms = Some(3);
        assert_eq!(grant.standing(99), Standing::Revoked);
    }
}
