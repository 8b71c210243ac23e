//! Driving a terminal without sitting at it: send, screen, wait, logs --since; and who is told of whom.

use super::terminal::{BASH, run};
use crate::runner::Test;
use crate::talk::{finish, in_workspace, kill_both, number, start, text, wait_exit};
use anyhow::{Context as _, ensure};
use std::process::Stdio;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox, Terminal, pause};

/// Takes the keyboard, or lets go of it.
const KEYBOARD: &str = "\x1c\x14";
/// Shows the bytes of so many keys, once it has said that it is ready.
const SHOW_KEYS: &str = "stty raw -echo; printf \"$2\"; printf 'ready\\r\\n'; \
                         dd bs=1 count=\"$1\" 2>/dev/null | od -An -v -tx1 | tr -d '\\n'; \
                         printf '\\r\\nshown\\r\\n'; exec sleep 1000";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("scripts.send_types_text_and_keys_in_order", send_in_order),
        Test::new("scripts.send_says_keys_as_the_program_wants_them", send_by_mode),
        Test::new("scripts.send_pastes_in_brackets", send_paste),
        Test::new("scripts.send_to_pipes_is_standard_input", send_to_pipes),
        Test::new("scripts.send_waits_while_paused", send_paused),
        Test::new("scripts.send_does_not_type_beside_a_writer", send_beside),
        Test::new("scripts.send_refusals_say_what_to_do", send_refused),
        Test::new("scripts.screen_is_what_a_viewer_sees", screen_living),
        Test::new("scripts.screen_is_kept_after_the_end", screen_ended),
        Test::new("scripts.wait_for_what_is_there_and_what_comes", wait_for),
        Test::new("scripts.wait_for_counts_after_a_sequence", wait_after),
        Test::new("scripts.wait_for_misses_no_line_of_a_flood", wait_flood),
        Test::new("scripts.wait_for_after_the_end", wait_ended),
        Test::new("scripts.wait_idle", wait_idle),
        Test::new("scripts.wait_outlives_the_daemons", wait_daemons),
        Test::new("scripts.wait_refusals_say_what_to_do", wait_refused),
        Test::new("scripts.attach_without_an_id", attach_alone),
        Test::new("scripts.viewers_are_told_of_each_other", told),
        Test::new("scripts.the_keyboard_goes_both_ways", keyboard),
        Test::new("scripts.nobody_has_the_keyboard_of_what_has_ended", keyboard_of_the_ended),
        Test::new("scripts.logs_since", logs_since),
    ]
}

fn mews(sandbox: &Sandbox, words: &[&str]) -> anyhow::Result<Finished> {
    sandbox.mews(words)
}

/// An interactive bash in the background, at its prompt.
fn bash(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    start(sandbox, &["--name", name], &BASH)?;
    wait(sandbox, name, "[$]$", &[])?;
    Ok(())
}

/// `mews wait --for`; the line.
fn wait(sandbox: &Sandbox, id: &str, pattern: &str, more: &[&str]) -> anyhow::Result<String> {
    let words = [&["wait", id, "--for", pattern, "--timeout", "20"], more].concat();
    Ok(mews(sandbox, &words)?.expect(0)?.out().trim_end().to_owned())
}

fn says(finished: &Finished, code: i32, words: &[&str]) -> anyhow::Result<()> {
    let told = finished.err();
    ensure!(finished.code == code, "exit {}, not {code}: {told}", finished.code);
    for word in words {
        ensure!(told.contains(word), "no {word:?} in: {told}");
    }
    Ok(())
}

fn end(sandbox: &Sandbox, id: &str) -> anyhow::Result<()> {
    mews(sandbox, &["end", id])?.expect(0)?;
    Ok(())
}

