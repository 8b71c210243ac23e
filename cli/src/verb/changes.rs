//! `mews diff`, `apply` and `discard`: what a session has changed, apart from the operator's folder.

use crate::api::{Api, Repeat};
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use wire::api::{LayerDone, LayerPaths};
use wire::{Arg, Change, ChangeKind, Changes, EntryKind, ErrorCode};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A, M, D: added, modified, deleted in the session. C: your own folder has changed there, too, since the
session began; apply leaves such a path alone.

Exit status: 0 nothing is different, 1 something is.

Examples:
  mews diff pi-1
  mews diff pi-1 --json | jq -r '.changes[].path'")]
pub(crate) struct Diff {
    /// Name or id
    id: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Brings what a session has changed to your folder. What has changed on both sides is shown and left as
it is; setuid bits are not brought along. The session may be living, paused or ended.

Exit status: 0 everything asked for is applied, 1 something is left.

Examples:
  mews apply pi-1                 all of it
  mews apply pi-1 src Makefile    only these, with what is below them")]
pub(crate) struct Apply {
    /// Name or id
    id: String,
    /// Paths below the workspace [default: all]
    paths: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Throws away what a session has changed; your own folder is not touched. Its programs must have ended.

Examples:
  mews discard pi-1 target        only this
  mews discard pi-1 --yes         all of it, without a question")]
pub(crate) struct Discard {
    /// Name or id
    id: String,
    /// Paths below the workspace [default: all]
    paths: Vec<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn diff(args: &Diff, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let text = format!("comparing {} with your folder", escape(&found.name));
    let path = format!("/sessions/{}/diff", found.session);
    let changes: Result<Changes, Failure> = say.during(&text, api.get(&path)).await;
    let changes = changes.map_err(|failure| no_layer(failure, &found.name))?;
    if say.json {
        out::json_line(&changes)?;
    } else {
        print(&changes, say)?;
    }
    Ok(u8::from(!changes.changes.is_empty()))
}

pub(crate) async fn apply(args: &Apply, say: &Say) -> Result<u8, Failure> {
    settle(&args.id, "apply", &args.paths, say).await
}

pub(crate) async fn discard(args: &Discard, say: &Say) -> Result<u8, Failure> {
    if !args.yes && args.paths.is_empty() {
        let name = escape(&args.id);
        confirm(&format!("throw away everything that {name} has changed?"), "--yes")?;
    }
    settle(&args.id, "discard", &args.paths, say).await
}

async fn settle(id: &str, verb: &str, paths: &[PathBuf], say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(id).await?;
    let paths = paths.iter().map(|path| Arg::from(path.as_os_str())).collect();
    let path = format!("/sessions/{}/{verb}", found.session);
    // Twice is the same as once: what is done is no change any more.
    let doing = if verb == "apply" { "applying" } else { "discarding" };
    let text = format!("{doing} what {} has changed", escape(&found.name));
    let body = LayerPaths { paths };
    let settled: Result<LayerDone, Failure> =
        say.during(&text, api.post(&path, &body, Repeat::Safe)).await;
    let settled = settled.map_err(|failure| no_layer(failure, &found.name))?;
    if say.json {
        out::json_line(&settled)?;
    } else {
        print(&settled.done, say)?;
        for change in &settled.left.changes {
            let why = change.conflict.as_deref().unwrap_or("left as it is");
            say.note(&format!("{}: {}", shown(change), escape(why)));
        }
        let did = if verb == "apply" { "applied" } else { "discarded" };
        let (done, left) = (settled.done.changes.len(), settled.left.changes.len());
        match left {
            0 => say.note(&format!("{did} {done}")),
            _ => {
                let name = escape(&found.name);
                say.note(&format!("{did} {done}, left {left}; what differs: mews diff {name}"));
            }
        }
    }
    Ok(u8::from(!settled.left.changes.is_empty()))
}

/// What has no layer never had one; what runs or stands still is in the way.
fn no_layer(failure: Failure, name: &str) -> Failure {
    if failure.is(ErrorCode::NotFound) {
        return failure.next("mews run --overlay -- CMD");
    }
    if failure.is(ErrorCode::Conflict) {
        return failure.next(format!("mews end {name}, and the same again"));
    }
    failure
}

/// One line a path.
pub(super) fn print(changes: &Changes, say: &Say) -> Result<(), Failure> {
    let mut text = String::new();
    for change in &changes.changes {
        let letter = match change.kind {
            _both if change.conflict.is_some() => 'C',
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        };
        // Writing to a String cannot fail.
        let _written = write!(text, "{letter} {}", shown(change));
        if let Some((before, after)) = change.mode {
            let _written = write!(text, "  mode {before:o} → {after:o}");
        }
        if let Some(why) = &change.conflict {
            let _written = write!(text, "  ({})", escape(why));
        }
        text.push('\n');
    }
    out::data(&text)?;
    if changes.truncated {
        say.note("there are more; this list is cut off");
    }
    Ok(())
}

fn shown(change: &Change) -> String {
    let path = escape(&change.path.lossy());
    match change.entry {
        EntryKind::Folder => format!("{path}/"),
        EntryKind::File | EntryKind::Symlink | EntryKind::Fifo => path,
    }
}

/// Asks at a terminal; elsewhere the flag must say it.
pub(super) fn confirm(question: &str, flag: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let failure = Failure::usage(format!("{question} Nobody is here to ask: say {flag}"));
        return Err(failure.next(format!("the same with {flag}")));
    }
    out::ask(&format!("mews: {question} [y/N] "));
    let mut answer = String::new();
    // An end of input is a no.
    let _read = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _no => Err(Failure::usage("nothing was done")
            .next(format!("the same, and y; or with {flag}, which does not ask"))),
    }
}
