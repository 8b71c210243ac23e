//! `mews run`: a command in a new cage.

use super::flags::Flags;
use super::watching::{Keys, Watched, conclude, ended};
use crate::api::{Api, Repeat};
use crate::control::Control;
use crate::escape::escape;
use crate::failure::Failure;
use crate::oneshot::OneShot;
use crate::out::{self, Say};
use crate::request::{self, Streams};
use crate::status_file::{self, RunNames, StatusTarget};
use crate::viewer::{Ending, Ends, Viewer, undisturbed};
use crate::{programs, terminal};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::api::{CreateProject, CreateSession, JobRequest, Project, RunKind, SessionView, Started};
use wire::{
    Arg, CageId, Changes, Enforced, ExecSpec, Overrides, PolicySource, PtyId, RunId, SessionId,
    SpawnSpec,
};

/// Where a host is slow.
const BUILDING: &str = "building the cage";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: the command's own; 128+n killed by signal n; 124 time limit; 125 mews or the cage
failed, nothing ran; 126, 127 not executable, not found; 137 with cause oom: out of memory.
--status-file tells them apart from the command's own.

Examples:
  mews run                                    a shell in this folder
  mews run -- make -j4 test                   one command, its exit status
  mews run -p ci --timeout 10m -- ./job.sh    the preset 'ci' and a limit
  mews run -d --name build -- make            in the background; mews attach build
  cat big | mews run -- sha256sum             in a pipe
  mews run --no-daemon --status-file s.json -- ./job.sh")]
