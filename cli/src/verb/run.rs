//! `mews run`: a command in a new cage.

use super::explain;
use super::flags::Flags;
use super::watching::{Keys, Watched, conclude, ended};
use crate::api::{Api, Repeat};
use crate::ci::artifacts::{Artifacts, TOLD_TO_END, Taken};
use crate::ci::{self, Step};
use crate::control::Control;
use crate::escape::escape;
use crate::failure::Failure;
use crate::oneshot::OneShot;
use crate::out::{self, Say};
use crate::request::{self, Streams};
use crate::status_file::{self, RunNames, StatusTarget};
use crate::viewer::{Ending, Ends, Viewer, undisturbed};
use crate::{programs, terminal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::api::{
    CreateProject, CreateSession, JobRequest, LayerDone, LayerPaths, PlanRequest, Project, RunKind,
    SessionView, Started,
};
use wire::supervisor::{LayerAnswer, LayerRequest};
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
  mews run --dry-run -p strict -- make        what that cage would be; nothing starts
  mews run -d --name build -- make            in the background; mews attach build
  cat big | mews run -- sha256sum             in a pipe
  mews run --no-daemon --status-file s.json -- ./job.sh

In a CI job:
  mews run --no-daemon -p ci --report junit.xml --artifacts 'out/**' -- make test
  mews run --overlay --artifacts 'dist/*' -- make dist    only these come to your folder
  mews run --artifacts '**/*.log' --artifacts-dir logs --grace 20s -- ./job.sh
On GitHub output is put into a group, protected from being read as workflow commands; an error
becomes an annotation, and the step has a summary. --ci none: nothing of that.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
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
    /// Show what the cage would be, and start nothing; --json: the whole plan
    #[arg(long, conflicts_with_all = ["detach", "status_file", "status_fd"])]
    dry_run: bool,
    #[command(flatten)]
    flags: Flags,
    /// Write exit, names, walls and usage as JSON to this file
    #[arg(long, value_name = "F")]
    status_file: Option<PathBuf>,
    /// The same to an open descriptor
    #[arg(long, value_name = "N")]
    status_fd: Option<i32>,
    #[command(flatten)]
    ci: ci::Asked,
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
    /// Artifacts, where some were asked for and it came to its end.
    taken: Option<Taken>,
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    if args.dry_run {
        return dry(&args, say).await;
    }
    // A run that could not say how it ended is not begun.
    let workspace = request::folder(args.flags.workspace.as_deref()).ok().map(PathBuf::from);
    let (file, fd) = (args.status_file.as_deref(), args.status_fd);
    let target = StatusTarget::open(file, fd, workspace.as_deref())?;
    let mut names = RunNames::default();
    let step = match args.step() {
        Ok(step) => step,
        Err(failure) => {
            tell([target.write(&status_file::failed(&names, &failure))], say);
            return Err(failure);
        }
    };
    let outcome = match (step.begin(), args.no_daemon) {
        (Err(failure), _) => Err(failure),
        (Ok(()), true) => alone(&args, say, &step, &mut names).await,
        (Ok(()), false) => with_daemons(&args, say, &step, &mut names).await,
    };
    let status = status(&names, &outcome);
    let (watched, taken) = match &outcome {
        Ok(outcome) => (Ok(&outcome.watched), outcome.taken.as_ref()),
        Err(failure) => (Err(failure), None),
    };
    let told = [step.output_ends(), target.write(&status), step.tell(watched, taken, &names)];
    tell(told, say);
    outcome.map(|outcome| outcome.watched.status)
}

/// What it would be: nothing is made, not even what a CI job is told.
async fn dry(args: &Args, say: &Say) -> Result<u8, Failure> {
    let Job { policy, overrides, folder, exec, .. } =
        args.job_on(Streams::choose(args.no_tty, false))?;
    explain::show(PlanRequest { folder, policy, overrides, exec }, args.no_daemon, say).await?;
    say.note("nothing was started");
    Ok(0)
}

