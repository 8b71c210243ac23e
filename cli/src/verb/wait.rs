//! `mews wait`: until a command has ended, or something is to be seen on its terminal.

use super::attach::terminal_of;
use super::ls::exit_word;
use crate::api::{Api, Repeat};
use crate::escape::escape;
use crate::failure::Failure;
use crate::http::encode;
use crate::out::{self, Say};
use cage::policy::Millis;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;
use wire::watch::Met;
use wire::{ErrorCode, Exit, PtyId, WireError};

/// Longest single question for an exit; asked again until the end, so that daemons that die meanwhile
/// are started again.
const TURN_MS: u64 = 10_000;
/// The same for what is to be seen: the broker sees all of it within one question.
const WATCH_TURN_MS: u64 = 10 * 60 * 1000;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").multiple(true))]
#[command(after_help = "\
--exit prints the exit status that run would have given; --for prints the line that matches.
--for looks at each line by itself, of those above the screen and on it; lines that were wrapped are
one, and blanks at a line's end are not there. What is there already counts; with --after only what is printed after so many bytes of output
does: `mews send --json` and `mews screen --json` say the number as `seq`. Of --for and --idle
whichever comes first.
Exit status: 0 when it has come, 1 when the time is over, 3 when the command ended before.

Examples:
  mews wait --exit build-1
  test $(mews wait --exit build-1) = 0 && echo good
  mews wait pi --for 'Done in [0-9]+s' --timeout 600
  mews wait pi --idle 2s
  seq=$(mews send sh 'make' --key enter --json | jq .seq)
  mews wait sh --for '[$]$' --after $seq")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// Until its exit
    #[arg(long, conflicts_with_all = ["pattern", "idle", "after"])]
    exit: bool,
    /// Until a line matches this regular expression
    #[arg(long = "for", value_name = "REGEX")]
    pattern: Option<String>,
    /// Until there was no output and no key for so long: 500ms, 2s, 1m
    #[arg(long, value_name = "T")]
    idle: Option<String>,
    /// Only what is printed after so many bytes counts
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Most seconds to wait
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Seen {
    met: Option<Met>,
    line: Option<String>,
    seq: Option<u64>,
    exit: Option<Exit>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let limit = args.timeout.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|_bad| Failure::usage("--timeout takes seconds, as 2.5"))?;
    let query = query(args)?;
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (_cage, pty) = terminal_of(&found)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let name = escape(&found.name);
    match query {
        None => exit(&api, pty, deadline, &name, say).await,
        Some(query) => seen(&api, &format!("/ptys/{pty}/wait?{query}"), deadline, &name, say).await,
    }
}

/// For what is to be seen; `None`: for the exit.
fn query(args: &Args) -> Result<Option<String>, Failure> {
    let mut words = Vec::new();
    if let Some(pattern) = &args.pattern {
        words.push(format!("for={}", encode(pattern)));
    }
    if let Some(text) = &args.idle {
        let Millis(ms) =
            Millis::parse(text).map_err(|error| Failure::usage(format!("--idle: {error}")))?;
        words.push(format!("idle_ms={ms}"));
    }
    if words.is_empty() && !args.exit {
        let failure = Failure::usage("say what to wait for: --exit, --for REGEX or --idle T");
        return Err(failure.next(format!("mews wait --exit {}", args.id)));
    }
    if let Some(after) = args.after {
        words.push(format!("after={after}"));
    }
    Ok((!words.is_empty()).then(|| words.join("&")))
}

/// Milliseconds until the deadline.
fn left(deadline: Option<Instant>) -> Option<u64> {
    let left = deadline?.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).ok()
}

async fn exit(
    api: &Api,
    pty: PtyId,
    deadline: Option<Instant>,
    name: &str,
    say: &Say,
) -> Result<u8, Failure> {
    loop {
        api.ensure_supervisor().await?;
        let turn = left(deadline);
        if let Some(exit) = api.wait(pty, turn.unwrap_or(TURN_MS).min(TURN_MS)).await? {
            if say.json {
                out::json_line(&json!({ "exit": exit, "status": exit.status() }))?;
            } else {
                out::data(&format!("{}\n", exit.status()))?;
            }
            return Ok(0);
        }
        if turn == Some(0) {
            say.note(&format!("{name} still runs"));
            return Ok(1);
        }
    }
}

async fn seen(
    api: &Api,
    path: &str,
    deadline: Option<Instant>,
    name: &str,
    say: &Say,
) -> Result<u8, Failure> {
    loop {
        let turn = left(deadline);
        let path =
            format!("{path}&timeout_ms={}", turn.unwrap_or(WATCH_TURN_MS).min(WATCH_TURN_MS));
        let seen: Seen = api.post(&path, &json!({}), Repeat::Safe).await?;
        let over = seen.met.is_none() && left(deadline) == Some(0);
        if say.json && (seen.met.is_some() || over) {
            out::json_line(&seen)?;
        }
        match seen.met {
            Some(Met::For) if !say.json => {
                out::data(&format!("{}\n", escape(seen.line.as_deref().unwrap_or_default())))?;
                return Ok(0);
            }
            Some(Met::For | Met::Idle) => return Ok(0),
            Some(Met::Ended) => return Err(ended(seen.exit.as_ref(), name)),
            None if over => {
                say.note(&format!("{name}: it has not come within the time"));
                return Ok(1);
            }
            None => {}
        }
    }
}

fn ended(exit: Option<&Exit>, name: &str) -> Failure {
    let how = exit.map_or_else(String::new, |exit| format!(" (exit {})", exit_word(exit)));
    let words = format!("{name} has ended{how} before that came");
    Failure::from(WireError::new(ErrorCode::Gone, words)).next(format!("mews logs {name}"))
}
