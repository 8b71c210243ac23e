//! `mews ls`, and `mews` without a verb.

use crate::api::Api;
use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::http::encode;
use crate::out::colour::Paint;
use crate::out::{self, Say};
use crate::table::{cut, render};
use crate::time::{age, now_ms};
use wire::api::{RunState, RunView, SessionState, SessionView, Sessions};
use wire::{Cause, ErrorCode, Exit};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews ls
  mews ls --state running --label team=blue
  mews ls -a --json | jq -r .name")]
pub(crate) struct Args {
    /// All sessions, not only the living and the last ten; archived ones too
    #[arg(short, long)]
    all: bool,
    /// Only those in this state; several: in any of them
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    state: Vec<String>,
    /// Only those with this label, or with this value of it; several: with all of them
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// Only those of this project, by its short name: `project` in --json
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
}

const STATES: [&str; 6] = ["idle", "running", "queued", "paused", "ended", "failed"];

impl Args {
    fn query(&self) -> String {
        let mut pairs = vec![format!("all={}", self.all)];
        pairs.extend(self.state.iter().map(|state| format!("state={state}")));
        pairs.extend(self.label.iter().map(|label| format!("label={}", encode(label))));
        pairs.extend(self.project.iter().map(|slug| format!("project={}", encode(slug))));
        pairs.join("&")
    }

    fn picks(&self) -> bool {
        !(self.state.is_empty() && self.label.is_empty() && self.project.is_none())
    }
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let sessions = sessions(&args.query()).await?;
    if say.json {
        for session in &sessions {
            out::json_line(session)?;
        }
        return Ok(0);
    }
    if sessions.is_empty() {
        say.note(match (args.picks(), args.all) {
            (true, false) => "no session fits; -a looks at all that ended",
            (true, true) => "no session fits",
            (false, _) => "nothing has run yet; try: mews run",
        });
        return Ok(0);
    }
    out::data(&table(&sessions, now_ms(), out::colours()))?;
    Ok(0)
}

/// The sessions that have not ended.
pub(super) async fn living(api: &Api) -> Result<Vec<SessionView>, Failure> {
    let found = listed(api, "").await?;
    Ok(found.into_iter().filter(is_living).collect())
}

/// None where mews never ran; that starts no daemon either.
async fn sessions(query: &str) -> Result<Vec<SessionView>, Failure> {
    listed(&Api::new(), query).await
}

/// All pages.
pub(crate) async fn listed(api: &Api, query: &str) -> Result<Vec<SessionView>, Failure> {
    let mut path = format!("/sessions?{query}");
    let mut found = Vec::new();
    loop {
        let page: Sessions = match api.get(&path).await {
            Ok(page) => page,
            Err(failure) if failure.is(ErrorCode::NotFound) => return Ok(found),
            Err(failure) => return Err(failure),
        };
        let is_empty = page.sessions.is_empty();
        found.extend(page.sessions);
        match page.next {
            Some(next) if !is_empty => {
                path = format!("/sessions?{query}&after={}", encode(&next));
            }
            Some(_) | None => return Ok(found),
        }
    }
}

/// What is running, and how to begin.
pub(crate) async fn overview(say: &Say) -> Result<u8, Failure> {
    let sessions = sessions("all=false").await?;
    let living: Vec<SessionView> = sessions.into_iter().filter(is_living).collect();
    if say.json {
        for session in &living {
            out::json_line(session)?;
        }
        return Ok(0);
    }
    if living.is_empty() {
        out::data("Nothing is running.\n")?;
    } else {
        out::data(&table(&living, now_ms(), out::colours()))?;
    }
    out::data(
        "
  mews run -- CMD     run a command in a cage in this folder; without CMD: a shell
  mews attach NAME    come back to it, from any terminal; ctrl-\\ ctrl-d leaves it again
  mews end NAME       end it; what it printed and changed is kept

  mews top shows all of it as it runs; mews --help shows everything else
",
    )?;
    Ok(0)
}

fn is_living(session: &SessionView) -> bool {
    match session.state {
        SessionState::Idle
        | SessionState::Running
        | SessionState::Queued
        | SessionState::Paused => true,
        SessionState::Ended | SessionState::Failed => false,
    }
}

fn table(sessions: &[SessionView], now_ms: i64, colours: bool) -> String {
    let mut head = vec!["NAME", "STATE", "POLICY", "COMMAND", "AGE", "EXIT", "ID"];
    let row = |session| row(session, now_ms, colours);
    let mut rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    // An admin sees those of others too.
    if sessions.windows(2).any(|two| matches!(two, [one, other] if one.uid != other.uid)) {
        head.insert(1, "USER");
        for (row, session) in rows.iter_mut().zip(sessions) {
            row.insert(1, user(session.uid));
        }
    }
    render(&head, &rows)
}

pub(super) fn user(uid: u32) -> String {
    let account = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    account.map_or_else(|| uid.to_string(), |account| escape(&account.name))
}

fn row(session: &SessionView, now_ms: i64, colours: bool) -> Vec<String> {
    let run = session.runs.last();
    let state = if session.archived { "archived" } else { state(session) };
    vec![
        escape(&session.name),
        paint(state).map_or_else(|| state.to_owned(), |paint| paint.when(colours, state)),
        run.map_or_else(|| "-".to_owned(), |run| cut(&escape(&run.policy), 20)),
        run.map_or_else(|| "-".to_owned(), |run| cut(&command(&run.argv), 40)),
        age(now_ms - session.created_at_ms),
        run.map_or_else(|| "-".to_owned(), exit_of),
        session.id.short(),
    ]
}

