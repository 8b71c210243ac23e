//! `mews inspect`: everything known about a session.

mod page;

use crate::api::Api;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::time::now_ms;
use serde_json::Value;
use wire::api::SessionView;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews inspect pi-1
  mews inspect pi-1 --json | jq '.cages[].enforced'
  mews inspect pi-1 --plan        the resolved plan of its newest cage")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// The plan of the newest cage instead, as JSON
    #[arg(long)]
    plan: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    if args.plan {
        let (cage, _pty) = super::attach::terminal_of(&found)?;
        let plan: Value =
            api.get(&format!("/sessions/{}/cages/{cage}/plan", found.session)).await?;
        let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
        out::data(&format!("{text}\n"))?;
        return Ok(0);
    }
    let session: SessionView = api.get(&format!("/sessions/{}", found.session)).await?;
    if say.json {
        out::json_line(&session)?;
    } else {
        out::data(&page::page(&session, now_ms(), out::colours()))?;
    }
    Ok(0)
}
