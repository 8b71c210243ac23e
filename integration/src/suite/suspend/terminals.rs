//! Programs on terminals: the same screen, the same job in the foreground, every key once.

use super::{count, must_stand, pause_it, resume_it, stands_and_goes_on, suspension};
use crate::runner::skip;
use crate::suite::terminal::{BASH, at_prompt, exit_with, has_line, last, pids_of, run, wait_line};
use crate::talk::{number, read, start, text};
use anyhow::ensure;
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, Terminal, pause};

/// The command that stands in this way.
pub(super) fn how(suspension: &Value, name: &str) -> anyhow::Result<String> {
    let all = suspension.pointer("/processes").and_then(Value::as_array);
    let found = all.and_then(|all| {
        all.iter().find(|process| process.pointer("/name").is_some_and(|it| it == name))
    });
    let found = found.ok_or_else(|| anyhow::anyhow!("no {name} in {suspension}"))?;
    text(found, "/how")
}

/// Pauses and resumes; the screen is then as before, and no shell has said anything.
pub(super) fn around(sandbox: &Sandbox, terminal: &Terminal, id: &str) -> anyhow::Result<Value> {
    let before = terminal.screen();
    pause_it(sandbox, id)?;
    resume_it(sandbox, id)?;
    terminal.wait_until("the screen as it was", |lines| lines == before)?;
    let said = terminal.history_and_screen();
    ensure!(!said.iter().any(|line| line.contains("Stopped")), "{said:#?}");
    suspension(sandbox, id)
}

pub(super) fn shell(sandbox: &Sandbox, name: &str) -> anyhow::Result<Terminal> {
    let terminal = Terminal::mews(sandbox, &run(&["--name", name], &BASH))?;
    at_prompt(&terminal)?;
    Ok(terminal)
}

/// Still at the prompt, and in charge of the terminal.
pub(super) fn leave(mut terminal: Terminal) -> anyhow::Result<()> {
    at_prompt(&terminal)?;
    terminal.send("echo alive-$((1+1))\r")?;
    wait_line(&terminal, "alive-2")?;
    exit_with(&mut terminal, "exit 3\r", 3)
}

pub(super) fn keys_at_a_prompt(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "keys")?;
    pause_it(sandbox, "keys")?;
    terminal.send("echo typed-$((1+1))\r")?;
    resume_it(sandbox, "keys")?;
    wait_line(&terminal, "typed-2")?;
    let lines = terminal.history_and_screen();
    let times = lines.iter().filter(|line| *line == "typed-2").count();
    ensure!(times == 1, "{lines:#?}");
    leave(terminal)
}

pub(super) fn attached_later(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "later"], &BASH)?;
    pause_it(sandbox, "later")?;
    let terminal = Terminal::mews(sandbox, &["attach", "later"])?;
    terminal.wait_raw(b"mews resume later")?;
    terminal.send("echo typed-$((1+1))\r")?;
    resume_it(sandbox, "later")?;
    wait_line(&terminal, "typed-2")?;
    leave(terminal)
}

/// A viewer that is there already sees why nothing moves, in its title, and its screen is as it was.
pub(super) fn watched(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "told")?;
    let observer = Terminal::mews(sandbox, &["attach", "told", "--observe"])?;
    observer.wait_for("$")?;
    let before = terminal.screen();
    pause_it(sandbox, "told")?;
    for viewer in [&terminal, &observer] {
        viewer.wait_raw(b"mews: paused; keys wait until: mews resume told")?;
    }
    ensure!(terminal.screen() == before, "{:#?}", terminal.screen());
    resume_it(sandbox, "told")?;
    for viewer in [&terminal, &observer] {
        viewer.wait_raw(b"mews: told goes on")?;
    }
    ensure!(terminal.screen() == before, "{:#?}", terminal.screen());
    leave(terminal)
}

/// What was typed, and the same from `cat`.
/// Shown as it was typed, maybe behind what was just being printed, and as it came back.
fn answered(terminal: &Terminal, line: &str) -> anyhow::Result<()> {
    let count = |lines: &[String]| lines.iter().filter(|it| it.ends_with(line)).count();
    terminal.wait_until("cat's answer", |lines| count(lines) == 2)?;
    Ok(())
}

