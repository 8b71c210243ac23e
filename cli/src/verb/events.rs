//! `mews events`: what happened in a session, in order.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::cut;
use crate::time::stamp;
use std::io::IsTerminal;
use std::time::Duration;
use wire::SessionId;
use wire::api::{Events, SessionEvent, SessionState, SessionView};

/// One page.
const LIMIT: usize = 500;
/// Data of one event on a terminal.
const LINE_CHARS: usize = 120;
/// The API has no stream of events yet: how often `-f` asks.
const TURN: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews events pi-1
  mews events -f --json pi-1 | jq .type")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// Only those after this sequence number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: i64,
    /// Go on until the session ends
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let session = api.resolve(&args.id).await?.session;
    let mut turn = tokio::time::interval(TURN);
    let mut after = args.after;
    loop {
        // Asked before the events, so that what came with the end is still printed.
        let over = !args.follow || has_ended(&api, session).await?;
        after = print_after(&api, session, after, say).await?;
        if over {
            return Ok(0);
        }
        turn.tick().await;
    }
}

async fn print_after(
    api: &Api,
    session: SessionId,
    mut after: i64,
    say: &Say,
) -> Result<i64, Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    loop {
        let path = format!("/sessions/{session}/events?after={after}&limit={LIMIT}");
        let page: Events = api.get(&path).await?;
        let Some(last) = page.events.last().map(|event| event.seq) else { return Ok(after) };
        for event in &page.events {
            if say.json {
                out::json_line(event)?;
            } else {
                out::data(&line(event, is_terminal))?;
            }
        }
        // A page that does not go on would be asked for for ever.
        after = last.max(after + 1);
    }
}

async fn has_ended(api: &Api, session: SessionId) -> Result<bool, Failure> {
    let session: SessionView = api.get(&format!("/sessions/{session}")).await?;
    Ok(matches!(session.state, SessionState::Ended | SessionState::Failed))
}

fn line(event: &SessionEvent, is_terminal: bool) -> String {
    let is_empty = event.data.as_object().map_or(event.data.is_null(), serde_json::Map::is_empty);
    let data = if is_empty { String::new() } else { escape(&event.data.to_string()) };
    // The eye wants a line; a pipe wants all of it.
    let data = if is_terminal { cut(&data, LINE_CHARS) } else { data };
    let line =
        format!("{:>5}  {}  {:<22} {data}", event.seq, stamp(event.at_ms), escape(&event.kind));
    format!("{}\n", line.trim_end())
}