fn status(names: &RunNames, outcome: &Result<Outcome, Failure>) -> Value {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return status_file::failed(names, failure),
    };
    let mut status = status_file::ended(names, &outcome.enforced, outcome.watched.exit.as_ref());
    if let (Some(taken), Some(map)) = (&outcome.taken, status.as_object_mut()) {
        map.insert("artifacts".to_owned(), json!(taken));
    }
    status
}

/// The command's own status says more than that it could not be written down.
fn tell<const N: usize>(told: [Result<(), Failure>; N], say: &Say) {
    for failure in told.into_iter().filter_map(Result::err) {
        say.failure(&failure);
    }
}

async fn with_daemons(
    args: &Args,
    say: &Say,
    step: &Step,
    names: &mut RunNames,
) -> Result<Outcome, Failure> {
    let job = args.job(step)?;
    programs::require_bwrap()?;
    let keys = args.keys.parse()?;
    // What prints and ends shall not have our words between its own.
    let banner = request::is_shell(&job.exec.argv);
    let api = Arc::new(Api::starting());
    let mut ends = signals()?;
    let session = args.session(&job.exec, &step.labels);
    let work = start(session, job.request(), &api, &job.folder, names);
    let work = say.during(BUILDING, work);
    let (started, signal) =
        undisturbed(work, &mut ends).await.map_err(|signal| cancelled(signal, step))?;
    let started = started?;
    *names = RunNames {
        session: Some(started.session.to_string()),
        run: Some(started.run.to_string()),
        cage: Some(started.cage.to_string()),
    };
    if let Some(signal) = signal {
        // It waits for its viewer, who does not want it any more.
        api.kill(started.session, started.cage).await?;
        step.recording.told(signal);
        return Ok(Outcome::without_artifacts(by_signal(signal), started.enforced));
    }
    tell_tightened(&started.enforced, say);
    if args.detach {
        tell_detached(&started, say)?;
        let watched = Watched { status: 0, exit: None };
        return Ok(Outcome::without_artifacts(watched, started.enforced));
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
        recording: Some(&step.recording),
    };
    let ending = match api.attach(started.pty, &request::runner(job.streams)).await {
        Ok(upgraded) => viewer.view(upgraded, &mut ends).await.map_err(|error| broken(&error))?,
        // It ended while nobody held it (a start slower than its patience).
        Err(failure) if failure.is(wire::ErrorCode::Gone) => Ending::Lost,
        Err(failure) => return Err(failure),
    };
    let watched = conclude(ending, &api, started.pty, &started.name, say).await?;
    let layered = started.enforced.keeps_apart();
    let taken = match (&step.artifacts, &watched.exit) {
        (Some(artifacts), Some(_ended)) => {
            let layer = layered.then_some(Layer::Daemons(&api, started.session));
            Some(taken(artifacts, layer, &mut ends, say).await)
        }
        _other => None,
    };
    if watched.exit.is_some() && layered {
        tell_changes(&api, &started, say).await;
    }
    Ok(Outcome { watched, enforced: started.enforced, taken })
}

async fn start(
    session: CreateSession,
    job: JobRequest,
    api: &Api,
    folder: &str,
    names: &mut RunNames,
) -> Result<Started, Failure> {
    let body = CreateProject { folder: folder.to_owned() };
    let project: Project = api.post("/projects", &body, Repeat::Safe).await?;
    let path = format!("/projects/{}/sessions", project.slug);
    let name = session.name.clone();
    let session: Result<SessionView, Failure> = api.post(&path, &session, Repeat::Safe).await;
    let session = session.map_err(|failure| name_taken(failure, name.as_deref()))?;
    names.session = Some(session.id.to_string());
    let started = api.post(&format!("/sessions/{}/jobs", session.id), &job, Repeat::Safe).await;
    if let Err(failure) = &started {
        // An empty session would keep its name; one that sessiond has ended itself is a conflict.
        drop(super::end::end(api, session.id).await);
        // What was typed wrong is typed again, under the same name.
        if was_asked_wrong(failure) && super::rm::remove(api, session.id).await.is_ok() {
            names.session = None;
        }
    }
    started
}

/// Nothing was begun: what was asked for cannot be, whatever the host has.
fn was_asked_wrong(failure: &Failure) -> bool {
    use wire::ErrorCode::{BadRequest, NotFound, PolicyInvalid, ValidationFailed};
    [BadRequest, NotFound, PolicyInvalid, ValidationFailed].into_iter().any(|code| failure.is(code))
}