pub(super) fn foreground(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "job")?;
    terminal.send("(echo up; exec cat)\r")?;
    wait_line(&terminal, "up")?;
    terminal.send("one\r")?;
    answered(&terminal, "one")?;
    let told = around(sandbox, &terminal, "job")?;
    ensure!(how(&told, "cat")? == "tstp" && how(&told, "bash")? == "stop", "{told}");
    pause_it(sandbox, "job")?;
    terminal.send("two\r")?;
    resume_it(sandbox, "job")?;
    answered(&terminal, "two")?;
    pause_it(sandbox, "job")?;
    terminal.send("\x03")?;
    resume_it(sandbox, "job")?;
    at_prompt(&terminal)?;
    terminal.send("echo status-$?\r")?;
    wait_line(&terminal, "status-130")?;
    leave(terminal)
}

/// At a program that only the freezer holds, `^C` would be a kill at once.
pub(super) fn key_that_kills(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "kills")?;
    terminal.send("(trap '' TSTP; echo up; exec cat)\r")?;
    wait_line(&terminal, "up")?;
    pause_it(sandbox, "kills")?;
    terminal.send("\x03")?;
    held(|| Ok(pids_of(sandbox, "cat").len() == 1))?;
    resume_it(sandbox, "kills")?;
    at_prompt(&terminal)?;
    terminal.send("echo status-$?\r")?;
    wait_line(&terminal, "status-130")?;
    leave(terminal)
}

pub(super) fn pipeline(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "pipe")?;
    terminal.send("(echo up; exec sleep 1000) | cat\r")?;
    wait_line(&terminal, "up")?;
    let told = around(sandbox, &terminal, "pipe")?;
    ensure!(how(&told, "sleep")? == "tstp", "{told}");
    terminal.send("\x03")?;
    leave(terminal)
}

pub(super) fn stopped_job(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "bg")?;
    terminal.send("sh -c 'echo up; exec sleep 1000'\r")?;
    wait_line(&terminal, "up")?;
    terminal.send("\x1a")?;
    terminal.wait_for("Stopped")?;
    at_prompt(&terminal)?;
    terminal.send("clear\r")?;
    at_prompt(&terminal)?;
    pause_it(sandbox, "bg")?;
    resume_it(sandbox, "bg")?;
    let told = suspension(sandbox, "bg")?;
    ensure!(how(&told, "sleep")? == "stopped", "{told}");
    terminal.send("jobs\r")?;
    terminal.wait_for("Stopped")?;
    terminal.send("kill -9 %1; wait\r")?;
    at_prompt(&terminal)?;
    exit_with(&mut { terminal }, "clear; exit 3\r", 3)
}

pub(super) fn has(terminal: &Terminal, text: &str) -> bool {
    terminal.screen().iter().any(|line| line.contains(text))
}

pub(super) fn nested(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "nested")?;
    terminal.send("PS1='inner$ ' bash --norc --noprofile -i\r")?;
    terminal.wait_until("the inner prompt", |lines| lines.iter().any(|it| it == "inner$"))?;
    terminal.send("(echo up; exec cat)\r")?;
    wait_line(&terminal, "up")?;
    terminal.send("one\r")?;
    answered(&terminal, "one")?;
    around(sandbox, &terminal, "nested")?;
    terminal.send("two\r")?;
    answered(&terminal, "two")?;
    terminal.send("\x04exit 9\r")?;
    at_prompt(&terminal)?;
    terminal.send("echo status-$?\r")?;
    wait_line(&terminal, "status-9")?;
    leave(terminal)
}

pub(super) fn editor(sandbox: &Sandbox, beside_a_job: bool) -> anyhow::Result<()> {
    sandbox.file("ws/notes", "alpha\nbeta\n")?;
    let terminal = shell(sandbox, "edit")?;
    let job = if beside_a_job { "sleep 1000 & " } else { "" };
    terminal.send(format!("{job}vim -u NONE -n notes\r"))?;
    in_vim(&terminal)?;
    around(sandbox, &terminal, "edit")?;
    pause_it(sandbox, "edit")?;
    terminal.send("oinserted\x1b")?;
    resume_it(sandbox, "edit")?;
    terminal.wait_until("the new line", |lines| has_line(lines, "inserted"))?;
    terminal.send(":wq\r")?;
    at_prompt(&terminal)?;
    ensure!(read(sandbox, "notes")? == "alpha\ninserted\nbeta\n", "{}", read(sandbox, "notes")?);
    if beside_a_job {
        terminal.send("clear; jobs\r")?;
        terminal.wait_for("Running")?;
        terminal.send("kill %1\r")?;
    }
    leave(terminal)
}

