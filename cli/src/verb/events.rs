//! `mews events`: what happened in a session, in order.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::cut;
use crate::time::stamp;
use std::io::IsTerminal;
use wire::SessionId;
use wire::api::{Events, SessionEvent, SessionState, SessionView};

/// One page.
const LIMIT: usize = 500;
/// Data of one event on a terminal.
const LINE_CHARS: usize = 120;
/// Longest wait for the next event; asked again until the end.
const TURN_MS: u32 = 10_000;

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
    let mut after = args.after;
    loop {
        // Asked before the events, so that what came with the end is still printed.
        let over = !args.follow || has_ended(&api, session).await?;
        let wait_ms = if over { 0 } else { TURN_MS };
        let path =
            format!("/sessions/{session}/events?after={after}&limit={LIMIT}&wait_ms={wait_ms}");
        let page: Events = api.get(&path).await?;
        print(&page.events, say)?;
        if !out::has_reader() {
            return Ok(0);
        }
        match page.events.last() {
            // A page that does not go on would be asked for for ever.
            Some(last) => after = last.seq.max(after + 1),
            None if over => return Ok(0),
            None => api.ensure_supervisor().await?,
        }
    }
}

fn print(events: &[SessionEvent], say: &Say) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    for event in events {
        if say.json {
            out::json_line(event)?;
        } else {
            out::data(&line(event, is_terminal))?;
        }
    }
    Ok(())
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
