//! `mews cancel`: what runs in a session is asked to end; the session stays if it was made to.

use super::ls::exit_of;
use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::{ErrorCode, WireError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
TERM to every command of the run, KILL after five seconds; a paused one goes on for that. It is told as
`cancelled`: 143 where TERM ended it, 137 where it took KILL, its own status where it had one. A session
that was made for this run ends with it, any other is idle then (`mews end` ends both).

Examples:
  mews cancel build-1
  mews cancel build-1 pi-1")]
pub(crate) struct Args {
    /// Names or ids: of a session, or of a run
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let name = escape(&found.name);
        let run = found.run.ok_or_else(|| {
            let words = format!("nothing has run in {name} yet");
            Failure::from(WireError::new(ErrorCode::NotFound, words))
                .next(format!("mews inspect {name}"))
        })?;
        let work = api.cancel(found.session, run);
        let view = match say.during(&format!("cancelling {name}"), work).await {
            Err(failure) if failure.is(ErrorCode::Conflict) => {
                return Err(failure.next(format!("mews inspect {name}")));
            }
            other => other?,
        };
        if say.json {
            out::json_line(&view)?;
        } else {
            say.note(&format!("cancelled {name} (exit {})", exit_of(&view)));
        }
    }
    Ok(0)
}
