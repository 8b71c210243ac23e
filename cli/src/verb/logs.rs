//! `mews logs`: what a command has printed.

use super::attach::terminal_of;
use crate::api::Api;
use crate::escape::rendered;
use crate::failure::Failure;
use crate::out::{self, Say, colours};
use crate::viewer::Ending;
use crate::viewer::follow::{Form, follow};
use wire::{AttachOptions, ErrorCode, History, Join, PtyId, View};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lines are as they looked on the terminal; --raw gives the bytes as the command wrote them.

Examples:
  mews logs build-1
  mews logs -f build-1
  mews logs --raw build-1 > typescript")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// Go on until the command ends
    #[arg(short, long)]
    follow: bool,
    /// The bytes themselves
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (_cage, pty) = terminal_of(&found)?;
    let form = if args.raw { Form::Bytes } else { Form::Lines };
    if args.follow {
        let options = AttachOptions {
            join: Join::Observe,
            view: if args.raw { View::Bytes } else { View::Lines },
            history: History::All,
            viewer: crate::request::viewer_name(),
            ..AttachOptions::default()
        };
        match api.attach(pty, &options).await {
            // It has ended: all there is can be read at once.
            Err(failure) if failure.is(ErrorCode::Gone) => {}
            Err(failure) => return Err(failure),
            Ok(upgraded) => {
                let ending = follow(upgraded, form, say).await;
                let ending =
                    ending.map_err(|error| Failure::new(format!("cannot follow: {error}")))?;
                return Ok(status(&ending));
            }
        }
    }
    print(&api, pty, form).await
}

async fn print(api: &Api, pty: PtyId, form: Form) -> Result<u8, Failure> {
    let word = match form {
        Form::Lines => "rendered",
        Form::Bytes => "raw",
    };
    let bytes = api.bytes(&format!("/ptys/{pty}/scrollback?form={word}")).await?;
    match form {
        Form::Lines => {
            let mut lines = rendered(&bytes, colours());
            if lines.last().is_some_and(|&last| last != b'\n') {
                lines.push(b'\n');
            }
            out::bytes(&lines)?;
        }
        Form::Bytes => out::bytes(&bytes)?,
    }
    Ok(0)
}

fn status(ending: &Ending) -> u8 {
    match ending {
        Ending::Exited(_) | Ending::Detached | Ending::Closed(_) => 0,
        Ending::Signalled(signal) => 128 + u8::try_from(*signal).unwrap_or(0),
        Ending::Lost => 1,
    }
}
