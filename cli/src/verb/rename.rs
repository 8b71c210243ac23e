//! `mews rename`: another name for a session.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::ErrorCode;
use wire::api::{PatchSession, SessionView};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What runs in it runs on; the name inside of a living cage stays the old one.

Examples:
  mews rename bash-1 review")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// 1 to 64 of A-Z a-z 0-9 . _ - and no dash first
    name: String,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let body = PatchSession { name: Some(args.name.clone()), ..PatchSession::default() };
    let path = format!("/sessions/{}", found.session);
    let view: Result<SessionView, Failure> = api.patch(&path, &body).await;
    let view = view.map_err(|failure| match failure.is(ErrorCode::Conflict) {
        true => failure.next(format!("mews rename {} ANOTHER", found.name)),
        false => failure,
    })?;
    if say.json {
        out::json_line(&view)?;
    } else {
        say.note(&format!("{} is {} now", escape(&found.name), escape(&view.name)));
    }
    Ok(0)
}