fn send_in_order(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "b")?;
    let words = ["send", "b", "wrong", "--key", "ctrl-u", "echo one-$((1+1))", "-k", "enter"];
    mews(sandbox, &words)?.expect(0)?;
    ensure!(wait(sandbox, "b", "^one-2$", &[])? == "one-2");
    // A key that the line discipline makes a signal of.
    mews(sandbox, &["send", "b", "sleep 1000; echo got-$?", "--key", "Enter"])?.expect(0)?;
    wait(sandbox, "b", "sleep 1000", &[])?;
    pause::until("sleep runs", LIMIT, || {
        let shown = sandbox.mews(["exec", "b", "--no-tty", "--", "pidof", "sleep"]).ok()?;
        (shown.code == 0).then_some(())
    })?;
    mews(sandbox, &["send", "b", "--key", "C-c"])?.expect(0)?;
    mews(sandbox, &["send", "b", "--", "-x; echo dash-$((2+2))"])?.expect(0)?;
    mews(sandbox, &["send", "b", "--key", "enter"])?.expect(0)?;
    wait(sandbox, "b", "^dash-4$", &[])?;
    end(sandbox, "b")
}

/// What the program got, as hexadecimal digits.
fn shown_keys(sandbox: &Sandbox, id: &str) -> anyhow::Result<String> {
    wait(sandbox, id, "^shown$", &[])?;
    let view = sandbox.json(["screen", id])?;
    let rows = view.pointer("/rows").and_then(|rows| rows.as_array()).context("rows")?;
    let rows: Vec<&str> = rows.iter().filter_map(|row| row.as_str()).collect();
    let at = rows.iter().position(|row| *row == "shown").context("no such row")?;
    Ok(rows.get(at - 1).context("no row above")?.replace(' ', ""))
}

fn show_keys(sandbox: &Sandbox, id: &str, count: &str, first: &str) -> anyhow::Result<()> {
    start(sandbox, &["--name", id], &["bash", "-c", SHOW_KEYS, "x", count, first])?;
    wait(sandbox, id, "^ready$", &[])?;
    Ok(())
}

fn send_by_mode(sandbox: &Sandbox) -> anyhow::Result<()> {
    show_keys(sandbox, "plain", "8", "")?;
    mews(sandbox, &["send", "plain", "-k", "up", "-k", "f5"])?.expect(0)?;
    let got = shown_keys(sandbox, "plain")?;
    ensure!(got == "1b5b411b5b31357e", "{got}");
    show_keys(sandbox, "switched", "3", "\\033[?1h")?;
    mews(sandbox, &["send", "switched", "-k", "up"])?.expect(0)?;
    let got = shown_keys(sandbox, "switched")?;
    ensure!(got == "1b4f41", "{got}");
    end(sandbox, "plain")?;
    end(sandbox, "switched")
}

fn send_paste(sandbox: &Sandbox) -> anyhow::Result<()> {
    show_keys(sandbox, "asked", "15", "\\033[?2004h")?;
    let mut command = sandbox.command(["send", "asked", "--paste", "--stdin"])?;
    process::run(&mut command, b"a\nb", LIMIT)?.expect(0)?;
    let got = shown_keys(sandbox, "asked")?;
    ensure!(got == "1b5b3230307e610d621b5b3230317e", "{got}");
    show_keys(sandbox, "not", "3", "")?;
    mews(sandbox, &["send", "not", "--paste", "a\nb"])?.expect(0)?;
    let got = shown_keys(sandbox, "not")?;
    ensure!(got == "610d62", "{got}");
    end(sandbox, "asked")?;
    end(sandbox, "not")
}

fn send_to_pipes(sandbox: &Sandbox) -> anyhow::Result<()> {
    let words = ["run", "--no-tty", "--name", "p", "--", "sh", "-c", "read x; echo got-$x; cat"];
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    pause::until("it runs", LIMIT, || {
        sandbox.json(["inspect", "p"]).ok()?.pointer("/cages/0/ptys/0/started_at_ms")?.as_i64()
    })?;
    let refused = mews(sandbox, &["send", "p", "x\n"])?;
    says(&refused, 5, &["has the keyboard of p", "--force"])?;
    says(&mews(sandbox, &["send", "p", "-k", "up", "--force"])?, 5, &["no terminal", "not keys"])?;
    mews(sandbox, &["send", "p", "--force", "word\n"])?.expect(0)?;
    ensure!(wait(sandbox, "p", "^got-", &[])? == "got-word");
    says(&mews(sandbox, &["screen", "p"])?, 5, &["no terminal", "mews logs"])?;
    drop(child.stdin.take());
    let finished = finish(child)?;
    ensure!(finished.out() == "got-word\n", "{}", finished.out());
    // The same pattern when all of it is over.
    ensure!(wait(sandbox, "p", "^got-", &[])? == "got-word");
    Ok(())
}

