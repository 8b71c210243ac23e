//! The command line: verbs, and what all of them share.

use crate::place::Wanted;
use crate::verb;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
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

/// Prints what clap has to say; the exit status that goes with it.
pub(crate) fn refuse(error: &clap::Error, argv: &[OsString]) -> u8 {
    // Standard output or error may be closed; the status says the same.
    drop(error.print());
    status(error.kind(), argv)
}

fn status(kind: ErrorKind, argv: &[OsString]) -> u8 {
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        0
    } else if names_a_program(argv) {
        125
    } else {
        2
    }
}

fn names_a_program(argv: &[OsString]) -> bool {
    let verb = argv.iter().skip(1).find(|word| !word.to_string_lossy().starts_with('-'));
    verb.is_some_and(|verb| ["run", "attach", "exec", "shell"].iter().any(|name| verb == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
            let argv: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let error = Cli::try_parse_from(&argv).unwrap_err();
            assert_eq!(status(error.kind(), &argv), want, "{words}");
        }
    }
}
