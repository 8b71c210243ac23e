//! `mews daemon`: start, stop, replace and ask after the daemons.

use crate::api::{Api, Repeat};
use crate::connect;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::verb::version;
use crate::{hello, programs};
use serde_json::json;
use wire::api::{Ready, Shutdown, Versions};
use wire::dirs::Dirs;
use wire::supervisor::{ShutdownAnswer, ShutdownCages};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Start them if they do not run; every other verb does so by itself
    #[command(after_help = "Examples:\n  mews daemon start")]
    Start,
    /// Stop them; refused while cages live, unless told what becomes of those
    #[command(after_help = "\
Examples:
  mews daemon stop
  mews daemon stop --leave        cages run on, and the next start finds them
  mews daemon stop --kill         kill all cages first")]
    Stop {
        /// Cages run on; the next start finds them
        #[arg(long, conflicts_with = "kill")]
        leave: bool,
        /// Kill all cages first
        #[arg(long)]
        kill: bool,
    },
    /// Stop and start them, after another mews was installed; cages run on
    #[command(after_help = "Examples:\n  mews daemon restart")]
    Restart,
    /// Which run, of which build, and which cages another build serves
    #[command(after_help = "\
Examples:
  mews daemon status
  mews daemon status --json | jq -r .socket")]
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
        Args::Restart => restart(say).await,
        Args::Status => status(say).await,
    }
}

async fn start(say: &Say) -> Result<u8, Failure> {
    let api = Api::starting();
    say.during("starting the daemons", api.ready()).await?;
    report(&api, say).await
}

/// Viewers stay attached all along: their streams are the brokers'.
async fn restart(say: &Say) -> Result<u8, Failure> {
    // What is to be started is looked for before anything is stopped.
    programs::find("mews-supervisor")?;
    programs::find("mews-sessiond")?;
    let api = Api::new();
    let work = stop_them(&api, ShutdownCages::Leave);
    let answer = say.during("stopping the daemons; cages run on", work).await?;
    if let Some(ShutdownAnswer { living }) = answer.filter(|answer| answer.living > 0) {
        say.note(&format!("restarted; {} ran on", cages_words(living)));
    }
    start(say).await
}

async fn status(say: &Say) -> Result<u8, Failure> {
    report(&Api::without_start(), say).await
}

async fn report(api: &Api, say: &Say) -> Result<u8, Failure> {
    let versions: Versions = api.get("/versions").await?;
    let ready: Ready = api.readiness().await?;
    if say.json {
        let socket = api.dirs().api_socket();
        let client = hello::ours();
        out::json_line(&json!({
            "versions": versions, "ready": ready, "socket": socket, "client": client,
        }))?;
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
    out::data(&version::others(&versions))?;
    version::advise(&versions, say);
    Ok(0)
}

async fn stop(cages: ShutdownCages, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let Some(answer) = say.during("stopping the daemons", stop_them(&api, cages)).await? else {
        say.note("no daemon is running");
        return Ok(0);
    };
    if say.json {
        out::json_line(&answer)?;
    } else if answer.living > 0 && cages == ShutdownCages::Leave {
        say.note(&format!("stopped; running on: {}", cages_words(answer.living)));
    } else {
        say.note("stopped");
    }
    Ok(0)
}

/// None: there was none to stop.
async fn stop_them(api: &Api, cages: ShutdownCages) -> Result<Option<ShutdownAnswer>, Failure> {
    let lives = cages == ShutdownCages::Kill && has_cages(api.dirs());
    if connect::connect(api.dirs())?.is_none() && !lives {
        return Ok(None);
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
    Ok(Some(answer))
}

/// Cages outlive daemons that died: they are started again to kill them.
fn has_cages(dirs: &Dirs) -> bool {
    std::fs::read_dir(dirs.run.join("sup")).is_ok_and(|mut entries| entries.next().is_some())
}

fn cages_words(count: u32) -> String {
    if count == 1 { "1 cage".to_owned() } else { format!("{count} cages") }
}