fn send_paused(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "z")?;
    mews(sandbox, &["pause", "z"])?.expect(0)?;
    let sent = mews(sandbox, &["send", "z", "echo late-$((3+3))", "-k", "enter"])?;
    says(&sent, 0, &["paused", "mews resume z"])?;
    let waited = mews(sandbox, &["wait", "z", "--for", "^late-6$", "--timeout", "0.2"])?;
    says(&waited, 1, &["within the time"])?;
    mews(sandbox, &["resume", "z"])?.expect(0)?;
    wait(sandbox, "z", "^late-6$", &[])?;
    end(sandbox, "z")
}

fn send_beside(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = Terminal::mews(sandbox, &run(&["--name", "w"], &BASH))?;
    super::terminal::at_prompt(&terminal)?;
    let refused = mews(sandbox, &["send", "w", "echo no", "-k", "enter"])?;
    says(&refused, 5, &["has the keyboard of w", "--force"])?;
    let sent = mews(sandbox, &["send", "w", "echo yes-$((4+4))", "-k", "enter", "--force"])?;
    says(&sent, 0, &[])?;
    terminal.wait_until("both", |lines| lines.iter().any(|line| line == "yes-8"))?;
    ensure!(!terminal.screen().iter().any(|line| line.contains("echo no")), "typed all the same");
    drop(terminal);
    end(sandbox, "w")
}

fn send_refused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "over"], &["true"])?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    for (words, code, told) in [
        (&["send", "over", "x"][..], 3, &["over has ended", "mews logs over"][..]),
        (&["send", "over"], 2, &["say what to type", "--key enter"]),
        (&["send", "over", "--key", "entr"], 2, &["'entr' is no key", "enter, tab"]),
        (&["send", "nobody", "x"], 3, &["Nothing is called 'nobody'"]),
    ] {
        says(&mews(sandbox, words)?, code, told)?;
    }
    let mut command = sandbox.command(["send", "over", "--stdin"])?;
    says(&process::run(&mut command, b"\xff", LIMIT)?, 2, &["not UTF-8"])
}

fn screen_living(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "printf '\\033]2;the title\\007\\033[?1049h\\033[2J\\033[3;5H\\033[31mred\\033[m'; \
                  exec sleep 1000";
    start(sandbox, &["--name", "s"], &["bash", "-c", script])?;
    wait(sandbox, "s", "red", &[])?;
    let view = sandbox.json(["screen", "s"])?;
    ensure!(text(&view, "/rows/2")? == "    red", "{view}");
    ensure!(text(&view, "/ansi/2")? == "    \x1b[31mred\x1b[m", "{view}");
    ensure!(text(&view, "/title")? == "the title", "{view}");
    ensure!(view.pointer("/alternate") == Some(&true.into()), "{view}");
    let cursor = (number(&view, "/cursor/row")?, number(&view, "/cursor/col")?);
    ensure!(cursor == (2, 7), "{view}");
    ensure!((number(&view, "/size/cols")?, number(&view, "/size/rows")?) == (80, 24), "{view}");
    ensure!(number(&view, "/seq")? > 20, "{view}");
    ensure!(mews(sandbox, &["screen", "s"])?.expect(0)?.out() == "\n\n    red\n");
    let ansi = mews(sandbox, &["screen", "s", "--ansi"])?.expect(0)?.out();
    ensure!(ansi == "\n\n    \x1b[31mred\x1b[m\n", "{ansi:?}");
    end(sandbox, "s")
}