pub(crate) struct Args {
    /// Name of the session [default: from the command, as bash-1]
    #[arg(short, long)]
    name: Option<String>,
    /// In the background: print the name and return
    #[arg(short, long, conflicts_with = "no_daemon")]
    pub(crate) detach: bool,
    /// Pipes instead of a terminal
    #[arg(long)]
    no_tty: bool,
    /// In the foreground without the daemons; nothing is kept
    #[arg(long)]
    no_daemon: bool,
    #[command(flatten)]
    flags: Flags,
    /// Write exit, names, walls and usage as JSON to this file
    #[arg(long, value_name = "F")]
    status_file: Option<PathBuf>,
    /// The same to an open descriptor
    #[arg(long, value_name = "N")]
    status_fd: Option<i32>,
    #[command(flatten)]
    keys: Keys,
    /// The command; without one: a shell
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What to run, ready to be sent.
struct Job {
    policy: PolicySource,
    overrides: Overrides,
    folder: String,
    exec: ExecSpec,
    streams: Streams,
}

/// What came of it.
struct Outcome {
    watched: Watched,
    enforced: Enforced,
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    let target = StatusTarget {
        file: args.status_file.as_deref().map(request::absolute),
        fd: args.status_fd,
    };
    target.check()?;
    let mut names = RunNames::default();
    let outcome = match args.no_daemon {
        true => alone(&args, say, &mut names).await,
        false => with_daemons(&args, say, &mut names).await,
    };
    let status = match &outcome {
        Ok(outcome) => status_file::ended(&names, &outcome.enforced, outcome.watched.exit.as_ref()),
        Err(failure) => status_file::failed(&names, failure),
    };
    if let Err(failure) = target.write(&status) {
        // The command's own status says more than this.
        say.failure(&failure);
    }
    outcome.map(|outcome| outcome.watched.status)
}

async fn with_daemons(args: &Args, say: &Say, names: &mut RunNames) -> Result<Outcome, Failure> {
    let job = args.job()?;
    programs::require_bwrap()?;
    let keys = args.keys.parse()?;
    // What prints and ends shall not have our words between its own.
    let banner = request::is_shell(&job.exec.argv);
    let api = Arc::new(Api::starting());
    let mut ends = signals()?;
    let work = start(args, job.request(), &api, &job.folder, names);
    let work = say.during(BUILDING, work);
    let (started, signal) = undisturbed(work, &mut ends).await.map_err(|_signal| cancelled())?;
    let started = started?;
    *names = RunNames {
        session: Some(started.session.to_string()),
        run: Some(started.run.to_string()),
        cage: Some(started.cage.to_string()),
    };
    if let Some(signal) = signal {
        // It waits for its viewer, who does not want it any more.
        api.kill(started.session, started.cage).await?;
        return Ok(Outcome { watched: by_signal(signal), enforced: started.enforced });
    }
    if args.detach {
        tell_detached(&started, say)?;
        let watched = Watched { status: 0, exit: None };
        return Ok(Outcome { watched, enforced: started.enforced });
    }
    let viewer = Viewer {
        say,
        control: Control::Daemons {
            api: Arc::clone(&api),
            session: started.session,
            cage: started.cage,
            pty: started.pty,
        },
        keys,
        name: started.name.clone(),
        is_runner: true,
        banner,
    };
    let ending = match api.attach(started.pty, &request::runner(job.streams)).await {
        Ok(upgraded) => viewer.view(upgraded, &mut ends).await.map_err(|error| broken(&error))?,
        // It ended while nobody held it (a start slower than its patience).
        Err(failure) if failure.is(wire::ErrorCode::Gone) => Ending::Lost,
        Err(failure) => return Err(failure),
    };
    let watched = conclude(ending, &api, started.pty, &started.name, say).await?;
    if watched.exit.is_some() && keeps_apart(&started.enforced) {
        tell_changes(&api, &started, say).await;
    }
    Ok(Outcome { watched, enforced: started.enforced })
}

async fn start(
    args: &Args,
    job: JobRequest,
    api: &Api,
    folder: &str,
    names: &mut RunNames,
) -> Result<Started, Failure> {
    let body = CreateProject { folder: folder.to_owned() };
    let project: Project = api.post("/projects", &body, Repeat::Safe).await?;
    let session = CreateSession {
        name: args.name.clone(),
        name_hint: Some(name_hint(&job.exec)),
        labels: BTreeMap::new(),
        source: Some("cli:run".to_owned()),
        end_on_exit: true,
        client_request_id: Some(SessionId::new().to_string()),
    };
    let path = format!("/projects/{}/sessions", project.slug);
    let session: Result<SessionView, Failure> = api.post(&path, &session, Repeat::Safe).await;
    let session = session.map_err(|failure| taken(failure, args.name.as_deref()))?;
    names.session = Some(session.id.to_string());
    let started = api.post(&format!("/sessions/{}/jobs", session.id), &job, Repeat::Safe).await;
    if started.is_err() {
        // An empty session would keep its name; one that sessiond has ended itself is a conflict.
        drop(super::end::end(api, session.id).await);
    }
    started
}

/// The name is another session's, which may be what was meant.
fn taken(failure: Failure, name: Option<&str>) -> Failure {
    match name.filter(|_name| failure.is(wire::ErrorCode::Conflict)) {
        Some(name) => failure.next(format!("mews attach {name}; or the same with another --name")),
        None => failure,
    }
}

/// The same without daemons: a supervisor of its own, that goes with us.
async fn alone(args: &Args, say: &Say, names: &mut RunNames) -> Result<Outcome, Failure> {
    let job = args.job()?;
    programs::require_bwrap()?;
    let (session, run, cage, pty) = (SessionId::new(), RunId::new(), CageId::new(), PtyId::new());
    *names = RunNames {
        session: Some(session.to_string()),
        run: Some(run.to_string()),
        cage: Some(cage.to_string()),
    };
    let name = args.name.clone().unwrap_or_else(|| name_hint(&job.exec));
    let streams = job.streams;
    let spec = job.spawn(session, run, cage, pty, name.clone());
    let mut oneshot = OneShot::start()?;
    let outcome = alone_with(&mut oneshot, &spec, streams, name, say).await;
    oneshot.finish().await;
    if outcome.as_ref().is_ok_and(|outcome| keeps_apart(&outcome.enforced)) {
        say.note("what it changed in its workspace was thrown away: --no-daemon keeps nothing");
    }
    outcome
}

async fn alone_with(
    oneshot: &mut OneShot,
    spec: &SpawnSpec,
    streams: Streams,
    name: String,
    say: &Say,
) -> Result<Outcome, Failure> {
    let mut ends = signals()?;
    let (spawned, signal) = undisturbed(say.during(BUILDING, oneshot.spawn(spec)), &mut ends)
        .await
        .map_err(|_signal| cancelled())?;
    let spawned = spawned?;
    if let Some(signal) = signal {
        return Ok(Outcome { watched: by_signal(signal), enforced: spawned.enforced });
    }
    let upgraded = oneshot.attach(spec.cage, spec.pty, request::runner(streams)).await?;
    let viewer = Viewer {
        say,
        control: Control::OneShot {
            commands: oneshot.commands.clone(),
            cage: spec.cage,
            pty: spec.pty,
        },
        // There would be nothing to come back to.
        keys: None,
        name,
        is_runner: true,
        banner: false,
    };
    let ending = viewer.view(upgraded, &mut ends).await.map_err(|error| broken(&error))?;
    let watched = match ending {
        Ending::Exited(exit) => ended(exit, say),
        Ending::Signalled(signal) => {
            // Its terminal is gone or we are told to end: it ends with us.
            drop(viewer.control.kill().await);
            Watched { exit: oneshot.exit().await, ..by_signal(signal) }
        }
        Ending::Detached | Ending::Closed(_) | Ending::Lost => match oneshot.exit().await {
            Some(exit) => ended(exit, say),
            None => return Err(Failure::new("the connection to the cage was lost")),
        },
    };
    Ok(Outcome { watched, enforced: spawned.enforced })
}

/// The workspace has a layer.
fn keeps_apart(enforced: &Enforced) -> bool {
    enforced.walls.iter().any(|wall| wall.name == "workspace")
}

/// How to get at what it has changed. The exit status is told whether or not this works.
async fn tell_changes(api: &Api, started: &Started, say: &Say) {
    let path = format!("/sessions/{}/diff", started.session);
    let Ok(changes) = api.get::<Changes>(&path).await else { return };
    let name = escape(&started.name);
    match changes.changes.len() {
        0 => say.note("it has changed no file"),
        count => say.note(&format!(
            "it has changed {count} paths, apart from your folder: mews diff {name}, mews apply {name}"
        )),
    }
}

fn tell_detached(started: &Started, say: &Say) -> Result<(), Failure> {
    if say.json {
        return out::json_line(&json!({
            "session": started.session,
            "name": started.name,
            "run": started.run,
            "cage": started.cage,
            "pty": started.pty,
        }));
    }
    out::data(&format!("{}\n", escape(&started.name)))?;
    say.note(&format!("it runs; watch it with: mews attach {}", escape(&started.name)));
    Ok(())
}

fn signals() -> Result<Ends, Failure> {
    Ends::new().map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))
}

