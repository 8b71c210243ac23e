//! `mews audit`: who asked for what, by what right, and what came of it.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::render;
use crate::time::{now_ms, stamp};
use cage::policy::Millis;
use serde::Deserialize;
use wire::audit::{AuditView, Keeper};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What you have asked for, and what others have done to what is yours; an admin sees everybody's. BY says
by what right: own, admin, or the end of a grant's id. An outcome `asked` is under way, or whoever did it
died. The supervisor writes its own journal, which sessiond cannot change; lines of sessiond's own are
marked with a *.

Examples:
  mews audit
  mews audit --since 2h -n 1000
  mews audit pi-1 --json | jq .verb")]
pub(crate) struct Args {
    /// Only about this session: name or id
    id: Option<String>,
    /// Only of so long ago and since: 30m, 7d
    #[arg(long, value_name = "T")]
    since: Option<String>,
    /// The newest so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    number: u32,
}

#[derive(Deserialize)]
struct Listed {
    entries: Vec<AuditView>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let since_ms = match &args.since {
        None => 0,
        Some(text) => {
            let Millis(ms) =
                Millis::parse(text).map_err(|error| Failure::usage(format!("--since: {error}")))?;
            now_ms().saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX))
        }
    };
    let api = Api::new();
    let mut path = format!("/audit?since_ms={since_ms}&limit={}", args.number);
    if let Some(id) = &args.id {
        path.push_str(&format!("&session={}", api.resolve(id).await?.session));
    }
    let entries = api.get::<Listed>(&path).await?.entries;
    if say.json {
        for entry in &entries {
            out::json_line(entry)?;
        }
        return Ok(0);
    }
    if entries.is_empty() {
        say.note("nothing is recorded of that");
        return Ok(0);
    }
    let head = ["TIME", "UID", "BY", "ACT", "SESSION", "CAGE", "OF", "OUTCOME"];
    out::data(&render(&head, &entries.iter().map(row).collect::<Vec<_>>()))?;
    Ok(0)
}

fn row(entry: &AuditView) -> Vec<String> {
    let act = &entry.act;
    // A mint or a revocation names the grant that it is about.
    let by = match (&act.grant, act.admin) {
        (Some(grant), _) if act.verb == "spawn" => format!("grant {}", grant.short()),
        (_, true) => "admin".to_owned(),
        (_, false) => "own".to_owned(),
    };
    let mark = match entry.source {
        Keeper::Supervisor => "",
        Keeper::Sessiond => "*",
    };
    let none = || "-".to_owned();
    vec![
        stamp(entry.at_ms),
        act.uid.to_string(),
        by,
        format!("{}{mark}", escape(&act.verb)),
        act.session.map_or_else(none, |id| id.short()),
        act.cage.map_or_else(none, |id| id.short()),
        act.owner.map_or_else(none, |uid| uid.to_string()),
        escape(&entry.outcome),
    ]
}