fn screen_ended(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "e"], &["sh", "-c", "echo last words; exit 3"])?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    ensure!(mews(sandbox, &["screen", "e"])?.expect(0)?.out() == "last words\n");
    // From the database alone, too.
    pause::until("the cage is gone", LIMIT, || {
        let shown = sandbox.json(["inspect", "e"]).ok()?;
        (shown.pointer("/cages/0/phase")? == "gone").then_some(())
    })?;
    let view = sandbox.json(["screen", "e"])?;
    ensure!(text(&view, "/rows/0")? == "last words", "{view}");
    ensure!(number(&view, "/seq")? == 12, "{view}");
    Ok(())
}

fn wait_for(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "seq 1 200; until [ -e go ]; do sleep 0.02; done; \
                  printf '\\033[32mlong %0100d end\\033[m\\n' 7; exec sleep 1000";
    start(sandbox, &["--name", "f"], &["bash", "-c", script])?;
    // Far above the screen.
    ensure!(wait(sandbox, "f", "^3$", &[])? == "3");
    let mut words = vec!["wait", "f", "--for", "^long 0+7 end$"];
    let mut command = sandbox.command(&words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn()?;
    words.extend(["--timeout", "0.3"]);
    says(&mews(sandbox, &words)?, 1, &["within the time"])?;
    sandbox.file("ws/go", "")?;
    // Wrapped on a screen of 80 columns, and coloured.
    let finished = finish(waiting)?.expect(0)?;
    ensure!(finished.out().starts_with("long 000") && finished.out().ends_with("7 end\n"));
    end(sandbox, "f")
}

fn wait_after(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "a")?;
    let sent = sandbox.json(["send", "a", "echo first-$((1+0))", "-k", "enter"])?;
    let after = number(&sent, "/seq")?.to_string();
    wait(sandbox, "a", "^first-1$", &["--after", &after])?;
    wait(sandbox, "a", "[$]$", &["--after", &after])?;
    let now = number(&sandbox.json(["screen", "a"])?, "/seq")?.to_string();
    let words = ["wait", "a", "--for", "first-1", "--after", &now, "--timeout", "0.3"];
    says(&mews(sandbox, &words)?, 1, &[])?;
    // It waits for what is not there yet.
    let words = ["wait", "a", "--for", "second-2", "--after", &now];
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn()?;
    mews(sandbox, &["send", "a", "echo second-$((1+1))", "-k", "enter"])?.expect(0)?;
    ensure!(finish(waiting)?.expect(0)?.out() == "second-2\n");
    end(sandbox, "a")
}

/// A hundred times more lines than are kept; the one in the middle is seen, and those drawn and wiped
/// away at once are.
fn wait_flood(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "until [ -e go ]; do sleep 0.02; done; seq 1 500000; echo in-the-midst; \
                  seq 1 500000; touch flooded; exec sleep 1000";
    start(sandbox, &["--name", "flood"], &["bash", "-c", script])?;
    let mut command = sandbox.command(["wait", "flood", "--for", "^in-the-midst$"])?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn()?;
    watched(sandbox, "flood")?;
    sandbox.file("ws/go", "")?;
    ensure!(finish(waiting)?.expect(0)?.out() == "in-the-midst\n");
    let flooded = in_workspace(sandbox, "flooded");
    pause::until("the flood is over", LIMIT, || flooded.exists().then_some(()))?;
    let words = ["wait", "flood", "--for", "^in-the-midst$", "--timeout", "0.3"];
    says(&mews(sandbox, &words)?, 1, &[])?;
    end(sandbox, "flood")
}

/// A second one is answered: what was asked before it is in the broker by then.
fn watched(sandbox: &Sandbox, id: &str) -> anyhow::Result<()> {
    for _ in 0..5 {
        mews(sandbox, &["wait", id, "--for", "nothing", "--timeout", "0.2"])?.expect(1)?;
    }
    Ok(())
}