/// A session with a cage that nobody can talk to is as good as that cage.
pub(crate) fn state(session: &SessionView) -> &'static str {
    if session.cages.iter().any(|cage| cage.unreachable.is_some()) {
        return "unreachable";
    }
    state_word(session.state)
}

/// How a state looks, if it looks like anything.
pub(super) fn paint(state: &str) -> Option<Paint> {
    match state {
        "running" => Some(Paint::Good),
        "paused" | "queued" => Some(Paint::Warn),
        "failed" | "unreachable" => Some(Paint::Bad),
        "ended" | "archived" => Some(Paint::Back),
        _idle => None,
    }
}

pub(super) fn state_word(state: SessionState) -> &'static str {
    match state {
        SessionState::Idle => "idle",
        SessionState::Running => "running",
        SessionState::Queued => "queued",
        SessionState::Paused => "paused",
        SessionState::Ended => "ended",
        SessionState::Failed => "failed",
    }
}

/// `7`, `143 SIGTERM`, `137 oom`; `-` while it runs.
pub(crate) fn exit_of(run: &RunView) -> String {
    match (&run.exit, run.state) {
        (Some(exit), _) => exit_word(exit),
        (None, RunState::Failed) => match &run.error {
            Some(error) => format!("125 {}", code_word(error.code)),
            None => "125".to_owned(),
        },
        (None, RunState::Cancelled) => "cancelled".to_owned(),
        (None, RunState::Pending | RunState::Running | RunState::Suspended | RunState::Done) => {
            "-".to_owned()
        }
    }
}

/// As in JSON: `policy_invalid`.
fn code_word(code: ErrorCode) -> String {
    let word = serde_json::to_value(code).unwrap_or_default();
    word.as_str().unwrap_or("failed").to_owned()
}

pub(crate) fn exit_word(exit: &Exit) -> String {
    let status = exit.status();
    let signal = exit.signal.and_then(|n| nix::sys::signal::Signal::try_from(i32::from(n)).ok());
    match (exit.cause, signal) {
        (Cause::Exited, _) => status.to_string(),
        (Cause::Signaled, Some(signal)) => format!("{status} {}", signal.as_str()),
        (cause, _) => format!("{status} {}", cause.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::samples;
    use wire::{RunId, SessionId, Usage};

    fn session(name: &str, argv: &[&str], exit: Option<Exit>) -> SessionView {
        let id: SessionId = "01J00000000000000000ABCDEF".parse().unwrap();
        let state = if exit.is_some() { SessionState::Ended } else { SessionState::Running };
        SessionView {
            id,
            runs: vec![RunView {
                id: RunId::new(),
                session: id,
                kind: wire::api::RunKind::Job,
                state: if exit.is_some() { RunState::Done } else { RunState::Running },
                argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
                policy: "shell".into(),
                created_at_ms: 0,
                started_at_ms: None,
                ended_at_ms: None,
                exit,
                error: None,
            }],
            ..samples::session(name, state)
        }
    }

    #[test]
    fn whose_is_said_where_there_are_several() {
        let mut sessions = [session("a-1", &["a"], None), session("b-1", &["b"], None)];
        assert!(!table(&sessions, 0, false).contains("USER"));
        sessions[1].uid = 4_000_000_000;
        let shown = table(&sessions, 0, false);
        assert!(shown.contains("USER") && shown.contains("4000000000"), "{shown}");
    }

    #[test]
    fn states_are_painted_where_colours_are_and_columns_stay() {
        let mut sessions = [session("a-1", &["a"], None), session("b-1", &["b"], None)];
        sessions[1].archived = true;
        let shown = table(&sessions, 0, true);
        assert!(shown.contains("\x1b[32mrunning\x1b[0m   shell"), "{shown:?}");
        assert!(shown.contains("\x1b[2marchived\x1b[0m  shell"), "{shown:?}");
    }

    #[test]
    fn a_row_shows_state_command_and_exit_and_is_harmless() {
        let exit = |code, signal, cause| Exit {
            code,
            signal,
            core: false,
            cause,
            message: None,
            usage: Usage::default(),
        };
        let sessions = [
            session("sh-1", &["sh", "-c", "exit 7"], Some(exit(Some(7), None, Cause::Exited))),
            session("evil", &["\x1b[2J"], None),
            session("t-1", &["t"], Some(exit(None, Some(15), Cause::Signaled))),
            session("hog", &["hog"], Some(exit(None, Some(9), Cause::Oom))),
        ];
        assert_eq!(
            table(&sessions, 61_000, false),
            "\
NAME  STATE    POLICY  COMMAND         AGE  EXIT         ID
sh-1  ended    shell   sh -c 'exit 7'  1m   7            ABCDEF
evil  running  shell   '\\u{1b}[2J'     1m   -            ABCDEF
t-1   ended    shell   t               1m   143 SIGTERM  ABCDEF
hog   ended    shell   hog             1m   137 oom      ABCDEF
"
        );
    }
}