/// Without the message with which it begins: it redraws without that.
pub(super) fn in_vim(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.wait_until("vim", |lines| has_line(lines, "beta") && has_line(lines, "~"))?;
    terminal.send(":echo 'ready'\r")?;
    wait_line(terminal, "ready")?;
    terminal.send(":echo ''\r")?;
    terminal.wait_until("no message", |lines| last(lines) == "~")?;
    Ok(())
}

pub(super) fn vim_alone(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/notes", "alpha\nbeta\n")?;
    let words = run(&["--name", "vim"], &["vim", "-u", "NONE", "-n", "notes"]);
    let mut terminal = Terminal::mews(sandbox, &words)?;
    in_vim(&terminal)?;
    around(sandbox, &terminal, "vim")?;
    terminal.send("oinserted\x1b")?;
    terminal.wait_until("the new line", |lines| has_line(lines, "inserted"))?;
    exit_with(&mut terminal, ":wq\r", 0)?;
    ensure!(read(sandbox, "notes")? == "alpha\ninserted\nbeta\n", "{}", read(sandbox, "notes")?);
    Ok(())
}

pub(super) fn less(sandbox: &Sandbox) -> anyhow::Result<()> {
    let text: String = (1..=200).map(|number| format!("line-{number}\n")).collect();
    sandbox.file("ws/text", text)?;
    let terminal = shell(sandbox, "less")?;
    terminal.send("less text\r")?;
    wait_line(&terminal, "line-23")?;
    // The file's name is the prompt until something is typed, or redrawn.
    terminal.send("j")?;
    wait_line(&terminal, "line-24")?;
    around(sandbox, &terminal, "less")?;
    terminal.send(" ")?;
    wait_line(&terminal, "line-40")?;
    terminal.send("q")?;
    leave(terminal)
}