/// Told to end before the command began.
fn by_signal(signal: i32) -> Watched {
    Watched { status: 128 + u8::try_from(signal).unwrap_or(0), exit: None }
}

fn cancelled() -> Failure {
    Failure::new("cancelled while the cage was being built").next("mews ls")
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new(format!("the terminal or its stream failed: {error}"))
}

/// The command's own name: `bash` for `/usr/bin/bash -l`.
fn name_hint(exec: &ExecSpec) -> String {
    let first = exec.argv.first().map(Arg::lossy).unwrap_or_default();
    let name = Path::new(&first).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "run".to_owned())
}

impl Args {
    fn job(&self) -> Result<Job, Failure> {
        let streams = Streams::choose(self.no_tty, self.detach);
        let folder = request::folder(self.flags.workspace.as_deref())?;
        let mut exec = request::exec_spec(&self.command, streams, !self.detach);
        if self.flags.workspace.is_some() {
            exec.cwd = Some(Arg::from(folder.as_str()));
        }
        let policy = request::policy(&self.flags.policy)?;
        Ok(Job { policy, overrides: self.flags.overrides()?, folder, exec, streams })
    }
}

impl Job {
    fn request(&self) -> JobRequest {
        let interactive = self.exec.hold && self.exec.tty.is_some() && terminal::is_interactive();
        JobRequest {
            kind: if interactive { RunKind::Shell } else { RunKind::Job },
            policy: self.policy.clone(),
            overrides: self.overrides.clone(),
            exec: self.exec.clone(),
            client_request_id: Some(RunId::new().to_string()),
        }
    }

    fn spawn(
        self,
        session: SessionId,
        run: RunId,
        cage: CageId,
        pty: PtyId,
        name: String,
    ) -> SpawnSpec {
        let Self { policy, overrides, folder, exec, .. } = self;
        let workspace = Arg::from(folder);
        SpawnSpec { session, run, cage, pty, name, policy, overrides, workspace, exec }
    }
}

/// The smallest run there is: what `doctor` ends with.
pub(crate) async fn trial(say: &Say) -> Result<Enforced, Failure> {
    let streams = Streams::Pipes;
    let mut exec = request::exec_spec(&["true".into()], streams, true);
    exec.stdin = false;
    let folder = tempdir()?;
    let job = Job {
        policy: PolicySource::Name("shell".to_owned()),
        overrides: Overrides::default(),
        folder: folder.0.display().to_string(),
        exec,
        streams,
    };
    programs::require_bwrap()?;
    let spec =
        job.spawn(SessionId::new(), RunId::new(), CageId::new(), PtyId::new(), "doctor".to_owned());
    let mut oneshot = OneShot::start()?;
    let outcome = alone_with(&mut oneshot, &spec, streams, "doctor".to_owned(), say).await;
    oneshot.finish().await;
    let outcome = outcome?;
    match outcome.watched.status {
        0 => Ok(outcome.enforced),
        status => Err(Failure::new(format!("true exited with {status} in the cage"))),
    }
}

/// A workspace for the trial, gone when dropped.
pub(super) struct Scratch(pub(super) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(super) fn tempdir() -> Result<Scratch, Failure> {
    let path = std::env::temp_dir().join(format!("mews-doctor-{}", RunId::new()));
    std::fs::create_dir(&path)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", path.display())))?;
    Ok(Scratch(path))
}
