//! `mews run` as one step of a CI job: a report, artifacts, and what the engine likes to be told.
//!
//! Whatever is written at the end is opened before the command begins: a run that could not report is not
//! begun, and the command cannot turn a path to somewhere else.

pub(crate) mod artifacts;
mod engine;
mod github;
mod junit;
mod text;
mod verdict;

use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::request;
use crate::status_file::RunNames;
use crate::verb::watching::Watched;
use crate::viewer::recording::Recording;
use crate::whole::Whole;
use artifacts::{Artifacts, Taken};
use cage::policy::{Bytes, Millis};
use github::Github;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The end of the output that a report has.
const OUTPUT_BYTES: usize = 256 * 1024;
/// Ours, where the engine kills us ten seconds after it has told us to end.
const GITHUB_GRACE: Duration = Duration::from_secs(7);
/// What is told of each artifact; the status file has all.
const TOLD_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// Write the result to this file, as JUnit XML
    #[arg(long, value_name = "FILE", conflicts_with = "detach")]
    report: Option<PathBuf>,
    /// Files of the workspace to be brought out at the end: 'out/**'; may be repeated
    #[arg(long, value_name = "GLOB", conflicts_with = "detach")]
    artifacts: Vec<String>,
    /// Copy them to this folder
    #[arg(long, value_name = "DIR", requires = "artifacts")]
    artifacts_dir: Option<PathBuf>,
    /// Most bytes of them
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    artifacts_max: String,
    /// Groups, annotations and a summary for this engine; auto: where it runs us
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = Engine::Auto)]
    ci: Engine,
    /// Kill it so long after it was told to end (INT, TERM) [default: never; 7s for GitHub]
    #[arg(long, value_name = "T", conflicts_with = "detach")]
    grace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Auto,
    Github,
    None,
}

/// One run as a step, ready to begin.
#[derive(Debug)]
pub(crate) struct Step {
    command: String,
    policy: String,
    report: Option<Whole>,
    report_path: PathBuf,
    pub(crate) artifacts: Option<Arc<Artifacts>>,
    github: Option<Github>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) recording: Recording,
    began: Instant,
    began_at: String,
}

impl Step {
    /// `is_left`: nobody waits for its end, so that there is nothing to tell an engine.
    pub(crate) fn prepare(
        flags: &Asked,
        is_left: bool,
        workspace: Option<&Path>,
        command: &[String],
        policy: &str,
    ) -> Result<Self, Failure> {
        let env = |name: &str| std::env::var(name).ok();
        let is_github = !is_left && flags.ci.is_github(&env);
        let github = is_github.then(|| Github::open(&env)).transpose()?;
        if github.is_some() {
            out::is_read_by_github();
        }
        let grace = flags.grace.as_deref().map(Millis::parse).transpose();
        let grace = grace.map_err(|bad| Failure::usage(format!("--grace: {bad}")))?;
        let grace = grace.map(|ms| Duration::from_millis(ms.0));
        let grace = grace.or(github.is_some().then_some(GITHUB_GRACE));
        let report_path = flags.report.as_deref().map(request::absolute).unwrap_or_default();
        let real = request::folder(workspace).ok().map(PathBuf::from);
        let open = |_given: &PathBuf| open_report(&report_path, real.as_deref());
        let report = flags.report.as_ref().map(open).transpose()?;
        let is_quoted = report.is_some() || github.is_some();
        let bytes_max = if is_quoted { OUTPUT_BYTES } else { 0 };
        let labels = if flags.ci == Engine::None { BTreeMap::new() } else { engine::labels(&env) };
        Ok(Self {
            command: crate::escape::command(command),
            policy: policy.to_owned(),
            report,
            report_path,
            artifacts: flags.artifacts(workspace)?.map(Arc::new),
            recording: Recording::new(bytes_max, github.is_some(), grace),
            github,
            labels,
            began: Instant::now(),
            began_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        })
    }

    /// One that nobody wants to know of.
    pub(crate) fn quiet() -> Self {
        Self {
            command: String::new(),
            policy: String::new(),
            report: None,
            report_path: PathBuf::new(),
            artifacts: None,
            github: None,
            labels: BTreeMap::new(),
            recording: Recording::default(),
            began: Instant::now(),
            began_at: String::new(),
        }
    }

