//! Which session is meant where none is named.

use super::ls::living;
use crate::api::Api;
use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::{cut, render};
use crate::time::{age, now_ms};
use std::io::{BufRead, IsTerminal};
use wire::api::{SessionState, SessionView};
use wire::{ErrorCode, WireError};

/// The only one with a command that runs; of several, the one that is chosen.
pub(super) async fn session(api: &Api, say: &Say) -> Result<String, Failure> {
    let runs = |session: &SessionView| {
        matches!(session.state, SessionState::Running | SessionState::Paused)
    };
    let running: Vec<SessionView> = living(api).await?.into_iter().filter(runs).collect();
    match running.as_slice() {
        [] => {
            let error = WireError::new(ErrorCode::NotFound, "nothing is running");
            Err(Failure::from(error).next("mews run"))
        }
        [one] => Ok(one.id.to_string()),
        several if !say.json && std::io::stdin().is_terminal() => ask(several),
        several => Err(unclear(several)),
    }
}

fn ask(sessions: &[SessionView]) -> Result<String, Failure> {
    out::ask(&table(sessions));
    out::ask(&format!("Which one? [1-{}] ", sessions.len()));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::new(format!("cannot read the answer: {error}")))?;
    let word = line.trim();
    let by_number = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let by_number = by_number.and_then(|index| sessions.get(index));
    match by_number.or_else(|| sessions.iter().find(|session| session.name == word)) {
        Some(session) => Ok(session.id.to_string()),
        None if word.is_empty() => Err(Failure::usage("none was chosen")),
        None => Err(Failure::usage(format!("'{}' is none of them", escape(word)))),
    }
}

fn unclear(sessions: &[SessionView]) -> Failure {
    let names: Vec<String> = sessions.iter().map(|session| escape(&session.name)).collect();
    let words = format!("{} sessions are running: {}", names.len(), names.join(", "));
    let error = WireError::new(ErrorCode::Conflict, words);
    let next = names.iter().map(|name| format!("mews attach {name}")).collect::<Vec<_>>();
    Failure::from(error).next(next.join(", or "))
}

fn table(sessions: &[SessionView]) -> String {
    let now_ms = now_ms();
    let rows: Vec<Vec<String>> = (1..)
        .zip(sessions)
        .map(|(number, session): (usize, _)| {
            let argv = session.runs.last().map_or_else(String::new, |run| command(&run.argv));
            vec![
                number.to_string(),
                escape(&session.name),
                cut(&escape(&argv), 40),
                age(now_ms - session.created_at_ms),
            ]
        })
        .collect();
    render(&["#", "NAME", "COMMAND", "AGE"], &rows)
}
