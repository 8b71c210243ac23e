//! `mews logs`: what a command has printed.

use super::attach::terminal_of;
use crate::api::Api;
use crate::escape::rendered;
use crate::failure::Failure;
use crate::out::{self, Say, colours};
use crate::time::now_ms;
use crate::viewer::Ending;
use crate::viewer::follow::{Form, follow};
use cage::policy::Millis;
use wire::{AttachOptions, ErrorCode, History, Join, PtyId, View};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lines are as they looked on the terminal; --raw gives the bytes as the command wrote them.

Examples:
  mews logs build-1
  mews logs -f build-1
  mews logs --since 10m build-1
  mews logs --raw build-1 > typescript")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// Go on until the command ends
    #[arg(short, long)]
    follow: bool,
    /// The bytes themselves
    #[arg(long, conflicts_with = "since")]
    raw: bool,
    /// Only lines that were printed in so long, to the second: 30s, 10m, 2h
    #[arg(long, value_name = "T", conflicts_with = "follow")]
    since: Option<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let since_ms = args.since.as_deref().map(since).transpose()?;
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
    print(&api, pty, form, since_ms).await
}

/// So long ago, in milliseconds since 1970.
fn since(text: &str) -> Result<i64, Failure> {
    let Millis(ms) =
        Millis::parse(text).map_err(|error| Failure::usage(format!("--since: {error}")))?;
    Ok(now_ms().saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
}

async fn print(api: &Api, pty: PtyId, form: Form, since_ms: Option<i64>) -> Result<u8, Failure> {
    let word = match form {
        Form::Lines => "rendered",
        Form::Bytes => "raw",
    };
    let since = since_ms.map_or_else(String::new, |ms| format!("&since_ms={ms}"));
    let bytes = api.bytes(&format!("/ptys/{pty}/scrollback?form={word}{since}")).await?;
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