/// The name is another session's, which may be what was meant.
fn name_taken(failure: Failure, name: Option<&str>) -> Failure {
    match name.filter(|_name| failure.is(wire::ErrorCode::Conflict)) {
        Some(name) => failure.next(format!("mews attach {name}; or the same with another --name")),
        None => failure,
    }
}

/// The same without daemons: a supervisor of its own, that goes with us.
async fn alone(
    args: &Args,
    say: &Say,
    step: &Step,
    names: &mut RunNames,
) -> Result<Outcome, Failure> {
    let job = args.job(step)?;
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
    let mut ends = signals()?;
    let mut oneshot = OneShot::start()?;
    let work = alone_with(&mut oneshot, &mut ends, &spec, (streams, name), say, step);
    let mut outcome = work.await;
    if let (Ok(outcome), Some(artifacts)) = (&mut outcome, &step.artifacts)
        && outcome.watched.exit.is_some()
    {
        oneshot.gone().await;
        let layer = outcome.enforced.keeps_apart().then_some(Layer::OneShot(&oneshot, session));
        outcome.taken = Some(taken(artifacts, layer, &mut ends, say).await);
    }
    oneshot.finish().await;
    if outcome.as_ref().is_ok_and(|outcome| outcome.enforced.keeps_apart()) {
        let words = match step.artifacts {
            Some(_) => "what else it changed in its workspace was thrown away",
            None => "what it changed in its workspace was thrown away",
        };
        say.note(&format!("{words}: --no-daemon keeps nothing"));
    }
    outcome
}

async fn alone_with(
    oneshot: &mut OneShot,
    ends: &mut Ends,
    spec: &SpawnSpec,
    (streams, name): (Streams, String),
    say: &Say,
    step: &Step,
) -> Result<Outcome, Failure> {
    let (spawned, signal) = undisturbed(say.during(BUILDING, oneshot.spawn(spec)), ends)
        .await
        .map_err(|signal| cancelled(signal, step))?;
    let spawned = spawned?;
    if let Some(signal) = signal {
        step.recording.told(signal);
        return Ok(Outcome::without_artifacts(by_signal(signal), spawned.enforced));
    }
    tell_tightened(&spawned.enforced, say);
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
        recording: Some(&step.recording),
    };
    let ending = viewer.view(upgraded, ends).await.map_err(|error| broken(&error))?;
    let watched = match ending {
        Ending::Exited(exit) => ended(exit, say),
        Ending::Signalled(signal) => {
            // Its terminal is gone or we are told to end: it ends with us.
            step.recording.told(signal);
            drop(viewer.control.kill().await);
            Watched { exit: oneshot.exit().await, ..by_signal(signal) }
        }
        Ending::Detached | Ending::Closed(_) | Ending::Lost => match oneshot.exit().await {
            Some(exit) => ended(exit, say),
            None => return Err(Failure::new("the connection to the cage was lost")),
        },
    };
    Ok(Outcome::without_artifacts(watched, spawned.enforced))
}

