//! What a person at a terminal expects.

mod elsewhere;

use crate::runner::Test;
use crate::talk::read;
use anyhow::{bail, ensure};
use std::path::Path;
use testkit::{Sandbox, Terminal, leftovers};

const DETACH: &str = "\x1c\x04";
pub(super) const BASH: [&str; 4] = ["bash", "--norc", "--noprofile", "-i"];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("terminal.exit_status_and_sane_after", exit_status),
        Test::new("terminal.job_control", job_control),
        Test::new("terminal.tty_is_right", tty),
        Test::new("terminal.resize", resize),
        Test::new("terminal.utf8_and_256_colours", utf8_and_colours),
        Test::new("terminal.vim", vim),
        Test::new("terminal.less", less),
        Test::new("terminal.tmux_inside", tmux),
        Test::new("terminal.in_a_tmux_pane", elsewhere::in_tmux),
        Test::new("terminal.over_ssh", elsewhere::over_ssh),
        Test::new("terminal.paste_of_100_kb", paste),
        Test::new("terminal.detach_and_attach", detach_and_attach),
        Test::new("terminal.lines_above_come_with_attach", lines_above),
        Test::new("terminal.full_screen_program_survives_detach", full_screen_detach),
        Test::new("terminal.take_over", take_over),
        Test::new("terminal.observer_cannot_type", observer),
        Test::new("terminal.closed_window_leaves_the_program", closed_window),
        Test::new("terminal.broker_killed_restores_the_terminal", broker_killed),
        Test::new("terminal.no_daemon_shell", no_daemon_shell),
        Test::new("terminal.shell_and_exec_on_terminals", shell_verb),
        Test::new("terminal.logs_after_the_end", logs_after),
        Test::new("terminal.keys_are_the_shells_while_in_the_background", background),
    ]
}

pub(super) fn run<'a>(options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["run"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    words
}

/// An interactive bash at its prompt.
fn bash(sandbox: &Sandbox, name: &str) -> anyhow::Result<Terminal> {
    let terminal = Terminal::mews(sandbox, &run(&["--name", name], &BASH))?;
    at_prompt(&terminal)?;
    Ok(terminal)
}

pub(super) fn at_prompt(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.wait_until("a prompt", |lines| last(lines).ends_with('$'))?;
    Ok(())
}

pub(super) fn last(lines: &[String]) -> &str {
    lines.iter().rev().find(|line| !line.is_empty()).map_or("", String::as_str)
}

pub(super) fn has_line(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line == text)
}

pub(super) fn wait_line(terminal: &Terminal, text: &str) -> anyhow::Result<()> {
    terminal.wait_until(text, |lines| has_line(lines, text))?;
    Ok(())
}

pub(super) fn exit_with(terminal: &mut Terminal, keys: &str, status: u32) -> anyhow::Result<()> {
    terminal.send(keys)?;
    let code = terminal.wait_exit()?;
    ensure!(code == status, "exit {code}, not {status}:\n{}", terminal.screen().join("\n"));
    terminal.check_sane()
}

fn exit_status(sandbox: &Sandbox) -> anyhow::Result<()> {
    for (script, status) in [("exit 7", 7), ("kill -TERM $$", 143), ("exit 0", 0)] {
        let mut terminal = Terminal::mews(sandbox, &run(&[], &["sh", "-c", script]))?;
        exit_with(&mut terminal, "", status)?;
    }
    let mut terminal = Terminal::mews(sandbox, &run(&[], &["no-such-program"]))?;
    let code = terminal.wait_exit()?;
    ensure!(code == 127, "exit {code}");
    terminal.check_sane()
}

fn job_control(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut terminal = bash(sandbox, "jobs")?;
    terminal.send("sh -c 'echo one-up; exec sleep 100'\r")?;
    wait_line(&terminal, "one-up")?;
    terminal.send("\x03")?;
    at_prompt(&terminal)?;
    terminal.send("echo status-$?\r")?;
    wait_line(&terminal, "status-130")?;
    terminal.send("sh -c 'echo two-up; exec sleep 100'\r")?;
    wait_line(&terminal, "two-up")?;
    terminal.send("\x1a")?;
    terminal.wait_for("Stopped")?;
    at_prompt(&terminal)?;
    terminal.send("jobs; echo in-between\r")?;
    wait_line(&terminal, "in-between")?;
    terminal.send("clear; fg\r")?;
    terminal.wait_until("fg tells the job", |lines| last(lines).contains("sleep 100"))?;
    terminal.send("\x03")?;
    at_prompt(&terminal)?;
    terminal.send("echo again-$?\r")?;
    wait_line(&terminal, "again-130")?;
    exit_with(&mut terminal, "exit 3\r", 3)
}

