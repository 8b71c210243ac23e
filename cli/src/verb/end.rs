//! `mews end`: a session comes to its end.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::{ErrorCode, SessionId};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
TERM to every command, KILL after five seconds; what it has kept stays (mews logs, mews rm).

Examples:
  mews end pi-1
  mews end pi-1 bash-2")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let text = format!("ending {}", escape(&found.name));
        let view = match say.during(&text, end(&api, found.session)).await {
            Err(failure) if failure.is(ErrorCode::Gone) => {
                return Err(failure.next(format!("mews rm {}", found.name)));
            }
            other => other?,
        };
        if say.json {
            out::json_line(&view)?;
        } else {
            say.note(&format!("ended {}", escape(&found.name)));
        }
    }
    Ok(0)
}

pub(crate) async fn end(api: &Api, session: SessionId) -> Result<serde_json::Value, Failure> {
    let reply = api.delete(&format!("/sessions/{session}?confirm=true")).await?;
    serde_json::from_slice(&reply.body).map_err(|error| Failure::new(error.to_string()))
}
