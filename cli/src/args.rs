//! The command line: verbs, and what all of them share.

use crate::failure::Failure;
use crate::out::Say;
use crate::place::Wanted;
use crate::verb;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

/// Runs untrusted programs in cages, on terminals that outlive their viewers.
///
/// Without a verb: what is running, and how to begin.
#[derive(Debug, Parser)]
#[command(name = "mews", version, propagate_version = true, infer_subcommands = false)]
#[command(after_help = "\
Examples:
  mews run                        a shell in a cage, in this folder
  mews run -- make test           one command; its exit status is mews's
  mews run -d -n pi -- pi         in the background, under a name
  mews attach pi                  come back to it
  mews ls                         what is running")]
pub(crate) struct Cli {
    /// Data as JSON: one object, or one a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Daemons of your own, although the system's would let you in
    #[arg(long, global = true, conflicts_with = "system")]
    pub(crate) user: bool,
    /// The system's daemons, or none
    #[arg(long, global = true)]
    pub(crate) system: bool,
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command in a new cage
    Run(Box<verb::run::Args>),
    /// List sessions: the living and the last ten
    Ls(verb::ls::Args),
    /// Watch or take over a terminal
    Attach(verb::attach::Args),
    /// Run one more command in a living cage
    Exec(verb::exec::Args),
    /// A shell in a living cage
    Shell(verb::shell::Args),
    /// What a command has printed
    Logs(verb::logs::Args),
    /// Everything known about a session: runs, cages, walls
    Inspect(verb::inspect::Args),
    /// What happened in a session, in order
    Events(verb::events::Args),
    /// Type on a terminal without attaching to it
    Send(verb::send::Args),
    /// What is on a terminal now
    Screen(verb::screen::Args),
    /// Wait for the end of a command, or for something on its terminal
    Wait(verb::wait::Args),
    /// Kill a cage at once, or send it a signal
    Kill(verb::kill::Args),
    /// Make everything in a session stand still
    Pause(verb::pause::Pause),
    /// Let a paused session go on
    Resume(verb::pause::Resume),
    /// Keep a session's state, to come back to it
    Checkpoint(verb::checkpoint::Take),
    /// List the checkpoints of a session
    Checkpoints(verb::checkpoint::List),
    /// Bring a session's files back to a checkpoint
    Rollback(verb::checkpoint::Back),
    /// What a session has changed, apart from your folder
    Diff(verb::changes::Diff),
    /// Bring what a session has changed to your folder
    Apply(verb::changes::Apply),
    /// Throw away what a session has changed
    Discard(verb::changes::Discard),
    /// What cages use: cpu, memory, processes, io, pressure, output
    Stats(verb::stats::Args),
    /// The limits of a living cage, or change them
    Limits(verb::limits::Args),
    /// Let others start commands in a session of yours, so many and until then
    Grants(verb::grants::Args),
    /// Who asked for what, by what right, and what came of it
    Audit(verb::audit::Args),
    /// Give a session another name
    Rename(verb::rename::Args),
    /// The labels of a session, or change them
    Label(verb::label::Args),
    /// Leave ended sessions out of plain lists
    Archive(verb::archive::Args),
    /// End a session: TERM, five seconds, KILL
    End(verb::end::Args),
    /// Remove an ended session with all it has kept
    Rm(verb::rm::Args),
    /// Look at policies and check them
    #[command(subcommand)]
    Policy(verb::policy::Args),
    /// Check what this host can enforce, with a real cage at the end
    Doctor(verb::doctor::Args),
    /// Which mews this is, which the daemons are, and which serves the cages
    Version(verb::version::Args),
    /// Start, stop, restart and ask after the daemons
    #[command(subcommand)]
    Daemon(verb::daemon::Args),
}

impl Cli {
    pub(crate) fn place(&self) -> Wanted {
        match (self.user, self.system) {
            (true, _) => Wanted::User,
            (_, true) => Wanted::System,
            (false, false) => Wanted::Any,
        }
    }
}

impl Verb {
    /// Their exit status is the program's, so that ours must be told apart from it.
    pub(crate) fn runs_a_program(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Attach(_) | Self::Exec(_) | Self::Shell(_))
    }
}

/// What other programs call a verb of ours.
const ELSEWHERE: [(&str, &str); 14] = [
    ("continue", "resume"),
    ("delete", "rm"),
    ("info", "inspect"),
    ("list", "ls"),
    ("log", "logs"),
    ("ps", "ls"),
    ("remove", "rm"),
    ("restore", "rollback"),
    ("show", "inspect"),
    ("snapshot", "checkpoint"),
    ("start", "run"),
    ("status", "ls"),
    ("stop", "end"),
    ("top", "stats"),
];

