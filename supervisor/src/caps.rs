//! Caps: how much of something there may be at once.

use serde_json::json;
use wire::{ErrorCode, WireError};

/// Whether there may be one more. `next`: what to do where there may not.
///
/// # Errors
/// `limit_reached`, with resource, limit and what there is.
pub(crate) fn check(
    resource: &str,
    limit: Option<u32>,
    current: usize,
    next: &str,
) -> Result<(), WireError> {
    let Some(limit) =
        limit.filter(|limit| current >= usize::try_from(*limit).unwrap_or(usize::MAX))
    else {
        return Ok(());
    };
    let words = format!("{current} of at most {limit} {resource} are there already: {next}");
    let details = json!({ "resource": resource, "limit": limit, "current": current });
    Err(WireError::new(ErrorCode::LimitReached, words).with(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_refused_with_counts() {
        for (limit, current, fits) in
            [(None, 900, true), (Some(3), 2, true), (Some(3), 3, false), (Some(0), 0, false)]
        {
            let told = check("cages", limit, current, "wait");
            assert_eq!(told.is_ok(), fits, "{limit:?} {current}");
            if let Err(error) = told {
                assert_eq!(error.code, ErrorCode::LimitReached);
                let wanted = json!({ "resource": "cages", "limit": limit, "current": current });
                assert_eq!(error.details, wanted);
            }
        }
    }
}