    pub(crate) fn is_an_engines(&self) -> bool {
        self.github.is_some()
    }

    pub(crate) fn begin(&self) -> Result<(), Failure> {
        self.github.as_ref().map_or(Ok(()), |github| github.begin(&self.command))
    }

    /// The command prints no more.
    pub(crate) fn output_ends(&self) -> Result<(), Failure> {
        let printed = self.recording.total() > 0;
        self.github.as_ref().map_or(Ok(()), |github| github.resume(printed))
    }

    /// What came of it, to whoever wants to know.
    pub(crate) fn tell(
        &self,
        outcome: Result<&Watched, &Failure>,
        taken: Option<&Taken>,
        names: &RunNames,
    ) -> Result<(), Failure> {
        let verdict = verdict::verdict(outcome, self.recording.signal());
        let exit = outcome.ok().and_then(|watched| watched.exit.as_ref());
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Of the command itself, where it has run.
        let ms = exit.map(|exit| exit.usage.wall_ms).filter(|&ms| ms > 0).unwrap_or(elapsed);
        let (output, missing) = self.recording.tail();
        if let Some(github) = &self.github {
            let text = github::summary(&self.command, &verdict, ms, &output, taken);
            github.summarize(&text).map_err(|error| {
                Failure::new(format!("cannot write the step's summary: {error}"))
            })?;
            github.annotate(&self.command, &verdict, &output)?;
        }
        if let Some(report) = &self.report {
            let xml = junit::xml(&junit::Case {
                name: &self.command,
                class: &self.policy,
                verdict: &verdict,
                ms,
                began: &self.began_at,
                properties: &self.properties(names),
                output: (&output, missing),
            });
            report
                .write(xml.as_bytes())
                .map_err(|error| report_failed(&self.report_path, &error))?;
        }
        Ok(())
    }

    fn properties(&self, names: &RunNames) -> BTreeMap<String, String> {
        let named = [("session", &names.session), ("run", &names.run), ("cage", &names.cage)];
        let named = named.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id.clone()?)));
        self.labels.clone().into_iter().chain(named).collect()
    }
}

impl Asked {
    fn artifacts(&self, workspace: Option<&Path>) -> Result<Option<Artifacts>, Failure> {
        let bytes_max = Bytes::parse(&self.artifacts_max);
        let bytes_max =
            bytes_max.map_err(|bad| Failure::usage(format!("--artifacts-max: {bad}")))?;
        if self.artifacts.is_empty() {
            return Ok(None);
        }
        let workspace = PathBuf::from(request::folder(workspace)?);
        let folder = self.artifacts_dir.as_deref().map(request::absolute);
        Artifacts::open(&self.artifacts, bytes_max.0, &workspace, folder.as_deref()).map(Some)
    }
}

impl Engine {
    fn is_github(self, env: &impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::Github => true,
            Self::None => false,
            Self::Auto => {
                env("GITHUB_ACTIONS").as_deref() == Some("true") && github::reads_our_output()
            }
        }
    }
}

/// What was taken, for people.
pub(crate) fn tell_artifacts(taken: &Taken, say: &Say) {
    let place = match &taken.folder {
        Some(folder) => format!(" in {}", escape(&folder.display().to_string())),
        None => " in the workspace".to_owned(),
    };
    let (count, bytes) = (taken.files.len(), taken.bytes());
    let files = if count == 1 { "file" } else { "files" };
    say.note(&format!("artifacts: {count} {files}, {bytes} bytes{place}"));
    for file in taken.files.iter().take(TOLD_MAX) {
        say.note(&format!("  {} ({} bytes)", escape(&file.path.lossy()), file.bytes));
    }
    if count > TOLD_MAX {
        say.note(&format!("  and {} more", count - TOLD_MAX));
    }
    for left in taken.left.iter().take(TOLD_MAX) {
        say.note(&format!("  left: {}: {}", escape(&left.path.lossy()), escape(&left.why)));
    }
}

fn open_report(path: &Path, workspace: Option<&Path>) -> Result<Whole, Failure> {
    Whole::open(path, workspace).map_err(|error| report_failed(path, &error))
}

fn report_failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write the report {}: {error}", path.display()))
        .next("mews run --report junit.xml -- CMD, in a folder that is there")
}
