//! `mews limits`: the limits of a living cage, and their change.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::render;
use cage::plan::change_words;
use cage::policy::limit_words;
use serde_json::Value;
use wire::limits::{LimitView, LimitsAsked, LimitsView};
use wire::{ErrorCode, WallState};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without KEY=VALUE it shows what is in effect and by what it is enforced. Keys and values are those
of [limits] in a policy: memory, swap, pids, cpu, io, walltime, idle, output_bytes,
workspace_bytes, workspace_inodes; `none` takes a limit away. All of it is set, or nothing. A limit
that is already passed is refused; nothing is killed for it.

Examples:
  mews limits pi-1
  mews limits pi-1 memory=4G
  mews limits pi-1 walltime=2h idle=none")]
pub(crate) struct Args {
    /// Name or id
    #[arg(value_name = "ID")]
    id: String,
    /// What to set
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let asked = asked(&args.pairs)?;
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (cage, _pty) = super::attach::terminal_of(&found)?;
    let path = format!("/sessions/{}/cages/{cage}/limits", found.session);
    let view: Result<LimitsView, Failure> =
        if asked.is_empty() { api.get(&path).await } else { api.patch(&path, &asked).await };
    let view = view.map_err(|failure| refused(failure, &found.name))?;
    if say.json {
        out::json_line(&view)?;
        return Ok(0);
    }
    if asked.is_empty() {
        out::data(&table(&view.limits))?;
    } else if view.changes.is_empty() {
        say.note("nothing to change: these limits are in effect");
    }
    for change in &view.changes {
        say.note(&format!("{}: {}", escape(&found.name), escape(&change_words(change))));
    }
    Ok(0)
}

fn refused(failure: Failure, name: &str) -> Failure {
    if failure.is(ErrorCode::Gone) {
        return failure.next(format!("mews inspect {name}"));
    }
    if failure.is(ErrorCode::Conflict) {
        return failure.next(format!("mews limits {name}"));
    }
    failure
}

/// Of pairs that were typed.
pub(super) fn asked(pairs: &[String]) -> Result<LimitsAsked, Failure> {
    let mut asked = LimitsAsked::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let words = format!("{pair:?} is not KEY=VALUE, such as memory=4G");
            return Err(Failure::usage(words));
        };
        if asked.insert(key.to_owned(), Value::from(value)).is_some() {
            return Err(Failure::usage(format!("{key} is given twice; say it once")));
        }
    }
    Ok(asked)
}

fn table(limits: &[LimitView]) -> String {
    let rows = limits.iter().map(|view| {
        let how = match view.state {
            WallState::Enforced | WallState::Off => view.how.clone(),
            WallState::Emulated => format!("by weaker means: {}", view.how),
            WallState::Absent => format!("ABSENT: {}", view.how),
        };
        let changes = if view.fixed.is_some() { "no" } else { "yes" };
        vec![
            escape(&view.limit),
            limit_words(view.unit, view.value),
            changes.to_owned(),
            escape(&how),
        ]
    });
    render(&["LIMIT", "VALUE", "CHANGES", "BY"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_or_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = asked(&words("memory=4G idle=none")).unwrap();
        assert_eq!(serde_json::to_string(&found).unwrap(), r#"{"idle":"none","memory":"4G"}"#);
        for bad in ["memory", "=4G", "pids=9 pids=8"] {
            assert!(asked(&words(bad)).is_err(), "{bad}");
        }
    }
}
