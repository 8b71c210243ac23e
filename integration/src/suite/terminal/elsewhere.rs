//! Where operators really sit: in a tmux of their own, behind ssh.

use super::{DETACH, has_line, last, wait_line};
use crate::runner::need_programs;
use crate::suite::operators;
use crate::suite::operators::people::{Person, host, need_accounts};
use crate::talk::text;
use anyhow::{Context as _, ensure};
use link::PidFd;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, Terminal, pause};

const INNER: &str = "bash --norc --noprofile -i";

/// A cage in a pane: resized, split, left, met again from another pane.
pub(super) fn in_tmux(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_programs(&["tmux"])?;
    let inner = format!("mews run --name pane -- {INNER}");
    let socket = sandbox.root().join("home/tmux.sock").to_string_lossy().into_owned();
    // Typed keys are keys, however fast they come.
    let settings = "set -g default-command 'bash --norc --noprofile'\nset -g assume-paste-time 0\n";
    let settings = sandbox.file("home/tmux.conf", settings)?.to_string_lossy().into_owned();
    let words = ["tmux", "-S", &socket, "-f", &settings, "new-session"];
    let mut terminal = Terminal::program(sandbox, &words)?;
    terminal.wait_until("tmux with a prompt", |lines| {
        last(lines).starts_with("[0]") && lines.iter().any(|line| line.ends_with(['$', '#']))
    })?;
    terminal.send(format!("clear; PS1='host> '; {inner}\r"))?;
    terminal.wait_until("a caged prompt", |lines| {
        lines.iter().any(|line| line.ends_with('$') && !line.contains("host>"))
    })?;
    terminal.send("printf '\\e[38;5;196mréd ✓\\e[m\\n'; echo typed-$((1+1))\r")?;
    wait_line(&terminal, "réd ✓")?;
    wait_line(&terminal, "typed-2")?;
    terminal.resize(100, 40)?;
    terminal.send("until stty size | grep -x '39 100'; do sleep 0.05; done\r")?;
    wait_line(&terminal, "39 100")?;
    // Half of the window is another shell's: the cage's terminal is as small as its pane.
    terminal.send("\x02\"")?;
    terminal.wait_until("two panes", |lines| lines.iter().any(|line| line.starts_with("────")))?;
    terminal.send("\x02o")?;
    terminal.send("clear; until test $(stty size | cut -d' ' -f1) -lt 20; do sleep 0.05; done; echo small-$((1+1))\r")?;
    wait_line(&terminal, "small-2")?;
    terminal.send(DETACH)?;
    terminal.wait_until("left", |lines| lines.iter().any(|line| line.starts_with("host>")))?;
    terminal.send("\x02o")?;
    terminal.send("clear; mews attach pane\r")?;
    terminal.send("\x02z")?;
    terminal.wait_until("met again", |lines| {
        has_line(lines, "small-2") && !lines.iter().any(|line| line.starts_with("────"))
    })?;
    terminal.send("exit 4\r")?;
    terminal.wait_until("the pane's own prompt", |lines| {
        has_line(lines, "exit")
            && lines.iter().any(|line| line.starts_with("bash") && line.ends_with(['$', '#']))
    })?;
    terminal.send("echo status-$?\r")?;
    wait_line(&terminal, "status-4")?;
    terminal.send("tmux kill-server\r")?;
    terminal.wait_exit()?;
    terminal.check_sane()
}

/// An account on this host that logs in through a server of the test's own, on loopback.
struct Ssh {
    person: Person,
    server: Child,
    folder: PathBuf,
    port: u16,
    run_dir: PathBuf,
}