fn tty(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut terminal = bash(sandbox, "tty")?;
    terminal.send("tty; test -t 0 && echo is-tty; ps -o tty= -p $$; echo x > /dev/tty\r")?;
    wait_line(&terminal, "/dev/pts/0")?;
    wait_line(&terminal, "is-tty")?;
    wait_line(&terminal, "pts/0")?;
    wait_line(&terminal, "x")?;
    exit_with(&mut terminal, "exit\r", 0)
}

fn resize(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "trap 'stty size' WINCH; stty size; while [ ! -e stop ]; do sleep 0.05; done";
    let words = run(&[], &["bash", "-c", script]);
    let mut terminal = Terminal::sized(sandbox, &words, 91, 27)?;
    wait_line(&terminal, "27 91")?;
    terminal.resize(120, 33)?;
    wait_line(&terminal, "33 120")?;
    for cols in 60..80 {
        terminal.resize(cols, 20)?;
    }
    wait_line(&terminal, "20 79")?;
    sandbox.file("ws/stop", "")?;
    exit_with(&mut terminal, "", 0)
}

fn utf8_and_colours(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut terminal = bash(sandbox, "utf8")?;
    terminal.send("printf '\\033[38;5;196mréd 世界 ✓\\033[0m\\n'; tput colors\r")?;
    wait_line(&terminal, "256")?;
    terminal.wait_raw("\x1b[38;5;196mréd 世界 ✓".as_bytes())?;
    terminal.send("echo tÿped-ü\r")?;
    wait_line(&terminal, "tÿped-ü")?;
    terminal.send(DETACH)?;
    terminal.wait_exit()?;
    let mut terminal = Terminal::mews(sandbox, &["attach", "utf8"])?;
    wait_line(&terminal, "tÿped-ü")?;
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    ensure!(raw.contains("38;5;196") && raw.contains("réd"), "no colour after attach: {raw:?}");
    exit_with(&mut terminal, "exit\r", 0)
}

fn vim(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/notes", "first line\n")?;
    let mut terminal = Terminal::mews(sandbox, &run(&[], &["vim", "-u", "NONE", "notes"]))?;
    terminal
        .wait_until("the file", |lines| has_line(lines, "first line") && has_line(lines, "~"))?;
    terminal.send("osecond ünï\x1b")?;
    wait_line(&terminal, "second ünï")?;
    exit_with(&mut terminal, ":wq\r", 0)?;
    ensure!(read(sandbox, "notes")? == "first line\nsecond ünï\n", "{}", read(sandbox, "notes")?);
    Ok(())
}

fn less(sandbox: &Sandbox) -> anyhow::Result<()> {
    let text: String = (1..=300).map(|number| format!("line {number}\n")).collect();
    sandbox.file("ws/long", text)?;
    let mut terminal = Terminal::mews(sandbox, &run(&[], &["less", "long"]))?;
    wait_line(&terminal, "line 1")?;
    terminal.send("G")?;
    wait_line(&terminal, "line 300")?;
    terminal.send("/line 77\r")?;
    terminal.send("g/line 77\r")?;
    wait_line(&terminal, "line 77")?;
    exit_with(&mut terminal, "q", 0)
}

fn tmux(sandbox: &Sandbox) -> anyhow::Result<()> {
    let inner = "bash --norc --noprofile -i";
    let command = ["tmux", "-f", "/dev/null", "new-session", inner];
    let mut terminal = Terminal::mews(sandbox, &run(&[], &command))?;
    terminal.wait_until("tmux with a prompt", |lines| {
        last(lines).starts_with("[0]") && lines.iter().any(|line| line.ends_with('$'))
    })?;
    terminal.send("echo in-$((40+2))\r")?;
    wait_line(&terminal, "in-42")?;
    terminal.resize(100, 40)?;
    terminal.wait_until("a wider bar", |lines| last(lines).chars().count() > 90)?;
    terminal.send("stty size\r")?;
    wait_line(&terminal, "39 100")?;
    exit_with(&mut terminal, "exit\r", 0)
}

fn paste(sandbox: &Sandbox) -> anyhow::Result<()> {
    let text: String = (0..100_000 / 10).map(|number| format!("{number:09}\n")).collect();
    sandbox.file("ws/expected", &text)?;
    let script =
        "stty -icanon -echo -icrnl; echo ready; head -c 100000 | cmp - expected && echo all-of-it";
    let mut terminal = Terminal::mews(sandbox, &run(&[], &["bash", "-c", script]))?;
    wait_line(&terminal, "ready")?;
    terminal.send_all(text.into_bytes());
    wait_line(&terminal, "all-of-it")?;
    exit_with(&mut terminal, "", 0)
}

