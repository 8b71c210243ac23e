//! `mews prune`: old sessions go, with all they have kept.
//!
//! What could be missed stays unless it is named: living sessions, archived ones, and those that have
//! changes which nobody has applied yet.

use super::changes::confirm;
use super::ls::{exit_of, listed, state_word, user};
use crate::api::Api;
use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::http::encode;
use crate::out::{self, Say};
use crate::table::{cut, render};
use crate::time::{age, now_ms};
use cage::policy::Millis;
use serde::Serialize;
use wire::api::SessionView;
use wire::{Changes, ErrorCode, SessionId};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes sessions that ended so long ago, with what they printed, their events, layers and checkpoints.
It shows them and asks first. Living sessions are never touched; archived ones and those with changes
that were not applied stay unless you say so. An admin removes their own, too, unless told --all-users.

Examples:
  mews prune --dry-run                what would go
  mews prune                          what ended more than 7 days ago
  mews prune --older-than 0s --label ci
  mews prune --older-than 30d --changed -y")]
pub(crate) struct Args {
    /// Ended so long ago: 12h, 7d, 0s
    #[arg(long, value_name = "T", default_value = "7d", value_parser = time)]
    older_than: i64,
    /// Only those with this label, or with this value of it; several: with all of them
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    #[command(flatten)]
    also: Also,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// What else goes.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Also {
    /// Also those with changes that were not applied (mews diff): these are lost
    #[arg(long)]
    changed: bool,
    /// Also those that were put away with mews archive
    #[arg(long)]
    archived: bool,
    /// Also those of other operators, for an admin of a shared host
    #[arg(long)]
    all_users: bool,
}

/// What became of one, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    Goes,
    Removed,
    /// It has changes that were not applied.
    Changed,
    Archived,
}

#[derive(Serialize)]
struct Told {
    id: SessionId,
    name: String,
    fate: Fate,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let old = say.during("looking for old sessions", old(&api, args)).await?;
    let going: Vec<&SessionView> = of(&old, Fate::Goes);
    if !say.json {
        show(&going, args.also.all_users)?;
    }
    kept(&old, say)?;
    if going.is_empty() {
        say.note("nothing to remove");
        return Ok(0);
    }
    if args.dry_run {
        going.iter().try_for_each(|session| told(session, Fate::Goes, say))?;
        return Ok(0);
    }
    if !args.yes {
        confirm(&format!("remove {} with all they have kept?", sessions(going.len())), "--yes")?;
    }
    let removed = remove(&api, &going, say).await?;
    say.note(&format!("removed {}", sessions(removed)));
    Ok(0)
}

/// Those that ended before the time, and whether they go.
async fn old(api: &Api, args: &Args) -> Result<Vec<(SessionView, Fate)>, Failure> {
    let labels = args.label.iter().map(|label| format!("&label={}", encode(label)));
    let query = format!("all=true&state=ended&state=failed{}", labels.collect::<String>());
    let before = now_ms().saturating_sub(args.older_than);
    let own = nix::unistd::geteuid().as_raw();
    let mut found = Vec::new();
    for session in listed(api, &query).await? {
        let is_young = session.ended_at_ms.is_none_or(|ended| ended > before);
        if is_young || (session.uid != own && !args.also.all_users) {
            continue;
        }
        let fate = if session.archived && !args.also.archived {
            Fate::Archived
        } else if !args.also.changed && has_changes(api, &session).await? {
            Fate::Changed
        } else {
            Fate::Goes
        };
        found.push((session, fate));
    }
    Ok(found)
}

/// Of one without a layer there is nothing to ask.
async fn has_changes(api: &Api, session: &SessionView) -> Result<bool, Failure> {
    if !session.cages.iter().any(|cage| cage.enforced.keeps_apart()) {
        return Ok(false);
    }
    match api.get::<Changes>(&format!("/sessions/{}/diff", session.id)).await {
        Ok(changes) => Ok(!changes.changes.is_empty()),
        // It is gone already, or removed by somebody else.
        Err(failure) if failure.is(ErrorCode::NotFound) => Ok(false),
        // What cannot be looked at may have some.
        Err(failure) if failure.status == 69 => Err(failure),
        Err(_unreadable) => Ok(true),
    }
}

