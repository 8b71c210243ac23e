//! `mews wait`: until a command has ended.

use super::attach::terminal_of;
use crate::api::Api;
use crate::failure::Failure;
use crate::out::{self, Say};
use serde_json::json;
use tokio::time::Instant;

/// Longest single question; asked again until the end, so that daemons that die meanwhile are
/// started again.
const TURN_MS: u64 = 10_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the exit status that run would have given. Exit status: 0 when it has ended, 1 when the
time is over.

Examples:
  mews wait --exit build-1
  test $(mews wait --exit build-1) = 0 && echo good")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// Until its exit (what this version can wait for)
    #[arg(long)]
    exit: bool,
    /// Most seconds to wait
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    if !args.exit {
        let failure = Failure::usage("say what to wait for; this version can wait for --exit");
        return Err(failure.next(format!("mews wait --exit {}", args.id)));
    }
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (_cage, pty) = terminal_of(&found)?;
    let limit = args.timeout.map(std::time::Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|_bad| Failure::usage("--timeout takes seconds, as 2.5"))?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        api.ensure_supervisor().await?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let turn = left.and_then(|left| u64::try_from(left.as_millis()).ok()).unwrap_or(TURN_MS);
        if let Some(exit) = api.wait(pty, turn.min(TURN_MS)).await? {
            if say.json {
                out::json_line(&json!({ "exit": exit, "status": exit.status() }))?;
            } else {
                out::data(&format!("{}\n", exit.status()))?;
            }
            return Ok(0);
        }
        if left.is_some_and(|left| left.is_zero()) {
            say.note(&format!("{} still runs", found.name));
            return Ok(1);
        }
    }
}
