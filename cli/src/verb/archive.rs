//! `mews archive`: ended sessions that plain lists leave out.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::ErrorCode;
use wire::api::{PatchSession, SessionView};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
All is kept: `mews ls -a` lists them, and logs, events and inspect go on working. `mews rm` removes.

Examples:
  mews archive build-1 build-2
  mews archive --undo build-1")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Bring them back
    #[arg(long)]
    undo: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let body = PatchSession { archived: Some(!args.undo), ..PatchSession::default() };
        let path = format!("/sessions/{}", found.session);
        let view: Result<SessionView, Failure> = api.patch(&path, &body).await;
        let view = view.map_err(|failure| match failure.is(ErrorCode::Conflict) {
            true => failure.next(format!("mews end {0}; mews archive {0}", found.name)),
            false => failure,
        })?;
        if say.json {
            out::json_line(&view)?;
        } else {
            let done = if args.undo { "brought back" } else { "archived" };
            say.note(&format!("{done} {}", escape(&found.name)));
        }
    }
    Ok(0)
}
