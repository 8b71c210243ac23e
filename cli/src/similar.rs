//! What somebody may have meant who typed something that there is not.

use crate::failure::Failure;
use serde_json::Value;
use wire::ErrorCode;

/// In the details of "there is no such thing".
pub(crate) const DETAIL: &str = "similar";
/// More are no help.
const MOST: usize = 3;
/// As alike as clap wants verbs to be.
const ALIKE: f64 = 0.7;

/// The nearest names, the nearest first; those that begin alike count more.
pub(crate) fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let mut found: Vec<(f64, &str)> = Vec::new();
    for name in names {
        if found.iter().any(|(_alike, known)| *known == name) {
            continue;
        }
        let alike = strsim::jaro_winkler(&typed, &name.to_lowercase());
        if alike > ALIKE {
            found.push((alike, name));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.truncate(MOST);
    found.into_iter().map(|(_alike, name)| name).collect()
}

/// Names a policy that was meant, where there is none of the name that was typed.
pub(crate) fn policies(failure: &mut Failure) {
    let details = &failure.error.details;
    let is = |key: &str| details.get(key).and_then(Value::as_str);
    if failure.error.code != ErrorCode::PolicyInvalid || is("reason") != Some("not_found") {
        return;
    }
    let Some(typed) = is("file") else { return };
    let known = crate::verb::policy::names();
    let near = nearest(typed, known.iter().map(String::as_str));
    if !near.is_empty()
        && let Value::Object(details) = &mut failure.error.details
    {
        details.insert(DETAIL.to_owned(), near.into());
    }
}

/// Verbs that other programs taught to people's fingers.
const HABITS: &[(&str, &str)] = &[
    ("ps", "ls"),
    ("list", "ls"),
    ("sessions", "ls"),
    ("status", "ls"),
    ("new", "run"),
    ("start", "run"),
    ("create", "run"),
    ("open", "attach"),
    ("connect", "attach"),
    ("join", "attach"),
    ("sh", "shell"),
    ("stop", "end"),
    ("terminate", "end"),
    ("abort", "cancel"),
    ("interrupt", "cancel"),
    ("delete", "rm"),
    ("remove", "rm"),
    ("clean", "prune"),
    ("cleanup", "prune"),
    ("gc", "prune"),
    ("suspend", "pause"),
    ("freeze", "pause"),
    ("stop-all", "end"),
    ("unpause", "resume"),
    ("thaw", "resume"),
    ("continue", "resume"),
    ("snapshot", "checkpoint"),
    ("save", "checkpoint"),
    ("restore", "rollback"),
    ("undo", "rollback"),
    ("revert", "rollback"),
    ("merge", "apply"),
    ("commit", "apply"),
    ("reset", "discard"),
    ("show", "inspect"),
    ("info", "inspect"),
    ("describe", "inspect"),
    ("log", "logs"),
    ("tail", "logs"),
    ("history", "events"),
    ("monitor", "top"),
    ("watch", "top"),
    ("htop", "top"),
    ("type", "send"),
    ("send-keys", "send"),
    ("capture-pane", "screen"),
    ("policies", "policy"),
    ("check", "doctor"),
    ("completion", "completions"),
    ("mv", "rename"),
];

/// The verb of ours for what another program calls so.
pub(crate) fn habit(typed: &str) -> Option<&'static str> {
    HABITS.iter().find(|(theirs, _ours)| *theirs == typed).map(|(_theirs, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_nearest_come_first_and_strangers_not_at_all() {
        let names = ["bash-1", "bash-2", "pi-1", "nightly", "bash-1"];
        assert_eq!(nearest("bsah-1", names)[0], "bash-1");
        assert_eq!(nearest("bash", names), ["bash-1", "bash-2"]);
        assert_eq!(nearest("PI-1", names)[0], "pi-1");
        assert!(nearest("zzz", names).is_empty());
        assert!(nearest("", names).is_empty());
    }

    #[test]
    fn a_policy_that_is_not_there_is_answered_with_one_that_is() {
        let not_found = |file: &str| {
            let details = serde_json::json!({"reason": "not_found", "file": file, "key": null});
            let error = wire::WireError::new(ErrorCode::PolicyInvalid, "m").with(details);
            let mut failure = Failure::from(error);
            policies(&mut failure);
            failure.error.details.get(DETAIL).cloned()
        };
        assert_eq!(not_found("agent-ofline"), Some(serde_json::json!(["agent-offline"])));
        assert_eq!(not_found("./x.toml"), None);
    }

    #[test]
    fn every_habit_leads_to_a_verb_and_is_none() {
        let command = crate::args::Cli::command();
        for (theirs, ours) in HABITS {
            assert!(command.find_subcommand(ours).is_some(), "{ours}");
            assert!(command.find_subcommand(theirs).is_none(), "{theirs} is a verb");
        }
    }
}
