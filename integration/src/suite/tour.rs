//! `docs/tour.md`, typed into real terminals as a reader would, as root and as an ordinary user.
//!
//! Of each block that is marked `console`, lines that begin with `$ ` are typed at the operator's own
//! shell, with `cage$ ` at the shell in a cage, and `[ctrl-\ ctrl-d]` is typed as those keys; what
//! follows must be all that the screen then shows, `…` as in [`crate::pattern`]. A block that begins
//! with neither is only looked at. `console other` is a second terminal.

use crate::pattern::fits;
use crate::runner::Test;
use anyhow::{Context as _, ensure};
use std::path::Path;
use testkit::{Sandbox, Terminal};

/// What the prompt of a caged shell is written as; its own varies.
const CAGE: &str = "cage$ ";
const OWN: &str = "$ ";
const COLS: u16 = 110;
const ROWS: u16 = 40;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("tour.as_it_is_written", take),
        Test::new("tour.of_an_ordinary_user", |_root| super::users::as_user(1, take)),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Typed {
    Line {
        prompt: &'static str,
        text: String,
    },
    Keys(String),
    /// It is only looked at.
    Nothing,
}

#[derive(Clone, Debug)]
struct Step {
    /// Of the page, from 1.
    line: usize,
    terminal: usize,
    typed: Typed,
    shows: String,
}

fn take(sandbox: &Sandbox) -> anyhow::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the repository")?;
    let steps = steps(&std::fs::read_to_string(page.join("docs/tour.md"))?)?;
    ensure!(steps.len() > 30, "{} steps", steps.len());
    let terminals = [shell(sandbox)?, shell(sandbox)?];
    for (index, step) in steps.iter().enumerate() {
        let terminal = terminals.get(step.terminal).context("a terminal")?;
        let later = steps.get(index + 1..).unwrap_or_default();
        let next = later.iter().find(|other| other.terminal == step.terminal);
        play(terminal, step, next).with_context(|| format!("docs/tour.md:{}", step.line))?;
    }
    Ok(())
}

/// The operator's own, of which the prompt is known.
fn shell(sandbox: &Sandbox) -> anyhow::Result<Terminal> {
    let words = ["env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"];
    let terminal = Terminal::program(sandbox, &words)?;
    terminal.resize(COLS, ROWS)?;
    terminal.wait_until("its prompt", |lines| shown(lines) == pattern_of(OWN))?;
    Ok(terminal)
}

fn play(terminal: &Terminal, step: &Step, next: Option<&Step>) -> anyhow::Result<()> {
    let begins = match &step.typed {
        Typed::Line { prompt, text } => {
            // Only what comes of this line shall be seen.
            terminal.send([0x0c])?;
            let prompt = pattern_of(prompt);
            terminal.wait_until("a prompt alone", |lines| fits(prompt, &shown(lines)))?;
            terminal.send(format!("{text}\r"))?;
            terminal.wait_until("its echo", |lines| !fits(prompt, &shown(lines)))?;
            // What is attached to draws its own screen over the line.
            if step.shows.trim() == "…" { String::new() } else { format!("{prompt} {text}\n") }
        }
        Typed::Keys(keys) => {
            terminal.send(keys)?;
            "…\n".to_owned()
        }
        Typed::Nothing => {
            let shows = &step.shows;
            return terminal.wait_until(shows, |lines| fits(shows, &shown(lines))).map(drop);
        }
    };
    let ends = match next.map(|next| &next.typed) {
        Some(Typed::Line { prompt, .. }) => pattern_of(prompt),
        Some(Typed::Keys(_) | Typed::Nothing) => pattern_of(CAGE),
        None => pattern_of(OWN),
    };
    let want = format!("{begins}{}{ends}", step.shows);
    terminal.wait_until(&want, |lines| fits(&want, &shown(lines))).map(drop)
}

fn pattern_of(prompt: &str) -> &'static str {
    if prompt == CAGE { "…$" } else { "$" }
}

/// Down to the last line that holds something.
fn shown(lines: &[String]) -> String {
    lines.join("\n").trim_end().to_owned()
}

fn steps(page: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut terminal, mut begins) = (None, false);
    for (number, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            begins = true;
            terminal = match (terminal, kind) {
                (None, "console") => Some(0),
                (None, "console other") => Some(1),
                (None, _) | (Some(_), _) => None,
            };
            continue;
        }
        let Some(terminal) = terminal else { continue };
        let typed = typed(line)?.or_else(|| begins.then_some(Typed::Nothing));
        if let Some(typed) = typed {
            let shows = if typed == Typed::Nothing { format!("{line}\n") } else { String::new() };
            steps.push(Step { line: number + 1, terminal, typed, shows });
        } else if let Some(step) = steps.last_mut() {
            step.shows.push_str(line);
            step.shows.push('\n');
        }
        begins = false;
    }
    Ok(steps)
}

fn typed(line: &str) -> anyhow::Result<Option<Typed>> {
    for prompt in [OWN, CAGE] {
        if let Some(text) = line.strip_prefix(prompt) {
            return Ok(Some(Typed::Line { prompt, text: text.to_owned() }));
        }
    }
    let Some(names) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(None);
    };
    if !names.starts_with("ctrl-") {
        return Ok(None);
    }
    let keys: Result<Vec<String>, _> = names.split(' ').map(control).collect();
    Ok(Some(Typed::Keys(keys?.concat())))
}

/// The byte of a key that is held with ctrl.
fn control(name: &str) -> anyhow::Result<String> {
    let key = name.strip_prefix("ctrl-").filter(|key| key.len() == 1);
    let byte = key.and_then(|key| key.bytes().next()).context("a key with ctrl-")?;
    Ok(char::from(byte & 0x1f).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_what_is_typed_and_shown() {
        let page = "$ not in a block\n```sh\n$ nor here\n```\n```console\n$ mews run\n…\ncage$ ls\n\
                    [a title]\n[ctrl-\\ ctrl-d]\n```\n```console other\n$ true\n```\n\
                    ```console\n…$\nthere\n```\n";
        let steps = steps(page).unwrap();
        let line = |prompt, text: &str| Typed::Line { prompt, text: text.to_owned() };
        let keys = Typed::Keys("\u{1c}\u{4}".to_owned());
        let read: Vec<_> = steps
            .into_iter()
            .map(|step| (step.line, step.terminal, step.typed, step.shows))
            .collect();
        let want = [
            (6, 0, line(OWN, "mews run"), "…\n"),
            (8, 0, line(CAGE, "ls"), "[a title]\n"),
            (10, 0, keys, ""),
            (13, 1, line(OWN, "true"), ""),
            (16, 0, Typed::Nothing, "…$\nthere\n"),
        ];
        assert_eq!(read, want.map(|(line, at, typed, shows)| (line, at, typed, shows.to_owned())));
    }
}
