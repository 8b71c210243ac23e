//! `mews rm`: an ended session goes, with all it has kept.

use super::end::end;
use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::Say;
use wire::{ErrorCode, SessionId};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews rm build-1
  mews rm -f build-1              end it first if it is alive")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// End it first
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        if args.force {
            let text = format!("ending {}", escape(&found.name));
            match say.during(&text, end(&api, found.session)).await {
                // It has ended already.
                Err(failure) if failure.is(ErrorCode::Gone) => {}
                other => drop(other?),
            }
        }
        let text = format!("removing {}", escape(&found.name));
        match say.during(&text, remove(&api, found.session)).await {
            Err(failure) if failure.is(ErrorCode::Conflict) => {
                return Err(failure.next(format!("mews end {0}; mews rm {0}", found.name)));
            }
            other => other?,
        }
        say.note(&format!("removed {}", escape(&found.name)));
    }
    Ok(0)
}

/// One that has ended.
pub(crate) async fn remove(api: &Api, session: SessionId) -> Result<(), Failure> {
    api.delete(&format!("/sessions/{session}?confirm=true&purge=true")).await.map(drop)
}