/// Who works on the layer of a session.
enum Layer<'a> {
    Daemons(&'a Api, SessionId),
    OneShot(&'a OneShot, SessionId),
}

/// Artifacts are brought out, whatever the command came to; what cannot be is said. Who is told to end
/// meanwhile brings out no more: the report is still to be written.
async fn taken(
    artifacts: &Arc<Artifacts>,
    layer: Option<Layer<'_>>,
    ends: &mut Ends,
    say: &Say,
) -> Taken {
    let is_layered = layer.is_some();
    let work = async {
        let Some(layer) = layer else {
            // On a thread of its own: it may look at a million entries.
            let folder = Arc::clone(artifacts);
            let taken = tokio::task::spawn_blocking(move || folder.taken_from_folder()).await;
            return taken.unwrap_or_else(|panic| Taken::failed(&panic.to_string()));
        };
        let taken = from_layer(artifacts, &layer).await;
        taken.unwrap_or_else(|failure| Taken::failed(&failure.error.message))
    };
    let mut work = std::pin::pin!(work);
    let taken = tokio::select! {
        taken = &mut work => taken,
        _signal = ends.next() => {
            artifacts.stop();
            match is_layered {
                true => Taken::failed(TOLD_TO_END),
                false => work.await,
            }
        }
    };
    ci::tell_artifacts(&taken, say);
    taken
}

/// What has changed and is wanted comes to the operator's folder, and from there to where it is wanted.
async fn from_layer(artifacts: &Artifacts, layer: &Layer<'_>) -> Result<Taken, Failure> {
    let (paths, taken) = artifacts.among(&layer.diff().await?);
    // No paths would be all of them.
    if paths.is_empty() {
        return Ok(taken);
    }
    Ok(artifacts.applied(taken, &layer.apply(paths).await?))
}

impl Layer<'_> {
    async fn diff(&self) -> Result<Changes, Failure> {
        match self {
            Self::Daemons(api, session) => api.get(&format!("/sessions/{session}/diff")).await,
            Self::OneShot(oneshot, session) => {
                match oneshot.layer(*session, &LayerRequest::Diff).await? {
                    LayerAnswer::Changes(changes) => Ok(changes),
                    LayerAnswer::Done | LayerAnswer::Applied { .. } => Err(mixed_up()),
                }
            }
        }
    }

    async fn apply(&self, paths: Vec<Arg>) -> Result<LayerDone, Failure> {
        match self {
            Self::Daemons(api, session) => {
                let path = format!("/sessions/{session}/apply");
                api.post(&path, &LayerPaths { paths }, Repeat::Safe).await
            }
            Self::OneShot(oneshot, session) => {
                match oneshot.layer(*session, &LayerRequest::Apply { paths }).await? {
                    LayerAnswer::Applied { done, left } => Ok(LayerDone { done, left }),
                    LayerAnswer::Done | LayerAnswer::Changes(_) => Err(mixed_up()),
                }
            }
        }
    }
}

fn mixed_up() -> Failure {
    Failure::new("mews-supervisor answered something else than it was asked")
}

impl Outcome {
    fn without_artifacts(watched: Watched, enforced: Enforced) -> Self {
        Self { watched, enforced, taken: None }
    }
}

/// Which file made the cage tighter than was asked for: to a person, who may wonder; never between what
/// a program prints into a pipe. The status file says it in any case.
fn tell_tightened(enforced: &Enforced, say: &Say) {
    let project = enforced.walls.iter().find(|wall| wall.name == "project");
    let told = project.filter(|wall| wall.how.contains(" tightens "));
    if let Some(wall) = told.filter(|_wall| std::io::stderr().is_terminal()) {
        say.dim(&format!("mews: {}", escape(&wall.how)));
    }
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

fn cancelled(signal: i32, step: &Step) -> Failure {
    step.recording.told(signal);
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
    fn step(&self) -> Result<Step, Failure> {
        let words: Vec<String> =
            self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let command = if words.is_empty() { vec![request::shell().to_owned()] } else { words };
        let policy = Path::new(&self.flags.policy).file_stem().unwrap_or_default();
        let workspace = self.flags.workspace.as_deref();
        Step::prepare(&self.ci, self.detach, workspace, &command, &policy.to_string_lossy())
    }

    fn session(&self, exec: &ExecSpec, labels: &BTreeMap<String, String>) -> CreateSession {
        CreateSession {
            name: self.name.clone(),
            name_hint: Some(name_hint(exec)),
            labels: labels.clone(),
            source: Some("cli:run".to_owned()),
            end_on_exit: true,
            client_request_id: Some(SessionId::new().to_string()),
        }
    }

    fn job(&self, step: &Step) -> Result<Job, Failure> {
        // An engine may lend a terminal (act does): nobody sits at it.
        self.job_on(Streams::choose(self.no_tty || step.is_an_engines(), self.detach))
    }

    fn job_on(&self, streams: Streams) -> Result<Job, Failure> {
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
    let step = Step::quiet();
    let named = (streams, "doctor".to_owned());
    let outcome = alone_with(&mut oneshot, &mut signals()?, &spec, named, say, &step).await;
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
