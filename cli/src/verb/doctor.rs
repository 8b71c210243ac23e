//! `mews doctor`: what this host can enforce, with a real cage at the end.

use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::{place, programs};
use cage::host_policy;
use cage::probe::{Check, State, report};
use wire::dirs::Dirs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 if cages can be had here, 1 if not.

Examples:
  mews doctor
  mews doctor --json | jq -r 'select(.state != \"ok\") | .name'")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: &Args, say: &Say) -> Result<u8, Failure> {
    let cage_init = programs::find("mews-cage-init").ok();
    let setting = std::env::var("MEWS_CGROUP_PARENT").unwrap_or_else(|_unset| "auto".to_owned());
    let mut checks = report(cage_init.as_deref(), &setting);
    checks.extend(host_policy());
    checks.push(trial(say).await);
    let failed = checks.iter().any(|check| check.state == State::Fail);
    for check in &checks {
        if say.json {
            out::json_line(check)?;
        } else {
            out::data(&line(check))?;
        }
    }
    if failed {
        say.note("cages cannot be had on this host until the failures above are mended");
    }
    Ok(u8::from(failed))
}

/// Where root serves others too: whether its file is believed, and says what was meant.
fn host_policy() -> Option<Check> {
    let folder =
        if nix::unistd::geteuid().is_root() { place::dirs() } else { Dirs::system() }.config;
    let (state, what, mend) = match host_policy::open(&folder, 0) {
        Ok(None) => return None,
        Err(error) => (State::Fail, error.to_string(), None),
        Ok(Some(policy)) if policy.unknown.is_empty() => {
            (State::Ok, folder.join(host_policy::FILE_NAME).display().to_string(), None)
        }
        Ok(Some(policy)) => {
            let what = format!("names nobody of this host: {}", policy.unknown.join(", "));
            (State::Warn, what, Some("make the account, or take it out".to_owned()))
        }
    };
    Some(Check { name: "host policy".to_owned(), state, what, mend })
}

/// The proof: a cage with everything, and `true` in it.
async fn trial(say: &Say) -> Check {
    let name = "a real cage".to_owned();
    match super::run::trial(say).await {
        Ok(enforced) => {
            let count = |state| enforced.walls.iter().filter(|wall| wall.state == state).count();
            let (up, absent) = (count(wire::WallState::Enforced), count(wire::WallState::Absent));
            let what = format!("true ran in it; {up} walls enforced, {absent} absent");
            Check { name, state: State::Ok, what, mend: None }
        }
        Err(failure) => Check {
            name,
            state: State::Fail,
            what: failure.error.message,
            mend: failure.next.filter(|next| next != "mews doctor"),
        },
    }
}

fn line(check: &Check) -> String {
    let word = match check.state {
        State::Ok => "ok  ",
        State::Warn => "warn",
        State::Fail => "FAIL",
    };
    let mut line = format!("{word}  {:<20} {}\n", escape(&check.name), escape(&check.what));
    if let Some(mend) = &check.mend {
        line.push_str(&format!("      {:<20} mend: {}\n", "", escape(mend)));
    }
    line
}
