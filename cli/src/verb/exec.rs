//! `mews exec`: one more command in a living cage.

use super::watching::{Keys, conclude};
use crate::api::{Api, Repeat};
use crate::control::Control;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::request::{self, Streams};
use crate::viewer::{Ending, Ends, Viewer};
use serde_json::json;
use std::ffi::OsString;
use std::sync::Arc;
use wire::ErrorCode;
use wire::api::{ExecRequest, Started};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: the command's own, as for run.

Examples:
  mews exec pi-1 -- git status
  mews exec -d pi-1 -- ./watch.sh     in the background
  mews exec pi-1 -- cat out.bin > out.bin")]
pub(crate) struct Args {
    /// Name or id
    pub(crate) id: String,
    /// In the background: print the terminal's id and return
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Pipes instead of a terminal
    #[arg(long)]
    pub(crate) no_tty: bool,
    #[command(flatten)]
    pub(crate) keys: Keys,
    /// The command
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    let keys = args.keys.parse()?;
    let api = Arc::new(Api::new());
    let found = api.resolve(&args.id).await?;
    let Some(cage) = found.cage else {
        return Err(super::attach::terminal_of(&found).err().unwrap_or_else(|| gone(&found.name)));
    };
    let streams = Streams::choose(args.no_tty, args.detach);
    let spec = request::exec_spec(&args.command, streams, !args.detach);
    let mut ends = Ends::new().map_err(|error| Failure::new(error.to_string()))?;
    let path = format!("/sessions/{}/cages/{cage}/exec", found.session);
    let client_request_id = Some(wire::RunId::new().to_string());
    let request = ExecRequest { exec: spec.clone(), client_request_id };
    let started: Started = match api.post(&path, &request, Repeat::Safe).await {
        Err(failure) if failure.is(ErrorCode::Gone) => return Err(gone(&found.name)),
        Err(failure) if failure.is(ErrorCode::Conflict) && found.paused => {
            return Err(failure.next(format!("mews resume {}", found.name)));
        }
        other => other?,
    };
    if args.detach {
        return tell_detached(&started, say);
    }
    let pty = started.pty;
    let viewer = Viewer {
        say,
        control: Control::Daemons { api: Arc::clone(&api), session: found.session, cage, pty },
        keys,
        name: pty.short().to_lowercase(),
        is_runner: true,
        banner: request::is_shell(&spec.argv),
        recording: None,
    };
    let ending = match api.attach(pty, &request::runner(streams)).await {
        Ok(upgraded) => viewer
            .view(upgraded, &mut ends)
            .await
            .map_err(|error| Failure::new(format!("the terminal or its stream failed: {error}")))?,
        Err(failure) if failure.is(ErrorCode::Gone) => Ending::Lost,
        Err(failure) => return Err(failure),
    };
    Ok(conclude(ending, &api, pty, &viewer.name, say).await?.status)
}

fn tell_detached(started: &Started, say: &Say) -> Result<u8, Failure> {
    if say.json {
        out::json_line(&json!({
            "session": started.session,
            "name": started.name,
            "run": started.run,
            "cage": started.cage,
            "pty": started.pty,
        }))?;
    } else {
        out::data(&format!("{}\n", started.pty))?;
        let (short, name) = (started.pty.short(), escape(&started.name));
        say.note(&format!("it runs in {name}; watch it with: mews attach {short}"));
    }
    Ok(0)
}

fn gone(name: &str) -> Failure {
    let words = format!("{name} has ended, and its cage with it");
    Failure::from(wire::WireError::new(ErrorCode::Gone, words)).next("mews run -- CMD")
}