/// Draws the whole screen on the alternate one, on a clock of its own, as htop does.
pub(super) fn top(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "printf '\\033[?1049h'; n=0; while [ ! -e stop ]; do n=$((n+1)); \
                  printf '\\033[H\\033[Jtick\\nrows'; echo $n > count; sleep 0.02; done; \
                  printf '\\033[?1049l'; exit 5";
    let terminal = shell(sandbox, "top")?;
    sandbox.file("ws/top.sh", script)?;
    terminal.send("bash top.sh; echo status-$?\r")?;
    wait_line(&terminal, "tick")?;
    let first = count(sandbox)?;
    pause::until("it draws", LIMIT, || (count(sandbox).ok()? > first).then_some(()))?;
    stands_and_goes_on(sandbox, "top")?;
    wait_line(&terminal, "rows")?;
    sandbox.file("ws/stop", "")?;
    wait_line(&terminal, "status-5")?;
    ensure!(!has(&terminal, "Stopped"), "{:#?}", terminal.screen());
    leave(terminal)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handler {
    Quick,
    Late,
    Never,
    Ignores,
}

pub(super) fn handler(sandbox: &Sandbox, kind: Handler) -> anyhow::Result<()> {
    let (body, want, refused) = match kind {
        Handler::Quick => ("os.kill(os.getpid(), signal.SIGSTOP)", "handler", 0),
        Handler::Late => ("time.sleep(0.8); os.kill(os.getpid(), signal.SIGSTOP)", "frozen", 1),
        Handler::Never => ("open('handled', 'w').close()", "frozen", 1),
        Handler::Ignores => ("", "frozen", 0),
    };
    let action = match kind {
        Handler::Ignores => "signal.SIG_IGN",
        Handler::Quick | Handler::Late | Handler::Never => "handle",
    };
    let program = format!(
        "import os, signal, sys, time\ndef handle(*_):\n    {}\n\
         signal.signal(signal.SIGTSTP, {action})\nprint('up', flush=True)\n\
         for line in sys.stdin:\n    print('got-' + line.strip(), flush=True)\n",
        if body.is_empty() { "pass" } else { body }
    );
    sandbox.file("ws/handler.py", program)?;
    let terminal = shell(sandbox, "handler")?;
    terminal.send("python3 handler.py\r")?;
    wait_line(&terminal, "up")?;
    let told = around(sandbox, &terminal, "handler")?;
    // Without a freezer it is SIGSTOP that holds what has not obeyed.
    let by_signals = text(&told, "/by")? == "signals" && want == "frozen";
    let want = if by_signals { "stop" } else { want };
    ensure!(how(&told, "python3")? == want, "{told}");
    ensure!(number(&told, "/refused")? == refused, "{told}");
    terminal.send("one\r")?;
    wait_line(&terminal, "got-one")?;
    // A second time is as good as the first.
    around(sandbox, &terminal, "handler")?;
    terminal.send("two\r")?;
    wait_line(&terminal, "got-two")?;
    terminal.send("\x04")?;
    ensure!(!has(&terminal, "Stopped"), "{:#?}", terminal.screen());
    leave(terminal)
}

pub(super) fn node(sandbox: &Sandbox) -> anyhow::Result<()> {
    if !std::path::Path::new("/usr/bin/node").exists() {
        return Err(skip("there is no /usr/bin/node"));
    }
    let program = "require('readline').createInterface({input: process.stdin})\
                   .on('line', line => console.log('got-' + line)); console.log('up');\
                   let n = 0; setInterval(() => require('fs').writeFileSync('count', `${++n}`), 5);";
    sandbox.file("ws/program.js", program)?;
    let terminal = shell(sandbox, "node")?;
    terminal.send("node program.js\r")?;
    wait_line(&terminal, "up")?;
    count(sandbox)?;
    around(sandbox, &terminal, "node")?;
    pause_it(sandbox, "node")?;
    must_stand(sandbox, "count")?;
    terminal.send("one\r")?;
    resume_it(sandbox, "node")?;
    wait_line(&terminal, "got-one")?;
    terminal.send("\x03")?;
    leave(terminal)
}

pub(super) fn htop(sandbox: &Sandbox) -> anyhow::Result<()> {
    let terminal = shell(sandbox, "htop")?;
    terminal.send("htop -d 1\r")?;
    terminal.wait_for("Load average")?;
    pause_it(sandbox, "htop")?;
    resume_it(sandbox, "htop")?;
    // Help is drawn by the program that has the keys.
    terminal.send("h")?;
    terminal.wait_for("hide/show user process threads")?;
    terminal.send("q")?;
    terminal.wait_for("Load average")?;
    terminal.send("q")?;
    at_prompt(&terminal)?;
    ensure!(!has(&terminal, "Stopped"), "{:#?}", terminal.screen());
    leave(terminal)
}

/// As the program's own terminal has it now, seen from outside.
fn size_of(sandbox: &Sandbox, program: &str) -> anyhow::Result<String> {
    let pid = pids_of(sandbox, program).into_iter().max();
    let pid = pid.ok_or_else(|| anyhow::anyhow!("no {program}"))?;
    let mut stty = std::process::Command::new("stty");
    stty.args(["-F", &format!("/proc/{pid}/fd/0"), "size"]);
    Ok(testkit::process::run(&mut stty, b"", LIMIT)?.expect(0)?.out().trim().to_owned())
}

/// What must not change does not, over a time in which a key or a size comes through.
fn held(is_so: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    for _look in 0..20 {
        pause::briefly();
        ensure!(is_so()?, "it came through while it stood");
    }
    Ok(())
}

pub(super) fn resize(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "trap 'n=$((n+1)); echo size-$n-$(stty size)' WINCH; n=0; echo up; \
                  while [ ! -e stop ]; do sleep 0.02; done; echo last-$n; exit 5";
    let words = run(&["--name", "size"], &["bash", "-c", script]);
    let mut terminal = Terminal::mews(sandbox, &words)?;
    wait_line(&terminal, "up")?;
    pause_it(sandbox, "size")?;
    // A burst, of which the client sends the last.
    for cols in [90, 100, 110] {
        terminal.resize(cols, 30)?;
    }
    if testkit::caller::is_root() {
        held(|| size_of(sandbox, "bash").map(|size| size == "24 80"))?;
    }
    resume_it(sandbox, "size")?;
    wait_line(&terminal, "size-1-30 110")?;
    sandbox.file("ws/stop", "")?;
    exit_with(&mut terminal, "", 5)?;
    ensure!(terminal.screen().iter().any(|line| line == "last-1"), "{:#?}", terminal.screen());
    Ok(())
}
