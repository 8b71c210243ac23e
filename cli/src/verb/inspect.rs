//! `mews inspect`: everything known about a session.

use super::ls::{exit_of, exit_word, state};
use crate::api::Api;
use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::time::stamp;
use serde_json::Value;
use wire::api::{CageView, PtyView, RunView, SessionView};
use wire::enforced::{Wall, WallState};
use wire::supervisor::Phase;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews inspect pi-1
  mews inspect pi-1 --json | jq '.cages[].enforced'
  mews inspect pi-1 --plan        the resolved plan of its newest cage")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// The plan of the newest cage instead, as JSON
    #[arg(long)]
    plan: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    if args.plan {
        let (cage, _pty) = super::attach::terminal_of(&found)?;
        let plan: Value =
            api.get(&format!("/sessions/{}/cages/{cage}/plan", found.session)).await?;
        let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
        out::data(&format!("{text}\n"))?;
        return Ok(0);
    }
    let session: SessionView = api.get(&format!("/sessions/{}", found.session)).await?;
    if say.json {
        out::json_line(&session)?;
    } else {
        out::data(&page(&session))?;
    }
    Ok(0)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, text: impl AsRef<str>) {
        self.0.push_str(text.as_ref().trim_end());
        self.0.push('\n');
    }
}

fn page(session: &SessionView) -> String {
    let mut page = Page::default();
    let mut line = |name: &str, value: &str| page.line(format!("{name:<10}{value}"));
    line("session", &format!("{}  {}", escape(&session.name), session.id));
    line("state", state(session));
    line("folder", &escape(&session.folder));
    line("source", &escape(&session.source));
    line("operator", &format!("uid {}", session.uid));
    line("created", &stamp(session.created_at_ms));
    if let Some(ended) = session.ended_at_ms {
        line("ended", &stamp(ended));
    }
    for run in &session.runs {
        run_lines(&mut page, run);
        for cage in session.cages.iter().filter(|cage| cage.run == run.id) {
            cage_lines(&mut page, cage);
        }
    }
    page.0
}

fn run_lines(page: &mut Page, run: &RunView) {
    page.line(format!("\nrun       {}", run.id));
    page.line(format!("  command   {}", command(&run.argv)));
    page.line(format!("  policy    {}", escape(&run.policy)));
    page.line(format!("  exit      {}", exit_of(run)));
    if let Some(error) = &run.error {
        page.line(format!("  error     {}", escape(&error.message)));
    }
    let Some(exit) = &run.exit else { return };
    if let Some(message) = &exit.message {
        page.line(format!("  message   {}", escape(message)));
    }
    let usage = &exit.usage;
    let cpu_ms = usage.user_us.saturating_add(usage.system_us) / 1000;
    let mut used = format!("{} ms, {cpu_ms} ms of cpu", usage.wall_ms);
    if let Some(peak) = usage.memory_peak_bytes {
        used.push_str(&format!(", {} MiB at most", peak / (1024 * 1024)));
    }
    if let Some(all) = usage.cpu_us {
        used.push_str(&format!(", {} ms of cpu in the whole cage", all / 1000));
    }
    page.line(format!("  used      {used}, {} bytes of output", usage.output_bytes));
}

fn cage_lines(page: &mut Page, cage: &CageView) {
    page.line(format!("\ncage      {}  {}", cage.id, phase_word(cage.phase)));
    if let Some(pid) = cage.pid {
        page.line(format!("  pid       {pid}"));
    }
    if let Some(build) = &cage.build {
        page.line(format!("  build     mews {}", escape(build)));
    }
    if let Some(why) = &cage.unreachable {
        page.line(format!("  UNREACHABLE: {}", escape(why)));
    }
    page.line(format!("  plan      {}", escape(&cage.plan_hash)));
    for pty in &cage.ptys {
        pty_line(page, pty);
    }
    let of = |state: WallState| cage.enforced.walls.iter().filter(move |wall| wall.state == state);
    for (state, head) in [
        (WallState::Enforced, "enforced"),
        (WallState::Emulated, "by weaker means"),
        (WallState::Absent, "ABSENT on this host"),
        (WallState::Off, "not asked for"),
    ] {
        if of(state).next().is_some() {
            page.line(format!("  walls {head}:"));
            of(state).for_each(|wall| wall_line(page, wall));
        }
    }
}

fn wall_line(page: &mut Page, wall: &Wall) {
    page.line(format!("    {:<18}{}", escape(&wall.name), escape(&wall.how)));
}

fn pty_line(page: &mut Page, pty: &PtyView) {
    let kind = match pty.size {
        Some(size) => format!("{}x{}", size.cols, size.rows),
        None if pty.tty => "terminal".to_owned(),
        None => "pipes".to_owned(),
    };
    let state = match &pty.exit {
        Some(exit) => format!("exit {}", exit_word(exit)),
        None => format!("{} viewers", pty.viewers),
    };
    page.line(format!("  pty       {}  {kind}  {state}  {}", pty.id, command(&pty.argv)));
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Suspended => "suspended",
        Phase::Ending => "ending",
        Phase::Gone => "gone",
    }
}
