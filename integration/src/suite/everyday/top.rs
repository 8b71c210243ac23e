//! `mews top`, on a terminal, by its keys.

use super::{has, sleeps};
use crate::runner::{Test, need_programs, need_root};
use crate::talk::{kill_both, start, text};
use anyhow::{Context as _, ensure};
use link::PidFd;
use std::process::{Command, Stdio};
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, Terminal, pause};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("everyday.top_shows_what_runs_as_it_comes_and_goes", list),
        Test::new("everyday.top_shows_use_graphs_and_events", graphs),
        Test::new("everyday.top_pauses_and_kills_by_key", act),
        Test::new("everyday.top_attaches_and_comes_back", attach),
        Test::new("everyday.top_filters_and_fits_any_size", filter),
        Test::new("everyday.top_gives_the_terminal_back", back),
        Test::new("everyday.top_without_a_terminal_says_what_else", nowhere),
        Test::new("everyday.top_works_in_tmux", tmux),
        Test::new("everyday.top_outlives_the_daemons", daemons),
    ]
}

fn row(lines: &[String], name: &str) -> Option<String> {
    lines.iter().find(|line| line.trim_start().starts_with(name)).cloned()
}

fn shows(terminal: &Terminal, name: &str, word: &str) -> anyhow::Result<()> {
    let good = |lines: &[String]| row(lines, name).is_some_and(|line| line.contains(word));
    terminal.wait_until(&format!("{name} {word}"), good)?;
    Ok(())
}

fn list(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut terminal = Terminal::mews(sandbox, &["top"])?;
    terminal.wait_for("nothing is running")?;
    sleeps(sandbox, "first")?;
    shows(&terminal, "first", "running")?;
    sleeps(sandbox, "second")?;
    shows(&terminal, "second", "sleep 1000")?;
    terminal.wait_for("2 living, 2 running, 0 paused")?;
    sandbox.mews(["end", "first"])?.expect(0)?;
    terminal.wait_until("first is gone", |lines| row(lines, "first").is_none())?;
    terminal.send("q")?;
    ensure!(terminal.wait_exit()? == 0);
    terminal.check_sane()
}

fn graphs(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    start(sandbox, &["--name", "busy"], &["bash", "-c", "while :; do :; done"])?;
    let mut terminal = Terminal::sized(sandbox, &["top"], 120, 30)?;
    // Of one CPU, as top says it; the machine may be busy with others.
    terminal.wait_until("cpu is used", |lines| {
        let cpu = row(lines, "busy").and_then(|line| {
            let word = line.split_whitespace().find(|word| word.ends_with('%'))?;
            word.trim_end_matches('%').parse::<u32>().ok()
        });
        cpu.is_some_and(|cpu| cpu > 5)
    })?;
    let lines = terminal.wait_until("a graph of it", |lines| {
        lines
            .iter()
            .any(|line| line.starts_with("cpu ") && line.contains(['▁', '▄', '█', '▆', '▇']))
    })?;
    has(&lines.join("\n"), &["waited for, of 10 s", "memory ", "io "])?;
    terminal.wait_for("run.started")?;
    // The chosen one's events come by themselves.
    sandbox.mews(["label", "busy", "a=b"])?.expect(0)?;
    terminal.wait_for("session.updated")?;
    terminal.send("q")?;
    ensure!(terminal.wait_exit()? == 0);
    Ok(())
}

fn act(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "first")?;
    let terminal = Terminal::mews(sandbox, &["top"])?;
    shows(&terminal, "first", "running")?;
    terminal.send("p")?;
    shows(&terminal, "first", "paused")?;
    ensure!(text(&sandbox.json(["inspect", "first"])?, "/state")? == "paused");
    terminal.send("p")?;
    shows(&terminal, "first", "running")?;
    sleeps(sandbox, "second")?;
    shows(&terminal, "second", "running")?;
    terminal.send("\x1b[B")?;
    terminal.send("k")?;
    terminal.wait_for("kill second with all that runs in it? [y/N]")?;
    terminal.send("n")?;
    terminal.wait_for("not killed")?;
    ensure!(text(&sandbox.json(["inspect", "second"])?, "/state")? == "running");
    terminal.send("ky")?;
    terminal.wait_until("it is gone", |lines| row(lines, "second").is_none())?;
    ensure!(text(&sandbox.json(["inspect", "second"])?, "/state")? == "ended");
    shows(&terminal, "first", "running")
}

fn attach(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "sh"], &["bash", "--norc", "-i"])?;
    sandbox.mews(["wait", "sh", "--for", "[$]$", "--timeout", "20"])?.expect(0)?;
    let mut terminal = Terminal::mews(sandbox, &["top"])?;
    shows(&terminal, "sh", "running")?;
    terminal.send("\r")?;
    terminal.wait_until("its prompt", |lines| lines.iter().any(|line| line.ends_with('$')))?;
    // Keys of top are letters here.
    terminal.send("echo q-$((40+2))k\r")?;
    terminal.wait_for("q-42k")?;
    terminal.send("\x1c\x04")?;
    terminal.wait_for("mews top  1 living")?;
    // Once more, and this time it ends.
    terminal.send("\r")?;
    terminal.wait_for("q-42k")?;
    terminal.send("exit 3\r")?;
    terminal.wait_for("nothing is running")?;
    terminal.send("q")?;
    ensure!(terminal.wait_exit()? == 0);
    terminal.check_sane()
}

