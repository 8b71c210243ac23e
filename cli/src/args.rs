//! The command line: verbs, and what all of them share.

use crate::failure::Failure;
use crate::out::Say;
use crate::out::colour::When;
use crate::place::Wanted;
use crate::{similar, verb};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    /// Colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) color: When,
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
    /// What is running, as it runs: use, pressure, events; attach, pause and kill by key
    Top(verb::top::Args),
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
    /// Ask what runs in a session to end: TERM, five seconds, KILL
    Cancel(verb::cancel::Args),
    /// End a session: TERM, five seconds, KILL
    End(verb::end::Args),
    /// Remove an ended session with all it has kept
    Rm(verb::rm::Args),
    /// Remove sessions that ended long ago
    Prune(verb::prune::Args),
    /// Look at policies, check, explain and begin them
    #[command(subcommand)]
    #[command(after_help = "\
Examples:
  mews policy list
  mews policy show agent-offline
  mews policy check ./agent.toml
  mews policy explain strict
  mews policy init")]
    Policy(Box<verb::policy::Args>),
    /// Check what this host can enforce, with a real cage at the end
    Doctor(verb::doctor::Args),
    /// Which mews this is, which the daemons are, and which serves the cages
    Version(verb::version::Args),
    /// Start, stop, restart and ask after the daemons
    #[command(subcommand)]
    #[command(after_help = "\
Examples:
  mews daemon status
  mews daemon restart             after another mews was installed; cages run on
  mews daemon stop")]
    Daemon(verb::daemon::Args),
    /// A script that makes a shell complete verbs, flags and names of sessions
    Completions(verb::completions::Args),
    /// Write the manual: a page for each verb
    Man(verb::man::Args),
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

/// What was typed, or why it is nothing; that is in colour where `--color` says so.
pub(crate) fn parse(argv: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command().color(colour(argv).of_clap());
    let matches = command.try_get_matches_from_mut(argv).map_err(with_habit)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Before anything is parsed, as a mistake may stand anywhere.
pub(crate) fn colour(argv: &[OsString]) -> When {
    let mut found = When::Auto;
    let mut words = ours(argv).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let said = match word.strip_prefix("--color") {
            Some("") => words.next().map(std::borrow::Cow::into_owned),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        found = match said.as_deref() {
            Some("always") => When::Always,
            Some("never") => When::Never,
            Some(_) | None => found,
        };
    }
    found
}

/// The words before `--`.
fn ours(argv: &[OsString]) -> impl Iterator<Item = &OsString> {
    argv.iter().skip(1).take_while(|word| *word != "--")
}

/// clap knows verbs that are spelled alike; this knows those that mean the same.
fn with_habit(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.clone(),
        Some(_) | None => return error,
    };
    if let Some(ours) = similar::habit(&typed) {
        let ours = ContextValue::Strings(vec![ours.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, ours);
    }
    error
}

/// Says what clap has to say, in the words and the form of every other failure; the exit status that
/// goes with it.
pub(crate) fn refuse(error: &clap::Error, argv: &[OsString]) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Standard output may be closed; the status says the same.
        drop(error.print());
        return 0;
    }
    let wants_json = ours(argv).any(|word| word == "--json");
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
    let Some(meant) = meant else { return help(argv) };
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

    fn argv(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_mistyped_verb_is_answered_with_the_one_that_was_meant() {
        for (typed, meant) in [("atach", "attach"), ("ps", "'ls'"), ("snapshot", "'checkpoint'")] {
            let words = super::parse(&argv(&format!("mews {typed}"))).unwrap_err().to_string();
            assert!(words.contains(meant), "{typed}: {words}");
        }
        let words = super::parse(&argv("mews zzzzzz")).unwrap_err().to_string();
        assert!(!words.contains("similar"), "{words}");
    }

    #[test]
    fn mistakes_are_in_colour_only_where_that_was_said() {
        for (words, want) in [
            ("mews --color always ls", When::Always),
            ("mews ls --color=never", When::Never),
            ("mews ls", When::Auto),
            ("mews run -- x --color=never", When::Auto),
        ] {
            assert_eq!(colour(&argv(words)), want, "{words}");
        }
    }

    /// Every verb, and every verb of a verb, that does something.
    #[test]
    fn every_help_has_examples_that_are_right() {
        let mut command = Cli::command();
        command.build();
        let mut seen = 0;
        check_help(&command, &mut seen);
        assert!(seen > 40, "{seen}");
    }

    fn check_help(command: &clap::Command, seen: &mut u32) {
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
        let verbs: Vec<_> = verbs.filter(|verb| !verb.is_hide_set()).collect();
        let name = command.get_bin_name().unwrap_or_default();
        assert!(command.get_about().is_some(), "{name} does not say what it does");
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.split_once("Examples:\n").map(|(_before, examples)| examples);
        let examples = examples.unwrap_or_else(|| panic!("{name} --help has no examples"));
        for line in examples.lines().filter(|line| line.contains("mews ")) {
            *seen += 1;
            assert!(line.starts_with("  "), "{name}: {line}");
            check_example(name, line);
        }
        assert!(examples.contains(name), "{name}: no example begins with it");
        verbs.into_iter().for_each(|verb| check_help(verb, seen));
    }

    /// What is shown can be typed: up to what a shell does with it.
    fn check_example(name: &str, line: &str) {
        let from = line.find("mews ").unwrap_or(0);
        let typed = line.get(from..).unwrap_or_default();
        // Words on it stand behind two blanks or more.
        let typed = typed.split("  ").next().unwrap_or_default();
        let typed = typed.split([')', '|', '>', '<', ';']).next().unwrap_or_default();
        let typed = typed.split(" && ").next().unwrap_or_default();
        let words = words_of(&typed.trim().replace("$seq", "7"));
        let parsed = Cli::try_parse_from(&words);
        assert!(parsed.is_ok(), "{name}: {words:?}: {}", parsed.err().unwrap());
    }

    /// As a shell would cut it up, in so far as examples need it.
    fn words_of(text: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in text.chars() {
            match (quote, c) {
                (None, ' ') => words.push(std::mem::take(&mut word)),
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), _) if open == c => quote = None,
                _ => word.push(c),
            }
        }
        words.push(word);
        words
    }

    fn refused(words: &str) -> (clap::Error, Vec<OsString>) {
        let argv = argv(words);
        (super::parse(&argv).unwrap_err(), argv)
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
