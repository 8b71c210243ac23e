//! `mews kill`: a cage at once, or a signal to its command.

use super::attach::terminal_of;
use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::Say;
use nix::sys::signal::Signal;
use wire::api::SessionView;
use wire::supervisor::Phase;
use wire::{CageId, ErrorCode, SessionId, WireError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --signal the whole cage is killed, and mews waits until nothing of it is left.

Examples:
  mews kill pi-1
  mews kill -s INT build-1        as ctrl-c would")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Send this signal instead: a name or a number
    #[arg(short, long, value_name = "SIGNAL", value_parser = signal)]
    signal: Option<i32>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let found = api.resolve(id).await?;
        let (cage, pty) = terminal_of(&found)?;
        match args.signal {
            Some(signal) => match api.signal(found.session, cage, Some(pty), signal).await {
                Err(failure) if failure.is(ErrorCode::Gone) => return Err(ended(&found.name)),
                other => other?,
            },
            None => {
                let name = escape(&found.name);
                let had_ended = is_gone(&api, found.session, cage).await?;
                say.during(&format!("killing {name}"), api.kill(found.session, cage)).await?;
                say.note(&match had_ended {
                    true => format!("{name} had ended already"),
                    false => format!("killed {name}"),
                });
            }
        }
    }
    Ok(0)
}

async fn is_gone(api: &Api, session: SessionId, cage: CageId) -> Result<bool, Failure> {
    let view: SessionView = api.get(&format!("/sessions/{session}")).await?;
    let mut cages = view.cages.iter().filter(|one| one.id == cage);
    Ok(cages.all(|one| one.phase == Phase::Gone))
}

fn ended(name: &str) -> Failure {
    let words = format!("{name} has ended; there is nothing to send a signal to");
    Failure::from(WireError::new(ErrorCode::Gone, words)).next(format!("mews inspect {name}"))
}

/// `TERM`, `SIGTERM`, `term`, `15`.
fn signal(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse() {
        return match number {
            1..=64 => Ok(number),
            _other => Err("signals are 1 to 64".to_owned()),
        };
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse::<Signal>()
        .map(|signal| signal as i32)
        .map_err(|_unknown| format!("'{text}' is no signal; write TERM, INT, HUP or a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, want) in [("TERM", 15), ("sigint", 2), ("9", 9), ("SIGUSR1", 10)] {
            assert_eq!(signal(text), Ok(want), "{text}");
        }
        assert!(signal("0").is_err() && signal("65").is_err() && signal("SIGFOO").is_err());
    }
}
