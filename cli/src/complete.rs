//! What a shell completes: verbs and flags from the command line's own description, ids from the
//! daemons that are there. Nothing is started for it, and nothing is waited for long.

use crate::api::Api;
use crate::args::Cli;
use crate::escape::{command, escape};
use crate::place::{self, Wanted};
use crate::table::cut;
use crate::verb::{ls, policy};
use clap::{Arg, Command, CommandFactory};
use clap_complete::CompletionCandidate;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, PathCompleter, ValueCompleter};
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use wire::api::{SessionState, SessionView};

/// The scripts set it: the words that follow are to be completed, not done.
pub(crate) const VARIABLE: &str = "MEWS_COMPLETE";
/// A person has pressed a key and waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a shell; false: nobody asked.
///
/// # Errors
/// A shell that is none of ours, or standard output is closed.
pub(crate) fn answer(argv: &[OsString]) -> Result<bool, clap::Error> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
    // Whose daemons: as the command itself will say it.
    let says = |flag: &str| argv.iter().any(|word| word == flag);
    place::want(match (says("--user"), says("--system")) {
        (true, _) => Wanted::User,
        (false, true) => Wanted::System,
        (false, false) => Wanted::Any,
    });
    let here = std::env::current_dir().ok();
    clap_complete::CompleteEnv::with_factory(described)
        .var(VARIABLE)
        .bin("mews")
        .completer("mews")
        .try_complete(argv.to_vec(), here.as_deref())
}

/// Which sessions a verb is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Living,
    Running,
    Paused,
    Ended,
    /// The living and the last ten.
    Listed,
    /// All that are kept.
    All,
}

impl Which {
    fn has(self, state: SessionState) -> bool {
        let is_over = matches!(state, SessionState::Ended | SessionState::Failed);
        match self {
            Self::Listed | Self::All => true,
            Self::Living => !is_over,
            Self::Running => state == SessionState::Running,
            Self::Paused => state == SessionState::Paused,
            Self::Ended => is_over,
        }
    }
}

/// By verb: what its ID may be.
const IDS: [(&str, Which); 30] = [
    ("attach", Which::Living),
    ("exec", Which::Living),
    ("shell", Which::Living),
    ("logs", Which::Listed),
    ("inspect", Which::Listed),
    ("events", Which::Listed),
    ("send", Which::Living),
    ("screen", Which::Listed),
    ("wait", Which::Listed),
    ("kill", Which::Living),
    ("pause", Which::Running),
    ("resume", Which::Paused),
    ("checkpoint", Which::Living),
    ("checkpoints", Which::Listed),
    ("rollback", Which::Listed),
    ("diff", Which::Listed),
    ("apply", Which::Listed),
    ("discard", Which::Ended),
    ("stats", Which::Living),
    ("limits", Which::Living),
    ("audit", Which::All),
    ("rename", Which::All),
    ("label", Which::All),
    ("archive", Which::Ended),
    ("cancel", Which::Living),
    ("end", Which::Living),
    ("rm", Which::Ended),
    ("run", Which::Listed),
    ("grants", Which::Living),
    ("policy", Which::Listed),
];

/// The command line, with what completes its values.
fn described() -> Command {
    let mut whole = Cli::command();
    for (verb, which) in IDS {
        whole = whole.mut_subcommand(verb, |command| values(command, which));
    }
    whole
}

/// The verb's own arguments, and those of its verbs.
fn values(command: Command, which: Which) -> Command {
    let command = command.mut_args(|argument| value(argument, which));
    command.mut_subcommands(|inner| {
        // `grants revoke` takes grants, of which nobody types more than a few.
        if inner.get_name() == "revoke" { inner } else { values(inner, which) }
    })
}

fn value(argument: Arg, which: Which) -> Arg {
    match argument.get_id().as_str() {
        "id" | "ids" | "session" => argument.add(ArgValueCandidates::new(move || sessions(which))),
        "policy" | "policies" => argument.add(ArgValueCompleter::new(policies)),
        _other => argument,
    }
}

/// A name, or a file.
fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let names = policy::names().into_iter().filter(|name| name.starts_with(typed.as_ref()));
    let names = names.map(CompletionCandidate::new);
    names.chain(PathCompleter::any().complete(current)).collect()
}

fn sessions(which: Which) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let found = runtime.block_on(async {
        let api = Api::without_start();
        let query = match which {
            Which::Ended | Which::All => "all=true",
            Which::Living | Which::Running | Which::Paused | Which::Listed => "",
        };
        tokio::time::timeout(PATIENCE, ls::listed(&api, query)).await
    });
    // Nobody there, or too slow: nothing is offered.
    let Ok(Ok(sessions)) = found else { return Vec::new() };
    runtime.shutdown_background();
    sessions.iter().filter(|one| which.has(one.state)).map(candidate).collect()
}

fn candidate(session: &SessionView) -> CompletionCandidate {
    let argv = session.runs.last().map(|run| cut(&command(&run.argv), 40)).unwrap_or_default();
    let help = format!("{}  {argv}", ls::state(session));
    CompletionCandidate::new(escape(&session.name)).help(Some(help.trim_end().to_owned().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_on_the_command_line_has_somebody_who_knows_them() {
        let mut whole = described();
        whole.build();
        let takes_ids = |argument: &Arg| matches!(argument.get_id().as_str(), "id" | "ids");
        for verb in whole.get_subcommands() {
            for argument in verb.get_arguments().filter(|argument| takes_ids(argument)) {
                let known = argument.get::<ArgValueCandidates>().is_some();
                assert!(known, "{} {}: add it to IDS", verb.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn verbs_offer_what_they_can_work_on() {
        use SessionState::{Ended, Failed, Idle, Paused, Running};
        for (which, states) in [
            (Which::Living, vec![Idle, Running, Paused]),
            (Which::Running, vec![Running]),
            (Which::Paused, vec![Paused]),
            (Which::Ended, vec![Ended, Failed]),
            (Which::All, vec![Idle, Running, Paused, Ended, Failed]),
        ] {
            for state in [Idle, Running, Paused, Ended, Failed] {
                assert_eq!(which.has(state), states.contains(&state), "{which:?} {state:?}");
            }
        }
    }
}