fn detach_and_attach(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut first = bash(sandbox, "back")?;
    first.send("echo before-$((1+1))\r")?;
    wait_line(&first, "before-2")?;
    first.send(DETACH)?;
    let code = first.wait_exit()?;
    ensure!(code == 0, "detach exits {code}");
    first.check_sane()?;
    let raw = String::from_utf8_lossy(&first.raw()).into_owned();
    ensure!(raw.contains("mews attach back"), "the way back is not told: {raw:?}");
    let mut second = Terminal::sized(sandbox, &["attach", "back"], 100, 30)?;
    wait_line(&second, "before-2")?;
    second.send("echo after-$((2+2))\r")?;
    wait_line(&second, "after-4")?;
    // The size follows within moments; the shell itself asks until it has come.
    second.send("until stty size | grep -x '30 100'; do sleep 0.05; done\r")?;
    wait_line(&second, "30 100")?;
    exit_with(&mut second, "exit 5\r", 5)
}

fn lines_above(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut first = bash(sandbox, "above")?;
    first.send("clear; seq -f 'n%.0f' 1 200; echo end-of-$((100*2))\r")?;
    wait_line(&first, "end-of-200")?;
    at_prompt(&first)?;
    let before = first.screen();
    first.send(DETACH)?;
    first.wait_exit()?;
    let mut second = Terminal::mews(sandbox, &["attach", "above"])?;
    second.wait_until("the same screen", |lines| lines == before)?;
    let all = second.history_and_screen();
    let numbered: Vec<&str> =
        all.iter().map(String::as_str).filter(|line| is_numbered(line)).collect();
    let want: Vec<String> = (1..=200).map(|number| format!("n{number}")).collect();
    ensure!(numbered == want, "{} numbered lines: {numbered:?}", numbered.len());
    exit_with(&mut second, "exit\r", 0)
}