fn of(old: &[(SessionView, Fate)], wanted: Fate) -> Vec<&SessionView> {
    old.iter().filter(|(_session, fate)| *fate == wanted).map(|(session, _fate)| session).collect()
}

/// How many were removed. One that somebody else removes, or brings back to life, is no failure.
async fn remove(api: &Api, going: &[&SessionView], say: &Say) -> Result<usize, Failure> {
    let mut removed = 0;
    let progress = say.progress("removing");
    for session in going {
        progress.say(&format!("removing {} of {}", removed + 1, going.len()));
        let path = format!("/sessions/{}?confirm=true&purge=true", session.id);
        match api.delete(&path).await {
            Ok(_gone) => {
                removed += 1;
                told(session, Fate::Removed, say)?;
            }
            Err(failure) if failure.is(ErrorCode::NotFound) || failure.is(ErrorCode::Conflict) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(removed)
}

fn told(session: &SessionView, fate: Fate, say: &Say) -> Result<(), Failure> {
    if !say.json {
        return Ok(());
    }
    out::json_line(&Told { id: session.id, name: session.name.clone(), fate })
}

/// What stays although it is old, and how it would go.
fn kept(old: &[(SessionView, Fate)], say: &Say) -> Result<(), Failure> {
    for (fate, why) in [
        (
            Fate::Changed,
            "with changes that were not applied (mews diff); --changed removes them too",
        ),
        (Fate::Archived, "that were archived; --archived removes them too"),
    ] {
        let kept = of(old, fate);
        kept.iter().try_for_each(|session| told(session, fate, say))?;
        if !kept.is_empty() {
            let names: Vec<String> = kept.iter().map(|session| escape(&session.name)).collect();
            let names = cut(&names.join(", "), 60);
            say.note(&format!("left: {} {why}: {names}", sessions(kept.len())));
        }
    }
    Ok(())
}

fn show(going: &[&SessionView], of_all: bool) -> Result<(), Failure> {
    if going.is_empty() {
        return Ok(());
    }
    let mut head = vec!["NAME", "STATE", "ENDED", "EXIT", "COMMAND", "ID"];
    let mut rows = rows(going, now_ms());
    if of_all {
        head.insert(1, "USER");
        for (row, session) in rows.iter_mut().zip(going) {
            row.insert(1, user(session.uid));
        }
    }
    out::data(&render(&head, &rows))
}

fn rows(going: &[&SessionView], now_ms: i64) -> Vec<Vec<String>> {
    let row = |session: &&SessionView| {
        let run = session.runs.last();
        let ago = session.ended_at_ms.map(|ended| format!("{} ago", age(now_ms - ended)));
        vec![
            escape(&session.name),
            state_word(session.state).to_owned(),
            ago.unwrap_or_default(),
            run.map_or_else(|| "-".to_owned(), exit_of),
            run.map_or_else(|| "-".to_owned(), |run| cut(&command(&run.argv), 40)),
            session.id.short(),
        ]
    };
    going.iter().map(row).collect()
}

fn sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

fn time(text: &str) -> Result<i64, String> {
    // No time at all is no limit; here it is a time.
    if matches!(text, "0" | "0s") {
        return Ok(0);
    }
    let time = Millis::parse(text).map_err(|why| why.to_string())?;
    i64::try_from(time.0).map_err(|_too_long| "that is longer than time is".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_policies() {
        for (text, want) in [("0s", 0), ("90m", 5_400_000), ("7d", 604_800_000)] {
            assert_eq!(time(text), Ok(want), "{text}");
        }
        assert!(time("soon").is_err() && time("-1d").is_err());
    }
}
