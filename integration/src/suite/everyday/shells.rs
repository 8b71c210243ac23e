//! Completions, in the shells themselves.

use super::{ended, has, sleeps};
use crate::runner::{Test, need_programs};
use anyhow::ensure;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, Terminal};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("everyday.bash_completes_verbs_flags_and_living_names", bash),
        Test::new("everyday.bash_completes_at_the_prompt", bash_prompt),
        Test::new("everyday.zsh_completes_at_the_prompt", zsh_prompt),
        Test::new("everyday.fish_completes_verbs_and_living_names", fish),
        Test::new("everyday.completing_starts_no_daemon", quiet),
    ]
}

fn output(sandbox: &Sandbox, words: &[&str]) -> anyhow::Result<String> {
    let (program, rest) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(rest).env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    Ok(process::run(&mut command, b"", LIMIT)?.expect(0)?.out())
}

/// What bash would offer for these words, of which the last is being typed.
fn bash_offers(sandbox: &Sandbox, words: &str) -> anyhow::Result<Vec<String>> {
    let script = format!(
        "source <(mews completions bash); COMP_WORDS=({words}); COMP_TYPE=9; \
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _clap_complete_mews mews \"${{COMP_WORDS[COMP_CWORD]}}\" x; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let out = output(sandbox, &["bash", "--norc", "-c", &script])?;
    Ok(out.lines().map(|line| line.trim().to_owned()).collect())
}

fn bash(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "alive")?;
    sleeps(sandbox, "stands")?;
    sandbox.mews(["pause", "stands"])?.expect(0)?;
    ended(sandbox, "over", &[], "true")?;
    for (words, want) in [
        ("mews att", &["attach"][..]),
        ("mews attach ''", &["alive", "stands"]),
        ("mews attach al", &["alive"]),
        ("mews resume ''", &["stands"]),
        ("mews pause ''", &["alive"]),
        ("mews rm ''", &["over"]),
        ("mews logs ''", &["alive", "stands", "over"]),
        ("mews end alive st", &["stands"]),
        ("mews run --policy sh", &["shell"]),
        ("mews policy show agent-", &["agent-offline"]),
        ("mews ls --sta", &["--state"]),
        ("mews ls --state pa", &["paused"]),
        ("mews completions z", &["zsh"]),
    ] {
        let mut got = bash_offers(sandbox, words)?;
        got.retain(|word| !word.starts_with('-') || words.contains("--"));
        let mut want: Vec<String> = want.iter().map(|&word| word.to_owned()).collect();
        got.sort();
        want.sort();
        ensure!(got == want, "{words}: {got:?}");
    }
    Ok(())
}

fn bash_prompt(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "alive")?;
    let terminal = Terminal::program(sandbox, &["bash", "--norc", "--noprofile"])?;
    terminal.send("PS1='at> '; source <(mews completions bash)\r")?;
    terminal.wait_until("a prompt", |lines| lines.iter().any(|line| line == "at>"))?;
    completes(&terminal)
}

/// A verb, then a name.
fn completes(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.send("mews insp\tal\t")?;
    let is_whole = |line: &String| line == "at> mews inspect alive";
    terminal.wait_until("verb and name", |lines| lines.iter().any(is_whole))?;
    Ok(())
}

fn zsh_prompt(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_programs(&["zsh"])?;
    sleeps(sandbox, "alive")?;
    let terminal = Terminal::program(sandbox, &["zsh", "-f", "-i"])?;
    terminal.send(
        "PS1='at> '; autoload -Uz compinit; compinit -u; eval \"$(mews completions zsh)\"\r",
    )?;
    terminal.wait_until("a prompt", |lines| lines.iter().any(|line| line == "at>"))?;
    completes(&terminal)?;
    // And from its file, as a package installs it.
    let script = output(sandbox, &["mews", "completions", "zsh"])?;
    has(&script, &["#compdef mews"])
}

fn fish(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_programs(&["fish"])?;
    sleeps(sandbox, "alive")?;
    let offers = |words: &str| {
        let script = format!("mews completions fish | source; complete --do-complete '{words}'");
        output(sandbox, &["fish", "--no-config", "-c", &script])
    };
    has(&offers("mews atta")?, &["attach\t"])?;
    // With what it is, beside the name.
    has(&offers("mews attach al")?, &["alive\trunning  sleep 1000"])?;
    let dead = offers("mews rm ")?;
    ensure!(!dead.contains("alive"), "{dead}");
    Ok(())
}

fn quiet(sandbox: &Sandbox) -> anyhow::Result<()> {
    let got = bash_offers(sandbox, "mews attach ''")?;
    ensure!(got.iter().all(|word| word.is_empty() || word.starts_with('-')), "{got:?}");
    ensure!(!sandbox.api_socket().exists(), "a daemon runs");
    Ok(())
}