impl Ssh {
    fn start(sandbox: &Sandbox, person: Person) -> anyhow::Result<Self> {
        let folder = sandbox.folder("ssh")?;
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let run = |words: &[&str]| {
            let (program, args) = words.split_first().context("a program")?;
            process::run(Command::new(program).args(args), b"", LIMIT)?.expect(0)
        };
        run(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &at("key")])?;
        run(&["dropbearkey", "-t", "ed25519", "-f", &at("host")])?;
        let keys = person.home().join(".ssh");
        std::fs::create_dir(&keys)?;
        std::fs::copy(at("key.pub"), keys.join("authorized_keys"))?;
        for (path, mode) in [(keys.clone(), 0o700), (keys.join("authorized_keys"), 0o600)] {
            chown(&path, Some(person.uid), Some(person.gid))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        }
        // A port that is free now; whoever takes it in between makes the server end.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut server = Command::new("dropbear");
        server.args(["-F", "-E", "-s", "-w", "-p", &format!("127.0.0.1:{port}")]);
        server.args(["-r", &at("host"), "-P", &at("pid")]).stdin(Stdio::null());
        server.stderr(std::fs::File::create(at("log"))?);
        let server = server.spawn()?;
        let ssh = Self { person, server, folder, port, run_dir: sandbox.run_dir() };
        pause::until("the ssh server", LIMIT, || TcpStream::connect(("127.0.0.1", port)).ok())?;
        Ok(ssh)
    }

    /// What an operator types, on a terminal of their own.
    fn terminal(&self, sandbox: &Sandbox, line: &str) -> anyhow::Result<Terminal> {
        let port = self.port.to_string();
        let key = self.folder.join("key").to_string_lossy().into_owned();
        let mews = testkit::programs::folder()?;
        let to = format!("{}@127.0.0.1", self.person.name);
        let line = format!(
            "cd project; PATH={}:$PATH MEWS_RUN_DIR={} {line}",
            mews.display(),
            self.run_dir.display()
        );
        let words = [
            &["ssh", "-F", "/dev/null", "-tt", "-p", &port, "-i", &key][..],
            &["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"],
            &["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", &to, &line],
        ]
        .concat();
        Terminal::program(sandbox, &words)
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // Those of a connection are children of its own: the account's end ends them.
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// The connection breaks without a word; the program goes on, and the next connection meets it.
pub(super) fn over_ssh(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    need_programs(&["ssh", "ssh-keygen", "dropbear", "dropbearkey"])?;
    let ann = Person::make(sandbox, &[])?;
    let allowed = operators::allow(&[&ann]);
    let ssh = Ssh::start(sandbox, ann)?;
    host(sandbox, &allowed, || {
        let mut first = ssh.terminal(sandbox, &format!("mews run --name far -- {INNER}"))?;
        first.wait_until("a prompt", |lines| last(lines).ends_with('$'))?;
        first.send("stty size; printf '\\e[38;5;196mréd ✓\\e[m\\n'\r")?;
        wait_line(&first, "24 80")?;
        wait_line(&first, "réd ✓")?;
        first.resize(100, 30)?;
        first.send("until stty size | grep -x '30 100'; do sleep 0.05; done\r")?;
        wait_line(&first, "30 100")?;
        first.send("sh -c 'echo up-$((1+1)); exec sleep 1000'\r")?;
        wait_line(&first, "up-2")?;
        first.send("\x03")?;
        first.wait_until("the prompt again", |lines| last(lines).ends_with('$'))?;
        first.send("echo stopped-$?\r")?;
        wait_line(&first, "stopped-130")?;
        // As when the line is cut: neither end says anything.
        let client = i32::try_from(first.pid().context("a pid")?)?;
        PidFd::open(client)?.signal(libc::SIGKILL)?;
        first.wait_exit()?;
        pause::until("nobody watches", LIMIT, || {
            let shown = ssh.person.json(&["inspect", "far"]).ok()?;
            let viewers = shown.pointer("/cages/0/ptys/0/viewers")?.as_u64()?;
            (text(&shown, "/state").ok()? == "running" && viewers == 0).then_some(())
        })?;
        let mut second = ssh.terminal(sandbox, "mews attach")?;
        wait_line(&second, "stopped-130")?;
        second.send(DETACH)?;
        ensure!(second.wait_exit()? == 0, "detached");
        second.check_sane()?;
        let mut third = ssh.terminal(sandbox, "mews attach far")?;
        wait_line(&third, "stopped-130")?;
        third.send("exit 5\r")?;
        let status = third.wait_exit()?;
        ensure!(status == 5, "the status comes through: {status}");
        third.check_sane()
    })
}
