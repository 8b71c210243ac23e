//! `mews checkpoint`, `checkpoints` and `rollback`: states of a session that can be come back to.

mod page;

use super::changes;
use crate::api::{Api, Repeat};
use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::{cut, render};
use crate::time::{age, now_ms};
use serde::Deserialize;
use wire::api::{CheckpointState, CheckpointView, Rollback, RolledBack, TakeCheckpoint};
use wire::{Changes, ErrorCode, SessionId, WireError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything in the session stands still, then its screens, its processes and the changes to its files
are kept. It is paused afterwards. Files are part of a checkpoint where the session was started with
--overlay or --copy; memory is not.

Examples:
  mews checkpoint pi-1 -m 'before the refactoring'
  mews checkpoint pi-1 --resume         and let it go on at once
  mews checkpoints pi-1
  mews rollback pi-1")]
pub(crate) struct Take {
    /// Name or id
    id: String,
    /// A word on it, for the list
    #[arg(short = 'm', long, value_name = "TEXT")]
    note: Option<String>,
    /// Let the session go on at once
    #[arg(long)]
    resume: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews checkpoints pi-1
  mews checkpoints pi-1 7Q2MXK          what it kept: processes, usage, screens
  mews checkpoints pi-1 --json | jq -r .id")]
pub(crate) struct List {
    /// Name or id
    id: String,
    /// Id of one of them, or its beginning or end: all of it
    checkpoint: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The session's programs are killed and its files are as they were: what was added since is gone, what
was deleted is back. Your own folder and other sessions are not touched. It shows what would change
and asks first.

Examples:
  mews rollback pi-1 --dry-run          what would change
  mews rollback pi-1                    to the newest checkpoint
  mews rollback pi-1 7Q2MXK --restart   to that one, and start the command again
  mews rollback pi-1 --yes              without a question")]
pub(crate) struct Back {
    /// Name or id
    id: String,
    /// Id of a checkpoint, or its beginning or end [default: the newest that is not superseded]
    checkpoint: Option<String>,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Start the command again that ran then
    #[arg(long)]
    restart: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Deserialize)]
struct Listed {
    checkpoints: Vec<CheckpointView>,
}

pub(crate) async fn take(args: &Take, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let body = TakeCheckpoint { note: args.note.clone(), resume: args.resume };
    let path = format!("/sessions/{}/checkpoints", found.session);
    let text = format!("keeping the state of {}", escape(&found.name));
    let taken: Result<CheckpointView, Failure> =
        say.during(&text, api.post(&path, &body, Repeat::Never)).await;
    let taken = taken.map_err(|failure| match failure.is(ErrorCode::Gone) {
        true => failure.next(format!("mews checkpoints {}", found.name)),
        false => failure,
    })?;
    if say.json {
        out::json_line(&taken)?;
        return Ok(0);
    }
    out::data(&format!("{}\n", taken.id))?;
    let name = escape(&found.name);
    if !taken.covers_files {
        say.note(
            "files are not part of it: the programs work in the folder itself; start sessions with \
             --overlay or --copy for that",
        );
    }
    if args.resume {
        say.note(&format!("kept, and {name} goes on; come back to it: mews rollback {name}"));
    } else {
        say.note(&format!("kept; {name} is paused; let it go on: mews resume {name}"));
    }
    Ok(0)
}

pub(crate) async fn list(args: &List, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let checkpoints = listed(&api, found.session).await?;
    if let Some(wanted) = &args.checkpoint {
        let id = choose(&checkpoints, Some(wanted), &escape(&found.name))?.id;
        let path = format!("/sessions/{}/checkpoints/{id}", found.session);
        let whole: CheckpointView = api.get(&path).await?;
        match say.json {
            true => out::json_line(&whole)?,
            false => out::data(&page::page(&whole))?,
        }
        return Ok(0);
    }
    if say.json {
        for checkpoint in &checkpoints {
            out::json_line(checkpoint)?;
        }
        return Ok(0);
    }
    if checkpoints.is_empty() {
        let name = escape(&found.name);
        say.note(&format!("no checkpoints yet; take one: mews checkpoint {name}"));
        return Ok(0);
    }
    let head = ["ID", "AGE", "STATE", "FILES", "COMMAND", "NOTE"];
    let rows: Vec<Vec<String>> = checkpoints.iter().map(row).collect();
    out::data(&render(&head, &rows))?;
    Ok(0)
}

async fn listed(api: &Api, session: SessionId) -> Result<Vec<CheckpointView>, Failure> {
    Ok(api.get::<Listed>(&format!("/sessions/{session}/checkpoints")).await?.checkpoints)
}

fn row(checkpoint: &CheckpointView) -> Vec<String> {
    let files = checkpoint.cages.iter().filter_map(|cage| cage.layer).map(|layer| layer.copied);
    let entries: u64 = files.map(|copied| copied.entries).sum();
    let argv = checkpoint.cages.iter().flat_map(|cage| &cage.ptys).map(|pty| &pty.argv).next();
    vec![
        checkpoint.id.short(),
        age(now_ms() - checkpoint.created_at_ms),
        state_word(checkpoint).to_owned(),
        if checkpoint.covers_files { entries.to_string() } else { "-".to_owned() },
        argv.map_or_else(|| "-".to_owned(), |argv| cut(&command(argv), 40)),
        checkpoint.note.as_deref().map_or_else(|| "-".to_owned(), |note| cut(&escape(note), 40)),
    ]
}

fn state_word(checkpoint: &CheckpointView) -> &'static str {
    match checkpoint.state {
        CheckpointState::Taking => "taking",
        CheckpointState::Taken if checkpoint.superseded => "superseded",
        CheckpointState::Taken => "kept",
        CheckpointState::Failed => "failed",
        CheckpointState::Archived => "archived",
    }
}

pub(crate) async fn rollback(args: &Back, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let name = escape(&found.name);
    let checkpoints = listed(&api, found.session).await?;
    let checkpoint = choose(&checkpoints, args.checkpoint.as_deref(), &name)?;
    let path = format!("/sessions/{}/checkpoints/{}", found.session, checkpoint.id);
    let preview: Changes =
        say.during("looking at what would change", api.get(&format!("{path}/diff"))).await?;
    if args.dry_run {
        changes::print(&preview, say)?;
        if preview.changes.is_empty() {
            say.note("no file would change");
        }
        return Ok(0);
    }
    if !args.yes {
        changes::print(&preview, say)?;
        let what =
            if preview.changes.is_empty() { "no file changes" } else { "files change as above" };
        let question = format!("kill the programs of {name} and go back ({what})?");
        changes::confirm(&question, "--yes")?;
    }
    let body = Rollback { confirm: true, restart: args.restart };
    let text = format!("bringing {name} back to {}", checkpoint.id.short());
    let path = format!("{path}/rollback");
    let back: RolledBack = say.during(&text, api.post(&path, &body, Repeat::Never)).await?;
    if say.json {
        out::json_line(&back)?;
        return Ok(0);
    }
    let changed = match preview.changes.len() {
        1 => "1 path".to_owned(),
        count => format!("{count} paths"),
    };
    say.note(&format!("{name} is back at {}; {changed} changed", checkpoint.id.short()));
    match back.started {
        Some(_run) => say.note(&format!("its command runs again: mews attach {name}")),
        None => say.note(&format!("what its files differ in from your folder: mews diff {name}")),
    }
    Ok(0)
}

/// By its id, or the newest that counts.
fn choose<'a>(
    checkpoints: &'a [CheckpointView],
    wanted: Option<&str>,
    name: &str,
) -> Result<&'a CheckpointView, Failure> {
    let none = |words: String| {
        let failure = Failure::from(WireError::new(ErrorCode::NotFound, words));
        failure.next(format!("mews checkpoints {name}"))
    };
    let Some(wanted) = wanted else {
        let kept = |one: &&CheckpointView| one.state == CheckpointState::Taken && !one.superseded;
        let newest = checkpoints.iter().rev().find(kept);
        return newest.ok_or_else(|| none(format!("{name} has no checkpoint to go back to")));
    };
    let upper = wanted.to_ascii_uppercase();
    let matches: Vec<&CheckpointView> = checkpoints
        .iter()
        .filter(|one| {
            let id = one.id.to_string();
            upper.len() >= 4 && (id.starts_with(&upper) || id.ends_with(&upper))
        })
        .collect();
    match matches[..] {
        [one] => Ok(one),
        [] => Err(none(format!("{name} has no checkpoint '{}'", escape(wanted)))),
        [..] => Err(none(format!("'{}' means more than one checkpoint", escape(wanted)))),
    }
}