fn filter(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "apple")?;
    sleeps(sandbox, "banana")?;
    let mut terminal = Terminal::mews(sandbox, &["top", "ban"])?;
    shows(&terminal, "banana", "running")?;
    ensure!(row(&terminal.screen(), "apple").is_none(), "{:?}", terminal.screen());
    terminal.send("\x1b")?;
    shows(&terminal, "apple", "running")?;
    terminal.send("/app\r")?;
    terminal.wait_until("only apple", |lines| {
        row(lines, "apple").is_some() && row(lines, "banana").is_none()
    })?;
    // Faster than it draws: what the small ones cut off comes back with the last.
    for (cols, rows) in [(20, 4), (3, 2), (80, 24)] {
        terminal.resize(cols, rows)?;
    }
    terminal.wait_until("all of it", |lines| {
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        row(lines, "apple").is_some() && has("mews top") && has("q quit")
    })?;
    for (cols, rows) in [(40, 8), (132, 50)] {
        terminal.resize(cols, rows)?;
        terminal.wait_until(&format!("{cols}x{rows}"), |lines| {
            let ends = |line: Option<&String>, text: &str| line.is_some_and(|it| it.contains(text));
            lines.len() == usize::from(rows)
                && ends(lines.first(), "mews top")
                && row(lines, "apple").is_some()
                && ends(lines.last(), "enter attach")
        })?;
    }
    terminal.send("\x03")?;
    ensure!(terminal.wait_exit()? == 0);
    terminal.check_sane()
}

fn back(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "first")?;
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut terminal = Terminal::mews(sandbox, &["top"])?;
        shows(&terminal, "first", "running")?;
        let pid = i32::try_from(terminal.pid().context("a pid")?)?;
        PidFd::open(pid)?.signal(signal)?;
        let status = terminal.wait_exit()?;
        ensure!(i32::try_from(status)? == 128 + signal, "{status}");
        terminal.check_sane()?;
    }
    let words = ["env", "MEWS_PANICS=1", "mews", "top"];
    let mut terminal = Terminal::program(sandbox, &words)?;
    shows(&terminal, "first", "running")?;
    terminal.send("!")?;
    ensure!(terminal.wait_exit()? == 101, "it did not panic");
    terminal.check_sane()?;
    // Said where it can be read.
    has(&terminal.screen().join("\n"), &["told to panic"])
}

fn nowhere(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "first")?;
    for words in [&["top"][..], &["top", "--json"]] {
        let told = sandbox.mews(words)?.expect(2)?.err();
        has(&told, &["needs a terminal", "mews stats --json", "mews ls --json"])?;
    }
    Ok(())
}

fn tmux(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_programs(&["tmux"])?;
    sleeps(sandbox, "first")?;
    let socket = sandbox.root().join("home/tmux.sock");
    let tmux = |words: &[&str]| -> anyhow::Result<process::Finished> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&socket).args(["-f", "/dev/null"]).args(words);
        command.env_clear().envs(sandbox.env()?).stdin(Stdio::null());
        process::run(&mut command, b"", LIMIT)
    };
    tmux(&["new-session", "-d", "-x", "100", "-y", "30", "bash --norc"])?.expect(0)?;
    let sees = |what: &str, good: &dyn Fn(&str) -> bool| {
        pause::until(what, LIMIT, || {
            let pane = tmux(&["capture-pane", "-p"]).ok()?.out();
            good(&pane).then_some(())
        })
    };
    let checked = (|| {
        tmux(&["send-keys", "PS1='at> '; clear; mews top", "Enter"])?.expect(0)?;
        sees("the list", &|pane| pane.contains("1 living") && pane.contains("first"))?;
        tmux(&["send-keys", "p"])?.expect(0)?;
        sees("it is paused", &|pane| pane.contains("1 paused"))?;
        tmux(&["send-keys", "q"])?.expect(0)?;
        sees("the prompt", &|pane| pane.contains("at>") && !pane.contains("1 living"))
    })();
    tmux(&["kill-server"])?;
    checked
}

/// It says so while nobody answers, and goes on by itself.
fn daemons(sandbox: &Sandbox) -> anyhow::Result<()> {
    sleeps(sandbox, "first")?;
    let terminal = Terminal::mews(sandbox, &["top"])?;
    shows(&terminal, "first", "running")?;
    kill_both(sandbox)?;
    terminal.wait_for("no daemon is running")?;
    sleeps(sandbox, "second")?;
    shows(&terminal, "second", "running")?;
    shows(&terminal, "first", "running")
}
