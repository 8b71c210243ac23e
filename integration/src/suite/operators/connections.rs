//! What a connection that is kept open may go on with, and what strangers take of sessiond.

use super::people::{Person, host, need_accounts};
use super::routes::copy_of_this_program;
use super::{allow, reload};
use crate::talk::text;
use anyhow::{Context as _, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use testkit::Sandbox;
use testkit::process::{self, LIMIT};

/// `rude …` as somebody, line by line.
struct Rude {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Rude {
    fn start(person: &Person, program: &str, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = person.command(program);
        command.arg("rude").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        Ok(self.child.stdin.as_mut().context("a pipe")?.write_all(b"\n")?)
    }

    fn end(mut self) -> anyhow::Result<()> {
        let status = process::wait(&mut self.child, LIMIT)?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An admin who is none any more keeps a connection and waits for events on another.
pub(super) fn of_a_removed_admin(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, boss) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let program = copy_of_this_program(sandbox)?;
    let policy = |admins: &str| format!("{}[admins]\nusers = [{admins}]\n", allow(&[&ann, &boss]));
    host(sandbox, &policy(&format!("{:?}", boss.name)), || {
        let session = text(&ann.start("of-ann")?, "/session")?;
        let socket = sandbox.api_socket().to_string_lossy().into_owned();
        let later = format!("/sessions/{session}/events?after=1000&wait_ms=60000");
        let paths = ["keep", &socket, "/sessions", &later];
        let (mut hers, mut his) =
            (Rude::start(&ann, &program, &paths)?, Rude::start(&boss, &program, &paths)?);
        for kept in [&mut hers, &mut his] {
            let told = kept.line()?;
            ensure!(told.starts_with("200 ") && told.contains("of-ann"), "{told}");
        }
        reload(sandbox, &policy(""))?;
        let told = his.line()?;
        ensure!(told == "closed" || told.starts_with("404 "), "{told}");
        // What is still allowed goes on: hers waits for what comes.
        let told = boss.mews(&["ls"])?.expect(0)?.out();
        ensure!(!told.contains("of-ann"), "{told}");
        ann.mews(&["kill", "of-ann"])?.expect(0)?;
        hers.child.kill()?;
        his.end()
    })
}

/// Who types at a terminal has a stream to the broker itself: it ends with the rule that let them in,
/// and with no other. The second admin's stream is on pipes.
pub(super) fn of_removed_viewers(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let [ann, bob, boss] =
        [Person::make(sandbox, &[])?, Person::make(sandbox, &[])?, Person::make(sandbox, &[])?];
    let admins = |names: &[&str]| format!("[admins]\nusers = {names:?}\n");
    let all = format!("{}{}", allow(&[&ann, &bob]), admins(&[&boss.name]));
    host(sandbox, &all, || {
        ann.json(&["run", "-d", "--name", "of-ann", "--", "sh"])?;
        bob.json(&["run", "-d", "--name", "of-bob", "--", "sh"])?;
        let hers = ann.terminal(sandbox, &["attach", "of-ann"])?;
        hers.wait_raw(b"leave it with")?;
        let mut his = boss.terminal(sandbox, &["attach", "--observe", "of-ann"])?;
        his.wait_raw(b"you watch")?;
        let mut bobs = bob.terminal(sandbox, &["attach", "of-bob"])?;
        bobs.wait_raw(b"leave it with")?;
        // Bob is let in no more, and boss is an operator like others.
        reload(sandbox, &allow(&[&ann, &boss]))?;
        for gone in [&mut his, &mut bobs] {
            ensure!(gone.wait_exit()? != 0, "{}", gone.screen().join("\n"));
        }
        hers.send("echo still-$((40+2))\r")?;
        hers.wait_raw(b"still-42")?;
        let cages = sandbox.json(["inspect", "of-bob"])?;
        ensure!(text(&cages, "/cages/0/phase")? == "running", "{cages}");
        drop(hers);
        for name in ["of-ann", "of-bob"] {
            sandbox.mews(["kill", name])?.expect(0)?;
        }
        Ok(())
    })
}

/// Eve has no role here and no key.
pub(super) fn of_strangers(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, eve) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let program = copy_of_this_program(sandbox)?;
    host(sandbox, &allow(&[&ann]), || {
        let socket = sandbox.api_socket().to_string_lossy().into_owned();
        let (sessiond, _supervisor) = crate::talk::daemon_pids(sandbox)?;
        let before = peak_kb(sessiond)?;
        let path = "/grants/01ARZ3NDEKTSV4RRFFQ69G5FAV/jobs";
        let mut bodies = Rude::start(&eve, &program, &["bodies", &socket, path])?;
        for _number in 0..80 {
            let told = bodies.line()?;
            ensure!(told == "401", "{told}");
        }
        bodies.end()?;
        let more = peak_kb(sessiond)? - before;
        ensure!(more < 40_000, "{more} KiB more");
        let mut crowd = Rude::start(&eve, &program, &["crowd", &socket])?;
        ensure!(crowd.line()? == "asked", "it can connect");
        for _turn in 0..3 {
            ann.mews(&["ls"])?.expect(0)?;
        }
        crowd.go_on()?;
        let told = (crowd.line()?, crowd.line()?);
        ensure!(told == ("waits".to_owned(), "403".to_owned()), "{told:?}");
        crowd.end()
    })
}

/// The most memory that it ever had.
fn peak_kb(pid: i32) -> anyhow::Result<i64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
