//! What this client says of itself: to the API in a header of each request, to a supervisor of its own
//! as on any link.

use std::sync::OnceLock;
use wire::hello::{self, Hello};

pub(crate) fn ours() -> &'static Hello {
    static OURS: OnceLock<Hello> = OnceLock::new();
    OURS.get_or_init(|| {
        let speaks = link::failpoint::variable(hello::SPEAKS);
        Hello::speaking("mews", speaks.as_deref())
    })
}

/// The value of the header.
pub(crate) fn header() -> &'static str {
    static HEADER: OnceLock<String> = OnceLock::new();
    HEADER.get_or_init(|| serde_json::to_string(ours()).unwrap_or_default())
}

/// What to do about a version that two sides do not share: `details` as the daemon gave them.
pub(crate) fn hint(details: &serde_json::Value) -> String {
    let side = |name: &str| {
        let hello = details.get(name).cloned()?;
        serde_json::from_value::<Hello>(hello).ok()
    };
    match (side("ours"), side("theirs")) {
        (Some(daemons), Some(client)) if daemons.is_newer_than(&client) => {
            let build = daemons.build.escape_debug();
            format!("install mews {build} for yourself too, or use the one that is installed")
        }
        _client_is_newer => "mews daemon restart (cages run on)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whoever_is_older_is_to_be_renewed() {
        let side = |proto| json!({"proto": proto, "lowest": proto, "build": format!("0.{proto}")});
        let older = hint(&json!({"ours": side(3), "theirs": side(1)}));
        assert!(older.starts_with("install mews 0.3"), "{older}");
        let newer = hint(&json!({"ours": side(1), "theirs": side(3)}));
        assert!(newer.starts_with("mews daemon restart"), "{newer}");
    }
}
