//! SHA-256 over several parts, as one line of text.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// In hex. Each part counts with its length, so that what moves from one to the next is told.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _written = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_between_parts_count() {
        assert_ne!(sha256(&[b"ab", b"c"]), sha256(&[b"a", b"bc"]));
        assert_ne!(sha256(&[b"a"]), sha256(&[b"a", b""]));
        assert_eq!(sha256(&[]).len(), 64);
    }
}