/// Says what clap has to say, in the words and the form of every other failure; the exit status that
/// goes with it.
pub(crate) fn refuse(error: &clap::Error, argv: &[OsString]) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Standard output may be closed; the status says the same.
        drop(error.print());
        return 0;
    }
    let wants_json = argv.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Say::new(wants_json).failure(&Failure::usage(words(error, argv)).next(next(error, argv)));
    if names_a_program(argv) { 125 } else { 2 }
}

/// Its message and its tip; the whole usage only where something is missing.
fn words(error: &clap::Error, argv: &[OsString]) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let (typed, verb) = typed(argv);
        let which: Vec<&str> = verb.get_subcommands().map(clap::Command::get_name).collect();
        return format!("{typed}: say which of them: {}", which.join(", "));
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let is_said = |line: &&str| {
        !line.trim().is_empty()
            && !line.starts_with("For more information")
            && (is_missing || !line.starts_with("Usage:"))
    };
    text.lines().filter(is_said).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The same with the verb that was meant, or the help of the one that was typed.
fn next(error: &clap::Error, argv: &[OsString]) -> String {
    let wrong = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.as_str(),
        _other => return help(argv),
    };
    let meant = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(near)) => near.first().map(String::as_str),
        _other => None,
    };
    let elsewhere =
        ELSEWHERE.iter().find(|(word, _ours)| *word == wrong).map(|(_word, ours)| *ours);
    let Some(meant) = elsewhere.or(meant) else { return help(argv) };
    let mut right: Vec<String> =
        argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(word) = right.iter_mut().skip(1).find(|word| *word == wrong) {
        meant.clone_into(word);
    }
    if let Some(first) = right.first_mut() {
        "mews".clone_into(first);
    }
    crate::escape::command(&right)
}

/// `mews VERB --help`, of the verb that was typed.
pub(crate) fn help(argv: &[OsString]) -> String {
    typed(argv).0 + " --help"
}

/// How much of it is a verb, and which.
fn typed(argv: &[OsString]) -> (String, clap::Command) {
    let mut command = Cli::command();
    let mut words = "mews".to_owned();
    for word in argv.iter().skip(1).filter(|word| !word.to_string_lossy().starts_with('-')) {
        let Some(verb) = command.find_subcommand(word) else { break };
        words.push(' ');
        words.push_str(verb.get_name());
        command = verb.clone();
    }
    (words, command)
}

fn names_a_program(argv: &[OsString]) -> bool {
    let verb = argv.iter().skip(1).find(|word| !word.to_string_lossy().starts_with('-'));
    verb.is_some_and(|verb| ["run", "attach", "exec", "shell"].iter().any(|name| verb == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split(' '))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        let cli = parse("mews run -p ci --timeout 5s -- sh -c x --json").unwrap();
        let Some(Verb::Run(args)) = cli.verb else { panic!("not run") };
        assert_eq!(args.command, ["sh", "-c", "x", "--json"]);
        assert!(!cli.json);
        let cli = parse("mews run -d bash -l").unwrap();
        let Some(Verb::Run(args)) = cli.verb else { panic!("not run") };
        assert_eq!((args.detach, args.command), (true, vec!["bash".into(), "-l".into()]));
        let cli = parse("mews exec pi-1 --json -- ls -l").unwrap();
        let Some(Verb::Exec(args)) = cli.verb else { panic!("not exec") };
        assert_eq!(args.command, ["ls", "-l"]);
        assert!(cli.json);
    }

    fn refused(words: &str) -> (clap::Error, Vec<OsString>) {
        let argv: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        (Cli::try_parse_from(&argv).unwrap_err(), argv)
    }

    #[test]
    fn wrong_usage_exits_2_or_125_where_a_program_may_exit_2() {
        for (words, want) in [
            ("mews ls --bogus", 2),
            ("mews bogus", 2),
            ("mews run --bogus -- true", 125),
            ("mews --json exec", 125),
            ("mews --help", 0),
            ("mews run --help", 0),
        ] {
            let (error, argv) = refused(words);
            assert_eq!(refuse(&error, &argv), want, "{words}");
        }
    }

    #[test]
    fn wrong_usage_is_told_what_to_type() {
        for (typed, said, to_type) in [
            ("mews atach pi -x", "unrecognized subcommand 'atach'", "mews attach pi -x"),
            ("mews stop pi", "unrecognized subcommand 'stop'", "mews end pi"),
            ("mews frobnicate", "unrecognized subcommand 'frobnicate'", "mews --help"),
            ("mews policy frob", "unrecognized subcommand 'frob'", "mews policy --help"),
            (
                "mews grants make --bogus",
                "unexpected argument '--bogus'",
                "mews grants make --help",
            ),
            ("mews policy", "mews policy: say which of them: list, show", "mews policy --help"),
            ("mews kill", "Usage: mews kill <ID>...", "mews kill --help"),
        ] {
            let (error, argv) = refused(typed);
            let words = words(&error, &argv);
            assert!(words.contains(said), "{typed}: {words}");
            assert_eq!(next(&error, &argv), to_type, "{typed}");
        }
    }
}
