//! `mews doctor`: what this host can enforce, with a real cage at the end, and what that makes of each
//! shipped policy.

mod policies;

use crate::escape::escape;
use crate::failure::Failure;
use crate::out::colour::Paint;
use crate::out::{self, Say};
use crate::{place, programs};
use cage::host_policy;
use cage::probe::{Check, State, report};
use wire::dirs::Dirs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is found out by doing it, each with a time limit, and ends with a real cage. Then each shipped
policy is planned: what of it would be enforced, by weaker means, or absent, and whether
it would refuse to start. With --json: an object for each check, then one for each policy with all walls.

Exit status: 0 if cages can be had here, 1 if not.

Examples:
  mews doctor
  mews doctor --json | jq -r 'select(.state != \"ok\") | .name'")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: &Args, say: &Say) -> Result<u8, Failure> {
    let cage_init = programs::find("mews-cage-init").ok();
    let setting = std::env::var("MEWS_CGROUP_PARENT").unwrap_or_else(|_unset| "auto".to_owned());
    let mut checks = said(say, "looking at this host", || report(cage_init.as_deref(), &setting));
    checks.extend(host_policy());
    checks.push(say.during("starting a cage", trial(say)).await);
    let failed = checks.iter().any(|check| check.state == State::Fail);
    let policies = said(say, "making plans", || policies::all(&setting))?;
    if say.json {
        checks.iter().try_for_each(out::json_line)?;
        policies.iter().try_for_each(out::json_line)?;
    } else {
        let colours = out::colours();
        let lines: String = checks.iter().map(|check| line(check, colours)).collect();
        out::data(&lines)?;
        out::data("\nWhat each shipped policy would enforce here:\n")?;
        out::data(&policies.iter().map(|policy| policy.lines(colours)).collect::<String>())?;
    }
    if failed {
        say.note("cages cannot be had on this host until the failures above are mended");
    }
    Ok(u8::from(failed))
}

/// The same with a sign of life.
fn said<T>(say: &Say, text: &str, work: impl FnOnce() -> T) -> T {
    let _progress = say.progress(text);
    work()
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

fn line(check: &Check, colours: bool) -> String {
    let word = word(check.state, colours);
    let mut line = format!("{word}  {:<20} {}\n", escape(&check.name), escape(&check.what));
    if let Some(mend) = &check.mend {
        line.push_str(&format!("      {:<20} mend: {}\n", "", escape(mend)));
    }
    line
}

fn word(state: State, colours: bool) -> String {
    let (paint, word) = match state {
        State::Ok => (Paint::Good, "ok  "),
        State::Warn => (Paint::Warn, "warn"),
        State::Fail => (Paint::Bad, "FAIL"),
    };
    paint.when(colours, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_state_name_what_and_how_to_mend_it() {
        let check = Check {
            name: "memfd".to_owned(),
            state: State::Warn,
            what: "no\x1b[2J".to_owned(),
            mend: Some("sysctl x=1".to_owned()),
        };
        let shown = line(&check, false);
        assert!(shown.starts_with("warn  memfd                no\\u{1b}[2J\n"), "{shown}");
        assert!(shown.ends_with("mend: sysctl x=1\n"), "{shown}");
        assert!(line(&check, true).starts_with("\x1b[33mwarn\x1b[0m  memfd"));
    }
}
