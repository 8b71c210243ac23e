//! `mews pause` and `mews resume`: everything in a session stands still, and goes on.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::ErrorCode;
use wire::api::SessionView;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
All processes stand still, whatever they do; memory and files stay. Keys that are typed meanwhile
arrive afterwards. Walltime stands, but programs see that time has passed.

Examples:
  mews pause pi-1
  mews pause pi-1 build-1
  mews resume pi-1")]
pub(crate) struct Pause {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews resume pi-1
  mews resume pi-1 build-1")]
pub(crate) struct Resume {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) async fn pause(args: &Pause, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let text = format!("pausing {}", escape(&found.name));
        let paused = say.during(&text, api.pause(found.session)).await;
        told(say, "paused", &paused.map_err(|failure| nothing_runs(failure, &found.name))?)?;
    }
    Ok(0)
}

pub(crate) async fn resume(args: &Resume, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let text = format!("resuming {}", escape(&found.name));
        let resumed = say.during(&text, api.resume(found.session)).await;
        told(say, "resumed", &resumed.map_err(|failure| nothing_runs(failure, &found.name))?)?;
    }
    Ok(0)
}

/// It has ended, or does not stand still: what it does is to be looked at.
fn nothing_runs(failure: Failure, name: &str) -> Failure {
    if failure.is(ErrorCode::Gone) || failure.is(ErrorCode::Conflict) {
        return failure.next(format!("mews inspect {name}"));
    }
    failure
}

fn told(say: &Say, done: &str, view: &SessionView) -> Result<(), Failure> {
    if say.json {
        return out::json_line(view);
    }
    say.note(&format!("{done} {}", escape(&view.name)));
    Ok(())
}