fn wait_ended(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = start(sandbox, &["--name", "o"], &["sh", "-c", "echo one; echo two; exit 4"])?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    ensure!(wait(sandbox, "o", "^t.o$", &[])? == "two");
    ensure!(wait(sandbox, "o", "^t.o$", &["--after", "5"])? == "two");
    let none = mews(sandbox, &["wait", "o", "--for", "one", "--after", "5"])?;
    says(&none, 3, &["o has ended (exit 4) before that came", "mews logs o"])?;
    says(&mews(sandbox, &["wait", "o", "--idle", "1s"])?, 3, &["has ended (exit 4)"])?;
    // One that ends while it is waited for.
    let script = "until [ -e go ]; do sleep 0.02; done; exit 5";
    start(sandbox, &["--name", "later"], &["bash", "-c", script])?;
    let mut command = sandbox.command(["wait", "later", "--for", "nothing"])?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn()?;
    watched(sandbox, "later")?;
    sandbox.file("ws/go", "")?;
    says(&finish(waiting)?, 3, &["later has ended (exit 5) before that came"])
}

fn wait_idle(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "until [ -e stop ]; do echo x; sleep 0.05; done; exec sleep 1000";
    start(sandbox, &["--name", "i"], &["bash", "-c", script])?;
    let busy = mews(sandbox, &["wait", "i", "--idle", "2s", "--timeout", "0.5"])?;
    says(&busy, 1, &["within the time"])?;
    sandbox.file("ws/stop", "")?;
    mews(sandbox, &["wait", "i", "--idle", "1s", "--timeout", "20"])?.expect(0)?;
    // With a sequence, quiet before anything came of it does not count.
    let now = number(&sandbox.json(["screen", "i"])?, "/seq")?.to_string();
    let words = ["wait", "i", "--idle", "10ms", "--after", &now, "--timeout", "0.3"];
    says(&mews(sandbox, &words)?, 1, &[])?;
    // A program that stands still is not idle.
    mews(sandbox, &["pause", "i"])?.expect(0)?;
    let still = mews(sandbox, &["wait", "i", "--idle", "10ms", "--timeout", "0.3"])?;
    says(&still, 1, &[])?;
    mews(sandbox, &["resume", "i"])?.expect(0)?;
    mews(sandbox, &["wait", "i", "--idle", "10ms", "--timeout", "20"])?.expect(0)?;
    end(sandbox, "i")
}

fn wait_daemons(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "until [ -e go ]; do sleep 0.02; done; echo it-came; exec sleep 1000";
    start(sandbox, &["--name", "d"], &["bash", "-c", script])?;
    let mut command = sandbox.command(["wait", "d", "--for", "it-came"])?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn()?;
    watched(sandbox, "d")?;
    kill_both(sandbox)?;
    sandbox.file("ws/go", "")?;
    ensure!(finish(waiting)?.expect(0)?.out() == "it-came\n");
    end(sandbox, "d")
}

fn wait_refused(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "r"], &["sleep", "1000"])?;
    let long = "x".repeat(1001);
    for (words, told) in [
        (&["wait", "r"][..], &["--exit, --for REGEX or --idle"][..]),
        (&["wait", "r", "--for", "("], &["no regular expression", "unclosed group"]),
        (&["wait", "r", "--for", ""], &["empty"]),
        (&["wait", "r", "--for", &long], &["longer than 1000"]),
        (&["wait", "r", "--for", "(a{1000}){1000}"], &["too large"]),
        (&["wait", "r", "--idle", "soon"], &["--idle", "soon"]),
        (&["wait", "r", "--exit", "--for", "x"], &["cannot be used with"]),
        (&["wait", "r", "--for", "x", "--timeout=-1"], &["--timeout"]),
    ] {
        says(&mews(sandbox, words)?, 2, told)?;
    }
    end(sandbox, "r")
}

