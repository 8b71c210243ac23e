//! `mews attach`: watch or take over a terminal.

use super::ls::exit_word;
use super::pick;
use super::watching::{Keys, conclude, ended};
use crate::api::Api;
use crate::control::Control;
use crate::failure::Failure;
use crate::out::Say;
use crate::viewer::{Ending, Ends, Viewer};
use crate::{request, terminal};
use std::sync::Arc;
use wire::api::Resolved;
use wire::{AttachOptions, ErrorCode, Exit, History, Join, PtyId, View};

/// How often a lost connection is made again.
const TRIES: u32 = 5;
/// How long the end of a program may take to be told when its stream was lost.
const END_MS: u64 = 1_000;
/// Lines above the screen, where nobody says how many.
const SCROLLBACK: u32 = 1000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Leave the terminal with ctrl-\\ ctrl-d; the program runs on. With standard input or output that
is not a terminal it only watches, unless --take is given.
One viewer has the keyboard. ctrl-\\ ctrl-t takes it from whoever that is, and lets go of it again;
who else is here is told in the title.
Exit status: the program's if it ends meanwhile, 0 when detached, 125 if mews failed.

Examples:
  mews attach                     the only session that runs, or one of those to be chosen
  mews attach bash-1
  mews attach --take bash-1       even if somebody else has the keyboard
  mews attach --observe bash-1    only watch")]
pub(crate) struct Args {
    /// Name or id: of a session, or of one of its terminals; none: the only one that runs
    id: Option<String>,
    /// Take the keyboard from whoever has it
    #[arg(long, conflicts_with = "observe")]
    take: bool,
    /// Only watch
    #[arg(long)]
    observe: bool,
    /// Lines above the screen to be sent first: a number, 'all' or 'none'
    #[arg(long, value_name = "N", default_value = "1000", value_parser = history)]
    scrollback: History,
    #[command(flatten)]
    keys: Keys,
}

impl Args {
    /// As `mews attach ID` would be.
    pub(super) fn to(id: String) -> Self {
        Self {
            id: Some(id),
            take: false,
            observe: false,
            scrollback: History::Lines(SCROLLBACK),
            keys: Keys { detach_keys: crate::viewer::keys::DEFAULT.to_owned() },
        }
    }
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    let keys = args.keys.parse()?;
    let api = Arc::new(Api::new());
    let mut options = AttachOptions {
        join: join(args.take, args.observe, terminal::is_interactive()),
        view: View::Screen,
        history: args.scrollback,
        size: terminal::size(),
        viewer: request::viewer_name(),
        remote: false,
        runner: false,
        tell_still: true,
        tell_others: true,
    };
    let id = match args.id {
        Some(id) => id,
        None => pick::session(&api, say).await?,
    };
    let mut ends = Ends::new().map_err(|error| Failure::new(error.to_string()))?;
    let mut tries = 0;
    loop {
        let asked = tokio::select! {
            asked = api.attach_any(&id, &options) => asked,
            signal = ends.next() => return Ok(128 + u8::try_from(signal).unwrap_or(0)),
        };
        let (found, upgraded) = match asked {
            Err(failure) if failure.is(ErrorCode::Gone) => return over(&failure, &id, say),
            other => other?,
        };
        let (cage, pty) = terminal_of(&found)?;
        if found.paused {
            say.dim(&format!("[paused; keys wait until: mews resume {}]", found.name));
        }
        let viewer = Viewer {
            say,
            control: Control::Daemons { api: Arc::clone(&api), session: found.session, cage, pty },
            keys: keys.clone(),
            name: found.name.clone(),
            is_runner: false,
            banner: true,
            recording: None,
        };
        let ending = viewer.view(upgraded, &mut ends).await;
        let ending = ending
            .map_err(|error| Failure::new(format!("the terminal or its stream failed: {error}")))?;
        tries += 1;
        if ending == Ending::Lost && tries < TRIES && lives(&api, pty).await {
            say.note("the connection was lost, the program runs on; attaching again");
            // What was seen before is above already.
            options.history = History::None;
            continue;
        }
        return Ok(conclude(ending, &api, pty, &found.name, say).await?.status);
    }
}

/// Whether its end is not told within a moment.
async fn lives(api: &Api, pty: PtyId) -> bool {
    matches!(api.wait(pty, END_MS).await, Ok(None))
}

/// Who reads through a pipe does not want the keyboard that the next person would look for.
fn join(take: bool, observe: bool, is_interactive: bool) -> Join {
    match (take, observe || !is_interactive) {
        (true, _) => Join::Take,
        (false, true) => Join::Observe,
        (false, false) => Join::Auto,
    }
}

/// It has ended already: its status, and where its words are.
fn over(failure: &Failure, id: &str, say: &Say) -> Result<u8, Failure> {
    let name = failure.error.details.get("name").and_then(serde_json::Value::as_str);
    let name = name.unwrap_or(id);
    let exit = failure.error.details.get("exit").cloned();
    let exit: Option<Exit> = exit.and_then(|exit| serde_json::from_value(exit).ok());
    match exit {
        Some(exit) => {
            let how = exit_word(&exit);
            say.note(&format!("{name} has ended (exit {how}); what it printed: mews logs {name}"));
            Ok(ended(exit, say).status)
        }
        None => Err(failure.clone().next(format!("mews logs {name}"))),
    }
}

/// The terminal that an id means.
pub(crate) fn terminal_of(found: &Resolved) -> Result<(wire::CageId, PtyId), Failure> {
    match (found.cage, found.pty) {
        (Some(cage), Some(pty)) => Ok((cage, pty)),
        _none => Err(Failure::from(wire::WireError::new(
            ErrorCode::NotFound,
            format!("nothing has run in {} yet", found.name),
        ))
        .next(format!("mews inspect {}", found.name))),
    }
}

fn history(text: &str) -> Result<History, String> {
    match text {
        "all" => Ok(History::All),
        "none" => Ok(History::None),
        number => number
            .parse()
            .map(History::Lines)
            .map_err(|_not_a_number| "a number of lines, 'all' or 'none'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_does_not_take_the_keyboard_unless_told() {
        for (take, observe, is_interactive, want) in [
            (false, false, true, Join::Auto),
            (false, true, true, Join::Observe),
            (true, false, true, Join::Take),
            (false, false, false, Join::Observe),
            (true, false, false, Join::Take),
        ] {
            assert_eq!(join(take, observe, is_interactive), want);
        }
    }

    #[test]
    fn scrollback_is_a_number_all_or_none() {
        assert_eq!(history("all"), Ok(History::All));
        assert_eq!(history("none"), Ok(History::None));
        assert_eq!(history("25"), Ok(History::Lines(25)));
        assert!(history("-1").is_err() && history("some").is_err());
    }
}
