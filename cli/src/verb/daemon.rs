//! `mews daemon`: start, stop and ask after the daemons.

use crate::api::{Api, Repeat};
use crate::connect;
use crate::failure::Failure;
use crate::out::{self, Say};
use serde_json::json;
use wire::api::{Ready, Shutdown, Versions};
use wire::supervisor::{ShutdownAnswer, ShutdownCages};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Start them if they do not run; every other verb does so by itself
    Start,
    /// Stop them; refused while cages live, unless told what becomes of those
    Stop {
        /// Cages run on; the next start finds them
        #[arg(long, conflicts_with = "kill")]
        leave: bool,
        /// Kill all cages first
        #[arg(long)]
        kill: bool,
    },
    /// Which run, and since when
    Status,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    match args {
        Args::Start => start(say).await,
        Args::Stop { leave, kill } => {
            let cages = match (leave, kill) {
                (true, _) => ShutdownCages::Leave,
                (_, true) => ShutdownCages::Kill,
                (false, false) => ShutdownCages::Refuse,
            };
            stop(cages, say).await
        }
        Args::Status => status(say).await,
    }
}

async fn start(say: &Say) -> Result<u8, Failure> {
    let api = Api::starting();
    api.ready().await?;
    report(&api, say).await
}

async fn status(say: &Say) -> Result<u8, Failure> {
    report(&Api::without_start(), say).await
}

async fn report(api: &Api, say: &Say) -> Result<u8, Failure> {
    let versions: Versions = api.get("/versions").await?;
    let ready: Ready = api.readiness().await?;
    if say.json {
        let socket = api.dirs().api_socket();
        out::json_line(&json!({ "versions": versions, "ready": ready, "socket": socket }))?;
        return Ok(0);
    }
    let supervisor = match (&versions.supervisor, versions.supervisor_pid) {
        (Some(build), Some(pid)) => format!("{build}, pid {pid}"),
        (Some(build), None) => build.clone(),
        (None, _) => "not connected".to_owned(),
    };
    out::data(&format!(
        "sessiond    {}, pid {}\nsupervisor  {supervisor}\nstorage     {}\nsocket      {}\nstate       {}\n",
        versions.build,
        versions.pid,
        if ready.storage { "good" } else { "cannot be written to" },
        api.dirs().api_socket().display(),
        api.dirs().state.display(),
    ))?;
    Ok(0)
}

async fn stop(cages: ShutdownCages, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    if connect::connect(api.dirs())?.is_none() {
        say.note("no daemon is running");
        return Ok(0);
    }
    // A lone sessiond cannot stop cages: its supervisor is started for that.
    api.ready().await?;
    let versions: Versions = api.get("/versions").await?;
    let answer: ShutdownAnswer = api
        .post("/shutdown", &Shutdown { cages }, Repeat::Never)
        .await
        .map_err(|failure| match failure.status {
            5 => failure.next("mews daemon stop --kill"),
            _other => failure,
        })?;
    for pid in versions.supervisor_pid.into_iter().chain([versions.pid]) {
        connect::ended(pid).await?;
    }
    if say.json {
        out::json_line(&answer)?;
    } else if answer.living > 0 && cages == ShutdownCages::Leave {
        say.note(&format!("stopped; {} cages run on", answer.living));
    } else {
        say.note("stopped");
    }
    Ok(0)
}
