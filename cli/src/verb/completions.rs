//! `mews completions`: what a shell needs to complete verbs, flags and the names of sessions.

use crate::complete;
use crate::failure::Failure;
use crate::out::{self, Say};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What a key completes is asked of the `mews` that is installed at that moment: names of sessions are those
that live, or have ended, as the verb wants them.

Examples:
  mews completions bash > ~/.local/share/bash-completion/completions/mews
  mews completions zsh > ~/.zfunc/_mews          with fpath+=~/.zfunc before compinit
  mews completions fish > ~/.config/fish/completions/mews.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let script = script(args.shell)?;
    if say.json {
        out::json_line(&json!({ "script": script }))?;
    } else {
        out::data(&script)?;
    }
    Ok(0)
}

fn script(shell: Shell) -> Result<String, Failure> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell
        .write_registration(complete::VARIABLE, "mews", "mews", "mews", &mut script)
        .map_err(|error| Failure::new(format!("cannot write the script: {error}")))?;
    Ok(format!("{}\n", String::from_utf8_lossy(&script).trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_ask_mews_and_set_the_variable() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).unwrap();
            assert!(script.contains(complete::VARIABLE), "{script}");
            assert!(script.contains("mews"), "{script}");
        }
    }
}