fn is_numbered(line: &str) -> bool {
    line.strip_prefix('n').is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn full_screen_detach(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/notes", "alpha\nbeta\n")?;
    let words = run(&["--name", "vi"], &["vim", "-u", "NONE", "notes"]);
    let mut first = Terminal::mews(sandbox, &words)?;
    wait_line(&first, "beta")?;
    first.send("ogamma")?;
    wait_line(&first, "gamma")?;
    let before = first.screen();
    first.send(DETACH)?;
    first.wait_exit()?;
    first.check_sane()?;
    let mut second = Terminal::mews(sandbox, &["attach", "vi"])?;
    second.wait_until("the same screen", |lines| lines == before)?;
    exit_with(&mut second, "\x1b:wq\r", 0)?;
    ensure!(read(sandbox, "notes")? == "alpha\ngamma\nbeta\n", "{}", read(sandbox, "notes")?);
    Ok(())
}

fn take_over(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut first = bash(sandbox, "shared")?;
    let mut second = Terminal::mews(sandbox, &["attach", "--take", "shared"])?;
    at_prompt(&second)?;
    second.send("echo from-second-$((1+1))\r")?;
    wait_line(&second, "from-second-2")?;
    wait_line(&first, "from-second-2")?;
    first.send("echo from-first-$((1+1))\r")?;
    second.send("echo last-$((1+1))\r")?;
    wait_line(&first, "last-2")?;
    ensure!(!has_line(&second.screen(), "from-first-2"), "an observer typed");
    exit_with(&mut second, "exit 4\r", 4)?;
    let code = first.wait_exit()?;
    ensure!(code == 4, "the observer exits {code}");
    first.check_sane()
}

fn observer(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut writer = bash(sandbox, "watched")?;
    let mut observer = Terminal::mews(sandbox, &["attach", "--observe", "watched"])?;
    at_prompt(&observer)?;
    observer.send("echo observed-$((1+1))\r")?;
    writer.send("echo written-$((1+1))\r")?;
    wait_line(&observer, "written-2")?;
    ensure!(!has_line(&writer.screen(), "observed-2"), "an observer typed");
    observer.send(DETACH)?;
    ensure!(observer.wait_exit()? == 0, "an observer detaches");
    observer.check_sane()?;
    exit_with(&mut writer, "exit\r", 0)
}

fn closed_window(sandbox: &Sandbox) -> anyhow::Result<()> {
    let first = bash(sandbox, "window")?;
    first.send("echo kept-$((1+1))\r")?;
    wait_line(&first, "kept-2")?;
    drop(first);
    let mut second = Terminal::mews(sandbox, &["attach", "window"])?;
    wait_line(&second, "kept-2")?;
    exit_with(&mut second, "exit 2\r", 2)
}

/// The pids of the processes of this sandbox that were started as this program. Told by their
/// arguments: a user cannot read `exe` of what is not dumpable.
pub(crate) fn pids_of(sandbox: &Sandbox, program: &str) -> Vec<i32> {
    leftovers::processes(sandbox.root())
        .iter()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|pid| {
            let words = leftovers::arguments(pid);
            words.first().is_some_and(|path| Path::new(path).ends_with(program))
        })
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The only broker of this sandbox.
pub(crate) fn broker(sandbox: &Sandbox) -> anyhow::Result<i32> {
    match pids_of(sandbox, "mews-ptybroker")[..] {
        [pid] => Ok(pid),
        ref other => bail!("not one broker: {other:?}"),
    }
}

fn broker_killed(sandbox: &Sandbox) -> anyhow::Result<()> {
    sandbox.file("ws/notes", "alpha\n")?;
    let words = run(&["--name", "lost"], &["vim", "-u", "NONE", "notes"]);
    let mut terminal = Terminal::mews(sandbox, &words)?;
    wait_line(&terminal, "alpha")?;
    link::PidFd::open(broker(sandbox)?)?.signal(libc::SIGKILL)?;
    let code = terminal.wait_exit()?;
    ensure!(code == 125, "exit {code}:\n{}", terminal.screen().join("\n"));
    terminal.check_sane()?;
    testkit::pause::until("the run is known as ended", testkit::process::LIMIT, || {
        let shown = sandbox.json(["inspect", "lost"]).ok()?;
        (shown.pointer("/runs/0/exit/cause")?.as_str()? == "broker_lost").then_some(())
    })
}

fn no_daemon_shell(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut terminal = Terminal::mews(sandbox, &run(&["--no-daemon"], &BASH))?;
    at_prompt(&terminal)?;
    terminal.send("sh -c 'echo up; exec sleep 100'\r")?;
    wait_line(&terminal, "up")?;
    terminal.send("\x03")?;
    at_prompt(&terminal)?;
    exit_with(&mut terminal, "exit 6\r", 6)?;
    ensure!(!sandbox.api_socket().exists(), "a daemon was started");
    Ok(())
}

fn shell_verb(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = crate::talk::start(sandbox, &["--name", "host"], &["sleep", "1000"])?;
    let mut shell = Terminal::mews(sandbox, &["shell", "host"])?;
    shell.wait_until("a prompt", |lines| last(lines).ends_with(['$', '#', '>']))?;
    shell.send("tty\r")?;
    shell.wait_for("/dev/pts/")?;
    exit_with(&mut shell, "exit 8\r", 8)?;
    let mut exec = Terminal::mews(sandbox, &["exec", "host", "--", "sh", "-c", "tty; exit 3"])?;
    exit_with(&mut exec, "", 3)?;
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    Ok(())
}

fn logs_after(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "seq -f 'n%.0f' 1 100; printf '\\033[1mbold\\033[0m end\\n'";
    let words = run(&["--name", "told"], &["bash", "-c", script]);
    let mut terminal = Terminal::mews(sandbox, &words)?;
    exit_with(&mut terminal, "", 0)?;
    let rendered = sandbox.mews(["logs", "told"])?.expect(0)?.out();
    let lines: Vec<&str> = rendered.lines().collect();
    ensure!(lines.first() == Some(&"n1") && lines.contains(&"n100"), "{rendered}");
    ensure!(rendered.contains("bold"), "{rendered}");
    let raw = sandbox.mews(["logs", "--raw", "told"])?.expect(0)?.out();
    ensure!(raw.contains("n100\r\n\x1b[1mbold\x1b[0m end\r\n"), "{raw:?}");
    Ok(())
}

/// A run that a shell has put into the background leaves the keys to it, is not stopped, and gets
/// those that are typed once it is in the foreground.
fn background(sandbox: &Sandbox) -> anyhow::Result<()> {
    let shell = [&["env", "PS1=$ "], &BASH[..]].concat();
    let mut terminal = Terminal::program(sandbox, &shell)?;
    at_prompt(&terminal)?;
    terminal.send("mews run -- sh -c 'echo up; read x; echo got-$x' > out &\r")?;
    until_out_is(sandbox, "up\n")?;
    for number in 0..5 {
        terminal.send(format!("echo shell-$(({number}+1))\r"))?;
        wait_line(&terminal, &format!("shell-{}", number + 1))?;
    }
    terminal.send("jobs\r")?;
    terminal.wait_for("Running")?;
    terminal.send("clear; fg\r")?;
    terminal.wait_until("fg tells the job", |lines| last(lines).contains("mews run"))?;
    terminal.send("hello\r")?;
    until_out_is(sandbox, "up\ngot-hello\n")?;
    at_prompt(&terminal)?;
    exit_with(&mut terminal, "exit 4\r", 4)
}

fn until_out_is(sandbox: &Sandbox, text: &str) -> anyhow::Result<()> {
    testkit::pause::until(text, testkit::process::LIMIT, || {
        (read(sandbox, "out").ok()? == text).then_some(())
    })
}