fn attach_alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    says(&mews(sandbox, &["attach"])?, 125, &["nothing is running", "mews run"])?;
    bash(sandbox, "one")?;
    let mut alone = Terminal::mews(sandbox, &["attach"])?;
    alone.send("echo here-$((5+5))\r")?;
    alone.wait_until("its shell", |lines| lines.iter().any(|line| line == "here-10"))?;
    alone.send("\x1c\x04")?;
    ensure!(alone.wait_exit()? == 0);
    bash(sandbox, "two")?;
    let told = mews(sandbox, &["attach"])?;
    says(&told, 125, &["2 sessions are running", "mews attach one", "mews attach two"])?;
    let mut asked = Terminal::mews(sandbox, &["attach"])?;
    asked.wait_for("Which one? [1-2]")?;
    let rows = asked.screen();
    let row = rows.iter().find(|row| row.contains(" one ")).context("no row of one")?;
    asked.send(format!("{}\r", row.trim().split(' ').next().unwrap_or_default()))?;
    asked.wait_for("here-10")?;
    asked.send("\x1c\x04")?;
    ensure!(asked.wait_exit()? == 0);
    let mut wrong = Terminal::mews(sandbox, &["attach"])?;
    wrong.wait_for("Which one? [1-2]")?;
    wrong.send("7\r")?;
    wrong.wait_for("'7' is none of them")?;
    ensure!(wrong.wait_exit()? == 125);
    end(sandbox, "one")?;
    end(sandbox, "two")
}

fn told(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "t")?;
    let first = Terminal::mews(sandbox, &["attach", "t"])?;
    first.wait_raw(b"leave it with")?;
    let mut second = Terminal::mews(sandbox, &["attach", "t"])?;
    second.wait_raw(b"has the keyboard; ctrl-\\ ctrl-t takes it")?;
    first.wait_raw(b"watches\x1b\\")?;
    let third = Terminal::mews(sandbox, &["attach", "--observe", "t"])?;
    first.wait_raw(b"and 1 more watch\x1b\\")?;
    drop(third);
    second.send("\x1c\x04")?;
    ensure!(second.wait_exit()? == 0);
    first.wait_raw(b"nobody else is here\x1b\\")?;
    let watcher = Terminal::mews(sandbox, &["attach", "--observe", "t"])?;
    watcher.wait_raw(b"has the keyboard")?;
    drop(first);
    watcher.wait_raw(b"the keyboard is free; ctrl-\\ ctrl-t takes it\x1b\\")?;
    drop(watcher);
    end(sandbox, "t")
}

/// It was told so many times that it has the keyboard.
fn had(viewer: &Terminal, times: usize) -> anyhow::Result<()> {
    pause::until("it has the keyboard again", LIMIT, || {
        let raw = String::from_utf8_lossy(&viewer.raw()).into_owned();
        (raw.matches("mews: you have the keyboard").count() == times).then_some(())
    })
}

fn keyboard(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "k")?;
    let first = Terminal::mews(sandbox, &["attach", "k"])?;
    first.wait_raw(b"leave it with")?;
    let second = Terminal::mews(sandbox, &["attach", "k"])?;
    second.wait_raw(b"has the keyboard")?;
    second.send(KEYBOARD)?;
    second.wait_raw(b"mews: you have the keyboard")?;
    first.wait_raw(b"has taken the keyboard; you watch; ctrl-\\ ctrl-t takes it back")?;
    first.send("echo not-$((1+1))\r")?;
    second.send("echo second-$((2+2))\r")?;
    wait(sandbox, "k", "^second-4$", &[])?;
    first.send(KEYBOARD)?;
    first.wait_raw(b"mews: you have the keyboard")?;
    first.send("echo first-$((3+3))\r")?;
    wait(sandbox, "k", "^first-6$", &[])?;
    // And it is let go of.
    first.send(KEYBOARD)?;
    first.wait_raw(b"you have let go of the keyboard")?;
    second.wait_raw(b"the keyboard is free; ctrl-\\ ctrl-t takes it")?;
    mews(sandbox, &["send", "k", "echo free-$((4+4))", "-k", "enter"])?.expect(0)?;
    wait(sandbox, "k", "^free-8$", &[])?;
    let lines = mews(sandbox, &["logs", "k"])?.expect(0)?.out();
    ensure!(!lines.contains("not-"), "an observer typed:\n{lines}");
    // Who takes it and leaves gives it back to whom it was taken from; to nobody else.
    second.send(KEYBOARD)?;
    had(&second, 2)?;
    let mut third = Terminal::mews(sandbox, &["attach", "--take", "k"])?;
    third.wait_raw(b"leave it with")?;
    third.send("\x1c\x04")?;
    ensure!(third.wait_exit()? == 0);
    had(&second, 3)?;
    second.send("echo again-$((5+5))\r")?;
    wait(sandbox, "k", "^again-10$", &[])?;
    drop((first, second));
    end(sandbox, "k")
}

