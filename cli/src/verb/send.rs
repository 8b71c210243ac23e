//! `mews send`: type on a terminal without attaching to it.

use super::attach::terminal_of;
use crate::api::{Api, Repeat};
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use clap::{ArgAction, ArgMatches};
use std::io::Read;
use wire::ErrorCode;
use wire::key::Key;
use wire::typing::{Piece, Typed, Typing};

/// Of what is typed at once, in bytes.
const BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
TEXT and keys are typed in the order in which they stand. Nothing is added: a command line wants
`--key enter` behind it. A text that begins with a dash stands behind `--`.
Keys: one character, or enter, tab, escape, space, backspace, up, down, left, right, home, end,
pageup, pagedown, insert, delete, f1 to f12; before any of them ctrl-, alt-, shift- (or C-, M-, S-).
With --json it prints `seq`: `mews wait --for R --after SEQ` then sees only what came of it.
A paused session gets its keys when it goes on.

Examples:
  mews send bash-1 'make test' --key enter
  mews send pi --key ctrl-c
  mews send vim --key escape ':wq' --key enter
  mews send pi --paste \"$(cat prompt.txt)\" --key enter
  git diff | mews send pi --paste --stdin")]
pub(crate) struct Args {
    /// Name or id: of a session, or of one of its terminals
    id: String,
    #[command(flatten)]
    pieces: Pieces,
    /// As one paste each: in brackets if the program asked for that, so that it runs no line of it
    #[arg(long)]
    paste: bool,
    /// What comes on standard input, after the rest
    #[arg(long)]
    stdin: bool,
    /// Even while somebody else has the keyboard
    #[arg(long)]
    force: bool,
}

/// Text and keys in their order, which clap alone does not keep.
#[derive(Debug, Default)]
struct Pieces(Vec<Piece>);

impl clap::Args for Pieces {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
            .arg(
                clap::Arg::new("text")
                    .value_name("TEXT")
                    .help("What to type, as it is")
                    .num_args(1..)
                    .action(ArgAction::Append),
            )
            .arg(
                clap::Arg::new("key")
                    .long("key")
                    .short('k')
                    .value_name("KEY")
                    .help("A key by its name; may be repeated")
                    .value_parser(|text: &str| text.parse::<Key>())
                    .action(ArgAction::Append),
            )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Pieces {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut pieces: Vec<(usize, Piece)> = Vec::new();
        let texts = matches.get_many::<String>("text").into_iter().flatten().cloned();
        let places = matches.indices_of("text").into_iter().flatten();
        pieces.extend(places.zip(texts.map(Piece::Text)));
        let keys = matches.get_many::<Key>("key").into_iter().flatten().copied();
        let places = matches.indices_of("key").into_iter().flatten();
        pieces.extend(places.zip(keys.map(Piece::Key)));
        pieces.sort_by_key(|(place, _piece)| *place);
        Ok(Self(pieces.into_iter().map(|(_place, piece)| piece).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let typing = typing(args)?;
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (_cage, pty) = terminal_of(&found)?;
    let name = escape(&found.name);
    // Keys must not be typed twice.
    let path = format!("/ptys/{pty}/type");
    let typed: Result<Typed, Failure> = api.post(&path, &typing, Repeat::Never).await;
    let typed = typed.map_err(|failure| refused(failure, &name))?;
    if say.json {
        out::json_line(&typed)?;
    } else if typed.paused {
        say.note(&format!("{name} is paused; the keys wait until: mews resume {name}"));
    }
    Ok(0)
}

fn typing(args: &Args) -> Result<Typing, Failure> {
    let mut pieces = args.pieces.0.clone();
    if args.stdin {
        pieces.push(Piece::Text(standard_input()?));
    }
    if pieces.is_empty() {
        let failure = Failure::usage("say what to type: a text, --key or --stdin");
        return Err(failure.next(format!("mews send {} 'text' --key enter", args.id)));
    }
    if args.paste {
        for piece in &mut pieces {
            if let Piece::Text(text) = piece {
                *piece = Piece::Paste(std::mem::take(text));
            }
        }
    }
    Ok(Typing { pieces, force: args.force })
}

fn standard_input() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
    if text.len() as u64 > BYTES_MAX {
        let failure = Failure::usage(format!(
            "standard input is longer than {BYTES_MAX} bytes, which is more than a program takes from a \
             keyboard"
        ));
        return Err(failure.next("give it a file below its workspace"));
    }
    String::from_utf8(text).map_err(|_bytes| {
        Failure::usage("standard input is not UTF-8; a keyboard types text")
            .next("give it a file below its workspace")
    })
}

fn refused(mut failure: Failure, name: &str) -> Failure {
    let writer = failure.error.details.get("writer").and_then(serde_json::Value::as_str);
    if let Some(writer) = writer {
        failure.error.message = format!("{} has the keyboard of {name}", escape(writer));
        return failure.next("the same with --force, to type beside them");
    }
    if failure.is(ErrorCode::Gone) {
        failure.error.message = format!("{name} has ended; nobody reads its keys");
        return failure.next(format!("mews logs {name}"));
    }
    failure
}