/// All viewers are told the end, the writer first: nobody has the keyboard after that.
fn keyboard_of_the_ended(sandbox: &Sandbox) -> anyhow::Result<()> {
    bash(sandbox, "e")?;
    let mut first = Terminal::mews(sandbox, &["attach", "e"])?;
    first.wait_raw(b"leave it with")?;
    let mut second = Terminal::mews(sandbox, &["attach", "--take", "e"])?;
    second.wait_raw(b"leave it with")?;
    first.wait_raw(b"has taken the keyboard")?;
    first.send(KEYBOARD)?;
    first.wait_raw(b"mews: you have the keyboard")?;
    first.send("exit 4\r")?;
    ensure!(first.wait_exit()? == 4 && second.wait_exit()? == 4);
    wait_exit(sandbox, "e")?.expect(0)?;
    let types = crate::talk::event_types(&crate::talk::events(sandbox, "e")?)?;
    let roles = types.iter().filter(|kind| *kind == "pty.role").count();
    // Lost by the first, lost by the second, had by the first.
    ensure!(roles == 3, "{types:?}");
    Ok(())
}

fn logs_since(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "seq 1 100; echo old; until [ -e go ]; do sleep 0.02; done; \
                  seq 101 200; echo new; until [ -e stop ]; do sleep 0.02; done";
    let run = start(sandbox, &["--name", "l"], &["bash", "-c", script])?;
    wait(sandbox, "l", "^old$", &[])?;
    // To the second: what is older by more than one is left out.
    mews(sandbox, &["wait", "l", "--idle", "4s", "--timeout", "20"])?.expect(0)?;
    sandbox.file("ws/go", "")?;
    wait(sandbox, "l", "^new$", &[])?;
    let want: String =
        (101..=200).map(|number| format!("{number}\n")).collect::<String>() + "new\n";
    let since = || mews(sandbox, &["logs", "--since", "2s", "l"]);
    // Slow machines may let two seconds pass here.
    let lines = since()?.expect(0)?.out();
    ensure!(lines == want || lines.is_empty(), "{lines}");
    let all = mews(sandbox, &["logs", "--since", "1h", "l"])?.expect(0)?.out();
    ensure!(all == mews(sandbox, &["logs", "l"])?.expect(0)?.out(), "{all}");
    sandbox.file("ws/stop", "")?;
    wait_exit(sandbox, &run.session)?.expect(0)?;
    let all = mews(sandbox, &["logs", "--since", "1h", "l"])?.expect(0)?.out();
    ensure!(all.starts_with("1\n2\n") && all.ends_with("new\n"), "{all}");
    let from = since_of(sandbox, "l")?;
    ensure!(from == want, "{from}");
    says(&mews(sandbox, &["logs", "--since", "ever", "l"])?, 2, &["--since", "ever"])?;
    says(&mews(sandbox, &["logs", "--since", "1h", "--raw", "l"])?, 2, &["cannot be used with"])
}

/// Since shortly before its end, whenever that was.
fn since_of(sandbox: &Sandbox, id: &str) -> anyhow::Result<String> {
    let shown = sandbox.json(["inspect", id])?;
    let ended = number(&shown, "/cages/0/ptys/0/ended_at_ms")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
    let since = i64::try_from(now)? - ended + 3000;
    Ok(mews(sandbox, &["logs", "--since", &format!("{since}ms"), id])?.expect(0)?.out())
}
